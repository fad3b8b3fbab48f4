"""Hard labels that travel along the graph, for OSLMF and OL-MDISF.

These methods share window, densities and parents with the paper's expert. What they do not share:
their labels are hard, and a classifier fitted to them gives the next ones.
"""

import math

import numpy as np

from dtgol_core.compiled import compiled, in_place
from dtgol_core.geometry import Geometry
from dtgol_core.types import FloatArray, IntArray

FIRST_STEPS = 10
FRONTIER_STEPS = 2
RATE = 1.0
"""Of the classifier that travels: ten full steps on the verified labels, two per frontier. Set by
hand, not tuned; the public code refits a linear SVM at every frontier."""


def hard_labels(geometry: Geometry, weights: FloatArray) -> IntArray:
    """A label 0 or 1 for every node, by slot; the classifier starts from `weights`."""
    buffer, graph = geometry.buffer, geometry.graph
    labels = buffer.label.copy()
    _self_train(graph.nodes(), graph.parent, buffer.latent, labels, weights.copy())
    return labels


@in_place
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
    labels: IntArray,
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
    labels: IntArray,
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
