"""Tracker: a mixture model of both classes that follows clouds which move while labels are late."""

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np

from dtgol_core import mixture
from dtgol_core.compiled import compiled, in_place
from dtgol_core.config import Config
from dtgol_core.elementary import log
from dtgol_core.mixture import (
    ABSORBED,
    BLOCK,
    COMPONENTS,
    LABEL_DECAY,
    MASS,
    NUMBERS,
    PRECISION,
    PRIOR_MASS,
    PRIOR_VARIANCE,
    RIDGE,
)
from dtgol_core.state import SnapshotError, flatten, require_shape, subsection
from dtgol_core.types import FloatArray, Inspection, Instance, IntArray, SingleArray

VERIFIED, SHADOW, LIVE, OWN = range(4)
"""First index of the arrays of the mixtures; the last is that of the tracker's own numbers."""
MEAN_STEP, CURSOR, IS_LIVE, ZEROS, ONES = range(5)
"""Places of these: the mean time of what is verified; the step from which the shadow goes on, or -1
if there is none; whether there is a live mixture; decayed counts of the classes."""
COMPLETED = 2
"""Its scale in `Vectors.scores`."""
PRIOR_DECAY = 0.9950124791926823
"""exp(−1/200): what stays of the counts of the classes with each label."""
FOLLOWED_PER_RECORD = 32
LABELS_TO_LEAVE = 32
"""With so many labels a shadow that left from fewer is given up: what it would tell is poor."""
WAITING_STEPS = 4096
RATE_MIN, RATE_MAX = 0.01, 0.99
STEP, ANSWER = range(2)
"""Columns of `Waiting.records`. Row 0 has the bounds of those that count in their place."""
GONE = -1.0
"""In place of an answer: the record waits no longer."""
NO_ROOM = -1.0
"""In place of an answer: there is no room for the record, and nothing has changed."""


