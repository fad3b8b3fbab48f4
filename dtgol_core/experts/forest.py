"""Forest: extra-trees on what a Bayesian regression leaves unexplained, over the newest labels."""

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np

from dtgol_core import trees as tree_loops
from dtgol_core.bayes import Regression, design_prior
from dtgol_core.config import Config
from dtgol_core.state import SnapshotError, flatten, require_shape, subsection
from dtgol_core.trees import (
    DEPTH,
    DRAWS,
    ERASED,
    FINISHED,
    GROWING,
    LABELS,
    LEAF,
    LEAF_COUNT,
    LEAVES,
    MEMORY,
    NODE_COUNT,
    NODES,
    NODES_PER_LABEL,
    NUMBERS,
    ON_STACK,
    RING,
    RING_MIN,
    RING_SPARE,
    ROW_COUNT,
    ROWS,
    SIDE_ROWS_MIN,
    TREES,
    VISITS,
    LabelArray,
    ShortArray,
)
from dtgol_core.types import FloatArray, Inspection, Instance, SingleArray

NODE_BYTES = 16
"""Of a node and of half a leaf: a tree has twice as many nodes as leaves."""


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
    rows : (3·columns, room + 16)
        The ring: row values by scale and column, so that a draw looks at neighbours in memory. The
        room doubles with the labels from 64 to 1,024.

    Notes
    -----
    ``log-odds = clip(A, ±8) + mean of G/(H + 0.3)`` over the leaves that the row falls in; A is the
    regression's answer, G and H the sums of ``y − p`` and ``p(1 − p)`` over the labels in the leaf.
    A split is the best of 12 random pairs of column and threshold; draws come from a counter, so
    that the forest is a function of the order of labels. All formulas are in docs/learner.md.
    Growth is spread over labels: at most 3,360 row visits and the end of one node with each. Cost
    of a label at 16 columns: about 13 µs; state: up to 0.58 MB in memory, mostly 0.45.

    References
    ----------
    Geurts, Ernst and Wehenkel (2006), Extremely randomized trees, Machine Learning; for the values
    of leaves Friedman (2001), Greedy function approximation, Annals of Statistics.
    """

    name: ClassVar[str] = "forest"
    kept: ClassVar[tuple[str, ...]] = ()
    scales: ClassVar[tuple[str, ...]] = ("cumulative", "fast")

    def __init__(self, config: Config) -> None:
        self.at = 0
        self._columns = 0
        self.regression = Regression(*design_prior(0), MEMORY)
        self.rows: SingleArray = np.zeros((0, RING_MIN + RING_SPARE), dtype=np.float32)
        self.labels: LabelArray = np.zeros(RING, dtype=np.int8)
        self.steps = np.full(RING, ERASED, dtype=np.int64)
        self.trees = Trees()
        self.growth = Growth()

    @property
    def labels_learnt(self) -> int:
        """Labels learnt so far."""
        return int(self.growth.numbers[LABELS])

    @property
    def finished(self) -> int:
        """Trees finished so far."""
        return int(self.growth.numbers[FINISHED])

    def observe(self, instance: Instance) -> float:
        """Nothing is learnt without a label."""
        return self.score(instance)

    def score(self, instance: Instance) -> float:
        """Regression and trees together."""
        numbers = self.growth.numbers
        return tree_loops.score(
            self.regression.table, *self.trees.arrays(), numbers, *instance.vectors
        )

    def learn(self, instance: Instance, label: int) -> float:
        """Leaves, regression and ring take in the label; then the growing tree goes on."""
        growth = self.growth
        self._make_room(growth.numbers.item(LABELS))
        self.trees.make_room(growth.numbers.item(NODE_COUNT) + NODES_PER_LABEL)
        return tree_loops.learn(
            self.regression.table,
            *self.trees.arrays(),
            growth.numbers,
            *instance.vectors,
            self.trees.nodes,
            self.rows,
            self.labels,
            self.steps,
            growth.stack,
            growth.slots,
            growth.residuals,
            instance.step,
            label,
        )

    def _make_room(self, labels: int) -> None:
        """Room in the ring for one more than so many labels."""
        room = self.rows.shape[1] - RING_SPARE
        if room <= labels and room < RING:
            while room <= labels and room < RING:
                room *= 2
            wider = np.zeros((len(self.rows), room + RING_SPARE), dtype=np.float32)
            wider[:, : self.rows.shape[1]] = self.rows
            self.rows = wider

    def forget(self, step: int) -> None:
        """Erase the row of the ring, if its label was learnt: no tree that begins later has it.

        In the tree that grows it stays as a row of zeros that adds nothing to any sum.
        """
        for slot in np.flatnonzero(self.steps == step).tolist():
            self.rows[:, slot] = 0.0
            self.labels[slot], self.steps[slot] = 0, ERASED
            self.growth.residuals[:, self.growth.slots == slot] = 0.0

    def correct(self, step: int, label: int) -> bool:
        """Replace the label in the ring, for the trees that begin from now on."""
        found = self.steps == step
        self.labels[found] = label
        return bool(found.any())

    def grow(self, columns: int) -> None:
        """Add columns that are 0 in all rows of the ring."""
        self._columns += columns
        self.regression.grow(*design_prior(self._columns))
        fresh = np.zeros((3 * columns, self.rows.shape[1]), dtype=np.float32)
        self.rows = np.concatenate([self.rows, fresh])

    def contributions(self, instance: Instance) -> FloatArray:
        """Terms of the regression, and along each tree's path the differences of node values."""
        u = instance.vectors.design
        terms = self.regression.terms(u)
        trees = self._answering()
        if trees:
            tree_loops.path_differences(*self.trees.arrays(), trees, self.trees.nodes, u, terms)
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
        forest.growth = Growth.restore(subsection(snapshot, "growth"))
        filled = min(forest.labels_learnt, RING)
        forest._make_room(filled - 1)
        require_shape("rows", snapshot["rows"], (3 * columns, filled))
        require_shape("labels", snapshot["labels"], (filled,))
        require_shape("steps", snapshot["steps"], (filled,))
        forest.rows[:, :filled] = snapshot["rows"]
        forest.labels[:filled] = snapshot["labels"]
        forest.steps[:filled] = snapshot["steps"]
        forest.trees = Trees.restore(
            subsection(snapshot, "trees"), forest._answering(), forest.growth, 3 * columns
        )
        return forest


