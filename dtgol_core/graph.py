"""Density-ascent graph over the fine buffer.

In: slots entering and leaving, and the latent vectors of all slots. Out: for each node its parent,
the nearest node of higher density. The parents form one tree whose root is the densest node.

Kept between steps: all densities, the nodes in order of density, and the parents with their
distances. All other distances are computed when they are needed: a matrix of them would be 2 MB at
500 nodes, more than the caches of a processor give to one learner.
A step changes few densities by much, so the order is repaired by insertion sort. Each exchange of
two neighbours in that sort is exactly one pair whose order has flipped, and only such pairs can
change which higher node is nearest: the parents follow the exchanges, and a node looks at all
others only when its parent has left or has fallen below it.
"""

import math
from typing import Any, TypeAlias

import numpy as np

from dtgol_core.compiled import compiled, in_place
from dtgol_core.config import GraphConfig
from dtgol_core.elementary import exp
from dtgol_core.state import SnapshotError, require_shape
from dtgol_core.types import FloatArray, IntArray, SlotVectors

ROOT = -1
UNKNOWN = -2
PARENT, ORDER = range(2)
"""Rows of `Graph.tree`."""
DENSITY, NEAREST = range(2)
"""Rows of `Graph.slots`."""
SIZE, CUTOFF, SINCE, PERCENTILE, REFRESH = range(5)
"""Places in `Graph.numbers`; a refresh after 0 steps is auto."""
_SAME_PLACE = 1e-9
"""A distance below it is 0."""
_DENSITY_UNITS = 1e9
"""Densities are compared in whole units of 1e-9, so that rounding decides nothing."""
_SQUARE_MIN = 1e-300
"""Of a cutoff: kernels divide by it."""
_NEAR = 1.05
"""The cutoff is looked for among the pairs nearer than this many last cutoffs."""

