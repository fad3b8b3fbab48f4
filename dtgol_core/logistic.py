"""The compiled loops of tracks and soft labels: logistic regressions over rows of the fine buffer.

Weights have the bias first; vectors are (slots, columns); a set of rows is named by its slots.
Sums run over columns or rows in their order, one sum beside the other, never one sum in parts: the
bits are those of the plain formula. All loops are in one file because Numba's cache does not notice
when a function of another file changes.
"""

import math
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from dtgol_core.compiled import compiled
from dtgol_core.exponential import exp, sigmoid
from dtgol_core.types import FloatArray, IntArray

Labels: TypeAlias = npt.NDArray[np.int8]
"""0, 1, or less than 0 for an instance without a true label."""
_CLIP = 1e-12


@compiled
def score(weights: FloatArray, vector: FloatArray) -> float:
    """``σ(w·u)``."""
    logit = weights[0]
    for column in range(len(vector)):
        logit += weights[column + 1] * vector[column]
    return sigmoid(logit)


@compiled
def answers(weights: FloatArray, branch: FloatArray, vector: FloatArray) -> tuple[float, float]:
    """The scores of two sets of weights."""
    return score(weights, vector), score(branch, vector)


@compiled
def score_both(
    latent_weights: FloatArray,
    latent: FloatArray,
    original_weights: FloatArray,
    original: FloatArray,
) -> tuple[float, float]:
    """The scores of a record in both spaces."""
    return score(latent_weights, latent), score(original_weights, original)


@compiled
def learn(weights: FloatArray, vector: FloatArray, label: int, rate: float, l2: float) -> None:
    """``w ← w − rate·((σ(w·u) − y)·u + l2·w)``, the bias without the last term."""
    residual = score(weights, vector) - label
    weights[0] -= rate * residual
    for column in range(len(vector)):
        weights[column + 1] -= rate * (residual * vector[column] + l2 * weights[column + 1])


@compiled
def _probabilities(
    weights: FloatArray,
    vectors: FloatArray,
    slots: IntArray,
    first: int,
    last: int,
    probability: FloatArray,
) -> None:
    """``σ(w·u)`` of the rows in slots[first:last], by place; four sums side by side."""
    columns = vectors.shape[1]
    fours = first + (last - first) // 4 * 4
    for place in range(first, fours, 4):
        a, b = vectors[slots[place]], vectors[slots[place + 1]]
        c, d = vectors[slots[place + 2]], vectors[slots[place + 3]]
        at_a = at_b = at_c = at_d = weights[0]
        for column in range(columns):
            weight = weights[column + 1]
            at_a += weight * a[column]
            at_b += weight * b[column]
            at_c += weight * c[column]
            at_d += weight * d[column]
        probability[place], probability[place + 1] = at_a, at_b
        probability[place + 2], probability[place + 3] = at_c, at_d
    for place in range(fours, last):
        logit, row = weights[0], vectors[slots[place]]
        for column in range(columns):
            logit += weights[column + 1] * row[column]
        probability[place] = logit
    for place in range(first, last):
        probability[place] = sigmoid(probability[place])


@compiled
def _gradient(
    vectors: FloatArray,
    slots: IntArray,
    first: int,
    last: int,
    residual: FloatArray,
    gradient: FloatArray,
) -> None:
    """``Σ residual·(1, u)`` over slots[first:last], residuals by place; four columns at once."""
    total, columns = 0.0, vectors.shape[1]
    for place in range(first, last):
        total += residual[place]
    gradient[0] = total
    fours = columns // 4 * 4
    for column in range(0, fours, 4):
        a = b = c = d = 0.0
        for place in range(first, last):
            row, factor = vectors[slots[place]], residual[place]
            a += factor * row[column]
            b += factor * row[column + 1]
            c += factor * row[column + 2]
            d += factor * row[column + 3]
        gradient[column + 1], gradient[column + 2] = a, b
        gradient[column + 3], gradient[column + 4] = c, d
    for column in range(fours, columns):
        total = 0.0
        for place in range(first, last):
            total += residual[place] * vectors[slots[place], column]
        gradient[column + 1] = total


