"""The fine buffer and its graph, kept in step, and hard labels that travel along the graph.

What OSLMF and OL-MDISF share with the learner: the window, the densities, the parents. What they
do not share: their labels are hard, and a classifier fitted to them gives the next ones.
"""

import math

import numpy as np
import numpy.typing as npt

from dtgol_core.baselines.base import Point
from dtgol_core.buffer import UNVERIFIED, FineBuffer
from dtgol_core.compiled import compiled
from dtgol_core.config import GraphConfig
from dtgol_core.graph import Graph
from dtgol_core.types import FloatArray, IntArray

FIRST_STEPS = 10
FRONTIER_STEPS = 2
RATE = 1.0
"""Of the classifier that travels: ten full steps on the verified labels, two per frontier. Set by
hand, not tuned; the public code refits a linear SVM at every frontier."""


class Geometry:
    """Instances by step, in slots of the fine buffer and nodes of the graph."""

    def __init__(self, config: GraphConfig) -> None:
        self.buffer = FineBuffer(config)
        self.graph = Graph(config)

    def grow(self, columns: int) -> None:
        """Add columns."""
        self.buffer.grow(columns)

    def enter(self, step: int, point: Point) -> int:
        """Let the present record in, and bring the graph up to date. Returns its slot."""
        slot = self.buffer.enter(step, point.latent, point.original, UNVERIFIED)
        self.graph.insert(slot, self.buffer.latent, self.buffer.steps)
        self.graph.update(self.buffer.steps)
        return slot

    def join(self, slot: int) -> None:
        """The present record joins the unverified window."""
        self._leave(self.buffer.join_window(slot))

    def verify(self, step: int, point: Point, label: int) -> None:
        """The label of an instance has been learnt."""
        slot = self.buffer.find(step)
        if not self.buffer.admits(step):
            self._leave([] if slot is None else [slot])
            return
        if slot is None:
            slot = self.buffer.enter(step, point.latent, point.original, label)
            self.graph.insert(slot, self.buffer.latent, self.buffer.steps)
        self._leave(self.buffer.verify(step, slot, label))

    def forget(self, step: int) -> None:
        """Let an instance go, if it is here."""
        slot = self.buffer.find(step)
        self._leave([] if slot is None else [slot])

    def hard_labels(self, weights: FloatArray) -> npt.NDArray[np.int8]:
        """A label 0 or 1 for every node, by slot; the classifier starts from `weights`."""
        labels = self.buffer.label.copy()
        _self_train(
            self.graph.nodes(), self.graph.parent, self.buffer.latent, labels, weights.copy()
        )
        return labels

    def _leave(self, slots: list[int]) -> None:
        for slot in slots:
            self.graph.evict(slot)
            self.buffer.leave(slot)


@compiled
def _logit(weights: FloatArray, latent: FloatArray, slot: int) -> float:
    logit: float = weights[0]
    for column in range(latent.shape[1]):
        logit += weights[column + 1] * latent[slot, column]
    return logit


@compiled
def _fit(
    weights: FloatArray,
    latent: FloatArray,
    members: IntArray,
    count: int,
    labels: npt.NDArray[np.int8],
    steps: int,
) -> None:
    """Gradient steps on the mean cross entropy over the first `count` members."""
    gradient = np.empty(len(weights))
    for _ in range(steps):
        gradient[:] = 0.0
        for place in range(count):
            slot = members[place]
            logit = min(max(_logit(weights, latent, slot), -700.0), 700.0)
            residual = 1.0 / (1.0 + math.exp(-logit)) - labels[slot]
            gradient[0] += residual
            for column in range(latent.shape[1]):
                gradient[column + 1] += residual * latent[slot, column]
        for column in range(len(weights)):
            weights[column] -= RATE / count * gradient[column]


@compiled
def _self_train(
    nodes: IntArray,
    parent: IntArray,
    latent: FloatArray,
    labels: npt.NDArray[np.int8],
    weights: FloatArray,
) -> None:
    """Ascend from the verified nodes to the peaks, then descend to the rest; fill `labels`."""
    n = len(nodes)
    members = np.empty(n, dtype=np.int64)
    active = np.zeros(len(labels), dtype=np.bool_)
    count = 0
    for place in range(n):
        if labels[nodes[place]] >= 0:
            members[count] = nodes[place]
            active[nodes[place]] = True
            count += 1
    _fit(weights, latent, members, count, labels, FIRST_STEPS)

    newest = 0
    while newest < count:
        first = count
        for place in range(newest, first):
            above = parent[members[place]]
            if above >= 0 and not active[above]:
                active[above] = True
                members[count] = above
                count += 1
        for place in range(first, count):
            labels[members[place]] = _logit(weights, latent, members[place]) > 0.0
        if count > first:
            _fit(weights, latent, members, count, labels, FRONTIER_STEPS)
        newest = first

    fresh = True
    while fresh:
        first = count
        for place in range(n):
            slot = nodes[place]
            if not active[slot] and active[parent[slot]]:
                members[count] = slot
                count += 1
        for place in range(first, count):
            active[members[place]] = True
            labels[members[place]] = _logit(weights, latent, members[place]) > 0.0
        fresh = count > first
        if fresh:
            _fit(weights, latent, members, count, labels, FRONTIER_STEPS)
