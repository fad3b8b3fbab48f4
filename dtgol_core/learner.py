"""The learner of one stream: stages that encode a record, experts that answer it, one forecast.

`observe` takes a record and answers it; `learn` takes a label; `peek` answers without changing
anything. A label only queues: it is learnt at the start of the next step at which it is due. The
state depends on the order of these calls and on nothing else: no clock, no chance.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

import numpy as np

from dtgol_core.columns import Columns, EncodedRecord
from dtgol_core.combination import SECOND_PER_STEP, Combination, OneExpert
from dtgol_core.config import Config, FeatureKind
from dtgol_core.conformal import ConformalSets
from dtgol_core.copula import Copula
from dtgol_core.delay import DelayTable, Departure, PendingInstance
from dtgol_core.experts import EXPERTS, Expert
from dtgol_core.losses import entropy, log_odds
from dtgol_core.marginals import Marginals, RunningScales
from dtgol_core.state import (
    CORRUPTION_ERRORS,
    Snapshot,
    SnapshotError,
    check_types,
    clone,
    combine,
    held_bytes,
    require_int,
    section,
)
from dtgol_core.types import (
    Contribution,
    ExpertAnswer,
    FeatureValues,
    Forecast,
    Instance,
    LabelOutcome,
    LabelReceipt,
    RejectedError,
    Rejection,
    Vectors,
)

QUEUED = LabelReceipt(LabelOutcome.QUEUED)
"""The receipt of nearly every label."""
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
        self.config, self._raises = config, strict
        self._settings = json.dumps(config.as_mapping())
        known = {expert.name: expert for expert in EXPERTS}
        self.experts: dict[str, Expert] = {name: known[name](config) for name in config.experts}
        experts = self.experts.values()
        used = {scale for expert in experts for scale in expert.scales}
        self._scales = tuple(scale for scale in Vectors._fields if scale in used)
        self._naive = config.experts.index("naive")
        decides = config.combination.decides
        self.combination: Combination | OneExpert = (
            Combination(config.experts) if decides is None else OneExpert(decides, config.experts)
        )
        self.sets = ConformalSets(config.decision)
        # The numbers that wait with an instance: every expert's answer, then what the combination
        # keeps, then the forecast's p, then what each expert keeps.
        sizes = [len(each.kept) for each in (self.combination, self.sets, *experts)]
        ends = accumulate(sizes, initial=len(experts))
        self._kept = [slice(*bounds) for bounds in pairwise(ends)]
        self.columns = Columns(config)
        self.delay = DelayTable(config.delay, self._kept[-1].stop, self._scales)
        self.marginals = Marginals(config.copula.window)
        self.scales = RunningScales()
        self.copula = Copula(config.copula)
        self.counts: Counter[str] = Counter()
        self.step = 0
        self.clock_ms: int | None = None

    @property
    def labels_learnt(self) -> int:
        """Labels learnt so far, default ones (``delay.expired``) among them."""
        return self.counts["learnt"] + self.counts["defaulted"]

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
        record = self.columns.read(x)
        if isinstance(record, Rejection):
            self.counts[f"rejected.{record.reason}"] += 1
            return self._refused(record)
        if self.delay.knows(id):
            self.counts["repeats"] += 1
            return replace(self._peek(record, why), repeat=True)
        self.counts["observed"] += 1
        return self._step(id, record, event_time_ms, why)

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
        self._advance_clock(event_time_ms)
        settled = None if self.delay.waits(id) else self.delay.settled.find(id)
        outcome, orphans = self.delay.add_label(id, int(y), self.step)
        if outcome is LabelOutcome.CORRECTION_TOO_LATE and settled is not None:
            had = [expert.correct(settled.step, int(y)) for expert in self.experts.values()]
            if any(had):
                outcome = LabelOutcome.CORRECTED_RELABELLED
        self.counts[outcome] += 1
        if outcome is LabelOutcome.QUEUED:
            return QUEUED
        setting = self.delay.expired_by(id) if outcome is LabelOutcome.LATE else None
        if setting is not None:
            self.counts[f"late.{setting}"] += 1
        self.counts["orphaned"] += len(orphans)
        return LabelReceipt(outcome, tuple(orphans), setting)

    def erase(self, hash: int) -> list[str]:
        """Remove what is kept of the id with this hash (`dtgol_core.ids.id_hash`).

        Weights that have learnt from it stay, and so do its values in the windows of marginals and
        scales until they are pushed out. Returns the id once for each instance that was found.
        """
        settled = self.delay.settled.find_hash(hash)
        found = self.delay.erase(hash)
        steps = {step for _, step in found if step} | ({settled.step} if settled else set())
        for step in sorted(steps):
            self.combination.forget(step)
            for expert in self.experts.values():
                expert.forget(step)
        self.counts["erased"] += 1
        return [id for id, _ in found]

    def give_up_oldest(self) -> tuple[int, int]:
        """Give up the oldest waiting instances, for whoever bounds several learners together.

        Returns how many were learnt, as their labels had come, and how many were forgotten.
        """
        left = self.delay.give_up_oldest()
        learnt = len(self._let_go(left))
        self.counts["learnt"] += learnt
        self.counts["expired"] += len(left) - learnt
        return learnt, len(left) - learnt

    def drop_oldest_early(self) -> str:
        """Give up the label that was held longest; its id."""
        self.counts["orphaned"] += 1
        return self.delay.drop_oldest_early()

    def peek(self, x: FeatureValues, why: int = 0) -> Forecast | Rejection:
        """The answer that `observe` would give now. Changes nothing."""
        record = self.columns.read(x)
        if isinstance(record, Rejection):
            return self._refused(record)
        return self._peek(record, why)

    def retype(self, feature: str, kind: FeatureKind) -> Rejection | None:
        """Give a feature another kind; all else that was learnt stays."""
        return self.columns.retype(feature, kind)

    def _refused(self, rejection: Rejection) -> Rejection:
        """The answer to a record that is refused."""
        if self._raises:
            raise RejectedError(rejection)
        return rejection

    def _step(
        self, id: str, record: EncodedRecord, event_time_ms: int | None, why: int
    ) -> Forecast:
        """One step: learn what is due, forget what has expired, answer the record, let it wait."""
        self._advance_clock(event_time_ms)
        self.step += 1
        learnt = [self._learn(*due) for due in self.delay.settle_due(self.step)]
        left = self.delay.expire(self.step, self.clock_ms)
        learnt += self._let_go(left)
        orphans = self.delay.expire_early(self.step)
        unverified = len(self.delay)

        self._grow(record)
        vectors = self._encode(record)
        arrived = Instance(self.step, vectors)
        instances, answers = [], []
        for expert in self.experts.values():
            instance = Instance(self.step, vectors, expert.observe(arrived))
            instances.append(instance)
            answers.append(expert.score(instance))
        p, weights, guard, kept = self.combination.combine(answers)
        if isinstance(self.combination, Combination):
            self._answer_again(self.combination)

        numbers = [*answers, *kept, p]
        for instance in instances:
            numbers += instance.kept
        waiting = PendingInstance(id, self.step, vectors, numbers, event_time_ms)
        full = self.delay.open(waiting)
        learnt += self._let_go(full)
        expired = [each for each in left + full if each.defaulted or each.label is None]
        defaulted = [each.instance.id for each in expired if each.defaulted]
        for name, count in (
            ("learnt", len(learnt)),
            ("expired", len(expired)),
            ("defaulted", len(defaulted)),
            ("orphaned", len(orphans)),
            ("cells.kind-conflict", record.conflicts),
        ):
            if count:
                self.counts[name] += count
        return Forecast(
            step=self.step,
            p=p,
            label=int(p > self.config.decision.label_1_above),
            naive=answers[self._naive],
            labels_learnt=self.labels_learnt,
            unverified=unverified,
            observed_share=record.observed / max(1, len(self.columns.features)),
            uncertainty=entropy(p),
            experts={
                name: ExpertAnswer(answer, weights[name])
                for name, answer in zip(self.experts, answers, strict=True)
            },
            guard=guard,
            set=self.sets.of(p),
            why=self._why(instances, answers, p, why) if why else (),
            conflicts=record.conflicts,
            missing=record.missing,
            learnt=tuple(learnt),
            expired=tuple(each.instance.id for each in expired),
            defaulted=tuple(defaulted),
            orphans=tuple(orphans),
        )

    def _peek(self, record: EncodedRecord, why: int) -> Forecast:
        """Run the step on a deep copy, so that peeking changes nothing; any id is free there."""
        forecast = clone(self)._step("", record, None, why)
        return replace(forecast, learnt=(), expired=(), defaulted=(), orphans=())

    def _advance_clock(self, event_time_ms: int | None) -> None:
        """The clock of the stream is the largest event time it has carried."""
        if event_time_ms is not None and (self.clock_ms is None or event_time_ms > self.clock_ms):
            self.clock_ms = self.delay.clock_ms = event_time_ms

    def _learn(self, waited: PendingInstance, label: int) -> str:
        """Combination and experts learn a true label, from the vectors and numbers of the arrival.

        The combination is first: it sees what the experts say before they know the label.
        """
        instances, arrival, combined = self._instances(waited)
        self.sets.learn(waited.numbers[self._kept[1]], label)
        asked = self.combination.asked_again
        now = {name: self.experts[name].score(instances[name]) for name in asked}
        self.combination.learn(waited.step, arrival, now, combined, label)
        for name, expert in self.experts.items():
            expert.learn(instances[name], label)
        return waited.id

    def _answer_again(self, combination: Combination) -> None:
        """Once in its life, when the first labels are learnt: answer again all that wait then.

        The combination judges its members by these answers in place of those given on arrival.
        """
        combination.begin_second(self.step)
        if not combination.again:
            return
        waiting, next_step = self.delay.oldest(combination.again, SECOND_PER_STEP)
        for waited in waiting:
            instances, _, combined = self._instances(waited)
            answers = [expert.score(instances[name]) for name, expert in self.experts.items()]
            combination.answer_again(waited.step, answers, combined)
        combination.again = range(next_step, combination.again.stop)

    def _instances(
        self, waited: PendingInstance
    ) -> tuple[dict[str, Instance], Sequence[float], Sequence[float]]:
        """A waiting instance as each expert sees it, their answers, what the combination kept."""
        vectors = waited.vectors.padded(self.columns.width)
        combined, _, *kept = (waited.numbers[each] for each in self._kept)
        instances = {
            name: Instance(waited.step, vectors, numbers)
            for name, numbers in zip(self.experts, kept, strict=True)
        }
        return instances, waited.numbers[: len(instances)], combined

    def _let_go(self, left: list[Departure]) -> list[str]:
        """What leaves the delay table early is learnt, if there is a label for it, or forgotten.

        Returns the ids whose true labels were learnt.
        """
        for instance, _, label, _ in left:
            if label is not None:
                self._learn(instance, label)
                continue
            self.combination.forget(instance.step)
            for expert in self.experts.values():
                expert.forget(instance.step)
        return [each.instance.id for each in left if each.label is not None and not each.defaulted]

    def _grow(self, record: EncodedRecord) -> None:
        """Add columns for features and levels never seen before."""
        self.columns.absorb(record)
        if not record.additions:
            return
        fresh = len(record.additions)
        self.marginals.grow(fresh, [addition.sibling for addition in record.additions])
        self.copula.grow(fresh)
        if self._scales:
            self.scales.grow(fresh)
        for expert in self.experts.values():
            expert.grow(fresh)

    def _encode(self, record: EncodedRecord) -> Vectors:
        """The record in every scale; marginals and correlation learn from it."""
        self.marginals.absorb(record.row)
        scores = self.marginals.score(record.row, self.columns.kinds)
        if self.config.ablate.copula:
            latent = scores.original
        elif self.config.ablate.marginals:
            latent = np.nan_to_num(scores.latent)
        else:
            latent = self.copula.absorb(scores.latent, scores.spread, self.step)
        if not self._scales:
            return Vectors(latent, scores.original)
        cumulative, fast = self.scales.absorb(record.row)
        if "completed" not in self._scales:
            return Vectors(latent, scores.original, cumulative, fast)
        completed = self.scales.complete(record.row, cumulative, latent)
        return Vectors(latent, scores.original, cumulative, fast, completed)

    def _why(
        self, instances: Sequence[Instance], answers: Sequence[float], p: float, most: int
    ) -> tuple[Contribution, ...]:
        """The features that moved the log-odds of p most, and what all others and no feature did.

        All together sum to the log-odds. The rest also has biases, label rates, and what clipping
        and mixing of probabilities take away.
        """
        moved, pulls = np.zeros(self.columns.width), self.combination.pulls(answers)
        for (name, expert), instance in zip(self.experts.items(), instances, strict=True):
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
        snapshot.manifest["config"] = json.loads(self._settings)
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
        self.step, self.clock_ms = own["step"], own["clock_ms"]
        self.counts = Counter({name: require_int(n) for name, n in own["counts"].items()})
        self.columns = Columns.restore(config, section(snapshot, "columns")["features"])
        width, numbers = self.columns.width, self._kept[-1].stop
        rows = section(snapshot, "delay")
        self.delay = DelayTable.restore(config.delay, rows, numbers, width, self._scales)
        self.delay.clock_ms = self.clock_ms
        window, rows = config.copula.window, section(snapshot, "marginals")
        self.marginals = Marginals.restore(window, rows, width)
        scaled = width if self._scales else 0
        self.scales = RunningScales.restore(section(snapshot, "scales"), scaled)
        self.copula = Copula.restore(config.copula, section(snapshot, "copula"), width)
        if isinstance(self.combination, Combination):
            weights = section(snapshot, "combination")
            self.combination = Combination.restore(config.experts, weights)
        self.sets = ConformalSets.restore(config.decision, section(snapshot, "sets"))
        for name, expert in self.experts.items():
            kept = section(snapshot, f"experts/{name}")
            self.experts[name] = expert.restore(config, kept, width)
