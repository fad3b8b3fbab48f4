"""Recent: Bayesian logistic regression over the labels that were last learnt, and their rate."""

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np

from dtgol_core import bayes
from dtgol_core.bayes import Regression
from dtgol_core.compiled import compiled, in_place
from dtgol_core.config import Config
from dtgol_core.elementary import log, sigmoid
from dtgol_core.state import SnapshotError, require_count, require_int
from dtgol_core.types import FloatArray, Inspection, Instance

LAGS = 32
RATE = 0.02
"""Least weight of a new label in the label rate: about the last fifty count."""
RATE_CLIP = 0.02
MEMORY = 0.99997
VARIANCE = 0.1


class Recent:
    """What the labels alone say about the next one: rates that wander, labels that come in runs or
    with a period. It looks at no column.

    Notes
    -----
    `Regression` over ``x = [1, l_1 … l_32, r]``: ``l_k`` is +1 or −1 for the k-th newest of the
    labels that had been learnt when the record arrived, 0 if there were fewer, and ``r`` the
    log-odds of the label rate at that time, clipped to [.02, .98]. With the n-th label
    ``rate ← rate + max(1/(n+1), .02)(y − rate)``, from ½. Prior: mean 0, variance 1 for the bias
    and .1 for the others; with every label one drift with ρ = .99997, then one update. Cost:
    O(34²).

    The labels known on arrival wait with the instance as one number: a leading 1, then one bit for
    each label, the newest last. 33 bits are exact in a float64.
    """

    name: ClassVar[str] = "recent"
    kept: ClassVar[tuple[str, ...]] = ("labels", "rate")
    scales: ClassVar[tuple[str, ...]] = ()

    def __init__(self, config: Config) -> None:
        self.at = 0
        self.labels = 1
        self.rate = 0.5
        self.labels_learnt = 0
        self.regression = Regression(*_prior(), MEMORY)

    def observe(self, instance: Instance) -> float:
        """The regression's answer from the labels and the rate as they are known now."""
        table, at = self.regression.table, self.at
        return _observe(table, float(self.labels), self.rate, instance.numbers, at)

    def score(self, instance: Instance) -> float:
        """The regression's answer from what was known on arrival."""
        return _score(self.regression.table, instance.numbers, self.at)

    def learn(self, instance: Instance, label: int) -> float:
        """One drift, one update; then the label joins those that are known."""
        p = _learn(self.regression.table, instance.numbers, self.at, label)
        self.labels = self.labels << 1 | label
        if self.labels >> LAGS + 1:
            self.labels = 1 << LAGS | self.labels & (1 << LAGS) - 1
        self.labels_learnt += 1
        self.rate += max(1.0 / (self.labels_learnt + 1), RATE) * (label - self.rate)
        return p

    def forget(self, step: int) -> None:
        """Nothing is kept of an instance."""

    def correct(self, step: int, label: int) -> bool:
        """Which of the labels it was is not kept."""
        return False

    def grow(self, columns: int) -> None:
        """Columns have no part in it."""

    def contributions(self, instance: Instance) -> FloatArray:
        """Columns have no part in it."""
        return np.zeros(instance.vectors.spaces.shape[1])

    def inspect(self) -> Inspection:
        """The label rate, and the weights of the newest label and of the rate."""
        mean = self.regression.mean
        numbers = {"rate": self.rate, "weight_last": mean[1], "weight_rate": mean[LAGS + 1]}
        return Inspection(numbers, {})

    def snapshot(self) -> dict[str, Any]:
        """The regression, the newest labels, their rate and number."""
        return {
            **self.regression.snapshot(),
            "labels": self.labels,
            "rate": self.rate,
            "labels_learnt": self.labels_learnt,
        }

    @classmethod
    def restore(cls, config: Config, snapshot: Mapping[str, Any], columns: int) -> Self:
        """The expert that `snapshot` described."""
        recent = cls(config)
        recent.regression = Regression.restore(*_prior(), MEMORY, dict(snapshot))
        recent.labels, recent.rate = require_int(snapshot["labels"]), snapshot["rate"]
        recent.labels_learnt = require_count(snapshot["labels_learnt"])
        if not (1 <= recent.labels < 2 << LAGS and 0.0 <= recent.rate <= 1.0):
            raise SnapshotError("the snapshot does not fit together: labels of recent")
        return recent


def _prior() -> tuple[FloatArray, FloatArray]:
    variance = np.full(LAGS + 2, VARIANCE)
    variance[0] = 1.0
    return np.zeros(LAGS + 2), variance


@compiled
def _observe(table: FloatArray, labels: float, rate: float, numbers: FloatArray, at: int) -> float:
    """The answer to a record that arrives; what is known now is kept for its label."""
    numbers[at], numbers[at + 1] = labels, rate
    return _score(table, numbers, at)


@compiled
def _score(table: FloatArray, numbers: FloatArray, at: int) -> float:
    x = np.empty(LAGS + 2)
    _unpack(numbers[at], numbers[at + 1], x)
    return sigmoid(bayes.score(table, x))


@compiled
def _learn(table: FloatArray, numbers: FloatArray, at: int, label: int) -> float:
    """Learn a label; the answer before that."""
    x = np.empty(LAGS + 2)
    _unpack(numbers[at], numbers[at + 1], x)
    p = sigmoid(bayes.score(table, x))
    bayes.learn(table, MEMORY, x, label)
    return p


@in_place
def _unpack(labels: float, rate: float, x: FloatArray) -> None:
    """x, from the labels and the rate as they were packed."""
    left, x[0] = int(labels), 1.0
    for lag in range(1, LAGS + 1):
        x[lag] = 0.0 if left <= 1 else 1.0 if left & 1 else -1.0
        left >>= 1
    clipped = min(max(rate, RATE_CLIP), 1.0 - RATE_CLIP)
    x[LAGS + 1] = log(clipped / (1.0 - clipped))
