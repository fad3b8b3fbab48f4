"""Soft labels: true labels spread over the graph, three views fused at every node.

In: the tree of density ascents, the verified labels, the anchor of the latent tracks. Out: a soft
label P(y=1) for every node. Labels climb from the verified instances to the density peaks, then
come down to everything else; a classifier that starts from the anchor's weights learns along
the way and gives the final labels. Kept between steps: only the two class prototypes.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from dtgol_core.compiled import compiled
from dtgol_core.config import SoftLabelsConfig
from dtgol_core.state import require_shape
from dtgol_core.types import FloatArray, IntArray

_CLIP = 1e-12


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
        label: npt.NDArray[np.int8],
        weights: FloatArray,
    ) -> FloatArray:
        """Soft labels by slot, true labels for verified nodes. Changes nothing."""
        config = self._config
        soft = np.empty(len(label))
        _spread(
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


@compiled
def _entropy(p: float) -> float:
    p = min(max(p, _CLIP), 1.0 - _CLIP)
    return -(p * math.log(p) + (1.0 - p) * math.log(1.0 - p))


@compiled
def _sigmoid(x: float) -> float:
    if x >= 0.0:
        return 1.0 / (1.0 + math.exp(-x))
    e = math.exp(x)
    return e / (1.0 + e)


@compiled
def _probability(weights: FloatArray, latent: FloatArray, slot: int) -> float:
    logit = weights[0]
    for column in range(latent.shape[1]):
        logit += weights[column + 1] * latent[slot, column]
    return _sigmoid(logit)


@compiled
def _descend(
    weights: FloatArray,
    latent: FloatArray,
    members: IntArray,
    first: int,
    last: int,
    target: FloatArray,
    probability: FloatArray,
    gradient: FloatArray,
    rate: float,
) -> None:
    """One gradient step on the mean soft cross entropy; `probability` is that of the members."""
    gradient[:] = 0.0
    for place in range(first, last):
        slot = members[place]
        residual = probability[slot] - target[slot]
        gradient[0] += residual
        for column in range(latent.shape[1]):
            gradient[column + 1] += residual * latent[slot, column]
    scale = rate / (last - first)
    for column in range(len(weights)):
        weights[column] -= scale * gradient[column]


@compiled
def _advance(
    weights: FloatArray,
    latent: FloatArray,
    members: IntArray,
    first: int,
    last: int,
    neighbour: FloatArray,
    prototypes: FloatArray,
    trust: FloatArray,
    temperature: float,
    rate: float,
    steps: int,
    soft: FloatArray,
    probability: FloatArray,
    gradient: FloatArray,
) -> None:
    """Fuse the views of one frontier, members[first:last], then let the classifier learn them."""
    for place in range(first, last):
        slot = members[place]
        intrinsic = _probability(weights, latent, slot)
        probability[slot] = intrinsic
        side = 1 if intrinsic > 0.5 else 0
        own = math.exp(-_entropy(intrinsic) * temperature)
        near = math.exp(-_entropy(neighbour[slot]) * temperature)
        fused = own * intrinsic + trust[side] * prototypes[side] + near * neighbour[slot]
        soft[slot] = fused / (own + trust[side] + near)
    for step in range(steps):
        if step > 0:
            for place in range(first, last):
                probability[members[place]] = _probability(weights, latent, members[place])
        _descend(weights, latent, members, first, last, soft, probability, gradient, rate)


@compiled
def _spread(
    nodes: IntArray,
    parent: IntArray,
    latent: FloatArray,
    label: npt.NDArray[np.int8],
    weights: FloatArray,
    prototypes: FloatArray,
    temperature: float,
    rate: float,
    frontier_steps: int,
    refine_steps: int,
    soft: FloatArray,
) -> None:
    slots = len(label)
    n = len(nodes)
    members = np.empty(n, dtype=np.int64)  # in order of activation
    active = np.zeros(slots, dtype=np.bool_)
    neighbour = np.zeros(slots)
    probability = np.empty(slots)
    gradient = np.empty(len(weights))
    trust = np.empty(2)  # in the two prototypes
    for side in range(2):
        trust[side] = math.exp(-_entropy(prototypes[side]) * temperature)

    # Verified instances first; the soft label of each active node is added up at its parent.
    total = np.zeros(slots)
    children = np.zeros(slots)
    count = 0
    for place in range(n):
        slot = nodes[place]
        if label[slot] >= 0:
            soft[slot] = label[slot]
            active[slot] = True
            members[count] = slot
            count += 1

    # Ascending: the frontier is the parents of the newest active nodes.
    newest = 0
    while newest < count:
        first = count
        for place in range(newest, first):
            slot = members[place]
            above = parent[slot]
            if above >= 0:
                total[above] += soft[slot]
                children[above] += 1.0
                if not active[above]:
                    active[above] = True
                    members[count] = above
                    count += 1
        for place in range(first, count):
            slot = members[place]
            neighbour[slot] = total[slot] / children[slot]
        if count > first:
            _advance(
                weights, latent, members, first, count, neighbour, prototypes, trust,
                temperature, rate, frontier_steps, soft, probability, gradient,
            )  # fmt: skip
        newest = first

    # Descending: frontiers are the nodes one, two, … edges below the active ones. Parents stand
    # before their children in `nodes`, so one pass gives the depth, and a counting sort the order.
    depth = np.zeros(slots, dtype=np.int64)
    deepest = 0
    for place in range(n):
        slot = nodes[place]
        if not active[slot]:
            depth[slot] = depth[parent[slot]] + 1
            deepest = max(deepest, depth[slot])
    starts = np.zeros(deepest + 2, dtype=np.int64)
    for place in range(n):
        starts[depth[nodes[place]] + 1] += 1
    for level in range(deepest + 1):
        starts[level + 1] += starts[level]
    ends = starts.copy()
    for place in range(n):
        slot = nodes[place]
        if depth[slot] > 0:
            members[ends[depth[slot]]] = slot
            ends[depth[slot]] += 1
    for level in range(1, deepest + 1):
        for place in range(starts[level], starts[level + 1]):
            neighbour[members[place]] = soft[parent[members[place]]]
        _advance(
            weights, latent, members, starts[level], starts[level + 1], neighbour, prototypes,
            trust, temperature, rate, frontier_steps, soft, probability, gradient,
        )  # fmt: skip

    for _ in range(refine_steps):
        for place in range(n):
            probability[members[place]] = _probability(weights, latent, members[place])
        _descend(weights, latent, members, 0, n, soft, probability, gradient, rate)
    for place in range(n):
        slot = nodes[place]
        if label[slot] < 0:
            soft[slot] = _probability(weights, latent, slot)