class Trees:
    """Thirty-two trees that answer, and in the last place the one that grows.

    Node 0 is the root. ``child`` is the left child of a split, the right one stands next to it; of
    a leaf it is the place of its sums, of which G is the first and H the second. There is room for
    more nodes than there are, the same for every tree.
    """

    def __init__(self) -> None:
        self.feature: ShortArray = np.full((TREES + 1, 0), LEAF, dtype=np.int16)
        self.threshold: SingleArray = np.zeros((TREES + 1, 0), dtype=np.float32)
        self.child: ShortArray = np.zeros((TREES + 1, 0), dtype=np.int16)
        self.sums = np.zeros((TREES + 1, 0, 2))
        self.nodes = np.zeros(TREES, dtype=np.int64)
        self.make_room(NODES_PER_LABEL)

    @property
    def state_bytes(self) -> int:
        """Memory of all trees, as large as the largest of those that answer and a quarter more.

        What room there really is depends on trees that are gone.
        """
        largest = max(int(self.nodes.max()), NODES_PER_LABEL)
        return (TREES + 1) * min(largest + largest // 4, NODES) * NODE_BYTES

    def make_room(self, nodes: int) -> None:
        """Room for so many nodes in every tree, and for a quarter more if there was not."""
        known = self.feature.shape[1]
        nodes = min(nodes, NODES)
        if nodes > known:
            room = min(nodes + nodes // 4, NODES)
            leaves = room // 2 + 1
            feature = np.full((TREES + 1, room), LEAF, dtype=np.int16)
            threshold = np.zeros((TREES + 1, room), dtype=np.float32)
            child = np.zeros((TREES + 1, room), dtype=np.int16)
            sums = np.zeros((TREES + 1, leaves, 2))
            feature[:, :known], threshold[:, :known] = self.feature, self.threshold
            child[:, :known], sums[:, : self.sums.shape[1]] = self.child, self.sums
            self.feature, self.threshold, self.child, self.sums = feature, threshold, child, sums

    def arrays(self) -> tuple[ShortArray, SingleArray, ShortArray, FloatArray]:
        """What a kernel takes."""
        return self.feature, self.threshold, self.child, self.sums

    def snapshot(self, growth: "Growth") -> dict[str, Any]:
        """The nodes and leaves that are in use, tree after tree."""
        nodes, leaves = self._used(growth)
        return {
            "nodes": self.nodes.copy(),
            "feature": self.feature[nodes],
            "threshold": self.threshold[nodes],
            "child": self.child[nodes],
            "sums": self.sums[leaves],
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
        trees.make_room(max(int(count.max()), growth.nodes))
        nodes, leaves = trees._used(growth)
        for name, used in (("feature", nodes), ("threshold", nodes), ("child", nodes)):
            require_shape(name, snapshot[name], (int(nodes.sum()),))
            getattr(trees, name)[used] = snapshot[name]
        require_shape("sums", snapshot["sums"], (int(leaves.sum()), 2))
        trees.sums[leaves] = snapshot["sums"]
        for tree in range(answering):
            trees._check(tree, int(count[tree]), features, [], int(count[tree] + 1) // 2)
        if growth.grows:
            trees._check(GROWING, growth.nodes, features, growth.open_nodes(), growth.leaves)
        return trees

    def _used(self, growth: "Growth") -> tuple[Any, Any]:
        """Which nodes and which leaves are in use, as masks over the arrays."""
        nodes = np.append(self.nodes, growth.nodes)
        leaves = np.append((self.nodes + 1) // 2, growth.leaves)
        room, leaf_room = self.feature.shape[1], self.sums.shape[1]
        return np.arange(room) < nodes[:, None], np.arange(leaf_room) < leaves[:, None]

    def _check(self, tree: int, nodes: int, features: int, waiting: list[int], leaves: int) -> None:
        """Refuse what is no tree: every path from the root ends, at a leaf that has sums."""
        feature, child = self.feature[tree, :nodes], self.child[tree, :nodes]
        is_open = np.zeros(nodes, dtype=np.bool_)
        is_open[waiting] = True
        if not tree_loops.is_tree(feature, child, features, is_open, leaves):
            raise SnapshotError("the snapshot is damaged: nodes that do not make a tree")


class Growth:
    """How far the tree that grows has come.

    ``slots`` and ``residuals``, g and h, are those of the rows by position; a node has the
    positions of one entry of the ``stack``: first, end, node, depth.
    """

    def __init__(self) -> None:
        self.numbers = np.zeros(len(NUMBERS), dtype=np.int64)
        self.stack = np.zeros((DEPTH + 1, 4), dtype=np.int64)
        self.slots: ShortArray = np.zeros(ROWS, dtype=np.int16)
        self.residuals = np.zeros((2, ROWS))

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
            "residuals": self.residuals[:, :rows].copy(),
        }

    @staticmethod
    def restore(snapshot: Mapping[str, Any]) -> "Growth":
        """The growth that `snapshot` described."""
        growth, numbers, stack = Growth(), snapshot["numbers"], snapshot["stack"]
        require_shape("numbers", numbers, growth.numbers.shape)
        entries, nodes, leaves, rows, began, draws, credit, labels_learnt, finished = (
            numbers.tolist()
        )
        fits = (
            0 <= labels_learnt < 2**62
            and 0 <= finished < 2**62
            and 0 <= entries <= DEPTH + 1
            and 0 <= leaves <= min(LEAVES, (nodes + 1) // 2)
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
        require_shape("slots", snapshot["slots"], (rows,))
        require_shape("residuals", snapshot["residuals"], (2, rows))
        growth.slots[:rows] = snapshot["slots"]
        growth.residuals[:, :rows] = snapshot["residuals"]
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
