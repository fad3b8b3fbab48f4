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
from dtgol_core.delay import BLOCK_STEPS, DelayTable, Ticket
from dtgol_core.state import decode, encode, gather, part
from dtgol_core.types import LabelOutcome

names = st.integers(0, 12).map("id {}".format) | st.sampled_from(["", "ü", "\ud800"])
POOL = [f"id {k}" for k in range(13)] + ["", "ü", "\ud800", "crowd 7"]


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
        expire_steps=draw(st.integers(lag + 1, lag + 8) | st.just(600)),
        expire_ms=draw(st.none() | st.integers(1, 40)),
        pending_max=draw(st.integers(lag + 1, lag + 6) | st.just(1000)),
        early_max=draw(st.integers(0, 3)),
        early_steps=draw(st.integers(1, 5)),
        settled_max=draw(st.integers(0, 5) | st.just(1000)),
        corrected=draw(st.sampled_from(["first", "last"])),
    )


class DelayMachine(RuleBasedStateMachine):
    """Three dicts are the whole of the model: waiting, held and settled."""

    @initialize(config=delay_configs())
    def start(self, config: DelayConfig) -> None:
        self.config = config
        self.table = DelayTable(config)
        self.step = 0
        self.clock: int | None = None
        self.waiting: dict[str, Waiting] = {}
        self.held: dict[str, tuple[int, int]] = {}
        self.settled: dict[str, int | None] = {}
        self.crowd = 0

    def remember(self, id: str, label: int | None) -> None:
        self.settled[id] = label
        while len(self.settled) > self.config.settled_max:
            del self.settled[next(iter(self.settled))]

    def settle(self) -> None:
        """What is due leaves, in order of steps, with what it was opened with."""
        lag = self.config.steps if self.config.release == "step" else 0
        due = sorted(
            (entry.step, id)
            for id, entry in self.waiting.items()
            if entry.label is not None and entry.step + lag <= self.step
        )
        taken = self.table.settle_due(self.step)
        assert [(ticket.step, ticket.id) for ticket, _ in taken] == due
        for ticket, label in taken:
            entry = self.waiting.pop(ticket.id)
            assert label == entry.label
            assert ticket.event_time_ms == entry.time
            assert ticket.latent.tolist() == [entry.step, entry.step + 0.5]
            assert ticket.original.tolist() == [-entry.step, 0.25]
            assert (ticket.latent_said, ticket.original_said) == (1 / entry.step, 0.5)
            self.remember(ticket.id, label)

    def expire(self) -> None:
        def late(entry: Waiting) -> bool:
            if entry.label is not None:
                return False
            if entry.step + self.config.expire_steps < self.step:
                return True
            if self.config.expire_ms is None or entry.time is None or self.clock is None:
                return False
            return entry.time + self.config.expire_ms < self.clock

        gone = sorted((entry.step, id) for id, entry in self.waiting.items() if late(entry))
        expired = self.table.expire(self.step, self.clock)
        assert expired == [(id, step) for step, id in gone]
        for id, _ in expired:
            del self.waiting[id]
            self.remember(id, None)

    def give_up(self) -> None:
        old = [
            id
            for id, (_, since) in self.held.items()
            if self.step - since > self.config.early_steps
        ]
        assert self.table.give_up(self.step) == old
        for id in old:
            del self.held[id]

    def open(self, id: str, time: int | None) -> None:
        now = self.step
        latent, original = np.array([now, now + 0.5]), np.array([-now, 0.25])
        pushed_out = self.table.open(Ticket(id, now, latent, original, 1 / now, 0.5, time))
        latent.fill(-1.0)
        label = self.held.pop(id)[0] if id in self.held else None
        self.waiting[id] = Waiting(now, time, label)
        model = []
        while len(self.waiting) > self.config.pending_max:
            oldest = min(self.waiting, key=lambda each: self.waiting[each].step)
            model.append((oldest, self.waiting.pop(oldest).step))
            self.remember(oldest, None)
        assert pushed_out == model

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
        outcome, orphans = self.table.file(id, label, self.step)
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
            known = self.settled[id]
            if known is None:
                return LabelOutcome.LATE, []
            same = known == label
            return LabelOutcome.REPEATED if same else LabelOutcome.CORRECTED_IGNORED, []
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

    @rule()
    def crash(self) -> None:
        blob = encode(gather({"delay": self.table.snapshot()}))
        self.table = DelayTable.restore(self.config, part(decode(blob), "delay"))
        assert encode(gather({"delay": self.table.snapshot()})) == blob

    @invariant()
    def sizes_agree(self) -> None:
        if not hasattr(self, "table"):
            return
        assert len(self.table) == len(self.waiting) <= self.config.pending_max
        assert self.table.held == len(self.held) <= self.config.early_max
        assert len(self.table._settled) == len(self.settled) <= self.config.settled_max
        assert len(self.table._blocks) <= min(len(self.waiting), self.step // BLOCK_STEPS) + 1
        assert len(self.table._by_time) <= 2 * (len(self.waiting) + 1) + BLOCK_STEPS

    @invariant()
    def memory_agrees(self) -> None:
        if hasattr(self, "table"):
            known = [id in self.waiting or id in self.settled for id in POOL]
            assert [self.table.knows(id) for id in POOL] == known


DelayMachine.TestCase.settings = settings(max_examples=80, stateful_step_count=50)
TestDelayTable = DelayMachine.TestCase
