"""Which classes a forecast leaves open: conformal sets, class by class, that adapt to their errors.

In: p of a forecast; later p and its label. Out: the set of classes, ``(0,)``, ``(1,)`` or
``(0, 1)``; the last one is what to send to a human. p itself is never changed by it.
"""

import math
from bisect import bisect_left, insort
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from dtgol_core.config import DecisionConfig
from dtgol_core.state import COUNT_MAX, SnapshotError, require_shape

WINDOW = 500
"""Labels of each class that p is compared with: coverage of 0.9 is then known to about 0.013."""
RATE = 0.005
"""Step of the level after each label. Gibbs & Candès chose 0.005 for the same purpose."""
BOTH = (0, 1)


class ConformalSets:
    """Adaptive conformal sets of one stream, with a level of its own for each class.

    Parameters
    ----------
    config
        `coverage`, the share of the labels of each class that the sets should contain.

    Attributes
    ----------
    scores
        The newest scores of each class, a ring, shape (2, 500).
    labels
        Labels learnt of each class, shape (2,).
    shifts
        What was added to the coverage asked for, to make up for errors, shape (2,).

    Notes
    -----
    The score of class y is the probability that the forecast gave to the other class: ``s_1 = 1 −
    p``, ``s_0 = p``. With n scores of labels that were y, class y is in the set if ``#{s_i < s_y} <
    ⌈(n + 1)·c_y⌉``, that is if s_y is at most the conformal quantile; with few labels it always is.
    Where no class is in, p lies between the two classes and both are given. A label y: ``c_y ← c_y
    + 0.005·(e − (1 − c))`` with c the coverage asked for and e = 1 if y is not in by the p of its
    arrival and the scores of *now*; then its score is kept. Taken against the set that was given on
    arrival, a long delay would make the level swing.

    Over any T labels of a class, however the stream moves, the share of e differs from 1 − c by at
    most ``(max(c, 1 − c) + 0.005)/(0.005·T)``. That is about sets by the newest labels; what the
    sets contain that were given on arrival is measured by the evaluator. Cost: O(log 500) a set.

    References
    ----------
    Gibbs & Candès (2021), Adaptive conformal inference under distribution shift, NeurIPS; Vovk
    (2012), Conditional validity of inductive conformal predictors, ACML (classes on their own).
    That both classes are given in place of none is our own: it can only cover more.

    >>> sets = ConformalSets(DecisionConfig(coverage=0.5))
    >>> sets.of(0.9)
    (0, 1)
    >>> for p, label in ((0.8, 1), (0.9, 1), (0.1, 0), (0.2, 0)):
    ...     sets.learn(p, label)
    >>> sets.of(0.9), sets.of(0.5), sets.of(0.1)
    ((1,), (0, 1), (0,))
    """

    CACHES: ClassVar[tuple[str, ...]] = ("_ordered_0", "_ordered_1", "_limits")

    def __init__(self, config: DecisionConfig) -> None:
        self._coverage = config.coverage
        self.scores = np.zeros((2, WINDOW))
        self.labels = [0, 0]
        self.shifts = [0.0, 0.0]
        # These follow from the others. The scores that count of each class, in ascending order:
        self._ordered_0: list[float] = []
        self._ordered_1: list[float] = []
        # The largest score with which each class is in the set:
        self._limits = [math.inf, math.inf]
        for y in BOTH:
            self._find_limit(y)

    def of(self, p: float) -> tuple[int, ...]:
        """The set of a forecast."""
        limit_0, limit_1 = self._limits
        if p <= limit_0:
            return BOTH if 1.0 - p <= limit_1 else (0,)
        return (1,) if 1.0 - p <= limit_1 else BOTH

    def learn(self, p: float, label: int) -> None:
        """A label, with the p that was given on arrival."""
        score = 1.0 - p if label else p
        missed = score > self._limits[label]
        self.shifts[label] += RATE * (missed - (1.0 - self._coverage))
        ordered, place = self._ordered(label), self.labels[label] % WINDOW
        if len(ordered) == WINDOW:
            del ordered[bisect_left(ordered, float(self.scores[label, place]))]
        insort(ordered, score)
        self.scores[label, place] = score
        self.labels[label] += 1
        self._find_limit(label)

    def _find_limit(self, y: int) -> None:
        """The conformal quantile: the ⌈(n + 1)·c_y⌉-th smallest score."""
        ordered = self._ordered(y)
        rank = math.ceil((len(ordered) + 1) * (self._coverage + self.shifts[y]))
        if rank > len(ordered):
            self._limits[y] = math.inf
        else:
            self._limits[y] = ordered[rank - 1] if rank > 0 else -math.inf

    def _ordered(self, y: int) -> list[float]:
        return self._ordered_1 if y else self._ordered_0

    def snapshot(self) -> dict[str, Any]:
        """Scores, counts and shifts."""
        return {
            "scores": self.scores.copy(),
            "labels": np.array(self.labels),
            "shifts": np.array(self.shifts),
        }

    @staticmethod
    def restore(config: DecisionConfig, snapshot: Mapping[str, Any]) -> "ConformalSets":
        """The sets that `snapshot` described."""
        sets = ConformalSets(config)
        for name, like in sets.snapshot().items():
            require_shape(f"sets.{name}", snapshot[name], like.shape)
        labels, shifts = snapshot["labels"], snapshot["shifts"]
        scores = snapshot["scores"]
        sound = ((labels >= 0) & (labels < COUNT_MAX)).all() and np.isfinite(shifts).all()
        if not (sound and ((scores >= 0.0) & (scores <= 1.0)).all()):
            raise SnapshotError("the snapshot does not fit together: sets.labels or sets.shifts")
        sets.scores = snapshot["scores"].copy()
        sets.labels, sets.shifts = labels.tolist(), shifts.tolist()
        for y in BOTH:
            filled = sets.scores[y, : min(sets.labels[y], WINDOW)]
            sets._ordered(y).extend(np.sort(filled).tolist())
            sets._find_limit(y)
        return sets
