"""The learner of one stream: stages that encode a record, experts that answer it, one forecast.

`observe` takes a record and answers it; `learn` takes a label; `peek` answers without changing
anything. A label only queues: it is learnt at the start of the next step at which it is due. The
state depends on the order of these calls and on nothing else: no clock, no chance.
"""

import json
from collections import Counter
from dataclasses import replace
from functools import partial

import numpy as np

from dtgol_core.columns import Columns, EncodedRecord
from dtgol_core.combination import SECOND_PER_STEP, Combination, OneExpert
from dtgol_core.config import Config, FeatureKind
from dtgol_core.conformal import ConformalSets
from dtgol_core.copula import Copula
from dtgol_core.delay import DelayTable, Departure
from dtgol_core.experts import EXPERTS, Expert
from dtgol_core.ids import id_hash
from dtgol_core.losses import entropy, log_odds
from dtgol_core.marginals import Marginals, RunningScales
from dtgol_core.state import (
    CORRUPTION_ERRORS,
    Snapshot,
    SnapshotError,
    check_types,
    check_values,
    clone,
    combine,
    held_bytes,
    require_count,
    require_int,
    section,
)
from dtgol_core.types import (
    Contribution,
    ExpertAnswer,
    FeatureValues,
    FloatArray,
    Forecast,
    Instance,
    LabelOutcome,
    LabelReceipt,
    RejectedError,
    Rejection,
)

QUEUED = LabelReceipt(LabelOutcome.QUEUED)
"""The receipt of nearly every label."""
_ANSWER = partial(tuple.__new__, ExpertAnswer)
"""An `ExpertAnswer` of a pair, in a third of the time."""
TIME_MAX = 2**63 - 1
"""Event times are kept in 64 bits."""
REST = "(rest)"
"""The last entry of `Forecast.why`, which is no feature."""


