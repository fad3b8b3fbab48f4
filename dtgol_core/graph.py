"""Density-ascent graph over the fine buffer.

In: slots entering and leaving, with their latent vectors. Out: for each node its parent, the
nearest node of higher density. The parents form one tree whose root is the densest node.

Kept between steps: all distances, all densities, the nodes in order of density, and the parents.
A step changes few densities by much, so the order is repaired by insertion sort. Each exchange of
two neighbours in that sort is exactly one pair whose order has flipped, and only such pairs can
change which higher node is nearest: the parents follow the exchanges, and a node looks at all
others only when its parent has left or has fallen below it.
"""

import math
from typing import Any

import numpy as np

from dtgol_core.compiled import compiled
from dtgol_core.config import GraphConfig
from dtgol_core.exponential import exp
from dtgol_core.types import FloatArray, IntArray

ROOT = -1
UNKNOWN = -2
_SAME_PLACE = 1e-9
_DENSITY_UNITS = 1e9
"""Densities are compared in whole units of 1e-9, so that rounding decides nothing."""
_NEAR = 1.25
"""The cutoff is looked for among the pairs nearer than this many last cutoffs: a fraction of all,
in which it nearly always is."""


class Graph:
    """The tree of density ascents.

    Parameters
    ----------
    config
        `percentile` of the pairwise distances that gives the cutoff; `refresh_steps` between two
        exact recomputations of cutoff and densities (auto: an eighth of the nodes).

    Notes
    -----
    Density ``ρ_i = Σ_{j≠i} exp(−d_ij²/d_c²)``. Equal densities: the older is higher; equal
    distances: the older is nearer, so that ties do not depend on the order of slots. Between two
    refreshes ``d_c`` (cutoff) is kept and densities change by single kernels. Cost per step: O(n·d)
    for the new distances, O(n) for densities and order, O(n) for each node that lost its parent;
    O(n²) at a refresh.

    References
    ----------
    Rodriguez and Laio (2014), Clustering by fast search and find of density peaks, Science.
    """

    def __init__(self, config: GraphConfig) -> None:
        self._config = config
        self.distance = np.zeros((0, 0))
        self.density = np.zeros(0)
        self.parent = np.zeros(0, dtype=np.int64)
        self.order = np.zeros(0, dtype=np.int64)
        """Slots by falling density; the first `size` count."""
        self.size = 0
        self.cutoff = 0.0
        self.since = -1
        """Steps since the last refresh; -1 before the first graph."""

    def insert(self, slot: int, latent: FloatArray, steps: IntArray) -> None:
        """Let a node in: its vector is in its slot of `latent`."""
        if len(steps) > len(self.density):
            self._extend(len(steps))
        cutoff = self.cutoff if self.since >= 0 else 0.0
        _insert(
            self.distance, self.density, self.order, self.size, self.parent, slot, latent, cutoff
        )
        self.size += 1

    def evict(self, slot: int) -> None:
        """Let a node go, and its kernels with it."""
        _remove(self.distance, self.density, self.order, self.size, self.parent, slot, self.cutoff)
        self.size -= 1

    def update(self, steps: IntArray) -> None:
        """Bring densities, order and parents up to date: once a step, after the new node is in."""
        self.since += 1
        refresh = self._config.refresh_steps or max(1, self.size // 8)
        if self.since == 0 or self.since >= refresh:
            self.since = 0
            self.cutoff = self._find_cutoff()
            _densities(self.distance, self.density, self.order, self.size, self.cutoff)
        _reorder(self.distance, self.density, steps, self.order, self.size, self.parent)

    def nodes(self) -> IntArray:
        """Slots by falling density: every parent stands before its children."""
        return self.order[: self.size]

    def _find_cutoff(self) -> float:
        """The percentile of all pairwise distances, by linear interpolation."""
        pairs = self.size * (self.size - 1) // 2
        if pairs == 0:
            return 1.0
        rank = self._config.percentile / 100.0 * (pairs - 1)
        low = int(rank)
        high = min(low + 1, pairs - 1)
        distances = self._smallest(high + 1)
        distances.partition((low, high))
        step = distances[high] - distances[low]
        share = rank - low
        # numpy's own interpolation, which is exact at both ends
        cutoff = (
            distances[low] + step * share if share < 0.5 else distances[high] - step * (1.0 - share)
        )
        if cutoff * cutoff > 0.0:  # kernels divide by the square, which may vanish before it does
            return float(cutoff)
        everything = self._smallest(pairs)
        positive = everything[everything > 0.0]
        return float(positive.min()) if len(positive) else 1.0

    def _smallest(self, count: int) -> FloatArray:
        """Pairwise distances in no order, among them so many of the smallest at least."""
        pairs = self.size * (self.size - 1) // 2
        distances = np.empty(pairs)
        found = _pairs(self.distance, self.order, self.size, _NEAR * self.cutoff, distances)
        if found < count:
            found = _pairs(self.distance, self.order, self.size, math.inf, distances)
        return distances[:found]

    def _extend(self, slots: int) -> None:
        old = len(self.density)
        distance = np.zeros((slots, slots))
        distance[:old, :old] = self.distance
        self.distance = distance
        self.density = np.concatenate([self.density, np.zeros(slots - old)])
        fresh = np.full(slots - old, UNKNOWN, dtype=np.int64)
        self.parent = np.concatenate([self.parent, fresh])
        self.order = np.concatenate([self.order, fresh])

    def snapshot(self) -> dict[str, Any]:
        """Densities, order and parents bit for bit; distances follow from the vectors."""
        return {
            "density": self.density.copy(),
            "parent": self.parent.copy(),
            "order": self.nodes().copy(),
            "cutoff": self.cutoff,
            "since": self.since,
        }

    @staticmethod
    def restore(config: GraphConfig, snapshot: dict[str, Any], latent: FloatArray) -> "Graph":
        """The graph that `snapshot` described, over the vectors of the fine buffer."""
        graph = Graph(config)
        slots, parent = len(snapshot["density"]), snapshot["parent"]
        named = {*snapshot["order"].tolist(), *parent[parent >= 0].tolist()}
        if slots > len(latent) or not named <= set(range(slots)) or (parent < UNKNOWN).any():
            raise ValueError("the graph names slots that the fine buffer does not have")
        if slots:
            graph._extend(slots)
        graph.density[:] = snapshot["density"]
        graph.parent[:] = parent
        graph.size = len(snapshot["order"])
        graph.order[: graph.size] = snapshot["order"]
        _measure_all(graph.distance, graph.order, graph.size, latent)
        graph.cutoff = snapshot["cutoff"]
        graph.since = snapshot["since"]
        return graph


@compiled
def _insert(
    distance: FloatArray,
    density: FloatArray,
    order: IntArray,
    size: int,
    parent: IntArray,
    slot: int,
    latent: FloatArray,
    cutoff: float,
) -> None:
    """Put a node last; its kernels are added unless there is no cutoff (0) yet."""
    _measure(distance, order, size, slot, latent)
    if cutoff > 0.0:
        _add_kernels(distance, density, order, size, slot, cutoff)
    order[size] = slot
    parent[slot] = UNKNOWN


@compiled
def _measure(
    distance: FloatArray, order: IntArray, size: int, slot: int, latent: FloatArray
) -> None:
    """Distances from the node in `slot` to all others; four sums side by side, each in the order of
    the columns."""
    here, columns = latent[slot], latent.shape[1]
    fours = size // 4 * 4
    for place in range(0, fours, 4):
        a, b = latent[order[place]], latent[order[place + 1]]
        c, d = latent[order[place + 2]], latent[order[place + 3]]
        to_a = to_b = to_c = to_d = 0.0
        for column in range(columns):
            value = here[column]
            to_a += (value - a[column]) * (value - a[column])
            to_b += (value - b[column]) * (value - b[column])
            to_c += (value - c[column]) * (value - c[column])
            to_d += (value - d[column]) * (value - d[column])
        _set_distance(distance, slot, order[place], to_a)
        _set_distance(distance, slot, order[place + 1], to_b)
        _set_distance(distance, slot, order[place + 2], to_c)
        _set_distance(distance, slot, order[place + 3], to_d)
    for place in range(fours, size):
        other, squares = latent[order[place]], 0.0
        for column in range(columns):
            squares += (here[column] - other[column]) * (here[column] - other[column])
        _set_distance(distance, slot, order[place], squares)
    distance[slot, slot] = 0.0


@compiled
def _set_distance(distance: FloatArray, slot: int, other: int, squares: float) -> None:
    value = math.sqrt(squares)
    if value < _SAME_PLACE:
        value = 0.0
    distance[slot, other] = value
    distance[other, slot] = value


@compiled
def _measure_all(distance: FloatArray, order: IntArray, size: int, latent: FloatArray) -> None:
    """All distances between the nodes of `order`."""
    for place in range(size):
        _measure(distance, order, place, order[place], latent)


@compiled
def _add_kernels(
    distance: FloatArray, density: FloatArray, order: IntArray, size: int, slot: int, cutoff: float
) -> None:
    kernel = _kernels(distance[slot], cutoff)
    total = 0.0
    for place in range(size):
        other = order[place]
        density[other] += kernel[other]
        total += kernel[other]
    density[slot] = total


@compiled
def _kernels(row: FloatArray, cutoff: float) -> FloatArray:
    """``exp(−d²/d_c²)`` of the distances of one node, of free slots as well: it is quicker."""
    kernel, square = np.empty(len(row)), cutoff * cutoff
    for slot in range(len(row)):
        kernel[slot] = exp(-(row[slot] * row[slot]) / square)
    return kernel


@compiled
def _remove(
    distance: FloatArray,
    density: FloatArray,
    order: IntArray,
    size: int,
    parent: IntArray,
    slot: int,
    cutoff: float,
) -> None:
    """Take a node out of densities, order and parents; its children lose their parent."""
    kernel = _kernels(distance[slot], cutoff)
    kept = 0
    for place in range(size):
        other = order[place]
        if other == slot:
            continue
        order[kept] = other
        kept += 1
        density[other] -= kernel[other]
        if parent[other] == slot:
            parent[other] = UNKNOWN
    parent[slot] = UNKNOWN


@compiled
def _pairs(distance: FloatArray, order: IntArray, size: int, bound: float, out: FloatArray) -> int:
    """Write the pairwise distances up to a bound to `out`; how many they are."""
    count = 0
    for place in range(size):
        row = distance[order[place]]
        for other in range(place):
            out[count] = row[order[other]]
            count += out[count] <= bound
    return count


@compiled
def _densities(
    distance: FloatArray, density: FloatArray, order: IntArray, size: int, cutoff: float
) -> None:
    """All densities. Each node gives its kernels to all others, in order of the old density.

    Every kernel is computed twice, for the loop over the slots of one row is then without a branch.
    """
    total, square = np.zeros(len(density)), cutoff * cutoff
    for place in range(size):
        node = order[place]
        row, own = distance[node], total[node]
        for slot in range(len(total)):
            total[slot] += exp(-(row[slot] * row[slot]) / square)
        total[node] = own
    for place in range(size):
        density[order[place]] = total[order[place]]


@compiled
def _reorder(
    distance: FloatArray,
    density: FloatArray,
    steps: IntArray,
    order: IntArray,
    size: int,
    parent: IntArray,
) -> None:
    """Insertion sort by falling density; parents follow the exchanges; then nodes whose parent is
    unknown search all denser ones."""
    heights = np.rint(density * _DENSITY_UNITS)
    for place in range(1, size):
        rising = order[place]
        height = heights[rising]
        at = place
        while at > 0:
            falling = order[at - 1]
            other = heights[falling]
            if other > height or (other == height and steps[falling] < steps[rising]):
                break
            order[at] = falling
            at -= 1
            if parent[rising] == falling:
                parent[rising] = UNKNOWN
            above = parent[falling]
            if above == ROOT:
                parent[falling] = rising
            elif above != UNKNOWN:
                d = distance[falling, rising]
                nearest = distance[falling, above]
                if d < nearest or (d == nearest and steps[rising] < steps[above]):
                    parent[falling] = rising
        order[at] = rising
    for place in range(size):
        node = order[place]
        if place == 0:
            parent[node] = ROOT
        elif parent[node] == UNKNOWN:
            nearest = math.inf
            for higher_place in range(place):
                higher = order[higher_place]
                d = distance[node, higher]
                if d < nearest or (d == nearest and steps[higher] < steps[parent[node]]):
                    nearest = d
                    parent[node] = higher