class Tracker:
    """Gaussian components per class, carried from the last true labels to the present.

    Parameters
    ----------
    config
        Nothing of it: the numbers are constants, chosen on generated streams of moving clouds.

    Attributes
    ----------
    numbers, means, matrices
        The three mixtures: verified, shadow, live (`dtgol_core.mixture`). ``numbers`` has one row
        more, for the tracker's own.
    waiting
        Records without a label, of the last 4,096 steps.

    Notes
    -----
    ``logit = log π/(1−π) + log f_1(x) − log f_0(x)``, each ``f`` a mixture of four normal densities
    with one covariance for all. *Verified* learns true labels. *Shadow* leaves from a copy of it
    and absorbs the waiting records oldest first, 32 per record, each with its own posterior as
    label; arrived at the present it becomes *live*, which answers and goes on with what arrives.
    All formulas are in docs/learner.md. Cost per record: O(32·columns·min(48, columns)), about
    20 µs at 16 columns; state: 18 kB at 16 columns, and five quarters of the vectors that wait.

    It answers for the present: asked about an old record it would use what has been seen since. A
    waiting record therefore keeps its answer, the one on arrival and then the shadow's.

    References
    ----------
    Dyer, Capo and Polikar (2014), COMPOSE: a semisupervised learning framework for initially
    labeled nonstationary streaming data, IEEE TNNLS; Souza et al. (2015), Data stream
    classification guided by clustering on nonstationary environments and extreme verification
    latency, SDM. Both move labels along clouds in batches; here it is record by record, and true
    labels that come late correct it.
    """

    name: ClassVar[str] = "tracker"
    kept: ClassVar[tuple[str, ...]] = ()
    scales: ClassVar[tuple[str, ...]] = ("completed",)

    def __init__(self, config: Config) -> None:
        self.at = 0
        self.numbers = np.zeros((4, NUMBERS))
        self.numbers[OWN, CURSOR] = -1.0
        self.numbers[OWN, ZEROS] = self.numbers[OWN, ONES] = 1.0
        self.means = np.zeros((3, COMPONENTS, 0))
        self.matrices = np.zeros((3, 2, 0, 0))
        self.waiting = Waiting(0)

    def observe(self, instance: Instance) -> float:
        """The shadow follows the waiting records; the record begins to wait."""
        scores, waiting = instance.vectors.scores, self.waiting
        p = _observe(*self._arrays(), waiting.records, waiting.rows, scores, instance.step)
        if p == NO_ROOM:
            waiting.make_room()
            p = _observe(*self._arrays(), waiting.records, waiting.rows, scores, instance.step)
        return p

    def score(self, instance: Instance) -> float:
        """What a waiting record keeps; else the answer for the present: the posterior by the live
        mixture, or by the verified one before there is a live one."""
        return _score(*self._arrays(), self.waiting.records, instance.vectors.scores, instance.step)

    def learn(self, instance: Instance, label: int) -> float:
        """The verified mixture absorbs the record under its true label."""
        scores, step = instance.vectors.scores, instance.step
        return _learn(*self._arrays(), self.waiting.records, scores, step, label)

    def forget(self, step: int) -> None:
        """The record waits no longer."""
        self.waiting.forget(step)

    def correct(self, step: int, label: int) -> bool:
        """No instance is kept with its label."""
        return False

    def grow(self, columns: int) -> None:
        """Add columns in which all means and all waiting records are 0."""
        known = self.means.shape[2]
        wider = known + columns
        self.means = _widened(self.means, (3, COMPONENTS, wider))
        self.matrices = _widened(self.matrices, (3, 2, wider, min(BLOCK, wider)))
        fresh = np.arange(known, wider)
        masses = self.numbers[:OWN, MASS]
        variance = PRIOR_MASS * PRIOR_VARIANCE / (masses + PRIOR_MASS) + RIDGE
        self.matrices[:, PRECISION, fresh, fresh % BLOCK] = 1.0 / variance[:, None]
        self.waiting.grow(columns)

    def contributions(self, instance: Instance) -> FloatArray:
        """The parts of the classes' mean scores, weighed by the shares of their components."""
        moved = np.zeros(self.means.shape[2])
        if self.labels_learnt:
            row = instance.vectors.scores[COMPLETED]
            which = LIVE if self.live else VERIFIED
            numbers, means, matrices = (each[which] for each in self._arrays())
            mixture.contributions(row, numbers, means, matrices, moved)
        return moved

    def inspect(self) -> Inspection:
        """How many labels and waiting records there are, and the share of ones among the labels."""
        return Inspection(
            {
                "labels": float(self.labels_learnt),
                "waiting": float(len(self.waiting)),
                "prior": _prior(self.numbers[OWN]),
            },
            {},
        )

    @property
    def labels_learnt(self) -> int:
        """Labels that the verified mixture has absorbed."""
        return int(self.numbers[VERIFIED, ABSORBED])

    @property
    def live(self) -> bool:
        """Whether there is a live mixture."""
        return bool(self.numbers[OWN, IS_LIVE])

    def _arrays(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        return self.numbers, self.means, self.matrices

    def snapshot(self) -> dict[str, Any]:
        """The mixtures, where the shadow is, and the waiting records."""
        own = {name: getattr(self, name).copy() for name in ("numbers", "means", "matrices")}
        return own | flatten({"waiting": self.waiting.snapshot()})

    @classmethod
    def restore(cls, config: Config, snapshot: Mapping[str, Any], columns: int) -> Self:
        """The expert that `snapshot` described."""
        tracker = cls(config)
        tracker.grow(columns)
        for name in ("numbers", "means", "matrices"):
            array = snapshot[name]
            require_shape(name, array, getattr(tracker, name).shape)
            if not np.isfinite(array).all():
                raise SnapshotError(f"the snapshot is damaged: {name} is not finite")
            setattr(tracker, name, array.copy())
        weights, counts = tracker.numbers[:OWN, :COMPONENTS], tracker.numbers[:OWN, ABSORBED]
        own = tracker.numbers[OWN]
        if (weights < 0.0).any() or (counts < 0.0).any():
            raise SnapshotError("the snapshot is damaged: a negative count or weight")
        if not (own[ZEROS] > 0.0 and own[ONES] > 0.0):
            raise SnapshotError("the snapshot is damaged: a class count that is not positive")
        if not (0.0 <= own[MEAN_STEP] < 2.0**53 and -1.0 <= own[CURSOR] < 2.0**53):
            raise SnapshotError("the snapshot is damaged: a step that cannot be")
        tracker.waiting = Waiting.restore(subsection(snapshot, "waiting"), columns)
        return tracker


def _widened(array: FloatArray, shape: tuple[int, ...]) -> FloatArray:
    """The array in the corner of a larger one of zeros."""
    wider = np.zeros(shape)
    wider[tuple(map(slice, array.shape))] = array
    return wider


class Waiting:
    """The records of the last 4,096 steps that have no label yet, in the order of their steps.

    Records that have left stay where they are until the arrays are full; then the others move
    together, into arrays a quarter larger than they need. Cost of a record: O(columns), amortised.

    Attributes
    ----------
    records : (1 + room, 2)
        Step and newest answer of each, on arrival or by the shadow. Row 0 has the bounds of the
        places that count: before the first no record waits.
    rows : (1 + room, columns)
        Their vectors, at the same places.
    """

    def __init__(self, columns: int) -> None:
        self.rows: SingleArray = np.zeros((1, columns), dtype=np.float32)
        self.records = np.ones((1, 2))

    def __len__(self) -> int:
        return len(self._places())

    @property
    def state_bytes(self) -> int:
        """Memory of what waits; the spare room depends on when the arrays were last made."""
        return len(self) * int(self.rows.itemsize * self.rows.shape[1] + 16)

    def _places(self) -> IntArray:
        first, end = self.records[0].astype(int).tolist()
        places: IntArray = np.flatnonzero(self.records[first:end, ANSWER] != GONE) + first
        return places

    def make_room(self) -> None:
        """Bring together what waits, in arrays a quarter larger."""
        kept = self._places()
        self._hold(self.records[kept], self.rows[kept])

    def forget(self, step: int) -> None:
        """Overwrite the vector of a record with zeros, also if it has left; it waits no longer."""
        end = int(self.records[0, 1])
        place = 1 + int(np.searchsorted(self.records[1:end, STEP], step))
        if place < end and self.records[place, STEP] == step:
            self.records[place, ANSWER], self.rows[place] = GONE, 0.0

    def grow(self, columns: int) -> None:
        """Add columns of 0."""
        fresh = np.zeros((len(self.rows), columns), dtype=np.float32)
        self.rows = np.concatenate([self.rows, fresh], axis=1)

    def _hold(self, records: FloatArray, rows: SingleArray) -> None:
        """Hold these records, all of which wait, with room for a quarter more."""
        end = len(records) + 1
        places = end + len(records) // 4 + 64
        self.records = np.zeros((places, 2))
        self.rows = np.zeros((places, rows.shape[1]), dtype=np.float32)
        self.records[0] = 1, end
        self.records[1:end], self.rows[1:end] = records, rows

    def snapshot(self) -> dict[str, Any]:
        """The rows that wait."""
        kept = self._places()
        steps, answers = self.records[kept].T
        return {"steps": steps.astype(np.int64), "rows": self.rows[kept], "answers": answers.copy()}

    @staticmethod
    def restore(snapshot: Mapping[str, Any], columns: int) -> "Waiting":
        """The records that `snapshot` described, over so many columns."""
        waiting, steps, answers = Waiting(columns), snapshot["steps"], snapshot["answers"]
        require_shape("rows", snapshot["rows"], (len(steps), columns))
        require_shape("answers", answers, (len(steps),))
        if not ((answers >= 0.0) & (answers <= 1.0)).all():
            raise SnapshotError("the snapshot is damaged: an answer that is no probability")
        if len(steps) > WAITING_STEPS or not (np.diff(steps) > 0).all():
            raise SnapshotError("the snapshot is damaged: waiting records out of order")
        if not (np.abs(steps) < 2**53).all():
            raise SnapshotError("the snapshot is damaged: a step that cannot be")
        waiting._hold(np.column_stack([steps, answers]).astype(np.float64), snapshot["rows"])
        return waiting


@in_place
def _prior(own: FloatArray) -> float:
    """The share of ones among the labels, clipped."""
    share = float(own[ONES] / (own[ZEROS] + own[ONES]))
    return min(max(share, RATE_MIN), RATE_MAX)


@in_place
def _prior_log_odds(own: FloatArray) -> float:
    share = _prior(own)
    return log(share / (1.0 - share))


@in_place
def _find(records: FloatArray, step: float) -> int:
    """The first place that counts whose step is not before `step`."""
    low, high = int(records[0, 0]), int(records[0, 1])
    while low < high:
        middle = (low + high) // 2
        if records[middle, STEP] < step:
            low = middle + 1
        else:
            high = middle
    return low


@in_place
def _kept_answer(records: FloatArray, step: int) -> float:
    """The answer that the record of a step keeps, if it waits; else `GONE`."""
    place = _find(records, float(step))
    if place < int(records[0, 1]) and records[place, STEP] == step:
        return float(records[place, ANSWER])
    return GONE


@in_place
def _remove(records: FloatArray, step: int) -> None:
    """The record of a step waits no longer, if it did."""
    place = _find(records, float(step))
    if place < int(records[0, 1]) and records[place, STEP] == step:
        records[place, ANSWER] = GONE


@in_place
def _append(
    records: FloatArray, rows: SingleArray, step: int, row: SingleArray, answer: float
) -> None:
    """A record begins to wait; those of 4,096 steps ago have waited too long."""
    first, end = int(records[0, 0]), int(records[0, 1])
    records[end, STEP], records[end, ANSWER] = step, answer
    for column in range(len(row)):
        rows[end, column] = row[column]
    while first < end and (
        records[first, ANSWER] == GONE or records[first, STEP] <= step - WAITING_STEPS
    ):
        records[first, ANSWER] = GONE
        first += 1
    records[0, 0], records[0, 1] = first, end + 1


@in_place
def _copy(
    source: int, target: int, numbers: FloatArray, means: FloatArray, matrices: FloatArray
) -> None:
    for place in range(numbers.shape[1]):
        numbers[target, place] = numbers[source, place]
    for k in range(means.shape[1]):
        for column in range(means.shape[2]):
            means[target, k, column] = means[source, k, column]
    for which in range(matrices.shape[1]):
        for column in range(matrices.shape[2]):
            for place in range(matrices.shape[3]):
                matrices[target, which, column, place] = matrices[source, which, column, place]


@in_place
def _advance(
    numbers: FloatArray,
    means: FloatArray,
    matrices: FloatArray,
    records: FloatArray,
    rows: SingleArray,
    step: int,
    vectors: FloatArray,
    shares: FloatArray,
) -> None:
    """The shadow goes on, becomes live at the present; else live absorbs the record before this
    one if that still waits."""
    own, end = numbers[OWN], int(records[0, 1])
    prior = _prior_log_odds(own)
    if own[CURSOR] < 0.0:
        own[CURSOR] = math.floor(own[MEAN_STEP])
        _copy(VERIFIED, SHADOW, numbers, means, matrices)
        numbers[SHADOW, ABSORBED] = 0.0
    shadow, its_means, its_matrices = numbers[SHADOW], means[SHADOW], matrices[SHADOW]
    place, left = _find(records, own[CURSOR]), FOLLOWED_PER_RECORD
    while place < end and left > 0:
        if records[place, ANSWER] != GONE:
            left -= 1
            records[place, ANSWER] = mixture.follow(
                rows[place], prior, shadow, its_means, its_matrices, vectors, shares
            )
        place += 1
    while place < end and records[place, ANSWER] == GONE:
        place += 1
    if place == end:
        _copy(SHADOW, LIVE, numbers, means, matrices)
        own[CURSOR], own[IS_LIVE] = -1.0, 1.0
        return
    # The step and not only the answer: after a restore the last place is of the newest that waits.
    if (
        own[IS_LIVE] > 0.0
        and records[end - 1, STEP] == step - 1
        and records[end - 1, ANSWER] != GONE
    ):
        mixture.follow(
            rows[end - 1], prior, numbers[LIVE], means[LIVE], matrices[LIVE], vectors, shares
        )
    own[CURSOR] = records[place, STEP]


@in_place
def _answer(
    numbers: FloatArray,
    means: FloatArray,
    matrices: FloatArray,
    row: SingleArray,
    vectors: FloatArray,
    shares: FloatArray,
) -> float:
    """The answer for the present."""
    if numbers[VERIFIED, ABSORBED] == 0.0:
        return 0.5
    which = LIVE if numbers[OWN, IS_LIVE] > 0.0 else VERIFIED
    prior = _prior_log_odds(numbers[OWN])
    mixture_of = numbers[which], means[which], matrices[which]
    return mixture.answer(row, prior, *mixture_of, vectors, shares)


@compiled
def _observe(
    numbers: FloatArray,
    means: FloatArray,
    matrices: FloatArray,
    records: FloatArray,
    rows: SingleArray,
    scores: SingleArray,
    step: int,
) -> float:
    """Follow, answer and let the record wait; `NO_ROOM` if there is no room for it."""
    if int(records[0, 1]) >= len(records):
        return NO_ROOM
    vectors, shares = mixture.new_vectors(means.shape[2]), mixture.new_shares()
    if numbers[VERIFIED, ABSORBED] > 0.0:
        _advance(numbers, means, matrices, records, rows, step, vectors, shares)
    answer = _answer(numbers, means, matrices, scores[COMPLETED], vectors, shares)
    _append(records, rows, step, scores[COMPLETED], answer)
    return answer


@compiled
def _score(
    numbers: FloatArray,
    means: FloatArray,
    matrices: FloatArray,
    records: FloatArray,
    scores: SingleArray,
    step: int,
) -> float:
    """What the record keeps if it waits, else the answer for the present."""
    kept = _kept_answer(records, step)
    if kept != GONE:
        return kept
    vectors, shares = mixture.new_vectors(means.shape[2]), mixture.new_shares()
    return _answer(numbers, means, matrices, scores[COMPLETED], vectors, shares)


@compiled
def _learn(
    numbers: FloatArray,
    means: FloatArray,
    matrices: FloatArray,
    records: FloatArray,
    scores: SingleArray,
    step: int,
    label: int,
) -> float:
    """The verified mixture absorbs the record under its true label; its answer before that."""
    vectors, shares = mixture.new_vectors(means.shape[2]), mixture.new_shares()
    answer = _kept_answer(records, step)
    if answer == GONE:
        answer = _answer(numbers, means, matrices, scores[COMPLETED], vectors, shares)
    _remove(records, step)
    own, labels = numbers[OWN], numbers[VERIFIED, ABSORBED] + 1.0
    own[MEAN_STEP] += max(1.0 / labels, 1.0 - LABEL_DECAY) * (step - own[MEAN_STEP])
    mixture.learn(
        scores[COMPLETED],
        label,
        _prior_log_odds(own),
        numbers[VERIFIED],
        means[VERIFIED],
        matrices[VERIFIED],
        vectors,
        shares,
    )
    own[ZEROS] *= PRIOR_DECAY
    own[ONES] *= PRIOR_DECAY
    own[ONES if label else ZEROS] += 1.0
    if labels == LABELS_TO_LEAVE:
        own[CURSOR] = -1.0
    return answer
