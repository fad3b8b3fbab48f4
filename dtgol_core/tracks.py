"""Logistic regression of one space: the persistent track, and the dual track of the paper.

In: a vector, true labels as they are learnt, soft labels for a window. Out: probabilities. Only
true labels ever touch the persistent weights and those that rehearse the verified set; the
transient ones branch off anew for every record.
"""

import math
from typing import Any

import numpy as np

from dtgol_core import logistic
from dtgol_core.compiled import compiled, in_place
from dtgol_core.config import TracksConfig
from dtgol_core.logistic import Labels
from dtgol_core.state import SnapshotError, require_shape
from dtgol_core.types import FloatArray, IntArray, SlotVectors

RATE, RATE_FLOOR, L2, REHEARSAL_RATE, REHEARSAL_L2, TRANSIENT_RATE, BY_MEAN, ANCHOR = range(8)
"""Places in the settings of the tracks, as a compiled loop takes them."""
PERSISTENT, REHEARSED, TRANSIENT = range(3)
"""Rows of `DualTrack.table`."""


def rates(config: TracksConfig, dual: bool = True) -> FloatArray:
    """The settings of the tracks as one array; the last is the row of the anchor's weights, less
    than 0 where there is but one set of weights."""
    persistent = config.rate, config.rate_floor, config.l2
    rehearsed = config.rehearsal_rate, config.rehearsal_l2
    transient = config.transient_rate, config.transient_reduction == "mean"
    anchor = -1 if not dual else REHEARSED if config.rehearsal_rate else PERSISTENT
    return np.array([*persistent, *rehearsed, *transient, anchor])


@in_place
def rate_of(rates: FloatArray, labels: float) -> float:
    """The rate of a step of the persistent track on the `labels`-th label."""
    rate: float = max(rates[RATE_FLOOR], rates[RATE] / math.sqrt(labels))
    return rate


class PersistentTrack:
    """Logistic regression by online gradient descent.

    Parameters
    ----------
    config
        `rate` and `rate_floor` of the step, `l2` on the weights but not on the bias.

    Notes
    -----
    For the k-th label ``w ← w − η_k(∇CE(σ(w·u), y) + l2·w)``, ``η_k = max(floor, rate/√k)``.
    ``weights[0]`` is the bias. Cost: O(d) to score or learn.

    References
    ----------
    Zinkevich (2003), Online convex programming and generalized infinitesimal gradient ascent, ICML.

    >>> track = PersistentTrack(TracksConfig(rate=1.0))
    >>> track.grow(1)
    >>> track.learn(np.array([2.0]), 1, labels=1)
    >>> track.weights.tolist()
    [0.5, 1.0]
    """

    def __init__(self, config: TracksConfig) -> None:
        self.rates = rates(config)
        self.weights = np.zeros(1)

    def grow(self, columns: int) -> None:
        """Add columns of weight 0."""
        self.weights = np.concatenate([self.weights, np.zeros(columns)])

    def score(self, vector: FloatArray) -> float:
        """P(y=1)."""
        return logistic.score(self.weights, vector)

    def learn(self, vector: FloatArray, label: int, labels: int) -> None:
        """One step on a true label; `labels` counts those so far, this one included."""
        rate = rate_of(self.rates, float(labels))
        logistic.learn(self.weights, vector, label, rate, self.rates[L2])

    def snapshot(self) -> dict[str, Any]:
        """The weights, bias first."""
        return {"weights": self.weights.copy()}

    @staticmethod
    def restore(config: TracksConfig, snapshot: dict[str, Any], columns: int) -> "PersistentTrack":
        """The track that `snapshot` described, over so many columns."""
        track = PersistentTrack(config)
        require_shape("weights", snapshot["weights"], (columns + 1,))
        track.weights = snapshot["weights"].copy()
        return track


