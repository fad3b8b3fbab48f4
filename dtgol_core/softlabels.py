"""Soft labels: true labels spread over the graph, three views fused at every node.

In: the tree of density ascents, the verified labels, the anchor of the latent tracks. Out: a soft
label P(y=1) for every node. Labels climb from the verified instances to the density peaks, then
come down to everything else; a classifier that starts from the anchor's weights learns along
the way and gives the final labels. Kept between steps: only the two class prototypes.
"""

from typing import Any

import numpy as np

from dtgol_core import logistic
from dtgol_core.compiled import compiled, in_place
from dtgol_core.config import SoftLabelsConfig
from dtgol_core.logistic import Labels
from dtgol_core.state import SnapshotError, require_shape
from dtgol_core.types import FloatArray, IntArray, SlotVectors

PROTOTYPE_RATE, TEMPERATURE, RATE, FRONTIER_STEPS, REFINE_STEPS = range(2, 7)
"""Places in the table of the soft labels, behind the two prototypes."""


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
    At least one node must be verified. `spread` and `seed` run one stage alone, for tests and for
    looking at it.

    References
    ----------
    Wang, He, You and Wu, DT-GOL, Algorithm 1. Differs from the printed sign: the loss is minimised.
    """

    def __init__(self, config: SoftLabelsConfig) -> None:
        start = config.prototype_start
        settings = config.prototype_rate, config.temperature, config.rate
        steps = config.frontier_steps, config.refine_steps
        self.table = np.array([1.0 - start, start, *settings, *steps])
        """Prototypes of both classes and settings, as the compiled loops take them."""

    @property
    def prototypes(self) -> FloatArray:
        """What the classifier says, on average, of instances of either class."""
        prototypes: FloatArray = self.table[:PROTOTYPE_RATE]
        return prototypes

    def spread(
        self,
        nodes: IntArray,
        parent: IntArray,
        latent: FloatArray,
        label: Labels,
        weights: FloatArray,
    ) -> FloatArray:
        """Soft labels by slot, true labels for verified nodes. Changes nothing."""
        both = latent, np.ascontiguousarray(latent.T)
        return spread(self.table, nodes, parent, both, label, weights)

    def seed(self, probability: float, label: int) -> None:
        """A verified instance moves its class prototype if it was on the right side."""
        seed(self.table, probability, label)

    def snapshot(self) -> dict[str, Any]:
        """The class prototypes."""
        return {"prototypes": self.prototypes.copy()}

    @staticmethod
    def restore(config: SoftLabelsConfig, snapshot: dict[str, Any]) -> "SoftLabels":
        """The stage that `snapshot` described."""
        softlabels = SoftLabels(config)
        require_shape("prototypes", snapshot["prototypes"], (2,))
        if not ((snapshot["prototypes"] >= 0.0) & (snapshot["prototypes"] <= 1.0)).all():
            raise SnapshotError("the snapshot is damaged: a prototype that is no probability")
        softlabels.prototypes[:] = snapshot["prototypes"]
        return softlabels


@compiled
def spread(
    table: FloatArray,
    nodes: IntArray,
    parent: IntArray,
    latent: SlotVectors,
    label: Labels,
    weights: FloatArray,
) -> FloatArray:
    """Soft labels by slot; the classifier travels with a copy of the weights."""
    soft = np.zeros(len(label))
    logistic.spread(
        nodes, parent, latent, label, weights.copy(), table[:PROTOTYPE_RATE],
        table[TEMPERATURE], table[RATE], int(table[FRONTIER_STEPS]), int(table[REFINE_STEPS]), soft,
    )  # fmt: skip
    return soft


@in_place
def seed(table: FloatArray, probability: float, label: int) -> None:
    """Move the prototype of a class if the instance was on the right side."""
    if (probability > 0.5) == (label == 1):
        rate = table[PROTOTYPE_RATE]
        table[label] = (1.0 - rate) * table[label] + rate * probability
