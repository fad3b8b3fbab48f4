"""The compiled loops written as vectorised numpy: evidence for the decision to compile.

Each function does what the loop of the same name in `dtgol_core` does, as well as numpy can: whole
arrays at a time, LAPACK for the linear algebra, sorting in C. `numpy_kernels` puts them in place
for a while, so that `benchmarks.step` can time the same learner both ways in one run.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotrs
from scipy.special import expit

from dtgol_core import copula, graph, marginals, softlabels, tracks

Array = Any


def rank(rows: Array, filled: int, row: Array, kinds: Array, ranks: Array, original: Array) -> None:
    seen = np.flatnonzero(~np.isnan(row))
    ranks[:] = 0.5
    original[:] = 0.0
    window, x = rows[seen, :filled], row[seen, None]
    count = (~np.isnan(window)).sum(axis=1)
    below, equal = (window < x).sum(axis=1), (window == x).sum(axis=1)
    middle = (below + 0.5 * (equal + 1)) / (count + 1)
    continuous = kinds[seen] == 1
    ranks[0, seen] = np.where(continuous, middle, below / count)
    ranks[1, seen] = np.where(continuous, middle, (below + equal) / count)
    mean = np.nansum(window, axis=1) / count
    deviation = np.sqrt(np.nansum((window - mean[:, None]) ** 2, axis=1) / count)
    varies = (np.fmin.reduce(window, axis=1) < np.fmax.reduce(window, axis=1)) & (deviation > 0)
    scores = (row[seen] - mean) / np.where(deviation > 0, deviation, 1.0)
    original[seen] = np.where(varies, np.clip(scores, -5.0, 5.0), 0.0)


def normal_scores(
    bounds: Array, ranks: Array, row: Array, kinds: Array, latent: Array, spread: Array
) -> None:
    a, b = bounds
    share = np.where(ranks[1] > ranks[0], ranks[1] - ranks[0], 1.0)
    density_a, density_b = (np.exp(-0.5 * bounds**2) / np.sqrt(2 * np.pi)) * np.isfinite(bounds)
    mean = (density_a - density_b) / share
    a, b = np.where(np.isfinite(a), a, 0.0), np.where(np.isfinite(b), b, 0.0)
    left = np.maximum(0.0, 1.0 + (a * density_a - b * density_b) / share - mean**2)
    latent[:] = np.where(np.isnan(row), np.nan, np.where(kinds == 1, bounds[0], mean))
    spread[:] = np.where(np.isnan(row) | (kinds == 1), 0.0, left)


def copula_learn(sigma: Array, latent: Array, spread: Array, ridge: float, gamma: float) -> None:
    o, m = np.flatnonzero(latent == latent), np.flatnonzero(latent != latent)
    latent[m] = 0.0
    if not len(o):
        return
    d = len(latent)
    s = (1.0 - ridge) * sigma
    s.flat[:: d + 1] += ridge
    expected = np.zeros((d, d))
    v = spread[o]
    if len(m):
        s_om = s[o][:, m]
        factor, _ = dpotrf(s[o][:, o])
        j, _ = dpotrs(factor, s_om)
        latent[m] = j.T @ latent[o]
        expected[m[:, None], m] = s[m][:, m] - j.T @ (s_om - v[:, None] * j)
        cross = v[:, None] * j
        expected[o[:, None], m] = cross
        expected[m[:, None], o] = cross.T
    expected[o, o] = v
    expected += np.outer(latent, latent)
    sigma *= 1.0 - gamma
    sigma += gamma * expected
    scale = 1.0 / np.sqrt(sigma.diagonal())
    sigma *= scale
    sigma *= scale[:, None]
    sigma.flat[:: d + 1] = 1.0


def measure(distance: Array, order: Array, size: int, slot: int, latent: Array) -> None:
    others = order[:size]
    d = np.sqrt(((latent[others] - latent[slot]) ** 2).sum(axis=1))
    d[d < 1e-9] = 0.0
    distance[slot, others] = d
    distance[others, slot] = d
    distance[slot, slot] = 0.0


def add_kernels(
    distance: Array, density: Array, order: Array, size: int, slot: int, cutoff: float
) -> None:
    others = order[:size]
    kernel = np.exp(-((distance[slot, others] / cutoff) ** 2))
    density[others] += kernel
    density[slot] = kernel.sum()


def remove(
    distance: Array,
    density: Array,
    order: Array,
    size: int,
    parent: Array,
    slot: int,
    cutoff: float,
) -> None:
    others = order[:size][order[:size] != slot]
    order[: size - 1] = others
    density[others] -= np.exp(-((distance[slot, others] / cutoff) ** 2))


def pairwise(distance: Array, order: Array, size: int, out: Array) -> None:
    nodes = order[:size]
    out[:] = distance[nodes][:, nodes][np.tril_indices(size, -1)]


def densities(distance: Array, density: Array, order: Array, size: int, cutoff: float) -> None:
    nodes = order[:size]
    kernel = np.exp(-((distance[nodes][:, nodes] / cutoff) ** 2))
    density[nodes] = kernel.sum(axis=1) - 1.0


def reorder(
    distance: Array, density: Array, steps: Array, order: Array, size: int, parent: Array
) -> None:
    nodes = order[:size]
    nodes = nodes[np.lexsort((steps[nodes], -np.rint(density[nodes] * 1e9)))]
    order[:size] = nodes
    d = distance[nodes][:, nodes]
    d[np.triu_indices(size)] = np.inf
    parent[nodes] = nodes[d.argmin(axis=1)]
    parent[nodes[0]] = graph.ROOT


def entropy(p: Array) -> Array:
    p = np.clip(p, 1e-12, 1.0 - 1e-12)
    return -(p * np.log(p) + (1.0 - p) * np.log(1.0 - p))


def spread(
    nodes: Array,
    parent: Array,
    latent: Array,
    label: Array,
    weights: Array,
    prototypes: Array,
    temperature: float,
    rate: float,
    frontier_steps: int,
    refine_steps: int,
    soft: Array,
) -> None:
    active = np.zeros(len(label), dtype=bool)
    verified = nodes[label[nodes] >= 0]
    soft[verified] = label[verified]
    active[verified] = True

    def descend(members: Array, steps: int) -> None:
        z = latent[members]
        for _ in range(steps):
            residual = expit(weights[0] + z @ weights[1:]) - soft[members]
            weights[0] -= rate * residual.mean()
            weights[1:] -= rate / len(members) * (residual @ z)

    def advance(members: Array, neighbour: Array) -> None:
        intrinsic = expit(weights[0] + latent[members] @ weights[1:])
        views = np.stack([intrinsic, prototypes[(intrinsic > 0.5).astype(int)], neighbour])
        trust = np.exp(-entropy(views) * temperature)
        soft[members] = (trust * views).sum(axis=0) / trust.sum(axis=0)
        descend(members, frontier_steps)
        active[members] = True

    newest = verified
    while len(newest):
        above = parent[newest]
        inner = above >= 0
        heard = np.bincount(above[inner], soft[newest[inner]], len(label))
        children = np.bincount(above[inner], minlength=len(label))
        newest = np.unique(above[inner])
        newest = newest[~active[newest]]
        if len(newest):
            advance(newest, heard[newest] / children[newest])
    rest = nodes[~active[nodes]]
    while len(rest):
        ready = active[parent[rest]]
        advance(rest[ready], soft[parent[rest[ready]]])
        rest = rest[~ready]
    descend(nodes, refine_steps)
    unverified = nodes[label[nodes] < 0]
    soft[unverified] = expit(weights[0] + latent[unverified] @ weights[1:])


def score(weights: Array, vector: Array) -> float:
    return float(expit(weights[0] + weights[1:] @ vector))


def answer(weights: Array, branch: Array, vector: Array) -> tuple[float, float]:
    return score(weights, vector), score(branch, vector)


def learn(weights: Array, vector: Array, label: int, rate: float, l2: float) -> None:
    residual = score(weights, vector) - label
    weights[0] -= rate * residual
    weights[1:] -= rate * (residual * vector + l2 * weights[1:])


def rehearse(
    weights: Array, vectors: Array, label: Array, steps: Array, rate: float, l2: float
) -> None:
    slots = np.flatnonzero((steps >= 0) & (label >= 0))
    if not len(slots):
        return
    u = vectors[slots]
    residual = (expit(weights[0] + u @ weights[1:]) - label[slots]) / len(slots)
    weights[0] -= rate * residual.sum()
    weights[1:] -= rate * (residual @ u + l2 * weights[1:])


def branch(
    weights: Array, branched: Array, vectors: Array, slots: Array, soft: Array, rate: float
) -> None:
    u = vectors[slots]
    residual = expit(weights[0] + u @ weights[1:]) - soft[slots]
    branched[0] = weights[0] - rate * residual.sum()
    branched[1:] = weights[1:] - rate * (residual @ u)


KERNELS: dict[Any, dict[str, Any]] = {
    marginals: {"_rank": rank, "_normal_scores": normal_scores},
    copula: {"_learn": copula_learn},
    graph: {
        "_measure": measure,
        "_add_kernels": add_kernels,
        "_remove": remove,
        "_pairwise": pairwise,
        "_densities": densities,
        "_reorder": reorder,
    },
    softlabels: {"_spread": spread},
    tracks: {
        "_score": score,
        "_answer": answer,
        "_learn": learn,
        "_rehearse": rehearse,
        "_branch": branch,
    },
}


@contextmanager
def numpy_kernels() -> Iterator[None]:
    """The core on vectorised numpy, until the end of the block."""
    kept = {room: {name: getattr(room, name) for name in new} for room, new in KERNELS.items()}
    for room, new in KERNELS.items():
        for name, function in new.items():
            setattr(room, name, function)
    try:
        yield
    finally:
        for room, old in kept.items():
            for name, function in old.items():
                setattr(room, name, function)
