"""Forest: extra-trees on what a Bayesian regression leaves unexplained, over the newest labels."""

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from dtgol_core.bayes import Regression, design_prior
from dtgol_core.compiled import compiled
from dtgol_core.config import Config
from dtgol_core.losses import sigmoid
from dtgol_core.state import SnapshotError, flatten, require_int, require_shape, subsection
from dtgol_core.types import FloatArray, Inspection, Instance, IntArray, SingleArray

ShortArray = npt.NDArray[np.int16]
LabelArray = npt.NDArray[np.int8]

TREES = 32
RING = 1024
ROWS = 960
"""Rows of the ring that a tree learns from; the rest of the ring fills up while it grows."""
AGE = 400.0
"""A row counts exp(−age/AGE), its age in labels."""
DRAWS = 12
SIDE_ROWS_MIN = 3
DEPTH = 14
RIDGE = 0.3
GAIN_MIN = 1e-9
"""By more than this a split must be better than none and than those before it: of two that part the
rows equally well the first wins, and rounding decides nothing."""
RANGE_MIN = 1e-9
CURVATURE_MIN = 1e-3
LOGIT_MAX = 8.0
VISITS = ROWS * DRAWS * DEPTH // 48
"""Row visits per label: the largest tree is finished before the ring overwrites one of its rows."""
LEAVES = ROWS // SIDE_ROWS_MIN
NODES = 2 * LEAVES - 1
LEAF = -1
OPEN = -1
"""In place of a leaf's number: the node waits on the stack."""
GROWN = TREES
"""The row of the arrays of trees in which one grows."""
MEMORY = 0.9999


