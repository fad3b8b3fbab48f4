"""Persistent and transient learner of one space.

In: a vector, true labels as they are learnt, soft labels for a window. Out: probabilities. Only
true labels ever touch the persistent weights and those that rehearse the verified set; the
transient ones branch off for one prediction and are thrown away.
"""

import math
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from dtgol_core.compiled import compiled
from dtgol_core.config import TracksConfig
from dtgol_core.types import FloatArray, IntArray

Labels: TypeAlias = npt.NDArray[np.int8]
"""0, 1, or less than 0 for an instance without a true label."""


class Tracks:
    """Logistic regression by online gradient descent, with a branch for the delay window.

    Parameters
    ----------
    config
        `rate` and `rate_floor` of the persistent step, `l2` on the persistent weights;
        `rehearsal_rate` and `rehearsal_l2` of the rehearsing ones; `transient_rate` and
        `transient_reduction` of the branch. No penalty touches the bias.
    dual
        False: one set of weights takes every step, rehearsal and branch included (ablation).

    Notes
    -----
    Persistent, for the k-th label, ``w ← w − η_k(∇CE(σ(w·u), y) + l2·w)``, ``η_k = max(floor,
    rate/√k)``. Rehearsing, with every label, ``r ← r − η_R(mean ∇CE over the verified set +
    l2_R·r)``. Transient ``a − η_T g`` with ``g`` the gradient of the soft cross entropy over the
    window, summed or averaged, and ``a`` the *anchor*: ``r``, or ``w`` without rehearsal.
    ``weights[0]`` is the bias. Cost: O(d) to score or learn, O(verified·d) to rehearse,
    O(window·d) to branch.

    References
    ----------
    Wang, He, You and Wu, DT-GOL. Differs from the paper: the rate falls, and the branch leaves
    from rehearsed weights (docs/decisions/0011-defaults.md has what each is worth).

    >>> tracks = Tracks(TracksConfig(rate=1.0))
    >>> tracks.grow(1)
    >>> tracks.learn(np.array([2.0]), 1, labels=1)
    >>> tracks.weights.tolist()
    [0.5, 1.0]
    """

    def __init__(self, config: TracksConfig, dual: bool = True) -> None:
        self._config = config
        self.weights = np.zeros(1)
        self.rehearsed = np.zeros(1) if dual and config.rehearsal_rate else None

    @property
    def anchor(self) -> FloatArray:
        """The weights from which the transient track and the travelling classifier start."""
        return self.weights if self.rehearsed is None else self.rehearsed

    def grow(self, columns: int) -> None:
        """Add columns of weight 0."""
        self.weights = np.concatenate([self.weights, np.zeros(columns)])
        if self.rehearsed is not None:
            self.rehearsed = np.concatenate([self.rehearsed, np.zeros(columns)])

    def score(self, vector: FloatArray) -> float:
        """P(y=1) of the persistent track."""
        return _score(self.weights, vector)

    def answer(self, vector: FloatArray, branch: FloatArray) -> tuple[float, float]:
        """P(y=1) of the persistent track and of a branch."""
        return _answer(self.weights, branch, vector)

    def learn(self, vector: FloatArray, label: int, labels: int) -> None:
        """One persistent step on a true label; `labels` counts those so far, this one included."""
        config = self._config
        rate = max(config.rate_floor, config.rate / math.sqrt(labels))
        _learn(self.weights, vector, label, rate, config.l2)

    def rehearse(self, vectors: FloatArray, label: Labels, steps: IntArray) -> None:
        """One step on the verified set: the taken slots (`steps` ≥ 0) with a true label."""
        config = self._config
        if config.rehearsal_rate:
            _rehearse(
                self.anchor, vectors, label, steps, config.rehearsal_rate, config.rehearsal_l2
            )

    def branch(self, vectors: FloatArray, slots: IntArray, soft: FloatArray) -> FloatArray:
        """Transient weights: one step from the anchor on the soft-labelled window."""
        rate = self._config.transient_rate
        if self._config.transient_reduction == "mean":
            rate /= max(1, len(slots))
        branched = self.anchor.copy()
        _branch(self.anchor, branched, vectors, slots, soft, rate)
        return branched

    def snapshot(self) -> dict[str, Any]:
        """The persistent weights, bias first, and the rehearsing ones if there are any."""
        kept: dict[str, Any] = {"weights": self.weights.copy()}
        if self.rehearsed is not None:
            kept |= {"rehearsed": self.rehearsed.copy(), "rehearses": True}
        return kept

    @staticmethod
    def restore(config: TracksConfig, snapshot: dict[str, Any], dual: bool = True) -> "Tracks":
        """The tracks that `snapshot` described; rehearsal that is new starts as the persistent."""
        tracks = Tracks(config, dual)
        tracks.weights = snapshot["weights"].copy()
        rehearses = snapshot.get("rehearses", False)
        if rehearses is not ("rehearsed" in snapshot):
            raise ValueError(
                "rehearsed weights without the word that there are any, or the reverse"
            )
        if tracks.rehearsed is not None:
            tracks.rehearsed = snapshot["rehearsed" if rehearses else "weights"].copy()
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
def _rehearse(
    weights: FloatArray,
    vectors: FloatArray,
    label: Labels,
    steps: IntArray,
    rate: float,
    l2: float,
) -> None:
    gradient = np.zeros(len(weights))
    count = 0
    for slot in range(len(label)):
        if steps[slot] >= 0 and label[slot] >= 0:
            count += 1
            residual = _score(weights, vectors[slot]) - label[slot]
            gradient[0] += residual
            for column in range(vectors.shape[1]):
                gradient[column + 1] += residual * vectors[slot, column]
    if count == 0:
        return
    weights[0] -= rate * gradient[0] / count
    for column in range(1, len(weights)):
        weights[column] -= rate * (gradient[column] / count + l2 * weights[column])


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