@compiled
def rehearse(
    weights: FloatArray,
    vectors: FloatArray,
    label: Labels,
    steps: IntArray,
    rate: float,
    l2: float,
) -> None:
    """One step on the mean cross entropy of the taken slots (`steps` ≥ 0) with a true label."""
    slots, count = np.empty(len(label), dtype=np.int64), 0
    for slot in range(len(label)):
        slots[count] = slot
        count += steps[slot] >= 0 and label[slot] >= 0
    if count == 0:
        return
    residual, gradient = np.empty(count), np.empty(len(weights))
    _probabilities(weights, vectors, slots, 0, count, residual)
    for place in range(count):
        residual[place] -= label[slots[place]]
    _gradient(vectors, slots, 0, count, residual, gradient)
    weights[0] -= rate * gradient[0] / count
    for column in range(1, len(weights)):
        weights[column] -= rate * (gradient[column] / count + l2 * weights[column])


@compiled
def branch(
    weights: FloatArray,
    branched: FloatArray,
    vectors: FloatArray,
    slots: IntArray,
    soft: FloatArray,
    rate: float,
) -> None:
    """``branched = w − rate·Σ (σ(w·u) − soft)·u`` over the rows in `slots`."""
    residual, gradient = np.empty(len(slots)), np.empty(len(weights))
    _probabilities(weights, vectors, slots, 0, len(slots), residual)
    for place in range(len(slots)):
        residual[place] -= soft[slots[place]]
    _gradient(vectors, slots, 0, len(slots), residual, gradient)
    for column in range(len(weights)):
        branched[column] = weights[column] - rate * gradient[column]


@compiled
def _entropy(p: float) -> float:
    p = min(max(p, _CLIP), 1.0 - _CLIP)
    return -(p * math.log(p) + (1.0 - p) * math.log(1.0 - p))


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
    for place in range(first, last):
        probability[place] -= target[members[place]]
    _gradient(latent, members, first, last, probability, gradient)
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
    own: FloatArray,
    near: FloatArray,
    gradient: FloatArray,
) -> None:
    """Fuse the views of one frontier, members[first:last], then let the classifier learn them."""
    # Logarithms are calls and exponentials are not: in loops of their own the latter are computed
    # several at once.
    _probabilities(weights, latent, members, first, last, probability)
    for place in range(first, last):
        own[place] = -_entropy(probability[place]) * temperature
        near[place] = -_entropy(neighbour[members[place]]) * temperature
    for place in range(first, last):
        own[place] = exp(own[place])
        near[place] = exp(near[place])
    for place in range(first, last):
        slot, intrinsic = members[place], probability[place]
        side = 1 if intrinsic > 0.5 else 0
        fused = own[place] * intrinsic + trust[side] * prototypes[side]
        fused += near[place] * neighbour[slot]
        soft[slot] = fused / (own[place] + trust[side] + near[place])
    for step in range(steps):
        if step > 0:
            _probabilities(weights, latent, members, first, last, probability)
        _descend(weights, latent, members, first, last, soft, probability, gradient, rate)


@compiled
def spread(
    nodes: IntArray,
    parent: IntArray,
    latent: FloatArray,
    label: Labels,
    weights: FloatArray,
    prototypes: FloatArray,
    temperature: float,
    rate: float,
    frontier_steps: int,
    refine_steps: int,
    soft: FloatArray,
) -> None:
    """Labels climb from the verified nodes to the peaks, then come down to all others.

    `weights` is the travelling classifier, which learns along the way; `soft` is written.
    """
    slots = len(label)
    n = len(nodes)
    members = np.empty(n, dtype=np.int64)  # in order of activation
    active = np.zeros(slots, dtype=np.bool_)
    neighbour = np.zeros(slots)
    probability, own, near = np.empty(n), np.empty(n), np.empty(n)
    gradient = np.empty(len(weights))
    trust = np.empty(2)  # in the two prototypes
    for side in range(2):
        trust[side] = exp(-_entropy(prototypes[side]) * temperature)

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
                temperature, rate, frontier_steps, soft, probability, own, near, gradient,
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
            trust, temperature, rate, frontier_steps, soft, probability, own, near, gradient,
        )  # fmt: skip

    for _ in range(refine_steps):
        _probabilities(weights, latent, members, 0, n, probability)
        _descend(weights, latent, members, 0, n, soft, probability, gradient, rate)
    count = 0
    for place in range(n):
        members[count] = nodes[place]
        count += label[nodes[place]] < 0
    _probabilities(weights, latent, members, 0, count, probability)
    for place in range(count):
        soft[members[place]] = probability[place]