GraphState: TypeAlias = tuple[FloatArray, IntArray, FloatArray]
"""Slots, tree and numbers, as the compiled loops take them."""


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
    for the nodes that come and leave and for each that has lost its parent, O(d) for each exchange;
    O(n²·d) at a refresh, which takes 8·n² bytes for a moment. `insert`, `evict` and `update` run
    one stage alone, for tests and for looking at it.

    References
    ----------
    Rodriguez and Laio (2014), Clustering by fast search and find of density peaks, Science.
    """

    def __init__(self, config: GraphConfig) -> None:
        self.slots = np.zeros((2, 0))
        """By slot the density, and the distance to the parent where that is known."""
        self.tree = np.zeros((2, 0), dtype=np.int64)
        """By slot the parent; slots by falling density, of which the first `size` count."""
        self.numbers = np.array([0.0, 0.0, -1.0, config.percentile, config.refresh_steps or 0])
        """Nodes, cutoff, steps since the last refresh (-1 before the first graph), settings."""

    @property
    def state(self) -> GraphState:
        """What the compiled loops take."""
        return self.slots, self.tree, self.numbers

    @property
    def density(self) -> FloatArray:
        """Densities by slot."""
        density: FloatArray = self.slots[DENSITY]
        return density

    @property
    def parent(self) -> IntArray:
        """Parents by slot."""
        parent: IntArray = self.tree[PARENT]
        return parent

    @property
    def size(self) -> int:
        """How many nodes there are."""
        return int(self.numbers[SIZE])

    @property
    def cutoff(self) -> float:
        """The distance at which a kernel has fallen to 1/e."""
        return float(self.numbers[CUTOFF])

    @property
    def since(self) -> int:
        """Steps since the last refresh; -1 before the first graph."""
        return int(self.numbers[SINCE])

    def insert(self, slot: int, latent: SlotVectors) -> None:
        """Let a node in: its vector is in its slot of `latent`."""
        self.make_room(len(latent[0]))
        insert(self.state, slot, latent)

    def evict(self, slot: int, latent: SlotVectors) -> None:
        """Let a node go, and its kernels with it."""
        evict(self.state, slot, latent)

    def update(self, steps: IntArray, latent: SlotVectors) -> None:
        """Bring densities, order and parents up to date: once a step, after the new node is in."""
        update(self.state, steps, latent)

    def nodes(self) -> IntArray:
        """Slots by falling density: every parent stands before its children."""
        nodes: IntArray = self.tree[ORDER, : self.size]
        return nodes

    def make_room(self, slots: int) -> None:
        """Have as many slots as the fine buffer."""
        old = self.slots.shape[1]
        if slots <= old:
            return
        self.slots = np.concatenate([self.slots, np.zeros((2, slots - old))], axis=1)
        fresh = np.full((2, slots - old), UNKNOWN, dtype=np.int64)
        self.tree = np.concatenate([self.tree, fresh], axis=1)

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
        """The graph that `snapshot` described, over the vectors of the fine buffer.

        Every index in it is checked, for loops do not.
        """
        graph = Graph(config)
        slots, parent, order = len(snapshot["density"]), snapshot["parent"], snapshot["order"]
        require_shape("parent", parent, (slots,))
        places = {slot: place for place, slot in enumerate(order.tolist())}
        if (
            slots > len(latent)
            or len(places) < len(order)
            or not places.keys() <= set(range(slots))
        ):
            raise SnapshotError("the snapshot is damaged: nodes of the graph")
        for slot, above in enumerate(parent.tolist()):
            place = places.get(slot, -1)
            earlier = above in places and places[above] < place
            if not (above == UNKNOWN or earlier or (above == ROOT and place == 0)):
                raise SnapshotError(
                    "the snapshot is damaged: a parent that is not before its child"
                )
        cutoff, since = float(snapshot["cutoff"]), snapshot["since"]
        if type(since) is not int or since < -1 or (since >= 0 and cutoff * cutoff < _SQUARE_MIN):
            raise SnapshotError("the snapshot is damaged: cutoff of the graph")
        graph.make_room(slots)
        graph.density[:] = snapshot["density"]
        graph.parent[:] = parent
        graph.numbers[SIZE] = len(order)
        graph.nodes()[:] = order
        _measure_parents(graph.state, latent)
        graph.numbers[CUTOFF], graph.numbers[SINCE] = cutoff, since
        return graph


@compiled
def insert(graph: GraphState, slot: int, latent: SlotVectors) -> None:
    """Put a node last; its kernels are added once there is a cutoff."""
    slots, tree, numbers = graph
    order, size, density = tree[ORDER], int(numbers[SIZE]), slots[DENSITY]
    if numbers[SINCE] >= 0.0:
        kernel, total = np.empty(len(density)), 0.0
        _squares(latent[1], slot, kernel)
        _to_kernels(kernel, numbers[CUTOFF])
        for place in range(size):
            other = order[place]
            density[other] += kernel[other]
            total += kernel[other]
        density[slot] = total
    order[size] = slot
    tree[PARENT, slot] = UNKNOWN
    numbers[SIZE] += 1.0


@compiled
def evict(graph: GraphState, slot: int, latent: SlotVectors) -> None:
    """Take a node out of densities, order and parents; its children lose their parent."""
    slots, tree, numbers = graph
    order, parent, density = tree[ORDER], tree[PARENT], slots[DENSITY]
    kernel = np.empty(len(density))
    _squares(latent[1], slot, kernel)
    _to_kernels(kernel, numbers[CUTOFF])
    kept = 0
    for place in range(int(numbers[SIZE])):
        other = order[place]
        if other == slot:
            continue
        order[kept] = other
        kept += 1
        density[other] -= kernel[other]
        if parent[other] == slot:
            parent[other] = UNKNOWN
    parent[slot] = UNKNOWN
    numbers[SIZE] -= 1.0


@compiled
def update(graph: GraphState, steps: IntArray, latent: SlotVectors) -> None:
    """Densities at a refresh, then order and parents."""
    slots, tree, numbers = graph
    size = int(numbers[SIZE])
    refresh = numbers[REFRESH] if numbers[REFRESH] > 0.0 else max(1, size // 8)
    numbers[SINCE] += 1.0
    if numbers[SINCE] == 0.0 or numbers[SINCE] >= refresh:
        numbers[SINCE] = 0.0
        _refresh(slots[DENSITY], tree[ORDER, :size], numbers, latent[1])
    heights, row = np.empty(slots.shape[1]), np.empty(slots.shape[1])
    _reorder(latent, slots, steps, tree, size, heights, row)


@compiled
def _refresh(
    density: FloatArray, nodes: IntArray, numbers: FloatArray, columns: FloatArray
) -> None:
    """Cutoff and all densities, from the squared distances of all pairs.

    These lie row by row, each slot's to the slots before it; those of free slots do not count.
    """
    count = len(density)
    squares, taken = np.empty(count * (count - 1) // 2), np.zeros(count)
    for place in range(len(nodes)):
        taken[nodes[place]] = 1.0
    start = 0
    for slot in range(count):
        if taken[slot] > 0.0:
            _squares(columns, slot, squares[start : start + slot])
        start += slot
    last, percentile = numbers[CUTOFF], numbers[PERCENTILE]
    numbers[CUTOFF] = _find_cutoff(squares, taken, len(nodes), last, percentile)
    _densities(squares, density, taken, numbers[CUTOFF])


@in_place
def _squares(columns: FloatArray, slot: int, row: FloatArray) -> None:
    """Squared distances of a slot to the first ones, free ones as well: it is quicker.

    As many as `row` has room for; four columns at a time, each sum in the order of columns.
    """
    width = len(columns)
    for other in range(len(row)):
        row[other] = 0.0
    fours = width // 4 * 4
    for column in range(0, fours, 4):
        a, b, c, d = columns[column], columns[column + 1], columns[column + 2], columns[column + 3]
        at_a, at_b, at_c, at_d = a[slot], b[slot], c[slot], d[slot]
        for other in range(len(row)):
            total = row[other] + (at_a - a[other]) * (at_a - a[other])
            total += (at_b - b[other]) * (at_b - b[other])
            total += (at_c - c[other]) * (at_c - c[other])
            row[other] = total + (at_d - d[other]) * (at_d - d[other])
    for column in range(fours, width):
        values, here = columns[column], columns[column, slot]
        for other in range(len(row)):
            row[other] += (here - values[other]) * (here - values[other])
    for other in range(len(row)):
        row[other] = 0.0 if row[other] < _SAME_PLACE * _SAME_PLACE else row[other]


@in_place
def _distance(rows: FloatArray, slot: int, other: int) -> float:
    """The distance of two slots, from the same sum."""
    squares = 0.0
    for column in range(rows.shape[1]):
        difference = rows[slot, column] - rows[other, column]
        squares += difference * difference
    return 0.0 if squares < _SAME_PLACE * _SAME_PLACE else math.sqrt(squares)


@in_place
def _measure_parents(graph: GraphState, rows: FloatArray) -> None:
    """The distances of all nodes to their parents."""
    slots, tree, _ = graph
    for slot in range(slots.shape[1]):
        if tree[PARENT, slot] >= 0:
            slots[NEAREST, slot] = _distance(rows, slot, tree[PARENT, slot])


@in_place
def _to_kernels(squares: FloatArray, cutoff: float) -> None:
    """Replace squared distances by ``exp(−d²/d_c²)``."""
    scale = -1.0 / (cutoff * cutoff)
    for other in range(len(squares)):
        squares[other] = exp(squares[other] * scale)


@compiled
def _find_cutoff(
    squares: FloatArray, taken: FloatArray, size: int, last: float, percentile: float
) -> float:
    """The percentile of all pairwise distances, by linear interpolation.

    It is looked for among the pairs that are not much farther than the last cutoff, a fraction of
    all, in which it nearly always is. If its square vanishes, the smallest positive distance takes
    its place.
    """
    pairs = size * (size - 1) // 2
    if pairs == 0:
        return 1.0
    rank = percentile / 100.0 * (pairs - 1)
    low = int(rank)
    high = min(low + 1, pairs - 1)
    near = np.empty(pairs + 1)  # the last for what is written and does not count
    found = _pairs(squares, taken, (_NEAR * last) ** 2, near)
    if found <= high:
        found = _pairs(squares, taken, math.inf, near)
    _select(near, found, low)
    below, above = near[low], near[low]
    if high > low:
        above = math.inf
        for place in range(high, found):
            above = min(above, near[place])
    below, above = math.sqrt(below), math.sqrt(above)
    step, share = above - below, rank - low
    # numpy's own interpolation, which is exact at both ends
    cutoff: float = below + step * share if share < 0.5 else above - step * (1.0 - share)
    if cutoff * cutoff >= _SQUARE_MIN:
        return cutoff
    found, least = _pairs(squares, taken, math.inf, near), math.inf
    for place in range(found):
        if near[place] > 0.0:
            least = min(least, near[place])
    return math.sqrt(least) if least < math.inf else 1.0


@in_place
def _select(values: FloatArray, count: int, rank: int) -> None:
    """Let the number of this rank stand in its place, no larger one before it, no smaller after.

    Hoare (1961), Algorithm 65: Find, CACM; the pivot is the median of three.
    """
    first, last = 0, count - 1
    while first < last:
        a, b, c = values[first], values[(first + last) // 2], values[last]
        pivot = max(min(a, b), min(max(a, b), c))
        left, right = first, last
        while left <= right:
            while values[left] < pivot:
                left += 1
            while values[right] > pivot:
                right -= 1
            if left <= right:
                values[left], values[right] = values[right], values[left]
                left += 1
                right -= 1
        if rank <= right:
            last = right
        elif rank >= left:
            first = left
        else:
            return


@in_place
def _pairs(squares: FloatArray, taken: FloatArray, bound: float, out: FloatArray) -> int:
    """Write the squares up to a bound to `out`; how many they are."""
    start, count = 0, 0
    for slot in range(len(taken)):
        if taken[slot] > 0.0:
            row = squares[start : start + slot]
            for other in range(len(row)):
                out[count] = row[other]
                count += (row[other] <= bound) & (taken[other] > 0.0)
        start += slot
    return count


@in_place
def _densities(squares: FloatArray, density: FloatArray, taken: FloatArray, cutoff: float) -> None:
    """All densities, from the kernels of each pair of slots, which take the place of the squares.

    A slot's own sum is taken over every fourth slot before it, four sums side by side.
    """
    start = 0
    for slot in range(len(density)):
        density[slot] = 0.0
        row = squares[start : start + slot]
        start += slot
        if taken[slot] > 0.0:
            _to_kernels(row, cutoff)
            for other in range(len(row)):
                row[other] *= taken[other]
                density[other] += row[other]
            a = b = c = d = 0.0
            fours = slot // 4 * 4
            for other in range(0, fours, 4):
                a += row[other]
                b += row[other + 1]
                c += row[other + 2]
                d += row[other + 3]
            for other in range(fours, slot):
                a += row[other]
            density[slot] = (a + b) + (c + d)


@in_place
def _reorder(
    latent: SlotVectors,
    slots: FloatArray,
    steps: IntArray,
    tree: IntArray,
    size: int,
    heights: FloatArray,
    row: FloatArray,
) -> None:
    """Insertion sort by falling density; parents follow the exchanges; then nodes whose parent is
    unknown search all denser ones. `heights` and `row` are work space."""
    density, nearest, parent, order = slots[DENSITY], slots[NEAREST], tree[PARENT], tree[ORDER]
    rows, columns = latent
    for slot in range(len(heights)):
        heights[slot] = np.rint(density[slot] * _DENSITY_UNITS)
    for place in range(1, size):
        rising, at = order[place], place
        height = heights[rising]
        measured = parent[rising] == UNKNOWN and height > heights[order[place - 1]]
        if measured:  # a new node, which rises far
            _squares(columns, rising, row)
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
            if above == UNKNOWN:
                continue
            d = math.sqrt(row[falling]) if measured else _distance(rows, rising, falling)
            if (
                above == ROOT
                or d < nearest[falling]
                or (d == nearest[falling] and steps[rising] < steps[above])
            ):
                parent[falling], nearest[falling] = rising, d
        order[at] = rising
    parent[order[0]] = ROOT
    for place in range(1, size):
        node = order[place]
        if parent[node] == UNKNOWN:
            _squares(columns, node, row)
            least, found = math.inf, UNKNOWN
            for higher_place in range(place):
                higher = order[higher_place]
                d = math.sqrt(row[higher])
                if d < least or (d == least and steps[higher] < steps[found]):
                    least, found = d, higher
            parent[node], nearest[node] = found, least