class DualTrack:
    """A persistent track with rehearsed weights beside it and transient ones that leave from those.

    Parameters
    ----------
    config
        As for `PersistentTrack`; `rehearsal_rate` and `rehearsal_l2` of the rehearsed weights;
        `transient_rate` and `transient_reduction` of the transient ones. No penalty touches a bias.
    dual
        False: one set of weights takes every step, rehearsal and branch included (ablation).

    Notes
    -----
    Rehearsed, with every label: ``r ← r − η_R(mean ∇CE over the verified set + l2_R·r)``.
    Transient, with every record: ``a − η_T g`` with ``g`` the gradient of the soft cross entropy
    over the window, summed or averaged, and ``a`` the *anchor*: ``r``, or ``w`` without rehearsal.
    Cost: O(verified·d) to rehearse, O(window·d) to branch. The methods from `score` to `restart`,
    and `anchor`, run one stage alone, for tests and for looking at it.

    References
    ----------
    Wang, He, You and Wu, DT-GOL. Differs from the paper: the rate falls, and the branch leaves
    from rehearsed weights (docs/decisions/0011-defaults.md has what each is worth).
    """

    def __init__(self, config: TracksConfig, dual: bool = True) -> None:
        self.rates = rates(config, dual)
        self.table = np.zeros((3, 1))
        """Persistent, rehearsed (if there are any) and transient weights, bias first. The latter
        are the branch of the newest record."""

    @property
    def weights(self) -> FloatArray:
        """The persistent weights, shape (columns + 1,), as the others."""
        weights: FloatArray = self.table[PERSISTENT]
        return weights

    @property
    def rehearsed(self) -> FloatArray | None:
        """The rehearsed weights, if there are any."""
        return self.table[REHEARSED] if self.rates[ANCHOR] == REHEARSED else None

    @property
    def transient(self) -> FloatArray:
        """The branch of the newest record."""
        transient: FloatArray = self.table[TRANSIENT]
        return transient

    @property
    def anchor(self) -> FloatArray:
        """The weights from which the branch and the travelling classifier start."""
        return anchor(self.table, self.rates)

    def grow(self, columns: int) -> None:
        """Add columns of weight 0."""
        self.table = np.concatenate([self.table, np.zeros((3, columns))], axis=1)

    def score(self, vector: FloatArray) -> float:
        """P(y=1) of the persistent weights."""
        return logistic.score(self.weights, vector)

    def answer(self, vector: FloatArray) -> tuple[float, float]:
        """P(y=1) of the persistent and of the transient weights."""
        return logistic.score(self.weights, vector), logistic.score(self.transient, vector)

    def learn(self, vector: FloatArray, label: int, labels: int) -> None:
        """One step of the persistent weights on the `labels`-th true label."""
        rate = rate_of(self.rates, float(labels))
        logistic.learn(self.weights, vector, label, rate, self.rates[L2])

    def rehearse(self, vectors: FloatArray, label: Labels, slots: IntArray) -> None:
        """One step on the verified set: these slots, with their true labels."""
        both = vectors, np.ascontiguousarray(vectors.T)
        rehearse(self.table, self.rates, both, label, slots)

    def branch(self, vectors: FloatArray, slots: IntArray, soft: FloatArray) -> None:
        """Make new transient weights: one step from the anchor on the soft-labelled window."""
        both = vectors, np.ascontiguousarray(vectors.T)
        branch(self.table, self.rates, both, slots, soft)

    def restart(self) -> None:
        """Make new transient weights that are the anchor's: there are no soft labels."""
        restart(self.table, self.rates)

    def snapshot(self) -> dict[str, Any]:
        """All weights, bias first; the rehearsed ones if there are any."""
        kept: dict[str, Any] = {
            "weights": self.weights.copy(),
            "transient": self.transient.copy(),
        }
        if self.rehearsed is not None:
            kept |= {"rehearsed": self.rehearsed.copy(), "rehearses": True}
        return kept

    @staticmethod
    def restore(
        config: TracksConfig, snapshot: dict[str, Any], columns: int, dual: bool = True
    ) -> "DualTrack":
        """The track that `snapshot` described; rehearsal that is new starts as the persistent."""
        track = DualTrack(config, dual)
        rehearses = snapshot.get("rehearses", False)
        if rehearses is not ("rehearsed" in snapshot):
            raise SnapshotError("the snapshot does not fit together: rehearsed weights")
        rehearsed = snapshot["rehearsed" if rehearses else "weights"]
        rows = snapshot["weights"], rehearsed, snapshot["transient"]
        for weights in rows:
            require_shape("weights", weights, (columns + 1,))
        track.table = np.array(rows)
        return track


@compiled
def anchor(table: FloatArray, rates: FloatArray) -> FloatArray:
    """The weights from which the branch and the travelling classifier start."""
    weights: FloatArray = table[max(int(rates[ANCHOR]), PERSISTENT)]
    return weights


@compiled
def restart(table: FloatArray, rates: FloatArray) -> None:
    """Transient weights that are the anchor's."""
    weights = anchor(table, rates)
    for column in range(len(weights)):
        table[TRANSIENT, column] = weights[column]


@compiled
def branch(
    table: FloatArray,
    rates: FloatArray,
    vectors: SlotVectors,
    slots: IntArray,
    soft: FloatArray,
) -> None:
    """One step from the anchor on the soft-labelled window; without a dual track it stays."""
    rate = rates[TRANSIENT_RATE]
    if rates[BY_MEAN] > 0.0:
        rate /= max(1, len(slots))
    weights, branched = anchor(table, rates), table[TRANSIENT]
    logistic.branch(weights, branched, vectors, slots, soft, rate)
    if rates[ANCHOR] < 0.0:
        for column in range(table.shape[1]):
            table[PERSISTENT, column] = table[TRANSIENT, column]


@compiled
def rehearse(
    table: FloatArray,
    rates: FloatArray,
    vectors: SlotVectors,
    label: Labels,
    slots: IntArray,
) -> None:
    """One step of the anchor on the verified set, if there is rehearsal."""
    rate, l2 = rates[REHEARSAL_RATE], rates[REHEARSAL_L2]
    if rate > 0.0 and len(slots) > 0:
        logistic.rehearse(anchor(table, rates), vectors, label, slots, rate, l2)
