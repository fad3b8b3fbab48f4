"""Soft labels: true labels spread over the graph, three views fused at every node.

In: the tree of density ascents, the verified labels, the anchor of the latent tracks. Out: a soft
label P(y=1) for every node. Labels climb from the verified instances to the density peaks, then
come down to everything else; a classifier that starts from the anchor's weights learns along
the way and gives the final labels. Kept between steps: only the two class prototypes.
"""

from typing import Any

import numpy as np

from dtgol_core import logistic
from dtgol_core.config import SoftLabelsConfig
from dtgol_core.logistic import Labels
from dtgol_core.state import require_shape
from dtgol_core.types import FloatArray, IntArray


class SoftLabels:
    """Soft labels for the unverified window.

    Parameters
    ----------
    config
        `rate`, `frontier_steps`, `refine_steps` of the travelling classifier; `temperature` of the
        fusion; `prototype_start` and `prototype_rate` of the class prototypes.

    Notes
    -----
    Fusion of intrinsic, collective and neighbour view with weights ``α_k ∝ exp(−H(v_k)·T)``; all
    members of one frontier are fused with the same classifier, so that their order does not matter;
    the neighbour view is the mean of the active children when ascending, the parent when
    descending. Letters: f classifier, M prototypes, v_I/v_C/v_T views, H entropy. Cost: O(n·d).

    References
    ----------
    Wang, He, You and Wu, DT-GOL, Algorithm 1. Differs from the printed sign: the loss is minimised.
    """

    def __init__(self, config: SoftLabelsConfig) -> None:
        self._config = config
        start = config.prototype_start
        self.prototypes = np.array([1.0 - start, start])

    def spread(
        self,
        nodes: IntArray,
        parent: IntArray,
        latent: FloatArray,
        label: Labels,
        weights: FloatArray,
    ) -> FloatArray:
        """Soft labels by slot, true labels for verified nodes. Changes nothing."""
        config = self._config
        soft = np.empty(len(label))
        logistic.spread(
            nodes,
            parent,
            latent,
            label,
            weights.copy(),
            self.prototypes,
            config.temperature,
            config.rate,
            config.frontier_steps,
            config.refine_steps,
            soft,
        )
        return soft

    def seed(self, probability: float, label: int) -> None:
        """A verified instance moves its class prototype if it was on the right side."""
        if (probability > 0.5) == (label == 1):
            rate = self._config.prototype_rate
            self.prototypes[label] = (1.0 - rate) * self.prototypes[label] + rate * probability

    def snapshot(self) -> dict[str, Any]:
        """The class prototypes."""
        return {"prototypes": self.prototypes.copy()}

    @staticmethod
    def restore(config: SoftLabelsConfig, snapshot: dict[str, Any]) -> "SoftLabels":
        """The stage that `snapshot` described."""
        softlabels = SoftLabels(config)
        require_shape("prototypes", snapshot["prototypes"], (2,))
        softlabels.prototypes = snapshot["prototypes"].copy()
        return softlabels
