"""The delay table against a plain dict: any order of records and labels, crashes in between."""

from dataclasses import dataclass

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from dtgol_core.config import DelayConfig
from dtgol_core.delay import (
    EXPIRE_STEP_MAX,
    DelayTable,
    Departure,
)
from dtgol_core.ids import CHUNK_IDS, id_hash
from dtgol_core.pending import BLOCK_STEPS, NO_TIME
from dtgol_core.state import combine, decode, encode, section
from dtgol_core.types import LabelOutcome, Vectors
from tests.support.instances import let_in

names = st.integers(0, 12).map("id {}".format) | st.sampled_from(["", "ü", "\ud800"])
POOL = [f"id {k}" for k in range(13)] + ["", "ü", "\ud800", "crowd 7"]


Outcome = int | str | tuple[str, int]


def seen(left: list[Departure]) -> list[tuple[str, int | None, bool]]:
    return [(each.id, each.label, each.defaulted) for each in left]


@dataclass
class Waiting:
    step: int
    time: int | None
    label: int | None = None


@st.composite
def delay_configs(draw: st.DrawFn) -> DelayConfig:
    lag = draw(st.integers(0, 4))
    return DelayConfig(
        release=draw(st.sampled_from(["arrival", "step"])),
        steps=lag,
        expire_steps=draw(st.integers(lag + 1, lag + 8) | st.sampled_from([600, None])),
        expire_ms=draw(st.none() | st.integers(1, 40)),
        pending_max=draw(st.integers(lag + 1, lag + 6) | st.just(1000)),
        pending_bytes_max=draw(st.sampled_from([2**16, 2**18, 2**30])),
        expired=draw(st.sampled_from(["drop", 0, 1])),
        early_max=draw(st.integers(0, 3)),
        early_steps=draw(st.integers(1, 5)),
        settled_max=draw(st.integers(0, 5) | st.just(1000)),
        settled_ms=draw(st.none() | st.integers(1, 100)),
        corrected=draw(st.sampled_from(["first", "last"])),
    )


