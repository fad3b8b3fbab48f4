"""Logistic regression of one space: the persistent track, and the dual track of the paper.

In: a vector, true labels as they are learnt, soft labels for a window. Out: probabilities. Only
true labels ever touch the persistent weights and those that rehearse the verified set; the
transient ones branch off anew for every record.
"""

import math
from typing import Any

import numpy as np

from dtgol_core import logistic
from dtgol_core.config import TracksConfig
from dtgol_core.logistic import Labels
from dtgol_core.state import SnapshotError, require_shape
from dtgol_core.types import FloatArray, IntArray


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
        self._config = config
        self.weights = np.zeros(1)

    def grow(self, columns: int) -> None:
        """Add columns of weight 0."""
        self.weights = np.concatenate([self.weights, np.zeros(columns)])

    def score(self, vector: FloatArray) -> float:
        """P(y=1)."""
        return logistic.score(self.weights, vector)

    def learn(self, vector: FloatArray, label: int, labels: int) -> None:
        """One step on a true label; `labels` counts those so far, this one included."""
        config = self._config
        rate = max(config.rate_floor, config.rate / math.sqrt(labels))
        logistic.learn(self.weights, vector, label, rate, config.l2)

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


class DualTrack(PersistentTrack):
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
    Cost: O(verified·d) to rehearse, O(window·d) to branch.

    References
    ----------
    Wang, He, You and Wu, DT-GOL. Differs from the paper: the rate falls, and the branch leaves
    from rehearsed weights (docs/decisions/0011-defaults.md has what each is worth).
    """

    def __init__(self, config: TracksConfig, dual: bool = True) -> None:
        super().__init__(config)
        self._dual = dual
        self.rehearsed = np.zeros(1) if dual and config.rehearsal_rate else None
        self.transient = np.zeros(1)
        """The branch of the newest record."""

    @property
    def anchor(self) -> FloatArray:
        """The weights from which the branch and the travelling classifier start."""
        return self.weights if self.rehearsed is None else self.rehearsed

    def grow(self, columns: int) -> None:
        """Add columns of weight 0."""
        super().grow(columns)
        self.transient = np.concatenate([self.transient, np.zeros(columns)])
        if self.rehearsed is not None:
            self.rehearsed = np.concatenate([self.rehearsed, np.zeros(columns)])

    def answer(self, vector: FloatArray) -> tuple[float, float]:
        """P(y=1) of the persistent and of the transient weights."""
        return logistic.answers(self.weights, self.transient, vector)

    def rehearse(self, vectors: FloatArray, label: Labels, steps: IntArray) -> None:
        """One step on the verified set: the taken slots (`steps` ≥ 0) with a true label."""
        config = self._config
        if config.rehearsal_rate:
            logistic.rehearse(
                self.anchor, vectors, label, steps, config.rehearsal_rate, config.rehearsal_l2
            )

    def branch(self, vectors: FloatArray, slots: IntArray, soft: FloatArray) -> None:
        """Make new transient weights: one step from the anchor on the soft-labelled window."""
        rate = self._config.transient_rate
        if self._config.transient_reduction == "mean":
            rate /= max(1, len(slots))
        self.restart()
        logistic.branch(self.anchor, self.transient, vectors, slots, soft, rate)
        if not self._dual:
            self.weights = self.transient.copy()

    def restart(self) -> None:
        """Make new transient weights that are the anchor's: there are no soft labels."""
        self.transient = self.anchor.copy()

    def snapshot(self) -> dict[str, Any]:
        """All weights, bias first; the rehearsed ones if there are any."""
        kept = {**super().snapshot(), "transient": self.transient.copy()}
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
        for weights in (snapshot["weights"], snapshot["transient"], rehearsed):
            require_shape("weights", weights, (columns + 1,))
        track.weights = snapshot["weights"].copy()
        track.transient = snapshot["transient"].copy()
        if track.rehearsed is not None:
            track.rehearsed = rehearsed.copy()
        return track