class Learner:
    """Online learner of one stream whose labels come late.

    Parameters
    ----------
    config
        Settings of all stages and experts; the defaults if not given.
    strict
        For use as a library: a record that is refused raises `RejectedError`, and a cell of
        another kind than its feature refuses its record (`columns.strict`).

    Attributes
    ----------
    experts
        By name, in the order of `Config.experts`. Each sees the same records and labels and none of
        the others.
    combination
        Makes one p of their answers, and learns what each is worth.
    sets
        The classes that a forecast leaves open; p does not depend on it.

    Notes
    -----
    Cost per record: the sum of its stages' and experts', a fraction of a millisecond at 16 columns
    and 500 nodes (``docs/speed.md``).

    Examples
    --------
    >>> learner = Learner()
    >>> learner.observe("a", {"temperature": 36.6, "ward": "B"}).p
    0.5
    >>> learner.learn("a", 1).outcome
    <LabelOutcome.QUEUED: 'queued'>
    >>> learner.observe("b", {"temperature": 36.8, "ward": "B"}).labels_learnt
    1
    """

    def __init__(self, config: Config | None = None, *, strict: bool = False) -> None:
        config = config or Config()
        if strict:
            config = replace(config, columns=replace(config.columns, strict=True))
        self.config, self._raises, self._interrupted = config, strict, False
        known = {expert.name: expert for expert in EXPERTS}
        self.experts: dict[str, Expert] = {name: known[name](config) for name in config.experts}
        used = {scale for expert in self.experts.values() for scale in expert.scales}
        self._scores = 3 if "completed" in used else 2 if used else 0
        self._naive = config.experts.index("naive")
        decides = config.combination.decides
        self.combination: Combination | OneExpert = (
            Combination(config.experts) if decides is None else OneExpert(decides, config.experts)
        )
        self.sets = ConformalSets(config.decision)
        self._label_1_above = config.decision.label_1_above
        self._p = len(self.experts) + len(self.combination.kept)
        self._numbers = self._p + 1 + sum(len(each.kept) for each in self.experts.values())
        self._place_numbers()
        self.columns = Columns(config)
        self.delay = DelayTable(config.delay, self._numbers, self._scores)
        self.marginals = Marginals(config.copula.window)
        self.scales = RunningScales()
        self.copula = Copula(config.copula)
        self.counts: Counter[str] = Counter()
        self.step = 0
        self.clock_ms: int | None = None

    def _place_numbers(self) -> None:
        """Give each expert its part of the numbers that wait with an instance.

        First are the answers of all experts, then what the combination keeps, then the forecast's
        p, then what each expert keeps.
        """
        at = self._p + 1
        for expert in self.experts.values():
            expert.at = at
            at += len(expert.kept)

    @property
    def labels_learnt(self) -> int:
        """Labels learnt so far, default ones (``delay.expired``) among them."""
        return self.counts.get("learnt", 0) + self.counts.get("defaulted", 0)

    @property
    def pending(self) -> int:
        """Instances that wait for their label."""
        return len(self.delay)

    @property
    def state_bytes(self) -> int:
        """Memory of all stages and experts, about; the same after a restore."""
        stages = (self.columns, self.delay, self.marginals, self.scales, self.copula)
        return sum(map(held_bytes, (*stages, self.combination, self.sets, *self.experts.values())))

    def observe(
        self, id: str, x: FeatureValues, event_time_ms: int | None = None, why: int = 0
    ) -> Forecast | Rejection:
        """Answer a record and let it wait for its label; `why` asks for that many reasons.

        A record that is refused, or whose id has been answered before, changes nothing but counts.
        """
        if not id:
            raise ValueError("an id is not empty")
        self._require_whole()
        record = self.columns.read(x)
        if isinstance(record, Rejection):
            self.counts[f"rejected.{record.reason}"] += 1
            return self._refused(record)
        hash = id_hash(id)
        if self.delay.knows(id, hash):
            self.counts["repeats"] += 1
            return replace(self._peek(record, why), repeat=True)
        forecast = self._step(id, hash, record, event_time_ms, why)
        self.counts["observed"] += 1
        return forecast

    def needs_columns(self, x: FeatureValues) -> bool:
        """Whether the record has a feature or level that was never seen. Changes nothing."""
        record = self.columns.read(x)
        return not isinstance(record, Rejection) and bool(record.additions)

    def learn(self, id: str, y: int, event_time_ms: int | None = None) -> LabelReceipt:
        """Queue a label; it is learnt at the start of the step at which it is due.

        With ``corrected = "last"`` a label of an instance that has been learnt goes to the experts
        that keep instances, who replace the one they have.
        """
        if y not in (0, 1):
            raise ValueError(f"a label is 0 or 1, not {y!r}")
        self._require_whole()
        self._advance_clock(event_time_ms)
        outcome, orphans = self.delay.add_label(id, int(y), self.step)
        if outcome is LabelOutcome.QUEUED:
            self.counts[outcome] += 1
            return QUEUED
        hash = id_hash(id)
        if outcome is LabelOutcome.CORRECTION_TOO_LATE:
            settled = self.delay.settled.find(hash)
            if settled is not None:  # else nothing is remembered any more: `settled_max` is 0 now
                had = [expert.correct(settled.step, int(y)) for expert in self.experts.values()]
                if any(had):
                    outcome = LabelOutcome.CORRECTED_RELABELLED
        self.counts[outcome] += 1
        setting = self.delay.expired_by(hash) if outcome is LabelOutcome.LATE else None
        if setting is not None:
            self.counts[f"late.{setting}"] += 1
        self.counts["orphaned"] += len(orphans)
        return LabelReceipt(outcome, tuple(orphans), setting)

    def erase(self, hash: int) -> list[str]:
        """Remove what is kept of the id with this hash (`dtgol_core.ids.id_hash`).

        Its vectors go from the delay table and from the memories of the experts: no array of a
        snapshot has them any more. What was learnt from it stays (weights, moments, correlations,
        trees that have begun), and so do its values in the window of the marginals until newer ones
        push them out. The experts find an instance whose label was learnt only while its id is
        remembered (``delay.settled_max``, ``settled_ms``); else newer ones push it out there too.
        Returns the id once for each instance that was found.
        """
        self._require_whole()
        self._interrupted = True
        settled = self.delay.settled.find(hash)
        found = self.delay.erase(hash)
        steps = {step for _, step in found if step} | ({settled.step} if settled else set())
        for step in sorted(steps):
            self.combination.forget(step)
            for expert in self.experts.values():
                expert.forget(step)
        self._interrupted = False
        self.counts["erased"] += 1
        return [id for id, _ in found]

    def give_up_oldest(self) -> tuple[int, int]:
        """Give up the oldest waiting instances, for whoever bounds several learners together.

        Returns how many were learnt, as their labels had come, and how many were forgotten.
        """
        self._require_whole()
        self._interrupted = True
        left = self.delay.give_up_oldest()
        learnt = len(self._let_go(left))
        self._interrupted = False
        self.counts["learnt"] += learnt
        self.counts["expired"] += len(left) - learnt
        return learnt, len(left) - learnt

    def drop_oldest_early(self) -> str:
        """Give up the label that was held longest; its id."""
        self._require_whole()
        self.counts["orphaned"] += 1
        return self.delay.drop_oldest_early()

    def peek(self, x: FeatureValues, why: int = 0) -> Forecast | Rejection:
        """The answer that `observe` would give now. Changes nothing."""
        self._require_whole()
        record = self.columns.read(x)
        if isinstance(record, Rejection):
            return self._refused(record)
        return self._peek(record, why)

    def retype(self, feature: str, kind: FeatureKind) -> Rejection | None:
        """Give a feature another kind; all else that was learnt stays."""
        self._require_whole()
        return self.columns.retype(feature, kind)

    def _require_whole(self) -> None:
        """Refuse to go on after a step that an exception has ended: part of it was done."""
        if self._interrupted:
            raise RuntimeError(
                "a step of this learner was ended in the middle, by an exception or Ctrl-C, and "
                "what it knows does not fit together: restore one from a snapshot, or make another"
            )

    def _refused(self, rejection: Rejection) -> Rejection:
        """The answer to a record that is refused."""
        if self._raises:
            raise RejectedError(rejection)
        return rejection

    def _step(
        self, id: str, hash: int, record: EncodedRecord, event_time_ms: int | None, why: int
    ) -> Forecast:
        """One step: learn what is due, forget what has expired, answer the record, let it wait."""
        self._advance_clock(event_time_ms)
        self._interrupted = True
        self.step += 1
        learnt = [self._learn(*due) for due in self.delay.settle_due(self.step)]
        left = self.delay.expire(self.step, self.clock_ms)
        if left:
            learnt += self._let_go(left)
        orphans = self.delay.expire_early(self.step)
        unverified = len(self.delay)

        self._grow(record)
        instance = self.delay.reserve(self.step, self.columns.width)
        self._encode(record, instance)
        answers = [expert.observe(instance) for expert in self.experts.values()]
        for place, answer in enumerate(answers):
            instance.numbers[place] = answer
        p, weights, guard = self.combination.combine(instance.numbers)
        instance.numbers[self._p] = p
        reasons = self._why(instance, p, why) if why else ()
        self.combination.begin_second(self.step)
        if self.combination.again:
            self._answer_again()
        full = self.delay.open(id, hash, self.step, event_time_ms)
        if full:
            learnt += self._let_go(full)
        expired, defaulted = self._count(learnt, left + full, orphans, record.conflicts)
        self._interrupted = False
        return Forecast(
            step=self.step,
            p=p,
            label=int(p > self._label_1_above),
            naive=answers[self._naive],
            labels_learnt=self.labels_learnt,
            unverified=unverified,
            observed_share=record.observed / max(1, len(self.columns.features)),
            uncertainty=entropy(p),
            experts=dict(
                zip(self.experts, map(_ANSWER, zip(answers, weights, strict=True)), strict=True)
            ),
            guard=dict(zip(self.combination.members, guard, strict=True)),
            set=self.sets.of(p),
            why=reasons,
            conflicts=record.conflicts,
            missing=record.missing,
            learnt=tuple(learnt),
            expired=expired,
            defaulted=defaulted,
            orphans=tuple(orphans),
        )

    def _count(
        self, learnt: list[str], left: list[Departure], orphans: list[str], conflicts: int
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Count what happened at a step; the ids that expired, and those learnt by default."""
        if learnt:
            self.counts["learnt"] += len(learnt)
        if orphans:
            self.counts["orphaned"] += len(orphans)
        if conflicts:
            self.counts["cells.kind-conflict"] += conflicts
        if not left:
            return (), ()
        expired = tuple(each.id for each in left if each.defaulted or each.label is None)
        defaulted = tuple(each.id for each in left if each.defaulted)
        self.counts["expired"] += len(expired)
        if defaulted:
            self.counts["defaulted"] += len(defaulted)
        return expired, defaulted

    def _peek(self, record: EncodedRecord, why: int) -> Forecast:
        """Run the step on a deep copy, so that peeking changes nothing; any id is free there."""
        forecast = clone(self)._step("", 0, record, None, why)
        return replace(forecast, learnt=(), expired=(), defaulted=(), orphans=())

    def _advance_clock(self, event_time_ms: int | None) -> None:
        """The clock of the stream is the largest event time it has carried."""
        if event_time_ms is None:
            return
        if not -TIME_MAX <= event_time_ms <= TIME_MAX:
            raise ValueError(f"an event time has 64 bits, and {event_time_ms} has more")
        if self.clock_ms is None or event_time_ms > self.clock_ms:
            self.clock_ms = self.delay.clock_ms = event_time_ms

    def _learn(self, id: str, instance: Instance, label: int) -> str:
        """Sets, experts and combination learn a label, from what is kept of the arrival.

        The combination is last: it sees what the experts would have said before they learnt it.
        """
        self.sets.learn(float(instance.numbers[self._p]), label)
        now = [expert.learn(instance, label) for expert in self.experts.values()]
        self.combination.learn(instance.step, instance.numbers, now, label)
        return id

    def _answer_again(self) -> None:
        """Once in its life, when the first labels are learnt: answer again all that wait then.

        The combination judges its members by these answers in place of those given on arrival.
        """
        combination = self.combination
        assert isinstance(combination, Combination)
        waiting, next_step = self.delay.oldest(combination.again, SECOND_PER_STEP)
        for instance in waiting:
            answers = [expert.score(instance) for expert in self.experts.values()]
            combination.answer_again(instance.step, answers, instance.numbers)
        combination.again = range(next_step, combination.again.stop)

    def _let_go(self, left: list[Departure]) -> list[str]:
        """What leaves the delay table early is learnt, if there is a label for it, or forgotten.

        Returns the ids whose true labels were learnt.
        """
        for id, instance, _, label, _ in left:
            if label is not None:
                self._learn(id, instance, label)
                continue
            self.combination.forget(instance.step)
            for expert in self.experts.values():
                expert.forget(instance.step)
        return [each.id for each in left if each.label is not None and not each.defaulted]

    def _grow(self, record: EncodedRecord) -> None:
        """Add columns for features and levels never seen before."""
        self.columns.absorb(record)
        if not record.additions:
            return
        fresh = len(record.additions)
        self.marginals.grow(fresh, [addition.sibling for addition in record.additions])
        self.copula.grow(fresh)
        if self._scores:
            self.scales.grow(fresh)
        for expert in self.experts.values():
            expert.grow(fresh)

    def _encode(self, record: EncodedRecord, instance: Instance) -> None:
        """Write the record in every scale; marginals and correlation learn from it."""
        (spaces, scores), ablate = instance.vectors, self.config.ablate
        spread = self.marginals.absorb(record.row, self.columns.kinds, spaces)
        latent: FloatArray = spaces[0]
        if ablate.copula:
            latent[:] = spaces[1]
        elif ablate.marginals:
            np.nan_to_num(latent, copy=False)
        else:
            self.copula.absorb(latent, spread, self.step)
        if self._scores:
            self.scales.absorb(record.row, latent, scores)

    def _why(self, instance: Instance, p: float, most: int) -> tuple[Contribution, ...]:
        """The features that moved the log-odds of p most, and what all others and no feature did.

        All together sum to the log-odds. The rest also has biases, label rates, and what clipping
        and mixing of probabilities take away.
        """
        moved, pulls = np.zeros(self.columns.width), self.combination.pulls(instance.numbers)
        for name, expert in self.experts.items():
            if pulls[name]:
                moved += pulls[name] * expert.contributions(instance)
        contributions = [
            Contribution(name, float(moved[list(feature.columns)].sum()))
            for name, feature in self.columns.features.items()
        ]
        # Ties go by name: the order of first sight is not in a snapshot.
        contributions.sort(key=lambda each: (-abs(each.log_odds), each.feature))
        named = contributions[:most]
        rest = log_odds(p) - sum(each.log_odds for each in named)
        return (*named, Contribution(REST, rest))

    def snapshot(self) -> Snapshot:
        """All state as named arrays and a manifest; equal states give equal snapshots."""
        self._require_whole()
        own = {
            "step": self.step,
            "clock_ms": self.clock_ms,
            "counts": {name: n for name, n in sorted(self.counts.items()) if n},
        }
        snapshot = combine(
            {
                "learner": own,
                "columns": {"features": self.columns.snapshot()},
                "delay": self.delay.snapshot(),
                "marginals": self.marginals.snapshot(),
                "scales": self.scales.snapshot(),
                "copula": self.copula.snapshot(),
                "combination": self.combination.snapshot(),
                "sets": self.sets.snapshot(),
                **{f"experts/{name}": each.snapshot() for name, each in self.experts.items()},
            }
        )
        snapshot.manifest["config"] = json.loads(json.dumps(self.config.as_mapping()))
        immutable = tuple(f"delay/{part}" for part in self.delay.immutable_parts())
        return replace(snapshot, immutable=immutable)

    @staticmethod
    def restore(config: Config, snapshot: Snapshot) -> "Learner":
        """The learner that `snapshot` described; going on gives the same bits as never stopping.

        Settings that do not shape the state may differ from those it was made with.
        """
        try:
            made_with = Config.read_whole(snapshot.manifest.get("config", {}))
        except CORRUPTION_ERRORS as error:
            raise SnapshotError(f"the snapshot's settings cannot be read: {error}") from error
        differ = config.shape_differs(made_with)
        if differ:
            raise SnapshotError(
                f"the snapshot was made with another {', '.join(differ)}: "
                f"restore it with the old settings, or start anew"
            )
        learner = Learner(config)
        check_types(snapshot, learner.snapshot())
        try:
            learner._fill(snapshot)
        except CORRUPTION_ERRORS as error:
            if isinstance(error, SnapshotError):
                raise
            raise SnapshotError(f"the snapshot does not fit together: {error!r}") from error
        return learner

    def _fill(self, snapshot: Snapshot) -> None:
        """Take the state out of a snapshot; each stage and expert checks its own shapes."""
        config, own = self.config, section(snapshot, "learner")
        self.step = require_count(own["step"])
        check_values(snapshot, "marginals/rows", self.step)
        if own["clock_ms"] is not None:
            self._advance_clock(require_int(own["clock_ms"]))
        self.counts = Counter({name: require_count(n) for name, n in own["counts"].items()})
        self.columns = Columns.restore(config, section(snapshot, "columns")["features"])
        width = self.columns.width
        rows = section(snapshot, "delay")
        self.delay = DelayTable.restore(config.delay, rows, self._numbers, width, self._scores)
        if not self.delay.ends_at(self.step):
            raise SnapshotError("the snapshot does not fit together: rows of the delay table")
        for name, each in rows.items():
            if name.endswith("/numbers"):
                answers = each[:, : self._p + 1]
                if not ((answers >= 0.0) & (answers <= 1.0)).all():
                    raise SnapshotError(f"the snapshot is damaged: {name} of the delay table")
        self.delay.clock_ms = self.clock_ms
        window, rows = config.copula.window, section(snapshot, "marginals")
        self.marginals = Marginals.restore(window, rows, width)
        scaled = width if self._scores else 0
        self.scales = RunningScales.restore(section(snapshot, "scales"), scaled)
        self.copula = Copula.restore(config.copula, section(snapshot, "copula"), width)
        if isinstance(self.combination, Combination):
            weights = section(snapshot, "combination")
            self.combination = Combination.restore(config.experts, weights)
        self.sets = ConformalSets.restore(config.decision, section(snapshot, "sets"))
        for name, expert in self.experts.items():
            kept = section(snapshot, f"experts/{name}")
            self.experts[name] = expert.restore(config, kept, width)
        self._place_numbers()