class Forest:
    """Thirty-two residual trees over the last 960 labels, one of which is always being replaced.

    Parameters
    ----------
    config
        Nothing of it: the numbers are constants, chosen on the odd streams of the benchmark.

    Attributes
    ----------
    regression
        The offset from which the trees start, its own.
    rows : (3·columns, 1024)
        The ring: row values by scale and column, so that a draw looks at neighbours in memory.

    Notes
    -----
    ``log-odds = clip(A, ±8) + mean of G/(H + 0.3)`` over the leaves that the row falls in; A is the
    regression's answer, G and H the sums of ``y − p`` and ``p(1 − p)`` over the labels in the leaf.
    A split is the best of 12 random pairs of column and threshold; draws come from a counter, so
    that the forest is a function of the order of labels. All formulas are in docs/learner.md.
    Growth is spread over labels: at most 3,360 row visits and the end of one node with each. Cost
    of a label at 16 columns: about 27 µs; state: 0.58 MB in memory.

    References
    ----------
    Geurts, Ernst and Wehenkel (2006), Extremely randomized trees, Machine Learning; for the values
    of leaves Friedman (2001), Greedy function approximation, Annals of Statistics.
    """

    name: ClassVar[str] = "forest"
    kept: ClassVar[tuple[str, ...]] = ()
    scales: ClassVar[tuple[str, ...]] = ("cumulative", "fast")
    CACHES: ClassVar[tuple[str, ...]] = ("_leaves", "_scored")

    def __init__(self, config: Config) -> None:
        self._columns = 0
        self.regression = Regression(*design_prior(0), MEMORY)
        self.rows: SingleArray = np.zeros((0, RING), dtype=np.float32)
        self.labels: LabelArray = np.zeros(RING, dtype=np.int8)
        self.steps = np.full(RING, -1, dtype=np.int64)
        self.labels_learnt = 0
        self.finished = 0
        self.trees = Trees()
        self.growth = Growth()
        self._leaves = np.zeros(TREES, dtype=np.int64)
        self._scored: tuple[FloatArray, float] | None = None
        """The row that was last scored and what the regression said; `_leaves` are its leaves. A
        label is learnt right after its row was scored: its way through the trees is known then."""

    def observe(self, instance: Instance) -> tuple[float, ...]:
        """Nothing is learnt without a label."""
        return ()

    def score(self, instance: Instance) -> float:
        """Regression and trees together."""
        u = instance.vectors.design
        linear = self.regression.score(u)
        residual = _residual(*self.trees.arrays(), self._answering(), u, self._leaves)
        self._scored = u, linear
        return sigmoid(min(max(linear, -LOGIT_MAX), LOGIT_MAX) + residual)

    def learn(self, instance: Instance, label: int) -> None:
        """Leaves, regression and ring take in the label; then the growing tree goes on."""
        u = instance.vectors.design
        if self._scored is None or self._scored[0] is not u:
            self.score(instance)
        assert self._scored is not None
        _, linear = self._scored
        self._scored = None
        p = sigmoid(min(max(linear, -LOGIT_MAX), LOGIT_MAX))
        trees, answering = self.trees, self._answering()
        _count(trees.gradient, trees.curvature, answering, self._leaves, label - p, p * (1.0 - p))
        self.regression.learn(u, label)
        slot = self.labels_learnt % RING
        self.rows[:, slot] = u[1:]
        self.labels[slot] = label
        self.steps[slot] = instance.step
        self.labels_learnt += 1
        growth = self.growth
        if _grow(
            *trees.arrays(),
            self.rows,
            self.labels,
            self.labels_learnt,
            self.finished,
            self.regression.mean,
            growth.numbers,
            growth.stack,
            growth.slots,
            growth.gradient,
            growth.curvature,
        ):
            trees.replace(self.finished % TREES, growth.nodes)
            self.finished += 1

    def forget(self, step: int) -> None:
        """Nothing is kept of an instance without a label."""

    def correct(self, step: int, label: int) -> bool:
        """Replace the label in the ring, for the trees that begin from now on."""
        found = self.steps == step
        self.labels[found] = label
        return bool(found.any())

    def grow(self, columns: int) -> None:
        """Add columns that are 0 in all rows of the ring."""
        self._columns += columns
        self._scored = None
        self.regression.grow(*design_prior(self._columns))
        fresh = np.zeros((3 * columns, RING), dtype=np.float32)
        self.rows = np.concatenate([self.rows, fresh])

    def contributions(self, instance: Instance) -> FloatArray:
        """Terms of the regression, and along each tree's path the differences of node values."""
        u = instance.vectors.design
        terms = self.regression.terms(u)
        trees = self._answering()
        if trees:
            _path_differences(*self.trees.arrays(), trees, self.trees.nodes, u, terms)
        moved: FloatArray = terms[1:].reshape(-1, 3).sum(axis=1)
        return moved

    def inspect(self) -> Inspection:
        """How many labels and trees; the regression's weights by scale, the bias with the first."""
        mean, none = self.regression.mean, np.zeros(1)
        trees = self._answering()
        nodes = float(self.trees.nodes[:trees].mean()) if trees else 0.0
        return Inspection(
            {"labels": self.labels_learnt, "trees": trees, "nodes_per_tree": nodes},
            {
                "latent": np.concatenate([mean[:1], mean[1::3]]),
                "cumulative": np.concatenate([none, mean[2::3]]),
                "fast": np.concatenate([none, mean[3::3]]),
            },
        )

    def _answering(self) -> int:
        return min(self.finished, TREES)

    def snapshot(self) -> dict[str, Any]:
        """Regression, ring, trees, and how far the growing one is."""
        filled = min(self.labels_learnt, RING)
        own = {
            "rows": self.rows[:, :filled].copy(),
            "labels": self.labels[:filled].copy(),
            "steps": self.steps[:filled].copy(),
            "labels_learnt": self.labels_learnt,
            "finished": self.finished,
        }
        parts = {
            "regression": self.regression.snapshot(),
            "trees": self.trees.snapshot(self.growth),
            "growth": self.growth.snapshot(),
        }
        return own | flatten(parts)

    @classmethod
    def restore(cls, config: Config, snapshot: Mapping[str, Any], columns: int) -> Self:
        """The expert that `snapshot` described; every index in it is checked, for loops do not."""
        forest = cls(config)
        forest.grow(columns)
        prior, kept = design_prior(columns), subsection(snapshot, "regression")
        forest.regression = Regression.restore(*prior, MEMORY, kept)
        forest.labels_learnt = require_int(snapshot["labels_learnt"])
        forest.finished = require_int(snapshot["finished"])
        if not (0 <= forest.labels_learnt < 2**62 and 0 <= forest.finished < 2**62):
            raise SnapshotError("the snapshot is damaged: a count that cannot be")
        filled = min(forest.labels_learnt, RING)
        require_shape("rows", snapshot["rows"], (3 * columns, filled))
        require_shape("labels", snapshot["labels"], (filled,))
        require_shape("steps", snapshot["steps"], (filled,))
        forest.rows[:, :filled] = snapshot["rows"]
        forest.labels[:filled] = snapshot["labels"]
        forest.steps[:filled] = snapshot["steps"]
        forest.growth = Growth.restore(subsection(snapshot, "growth"), forest.labels_learnt)
        forest.trees = Trees.restore(
            subsection(snapshot, "trees"), forest._answering(), forest.growth, 3 * columns
        )
        return forest


