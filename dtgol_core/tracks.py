"""Persistent and transient learner of one space.

In: a vector, true labels as they are learnt, soft labels for a window. Out: probabilities. Only a
true label ever touches the persistent weights; the transient ones branch off for one prediction
and are thrown away.
"""

import math
from typing import Any

import numpy as np

from dtgol_core.compiled import compiled
from dtgol_core.config import TracksConfig
from dtgol_core.types import FloatArray, IntArray


class Tracks:
    """Logistic regression by online gradient descent, with a branch for the delay window.

    Parameters
    ----------
    config
        `rate` of the persistent step, `transient_rate` and `transient_reduction` of the branch,
        `l2` on the persistent weights (not on the bias).

    Notes
    -----
    Persistent ``w ← w − η(∇CE(σ(w·u), y) + l2·w)``; transient ``w − η_T g`` with ``g`` the gradient
    of the soft cross entropy over the window, summed or averaged. ``weights[0]`` is the bias.
    Cost: O(d) to score or learn, O(window·d) to branch.

    >>> tracks = Tracks(TracksConfig(rate=1.0))
    >>> tracks.grow(1)
    >>> tracks.learn(np.array([2.0]), 1)
    >>> tracks.weights.tolist()
    [0.5, 1.0]
    """

    def __init__(self, config: TracksConfig) -> None:
        self._config = config
        self.weights = np.zeros(1)

    def grow(self, columns: int) -> None:
        """Add columns of weight 0."""
        self.weights = np.concatenate([self.weights, np.zeros(columns)])

    def score(self, vector: FloatArray) -> float:
        """P(y=1) of the persistent track."""
        return _score(self.weights, vector)

    def answer(self, vector: FloatArray, branch: FloatArray) -> tuple[float, float]:
        """P(y=1) of the persistent track and of a branch."""
        return _answer(self.weights, branch, vector)

    def learn(self, vector: FloatArray, label: int) -> None:
        """One persistent step on a true label."""
        _learn(self.weights, vector, label, self._config.rate, self._config.l2)

    def branch(self, vectors: FloatArray, slots: IntArray, soft: FloatArray) -> FloatArray:
        """Transient weights: one step from the persistent ones on the soft-labelled window."""
        rate = self._config.transient_rate
        if self._config.transient_reduction == "mean":
            rate /= max(1, len(slots))
        branched = self.weights.copy()
        _branch(self.weights, branched, vectors, slots, soft, rate)
        return branched

    def snapshot(self) -> dict[str, Any]:
        """The persistent weights, bias first."""
        return {"weights": self.weights.copy()}

    @staticmethod
    def restore(config: TracksConfig, snapshot: dict[str, Any]) -> "Tracks":
        """The tracks that `snapshot` described."""
        tracks = Tracks(config)
        tracks.weights = snapshot["weights"].copy()
        return tracks


@compiled
def _score(weights: FloatArray, vector: FloatArray) -> float:
    logit = weights[0]
    for column in range(len(vector)):
        logit += weights[column + 1] * vector[column]
    if logit >= 0.0:
        return 1.0 / (1.0 + math.exp(-logit))
    e = math.exp(logit)
    return e / (1.0 + e)


@compiled
def _answer(weights: FloatArray, branch: FloatArray, vector: FloatArray) -> tuple[float, float]:
    return _score(weights, vector), _score(branch, vector)


@compiled
def _learn(weights: FloatArray, vector: FloatArray, label: int, rate: float, l2: float) -> None:
    residual = _score(weights, vector) - label
    weights[0] -= rate * residual
    for column in range(len(vector)):
        weights[column + 1] -= rate * (residual * vector[column] + l2 * weights[column + 1])


@compiled
def _branch(
    weights: FloatArray,
    branched: FloatArray,
    vectors: FloatArray,
    slots: IntArray,
    soft: FloatArray,
    rate: float,
) -> None:
    gradient = np.zeros(len(weights))
    for place in range(len(slots)):
        slot = slots[place]
        residual = _score(weights, vectors[slot]) - soft[slot]
        gradient[0] += residual
        for column in range(vectors.shape[1]):
            gradient[column + 1] += residual * vectors[slot, column]
    for column in range(len(weights)):
        branched[column] = weights[column] - rate * gradient[column]
