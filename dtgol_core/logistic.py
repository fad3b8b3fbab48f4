"""The compiled loops of tracks and soft labels: logistic regressions over rows of the fine buffer.

Weights have the bias first; a set of rows is named by its slots.
Sums run over columns or rows in their order, one sum beside the other, never one sum in parts, with
product and sum rounded once.
"""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from dtgol_core.compiled import compiled, fma, in_place
from dtgol_core.elementary import exp, sigmoid
from dtgol_core.losses import entropy
from dtgol_core.types import FloatArray, IntArray, SlotVectors

Labels: TypeAlias = npt.NDArray[np.integer]
"""0, 1, or less than 0 for an instance without a true label."""
FEW = 8
"""Up to an eighth of the slots are looked at one by one."""


@in_place
def score(weights: FloatArray, vector: FloatArray) -> float:
    """``σ(w·u)``."""
    logit = weights[0]
    for column in range(len(vector)):
        logit = fma(weights[column + 1], vector[column], logit)
    return sigmoid(logit)


@in_place
def learn(weights: FloatArray, vector: FloatArray, label: int, rate: float, l2: float) -> float:
    """``w ← w − rate·((σ(w·u) − y)·u + l2·w)``, the bias without the last term; σ(w·u) before."""
    p = score(weights, vector)
    residual = p - label
    weights[0] -= rate * residual
    for column in range(len(vector)):
        weights[column + 1] -= rate * (residual * vector[column] + l2 * weights[column + 1])
    return p


@in_place
def _probabilities(
    weights: FloatArray,
    vectors: SlotVectors,
    slots: IntArray,
    logits: FloatArray,
    probability: FloatArray,
) -> None:
    """``σ(w·u)`` of the rows in `slots`, by place.

    Many at once are taken from the columns, where the processor works on neighbouring slots; the
    logits of all others, which are then in `logits` too, cost less than to leave them out.
    """
    rows, columns = vectors
    if FEW * len(slots) >= len(rows):
        _logits(weights, columns, logits)
        for place in range(len(slots)):
            probability[place] = logits[slots[place]]
    else:
        for place in range(len(slots)):
            logit, slot = weights[0], slots[place]
            for column in range(len(columns)):
                logit = fma(weights[column + 1], rows[slot, column], logit)
            probability[place] = logit
    for place in range(len(slots)):
        probability[place] = sigmoid(probability[place])


@in_place
def _logits(weights: FloatArray, columns: FloatArray, logits: FloatArray) -> None:
    """``w·u`` of all slots; four columns at a time, each sum in the order of columns."""
    width, count = columns.shape
    for slot in range(count):
        logits[slot] = weights[0]
    fours = width // 4 * 4
    for column in range(0, fours, 4):
        a, b = columns[column], columns[column + 1]
        c, d = columns[column + 2], columns[column + 3]
        by_a, by_b = weights[column + 1], weights[column + 2]
        by_c, by_d = weights[column + 3], weights[column + 4]
        for slot in range(count):
            total = fma(by_b, b[slot], fma(by_a, a[slot], logits[slot]))
            logits[slot] = fma(by_d, d[slot], fma(by_c, c[slot], total))
    for column in range(fours, width):
        values, weight = columns[column], weights[column + 1]
        for slot in range(count):
            logits[slot] = fma(weight, values[slot], logits[slot])


@in_place
def _gradient(
    vectors: FloatArray, slots: IntArray, residual: FloatArray, gradient: FloatArray
) -> None:
    """``Σ residual·(1, u)`` over the rows in `slots`, residuals by place; four rows at a time."""
    columns, count, total = vectors.shape[1], len(slots), 0.0
    for place in range(count):
        total += residual[place]
    for column in range(columns + 1):
        gradient[column] = 0.0
    gradient[0] = total
    fours = count // 4 * 4
    for place in range(0, fours, 4):
        a, b = vectors[slots[place]], vectors[slots[place + 1]]
        c, d = vectors[slots[place + 2]], vectors[slots[place + 3]]
        at_a, at_b = residual[place], residual[place + 1]
        at_c, at_d = residual[place + 2], residual[place + 3]
        for column in range(columns):
            total = fma(at_b, b[column], fma(at_a, a[column], gradient[column + 1]))
            gradient[column + 1] = fma(at_d, d[column], fma(at_c, c[column], total))
    for place in range(fours, count):
        row, factor = vectors[slots[place]], residual[place]
        for column in range(columns):
            gradient[column + 1] = fma(factor, row[column], gradient[column + 1])


@compiled
def rehearse(
    weights: FloatArray,
    vectors: SlotVectors,
    label: Labels,
    slots: IntArray,
    rate: float,
    l2: float,
) -> None:
    """One step on the mean cross entropy of the rows in `slots` with their true labels."""
    count, logits = len(slots), np.empty(len(vectors[0]))
    residual, gradient = np.empty(count), np.empty(len(weights))
    _probabilities(weights, vectors, slots, logits, residual)
    for place in range(count):
        residual[place] -= label[slots[place]]
    _gradient(vectors[0], slots, residual, gradient)
    weights[0] -= rate * gradient[0] / count
    for column in range(1, len(weights)):
        weights[column] -= rate * (gradient[column] / count + l2 * weights[column])