class Trees:
    """Thirty-two trees that answer, and in the last place the one that grows.

    Node 0 is the root. ``child`` is the left child of a split, the right one stands next to it; of
    a leaf it is the place of its sums.
    """

    def __init__(self) -> None:
        self.feature: ShortArray = np.full((TREES + 1, NODES), LEAF, dtype=np.int16)
        self.threshold: SingleArray = np.zeros((TREES + 1, NODES), dtype=np.float32)
        self.child: ShortArray = np.zeros((TREES + 1, NODES), dtype=np.int16)
        self.gradient = np.zeros((TREES + 1, LEAVES))
        self.curvature = np.zeros((TREES + 1, LEAVES))
        self.nodes = np.zeros(TREES, dtype=np.int64)

    def arrays(self) -> tuple[ShortArray, SingleArray, ShortArray, FloatArray, FloatArray]:
        """What a kernel takes."""
        return self.feature, self.threshold, self.child, self.gradient, self.curvature

    def replace(self, tree: int, nodes: int) -> None:
        """The grown tree, of so many nodes, takes the place of another."""
        for array in self.arrays():
            array[tree] = array[GROWN]
        self.nodes[tree] = nodes

    def snapshot(self, growth: "Growth") -> dict[str, Any]:
        """The nodes and leaves that are in use, tree after tree."""
        nodes, leaves = self._used(self.nodes, growth)
        return {
            "nodes": self.nodes.copy(),
            "feature": self.feature[nodes],
            "threshold": self.threshold[nodes],
            "child": self.child[nodes],
            "gradient": self.gradient[leaves],
            "curvature": self.curvature[leaves],
        }

    @staticmethod
    def restore(
        snapshot: Mapping[str, Any], answering: int, growth: "Growth", features: int
    ) -> "Trees":
        """The trees that `snapshot` described, over so many features, so many of them finished."""
        trees, count = Trees(), snapshot["nodes"]
        require_shape("nodes", count, (TREES,))
        finished = np.arange(TREES) < answering
        if not np.where(
            finished, (count % 2 == 1) & (count > 0) & (count <= NODES), count == 0
        ).all():
            raise SnapshotError("the snapshot is damaged: a tree cannot have so many nodes")
        trees.nodes = count.copy()
        nodes, leaves = Trees._used(count, growth)
        for name, used in (("feature", nodes), ("threshold", nodes), ("child", nodes)):
            require_shape(name, snapshot[name], (int(nodes.sum()),))
            getattr(trees, name)[used] = snapshot[name]
        for name in ("gradient", "curvature"):
            require_shape(name, snapshot[name], (int(leaves.sum()),))
            getattr(trees, name)[leaves] = snapshot[name]
        for tree in range(answering):
            trees._check(tree, int(count[tree]), features, [], int(count[tree] + 1) // 2)
        if growth.grows:
            trees._check(GROWN, growth.nodes, features, growth.open_nodes(), growth.leaves)
        return trees

    @staticmethod
    def _used(count: IntArray, growth: "Growth") -> tuple[Any, Any]:
        """Which nodes and which leaves are in use, as masks over the arrays."""
        nodes = np.append(count, growth.nodes)
        leaves = np.append((count + 1) // 2, growth.leaves)
        return np.arange(NODES) < nodes[:, None], np.arange(LEAVES) < leaves[:, None]

    def _check(self, tree: int, nodes: int, features: int, waiting: list[int], leaves: int) -> None:
        """Refuse what is no tree: every path from the root ends, at a leaf that has sums."""
        feature, child = self.feature[tree, :nodes], self.child[tree, :nodes]
        splits, places = feature >= 0, np.arange(nodes)
        ends = ~splits
        ends[waiting] = False
        sound = (
            ((feature >= LEAF) & (feature < features)).all()
            and (child[splits] > places[splits]).all()
            and np.array_equal(np.sort(child[splits]), np.arange(1, nodes, 2))
            and np.array_equal(np.sort(child[ends]), np.arange(leaves))
            and not splits[waiting].any()
            and (child[waiting] == OPEN).all()
        )
        if not sound:
            raise SnapshotError("the snapshot is damaged: nodes that do not make a tree")


class Growth:
    """How far the tree that grows has come.

    ``slots``, ``gradient`` and ``curvature`` are those of the rows by position; a node has the
    positions of one entry of the ``stack``: first, end, node, depth.
    """

    def __init__(self) -> None:
        self.numbers = np.zeros(len(_NUMBERS), dtype=np.int64)
        self.stack = np.zeros((DEPTH + 1, 4), dtype=np.int64)
        self.slots: ShortArray = np.zeros(ROWS, dtype=np.int16)
        self.gradient = np.zeros(ROWS)
        self.curvature = np.zeros(ROWS)

    @property
    def grows(self) -> bool:
        """Whether a tree is growing."""
        return bool(self.numbers[ON_STACK] > 0)

    @property
    def nodes(self) -> int:
        """Nodes so far of the growing tree, or of the last one."""
        return int(self.numbers[NODE_COUNT])

    @property
    def leaves(self) -> int:
        """Leaves so far."""
        return int(self.numbers[LEAF_COUNT])

    def open_nodes(self) -> list[int]:
        """The nodes on the stack."""
        return [int(node) for node in self.stack[: self.numbers[ON_STACK], 2]]

    def snapshot(self) -> dict[str, Any]:
        """Counts and, while a tree grows, its stack and rows."""
        entries = int(self.numbers[ON_STACK])
        rows = int(self.numbers[ROW_COUNT]) if entries else 0
        return {
            "numbers": self.numbers.copy(),
            "stack": self.stack[:entries].copy(),
            "slots": self.slots[:rows].copy(),
            "gradient": self.gradient[:rows].copy(),
            "curvature": self.curvature[:rows].copy(),
        }

    @staticmethod
    def restore(snapshot: Mapping[str, Any], labels_learnt: int) -> "Growth":
        """The growth that `snapshot` described, after so many labels."""
        growth, numbers, stack = Growth(), snapshot["numbers"], snapshot["stack"]
        require_shape("numbers", numbers, growth.numbers.shape)
        entries, nodes, leaves, rows, began, draws, credit = numbers.tolist()
        fits = (
            0 <= entries <= DEPTH + 1
            and 0 <= leaves <= LEAVES
            and 0 <= nodes <= NODES
            and (0 <= rows <= min(ROWS, labels_learnt))
            and 0 <= draws <= 2 * DRAWS * NODES
            and -(ROWS + DRAWS * ROWS) <= credit <= VISITS
            and (not entries or 0 <= labels_learnt - began <= RING - ROWS)
        )
        if not fits:
            raise SnapshotError("the snapshot is damaged: numbers of a tree that cannot be")
        require_shape("stack", stack, (entries, 4))
        rows = rows if entries else 0
        for name in ("slots", "gradient", "curvature"):
            require_shape(name, snapshot[name], (rows,))
            getattr(growth, name)[:rows] = snapshot[name]
        filled = min(labels_learnt, RING)
        if not ((growth.slots >= 0) & (growth.slots < max(filled, 1))).all():
            raise SnapshotError("the snapshot is damaged: a row that the ring does not have")
        first, end, node, depth = stack.T
        # The bounds of arrays in `_grow` follow from these: the stack's from the depths, the
        # nodes' from how often so many rows can still be parted.
        sizes = end - first
        sound = (
            ((first >= 0) & (sizes >= 1) & (end <= rows)).all()
            and ((node >= 0) & (node < nodes)).all()
            and ((depth >= np.arange(entries)) & (depth <= DEPTH)).all()
            and nodes + 2 * np.maximum(sizes // SIDE_ROWS_MIN - 1, 0).sum() <= NODES
            and leaves + np.maximum(sizes // SIDE_ROWS_MIN, 1).sum() <= LEAVES
            and len(set(node.tolist())) == entries
        )
        if not sound:
            raise SnapshotError("the snapshot is damaged: the stack of a tree that cannot be")
        growth.numbers = numbers.copy()
        growth.stack[:entries] = stack
        return growth


_NUMBERS = ON_STACK, NODE_COUNT, LEAF_COUNT, ROW_COUNT, BEGAN, DRAW_COUNT, CREDIT = range(7)
"""Places in `Growth.numbers`; BEGAN is the count of labels at which the tree began."""


@compiled
def _uniform(seed: int, counter: int) -> float:
    """A number in [0, 1) by SplitMix64 of seed and counter."""
    mixed = np.uint64(seed) * np.uint64(0x2545F4914F6CDD1D) + np.uint64(counter)
    mixed += np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return float(mixed >> np.uint64(11)) / 9007199254740992.0


@compiled
def _leaf(feature: ShortArray, threshold: SingleArray, child: ShortArray, u: FloatArray) -> int:
    """The place of the sums of the leaf that a row falls in; u[0] is the constant."""
    node = 0
    while feature[node] >= 0:
        node = child[node] + (0 if u[feature[node] + 1] <= threshold[node] else 1)
    return int(child[node])


@compiled
def _residual(
    feature: ShortArray,
    threshold: SingleArray,
    child: ShortArray,
    gradient: FloatArray,
    curvature: FloatArray,
    trees: int,
    u: FloatArray,
    leaves: IntArray,
) -> float:
    """The mean value of the leaves of a row, 0 without a tree; `leaves` becomes their places."""
    total = 0.0
    for tree in range(trees):
        leaf = _leaf(feature[tree], threshold[tree], child[tree], u)
        leaves[tree] = leaf
        total += gradient[tree, leaf] / (curvature[tree, leaf] + RIDGE)
    return total / trees if trees else 0.0


@compiled
def _count(
    gradient: FloatArray,
    curvature: FloatArray,
    trees: int,
    leaves: IntArray,
    slope: float,
    bend: float,
) -> None:
    """The leaves of a row take in its label."""
    for tree in range(trees):
        gradient[tree, leaves[tree]] += slope
        curvature[tree, leaves[tree]] += bend


@compiled
def _grow(
    feature: ShortArray,
    threshold: SingleArray,
    child: ShortArray,
    gradient: FloatArray,
    curvature: FloatArray,
    rows: SingleArray,
    labels: LabelArray,
    labels_learnt: int,
    finished: int,
    mean: FloatArray,
    numbers: IntArray,
    stack: IntArray,
    slots: ShortArray,
    slope: FloatArray,
    bend: FloatArray,
) -> bool:
    """Spend the visits of one label on the growing tree; whether it is finished."""
    numbers[CREDIT] = min(numbers[CREDIT] + VISITS, VISITS)
    if labels_learnt < 2 * SIDE_ROWS_MIN or len(rows) == 0:
        return False
    features, thresholds, children = feature[GROWN], threshold[GROWN], child[GROWN]
    values = np.empty((DRAWS, ROWS), dtype=np.float32)
    while numbers[CREDIT] > 0:
        if numbers[ON_STACK] == 0:
            _begin(rows, labels, labels_learnt, mean, numbers, stack, slots, slope, bend)
            features[0], thresholds[0], children[0] = LEAF, 0.0, OPEN
        numbers[ON_STACK] -= 1
        entry = numbers[ON_STACK]
        first, end, node, depth = stack[entry, 0], stack[entry, 1], stack[entry, 2], stack[entry, 3]
        total, total_bend = 0.0, 0.0
        for position in range(first, end):
            total += slope[position]
            total_bend += bend[position]
        split, at = -1, np.float32(0.0)
        if end - first >= 2 * SIDE_ROWS_MIN and depth < DEPTH:
            numbers[CREDIT] -= DRAWS * (end - first)
            split, at = _best_split(
                rows,
                slots[first:end],
                slope[first:end],
                bend[first:end],
                total,
                total_bend,
                finished + 1,
                numbers,
                values,
            )
        if split < 0:
            leaf = numbers[LEAF_COUNT]
            children[node] = leaf
            gradient[GROWN, leaf] = total
            curvature[GROWN, leaf] = total_bend
            numbers[LEAF_COUNT] += 1
        else:
            middle = first + _part(
                rows[split], at, slots[first:end], slope[first:end], bend[first:end]
            )
            left = numbers[NODE_COUNT]
            features[node], thresholds[node], children[node] = split, at, left
            for side in range(2):
                features[left + side], thresholds[left + side] = LEAF, 0.0
                children[left + side] = OPEN
                stack[entry + side, 0] = first if side == 0 else middle
                stack[entry + side, 1] = middle if side == 0 else end
                stack[entry + side, 2] = left + side
                stack[entry + side, 3] = depth + 1
            numbers[NODE_COUNT] += 2
            numbers[ON_STACK] += 2
        if numbers[ON_STACK] == 0:
            _catch_up(
                features,
                thresholds,
                children,
                gradient[GROWN],
                curvature[GROWN],
                rows,
                labels,
                numbers[BEGAN],
                labels_learnt,
                mean,
            )
            return True
    return False


@compiled
def _offset(logit: float) -> float:
    """The probability by the regression's mean alone, clipped."""
    return 1.0 / (1.0 + math.exp(-min(max(logit, -LOGIT_MAX), LOGIT_MAX)))


@compiled
def _begin(
    rows: SingleArray,
    labels: LabelArray,
    labels_learnt: int,
    mean: FloatArray,
    numbers: IntArray,
    stack: IntArray,
    slots: ShortArray,
    slope: FloatArray,
    bend: FloatArray,
) -> None:
    """Put the newest rows in order of age with their residuals, and the root on the stack."""
    count = min(labels_learnt, ROWS)
    logits = np.full(RING, mean[0])
    for column in range(len(rows)):
        values, weight = rows[column], mean[column + 1]
        for slot in range(RING):
            logits[slot] += weight * values[slot]
    for position in range(count):
        slot = (labels_learnt - 1 - position) % RING
        p, weight = _offset(logits[slot]), math.exp(-position / AGE)
        slots[position] = slot
        slope[position] = weight * (labels[slot] - p)
        bend[position] = weight * max(p * (1.0 - p), CURVATURE_MIN)
    stack[0, 0], stack[0, 1], stack[0, 2], stack[0, 3] = 0, count, 0, 0
    numbers[ON_STACK], numbers[NODE_COUNT], numbers[LEAF_COUNT] = 1, 1, 0
    numbers[ROW_COUNT], numbers[BEGAN], numbers[DRAW_COUNT] = count, labels_learnt, 0
    numbers[CREDIT] -= count


@compiled
def _best_split(
    rows: SingleArray,
    slots: ShortArray,
    slope: FloatArray,
    bend: FloatArray,
    total: float,
    total_bend: float,
    seed: int,
    numbers: IntArray,
    values: SingleArray,
) -> tuple[int, np.float32]:
    """The best of the draws for the rows at `slots`: feature, or -1, and threshold."""
    count, split, at = len(slots), -1, np.float32(0.0)
    best = total * total / (total_bend + RIDGE)
    drawn, threshold = np.empty(DRAWS, dtype=np.int64), np.empty(DRAWS, dtype=np.float32)
    left, left_bend = np.empty(DRAWS), np.empty(DRAWS)
    below = np.empty(DRAWS, dtype=np.int64)
    for draw in range(DRAWS):
        drawn[draw] = int(_uniform(seed, numbers[DRAW_COUNT]) * len(rows))
        share = _uniform(seed, numbers[DRAW_COUNT] + 1)
        numbers[DRAW_COUNT] += 2
        column = rows[drawn[draw]]
        taken = values[draw]
        low = high = column[slots[0]]
        for place in range(count):
            value = column[np.uint64(slots[place])]
            taken[place] = value
            low = value if value < low else low
            high = value if value > high else high
        spread = np.float64(high) - np.float64(low)
        threshold[draw] = np.float32(low + share * spread)
        below[draw] = 0 if spread < RANGE_MIN else 1
    for draw in range(0, DRAWS, 4):
        _left_sums(values, threshold, draw, slope, bend, left, left_bend, below)
    for draw in range(DRAWS):
        if below[draw] < SIDE_ROWS_MIN or count - below[draw] < SIDE_ROWS_MIN:
            continue
        right, right_bend = total - left[draw], total_bend - left_bend[draw]
        gain = left[draw] * left[draw] / (left_bend[draw] + RIDGE)
        gain += right * right / (right_bend + RIDGE)
        if gain > best + GAIN_MIN:
            best, split, at = gain, drawn[draw], threshold[draw]
    return split, at


@compiled
def _left_sums(
    values: SingleArray,
    threshold: SingleArray,
    first: int,
    slope: FloatArray,
    bend: FloatArray,
    left: FloatArray,
    left_bend: FloatArray,
    below: IntArray,
) -> None:
    """Sums and number of the rows that go left, of four draws side by side, each in its order.

    A draw without a range comes with `below` 0 and keeps it.
    """
    a, b, c, d = values[first], values[first + 1], values[first + 2], values[first + 3]
    at_a, at_b = threshold[first], threshold[first + 1]
    at_c, at_d = threshold[first + 2], threshold[first + 3]
    sum_a = sum_b = sum_c = sum_d = 0.0
    bend_a = bend_b = bend_c = bend_d = 0.0
    in_a = in_b = in_c = in_d = 0
    for place in range(len(slope)):
        g, h = slope[place], bend[place]
        sum_a += g if a[place] <= at_a else 0.0
        sum_b += g if b[place] <= at_b else 0.0
        sum_c += g if c[place] <= at_c else 0.0
        sum_d += g if d[place] <= at_d else 0.0
        bend_a += h if a[place] <= at_a else 0.0
        bend_b += h if b[place] <= at_b else 0.0
        bend_c += h if c[place] <= at_c else 0.0
        bend_d += h if d[place] <= at_d else 0.0
        in_a += a[place] <= at_a
        in_b += b[place] <= at_b
        in_c += c[place] <= at_c
        in_d += d[place] <= at_d
    left[first], left[first + 1], left[first + 2], left[first + 3] = sum_a, sum_b, sum_c, sum_d
    left_bend[first], left_bend[first + 1] = bend_a, bend_b
    left_bend[first + 2], left_bend[first + 3] = bend_c, bend_d
    below[first] *= in_a
    below[first + 1] *= in_b
    below[first + 2] *= in_c
    below[first + 3] *= in_d


@compiled
def _part(
    column: SingleArray,
    threshold: np.float32,
    slots: ShortArray,
    slope: FloatArray,
    bend: FloatArray,
) -> int:
    """Bring the rows that go left to the front; how many they are."""
    left, right = 0, len(slots) - 1
    while left <= right:
        if column[slots[left]] <= threshold:
            left += 1
            continue
        slots[left], slots[right] = slots[right], slots[left]
        slope[left], slope[right] = slope[right], slope[left]
        bend[left], bend[right] = bend[right], bend[left]
        right -= 1
    return left


@compiled
def _catch_up(
    feature: ShortArray,
    threshold: SingleArray,
    child: ShortArray,
    gradient: FloatArray,
    curvature: FloatArray,
    rows: SingleArray,
    labels: LabelArray,
    began: int,
    labels_learnt: int,
    mean: FloatArray,
) -> None:
    """The leaves of a tree that is finished take in the labels learnt while it grew."""
    for number in range(began, labels_learnt):
        slot = number % RING
        logit, node = mean[0], 0
        for column in range(len(rows)):
            logit += mean[column + 1] * rows[column, slot]
        while feature[node] >= 0:
            goes_left = rows[feature[node], slot] <= threshold[node]
            node = child[node] + (0 if goes_left else 1)
        p, leaf = _offset(logit), child[node]
        gradient[leaf] += labels[slot] - p
        curvature[leaf] += p * (1.0 - p)


@compiled
def _path_differences(
    feature: ShortArray,
    threshold: SingleArray,
    child: ShortArray,
    gradient: FloatArray,
    curvature: FloatArray,
    trees: int,
    nodes: IntArray,
    u: FloatArray,
    terms: FloatArray,
) -> None:
    """Add to the term of each split's feature how much the node's value changes there."""
    sums = np.empty((NODES, 2))
    for tree in range(trees):
        for node in range(nodes[tree] - 1, -1, -1):
            left = child[tree, node]
            if feature[tree, node] < 0:
                sums[node, 0], sums[node, 1] = gradient[tree, left], curvature[tree, left]
            else:
                sums[node, 0] = sums[left, 0] + sums[left + 1, 0]
                sums[node, 1] = sums[left, 1] + sums[left + 1, 1]
        node, value = 0, sums[0, 0] / (sums[0, 1] + RIDGE)
        while feature[tree, node] >= 0:
            term = feature[tree, node] + 1
            goes_left = u[term] <= threshold[tree, node]
            node = child[tree, node] + (0 if goes_left else 1)
            reached = sums[node, 0] / (sums[node, 1] + RIDGE)
            terms[term] += (reached - value) / trees
            value = reached