class DelayMachine(RuleBasedStateMachine):
    """Three dicts are the whole of the model: waiting, held and settled.

    `settled` has the outcome: a label, ("default", label), or the setting it expired by. Chunks of
    the id memory never fill up here, so ids go by count alone: `tests/unit/core/test_ids.py`.
    """

    @initialize(config=delay_configs())
    def start(self, config: DelayConfig) -> None:
        self.config = config
        self.table = DelayTable(config, numbers=2)
        self.step = 0
        self.clock: int | None = None
        self.waiting: dict[str, Waiting] = {}
        self.held: dict[str, tuple[int, int]] = {}
        self.settled: dict[str, Outcome] = {}
        self.log: list[str] = []
        self.opened: dict[int, list[str]] = {}
        self.crowd = 0

    def remember(self, id: str, outcome: Outcome) -> None:
        self.settled[id] = outcome
        self.log.append(id)
        kept = self.log[max(0, len(self.log) - self.config.settled_max) :]
        self.settled = {each: self.settled[each] for each in kept}

    def leaves(self, id: str, setting: str) -> tuple[str, int | None, bool]:
        """An instance goes by a setting; what is learnt of it."""
        entry, default = self.waiting.pop(id), self.config.expired
        if entry.label is not None:
            self.remember(id, entry.label)
            return id, entry.label, False
        if default != "drop":
            self.remember(id, ("default", default))
            return id, default, True
        self.remember(id, setting)
        return id, None, False

    def settle(self) -> None:
        """What is due leaves, in order of steps, with what it was opened with."""
        lag = self.config.steps if self.config.release == "step" else 0
        due = sorted(
            (entry.step, id)
            for id, entry in self.waiting.items()
            if entry.label is not None and entry.step + lag <= self.step
        )
        times = {number: block.times for number, block in self.table._blocks.items()}
        taken = self.table.settle_due(self.step)
        assert [(instance.step, id) for id, instance, _ in taken] == due
        for id, instance, label in taken:
            entry = self.waiting.pop(id)
            assert label == entry.label
            number, row = divmod(entry.step, BLOCK_STEPS)
            assert times[number][row] == (NO_TIME if entry.time is None else entry.time)
            assert instance.vectors.latent.tolist() == [entry.step, entry.step + 0.5]
            assert instance.vectors.original.tolist() == [-entry.step, 0.25]
            assert instance.numbers.tolist() == [1 / entry.step, 0.5]
            self.remember(id, label)

    def expire(self) -> None:
        def late(bound: int | None, since: int | None, now: int | None) -> bool:
            return None not in (bound, since, now) and since + bound < now  # type: ignore[operator]

        alone = {id: entry for id, entry in self.waiting.items() if entry.label is None}
        steps, ms = self.config.expire_steps, self.config.expire_ms
        by_step = [id for id, entry in alone.items() if late(steps, entry.step, self.step)]
        by_step = sorted(by_step, key=lambda id: alone[id].step)[:EXPIRE_STEP_MAX]
        by_time = [
            (entry.time, entry.step, id)
            for id, entry in alone.items()
            if id not in by_step and late(ms, entry.time, self.clock)
        ]
        by_time = sorted(by_time)[: EXPIRE_STEP_MAX - len(by_step)]
        expired = self.table.expire(self.step, self.clock)
        model = [self.leaves(id, "expire_steps") for id in by_step]
        model += [
            self.leaves(id, "expire_ms") for _, id in sorted((step, id) for _, step, id in by_time)
        ]
        assert seen(expired) == model

    def give_up(self) -> None:
        old = [
            id
            for id, (_, since) in self.held.items()
            if self.step - since > self.config.early_steps
        ]
        assert self.table.expire_early(self.step) == old
        for id in old:
            del self.held[id]

    def open(self, id: str, time: int | None) -> None:
        now = self.step
        latent, original = np.array([now, now + 0.5]), np.array([-now, 0.25])
        vectors, numbers = Vectors.of(latent, original), [1 / now, 0.5]
        pushed_out = let_in(self.table, id, now, vectors, numbers, time)
        label = self.held.pop(id)[0] if id in self.held else None
        self.waiting[id] = Waiting(now, time, label)
        newest = now // BLOCK_STEPS
        self.opened.setdefault(newest, [""] if newest == 0 else []).append(id)
        model: list[tuple[str, int | None, bool]] = []
        while len(model) < EXPIRE_STEP_MAX:
            oldest = min(self.waiting, key=lambda each: self.waiting[each].step)
            if len(self.waiting) > self.config.pending_max:
                model.append(self.leaves(oldest, "pending_max"))
            elif (
                self.bytes_held() > self.config.pending_bytes_max
                and self.waiting[oldest].step // BLOCK_STEPS < newest
            ):
                model.append(self.leaves(oldest, "pending_bytes_max"))
            else:
                break
        assert seen(pushed_out) == model

    def bytes_held(self) -> int:
        """Of blocks that are not full, or in which an instance waits: two columns, two numbers,
        a time and a hash."""
        in_use = {entry.step // BLOCK_STEPS for entry in self.waiting.values()}
        self.opened = {
            number: ids
            for number, ids in self.opened.items()
            if number in in_use or len(ids) < BLOCK_STEPS
        }
        of_ids = sum(
            len(id.encode("utf-8", "surrogatepass")) + 160
            for ids in self.opened.values()
            for id in ids
        )
        return of_ids + len(self.opened) * BLOCK_STEPS * 8 * (2 * 2 + 2 + 1 + 1)

    @rule(id=names, time=st.none() | st.integers(0, 200) | st.integers(0, 50))
    def features_arrive(self, id: str, time: int | None) -> None:
        if id in self.waiting or id in self.settled:
            return
        if time is not None:
            self.clock = time if self.clock is None else max(self.clock, time)
        self.step += 1
        self.settle()
        self.expire()
        self.give_up()
        self.open(id, time)

    @rule(count=st.integers(1, 3) | st.integers(60, 90))
    def a_crowd_arrives(self, count: int) -> None:
        """Many instances, so that blocks fill up and go."""
        for _ in range(count):
            self.crowd += 1
            self.features_arrive(f"crowd {self.crowd}", None)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data(), label=st.integers(0, 1))
    def label_of_an_instance_that_waits(self, data: st.DataObject, label: int) -> None:
        self.label_arrives(data.draw(st.sampled_from(sorted(self.waiting))), label)

    @rule(id=names, label=st.integers(0, 1))
    def label_arrives(self, id: str, label: int) -> None:
        outcome, orphans = self.table.add_label(id, label, self.step)
        assert (outcome, orphans) == self.outcome_of(id, label)

    def outcome_of(self, id: str, label: int) -> tuple[LabelOutcome, list[str]]:
        """The label policy, row by row."""
        replaces = self.config.corrected == "last"
        if id in self.waiting:
            entry = self.waiting[id]
            if entry.label is None:
                entry.label = label
                return LabelOutcome.QUEUED, []
            if entry.label == label:
                return LabelOutcome.REPEATED, []
            entry.label = label if replaces else entry.label
        elif id in self.settled:
            return self.outcome_of_settled(id, self.settled[id], label), []
        elif id in self.held:
            known, since = self.held[id]
            if known == label:
                return LabelOutcome.REPEATED, []
            self.held[id] = (label if replaces else known, since)
        else:
            self.held[id] = (label, self.step)
            orphans = []
            while len(self.held) > self.config.early_max:
                orphans.append(next(iter(self.held)))
                del self.held[orphans[-1]]
            return LabelOutcome.EARLY, orphans
        chosen = LabelOutcome.CORRECTED_REPLACED if replaces else LabelOutcome.CORRECTED_IGNORED
        return chosen, []

    def outcome_of_settled(self, id: str, known: Outcome, label: int) -> LabelOutcome:
        if isinstance(known, str):
            assert self.table.expired_by(id_hash(id)) == known
            return LabelOutcome.LATE
        assert self.table.expired_by(id_hash(id)) is None
        if known == label:
            return LabelOutcome.REPEATED
        if isinstance(known, int) and self.config.corrected == "first":
            return LabelOutcome.CORRECTED_IGNORED
        self.remember(id, label)
        same = known == ("default", label)
        return LabelOutcome.CONFIRMED if same else LabelOutcome.CORRECTION_TOO_LATE

    @rule()
    def crash(self) -> None:
        blob = encode(combine({"delay": self.table.snapshot()}))
        self.table = DelayTable.restore(self.config, section(decode(blob), "delay"), 2, columns=2)
        assert encode(combine({"delay": self.table.snapshot()})) == blob

    @invariant()
    def sizes_agree(self) -> None:
        if not hasattr(self, "table"):
            return
        assert len(self.table) == len(self.waiting) <= self.config.pending_max
        assert self.table.early_labels == len(self.held) <= self.config.early_max
        assert len(self.table.settled) == min(len(self.log), self.config.settled_max)
        assert len(self.log) < CHUNK_IDS
        assert self.table._bytes == self.bytes_held()
        assert len(self.table._blocks) <= min(len(self.waiting), self.step // BLOCK_STEPS) + 1
        assert len(self.table._by_time) <= 2 * (len(self.waiting) + 1) + BLOCK_STEPS

    @invariant()
    def memory_agrees(self) -> None:
        if hasattr(self, "table"):
            known = [id in self.waiting or id in self.settled for id in POOL]
            assert [self.table.knows(id, id_hash(id)) for id in POOL] == known


DelayMachine.TestCase.settings = settings(max_examples=80, stateful_step_count=50)
TestDelayTable = DelayMachine.TestCase