@compiled
def branch(
    weights: FloatArray,
    branched: FloatArray,
    vectors: SlotVectors,
    slots: IntArray,
    soft: FloatArray,
    rate: float,
) -> None:
    """``branched = w − rate·Σ (σ(w·u) − soft)·u`` over the rows in `slots`."""
    count, logits = len(slots), np.empty(len(vectors[0]))
    residual, gradient = np.empty(count), np.empty(len(weights))
    _probabilities(weights, vectors, slots, logits, residual)
    for place in range(count):
        residual[place] -= soft[slots[place]]
    _gradient(vectors[0], slots, residual, gradient)
    for column in range(len(weights)):
        branched[column] = weights[column] - rate * gradient[column]


@in_place
def _descend(
    weights: FloatArray,
    latent: SlotVectors,
    members: IntArray,
    target: FloatArray,
    probability: FloatArray,
    gradient: FloatArray,
    rate: float,
) -> None:
    """One gradient step on the mean soft cross entropy; `probability` is that of the members."""
    for place in range(len(members)):
        probability[place] -= target[members[place]]
    _gradient(latent[0], members, probability, gradient)
    scale = rate / len(members)
    for column in range(len(weights)):
        weights[column] -= scale * gradient[column]


@in_place
def _advance(
    weights: FloatArray,
    latent: SlotVectors,
    members: IntArray,
    neighbour: FloatArray,
    prototypes: FloatArray,
    trust: FloatArray,
    temperature: float,
    rate: float,
    steps: int,
    soft: FloatArray,
    logits: FloatArray,
    work: FloatArray,
    gradient: FloatArray,
) -> None:
    """Fuse the views of one frontier, `members`, then let the classifier learn them."""
    count = len(members)
    probability, own, near = work[0, :count], work[1, :count], work[2, :count]
    _probabilities(weights, latent, members, logits, probability)
    for place in range(count):
        near[place] = neighbour[members[place]]
    # in loops of their own logarithms and exponentials are computed several at once
    for place in range(count):
        own[place] = exp(-entropy(probability[place]) * temperature)
    for place in range(count):
        near[place] = exp(-entropy(near[place]) * temperature)
    for place in range(count):
        slot, intrinsic = members[place], probability[place]
        side = 1 if intrinsic > 0.5 else 0
        fused = own[place] * intrinsic + trust[side] * prototypes[side]
        fused += near[place] * neighbour[slot]
        soft[slot] = fused / (own[place] + trust[side] + near[place])
    for step in range(steps):
        if step > 0:
            _probabilities(weights, latent, members, logits, probability)
        _descend(weights, latent, members, soft, probability, gradient, rate)


@compiled
def spread(
    nodes: IntArray,
    parent: IntArray,
    latent: SlotVectors,
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
    slots, n = len(label), len(nodes)
    members = np.empty(n, dtype=np.int64)  # in order of activation
    unverified = np.empty(n, dtype=np.int64)  # in the order of nodes
    active = np.zeros(slots, dtype=np.bool_)
    neighbour = np.zeros(slots)
    work, logits = np.empty((3, n)), np.empty(slots)
    gradient = np.empty(len(weights))
    trust = np.empty(2)  # in the two prototypes
    for side in range(2):
        trust[side] = exp(-entropy(prototypes[side]) * temperature)

    # Verified instances first; the soft label of each active node is added up at its parent.
    total = np.zeros(slots)
    children = np.zeros(slots)
    count, others = 0, 0
    for place in range(n):
        slot = nodes[place]
        if label[slot] >= 0:
            soft[slot] = label[slot]
            active[slot] = True
            members[count] = slot
            count += 1
        else:
            unverified[others] = slot
            others += 1
    unverified = unverified[:others]

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
                weights, latent, members[first:count], neighbour, prototypes, trust, temperature,
                rate, frontier_steps, soft, logits, work, gradient,
            )  # fmt: skip
        newest = first

    # Descending: frontiers are the nodes one, two, … edges below the active ones. Parents stand
    # before their children in `nodes`, so one pass gives the depth, and a counting sort the order.
    depth, ends = np.zeros(slots, dtype=np.int64), np.zeros(n + 2, dtype=np.int64)
    deepest = 0
    for place in range(others):
        slot = unverified[place]
        if not active[slot]:
            below = depth[parent[slot]] + 1
            depth[slot] = below
            ends[below + 1] += 1
            deepest = max(deepest, below)
    ends[1] = count
    for level in range(1, deepest + 1):
        ends[level + 1] += ends[level]
    for place in range(others):
        slot = unverified[place]
        level = depth[slot]
        if level > 0:
            members[ends[level]] = slot
            ends[level] += 1
    for level in range(1, deepest + 1):
        last = ends[level]
        for place in range(count, last):
            neighbour[members[place]] = soft[parent[members[place]]]
        _advance(
            weights, latent, members[count:last], neighbour, prototypes, trust, temperature,
            rate, frontier_steps, soft, logits, work, gradient,
        )  # fmt: skip
        count = last

    for _ in range(refine_steps):
        _probabilities(weights, latent, members, logits, work[0])
        _descend(weights, latent, members, soft, work[0], gradient, rate)
    _probabilities(weights, latent, unverified, logits, work[0])
    for place in range(others):
        soft[unverified[place]] = work[0, place]
