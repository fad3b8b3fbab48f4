"""The plain forest: residual extra-trees once more.

Written from docs/learner.md by other hands than the core's, like `plain_experts`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.special import expit

from dtgol_core.types import BoolArray, FloatArray, IntArray, SingleArray
from tests.support.plain_experts import (
    PlainRegression,
    Seen,
    clip,
    features_of,
    linear_prior,
    with_one,
)


def in_order(values: FloatArray) -> float:
    """The sum from the first value to the last (numpy's own adds in pairs)."""
    return float(np.cumsum(values)[-1]) if len(values) else 0.0


@dataclass
class Node:
    """A leaf with its sums, or a split with its children."""

    g: float = 0.0
    h: float = 0.0
    feature: int = -1
    threshold: np.float32 = field(default_factory=lambda: np.float32(0))
    left: int = -1
    right: int = -1


def leaf_of(tree: Sequence[Node], x: SingleArray) -> Node:
    """The leaf that x falls in."""
    node = tree[0]
    while node.feature >= 0:
        node = tree[node.left if x[node.feature] <= node.threshold else node.right]
    return node


@dataclass
class Row:
    """One row of the ring."""

    step: int
    x: SingleArray
    y: int
    erased: bool = False


@dataclass
class Growing:
    """A tree that is being grown; `rows` are numbers of labels, by position."""

    number: int
    began: int
    rows: IntArray
    g: FloatArray
    h: FloatArray
    open: list[tuple[int, int, int, int]]
    nodes: list[Node] = field(default_factory=lambda: [Node()])
    draws: int = 0

    def draw(self) -> float:
        """The next draw of this tree's generator."""
        most = 2**64 - 1
        v = ((self.number + 1) * 0x2545F4914F6CDD1D + self.draws + 0x9E3779B97F4A7C15) & most
        v = ((v ^ (v >> 30)) * 0xBF58476D1CE4E5B9) & most
        v = ((v ^ (v >> 27)) * 0x94D049BB133111EB) & most
        self.draws += 1
        return ((v ^ (v >> 31)) >> 11) / 2**53


class PlainForest:
    """`forest`: extra-trees on what a regression leaves unexplained."""

    RING, MEMORY, TREES, CREDIT = 1024, 960, 32, 3360

    def __init__(self) -> None:
        self.regression = PlainRegression(1, linear_prior, 0.9999)
        self.features = 0
        self.ring: dict[int, Row] = {}
        self.labels = 0
        self.credit = 0
        self.finished = 0
        self.trees: dict[int, list[Node]] = {}
        self.growing: Growing | None = None

    def observe(self, instance: Seen) -> Sequence[float]:
        """Nothing is learnt without a label."""
        return ()

    def forget(self, step: int) -> None:
        """What was learnt is a row of zeros from now on, which no later tree has."""
        for number, row in self.ring.items():
            if row.step == step:
                row.x, row.y, row.erased = np.zeros_like(row.x), 0, True
                if self.growing is not None:
                    at = self.growing.rows == number
                    self.growing.g[at] = self.growing.h[at] = 0.0

    def score(self, instance: Seen) -> float:
        x = features_of(instance.vectors)
        total = 0.0
        for number in sorted(self.trees):
            leaf = leaf_of(self.trees[number], x)
            total += leaf.g / (leaf.h + 0.3)
        mean = total / len(self.trees) if self.trees else 0.0
        return float(expit(clip(self.regression.score(with_one(x)), 8) + mean))

    def learn(self, instance: Seen, label: int) -> None:
        x = features_of(instance.vectors)
        p = float(expit(clip(self.regression.score(with_one(x)), 8)))
        for tree in self.trees.values():
            leaf = leaf_of(tree, x)
            leaf.g += label - p
            leaf.h += p * (1 - p)
        self.regression.drift()
        self.regression.learn(with_one(x), label)
        self.ring[self.labels] = Row(instance.step, x, label)
        self.ring.pop(self.labels - self.RING, None)
        self.labels += 1
        self.grow_trees()

    def correct(self, step: int, label: int) -> bool:
        """The label in the ring, while its row is there."""
        found = [row for row in self.ring.values() if row.step == step]
        for row in found:
            row.y = label
        return bool(found)

    def grow(self, columns: int) -> None:
        """New columns are 0 in all rows."""
        self.regression.grow(3 * columns)
        self.features += 3 * columns
        for row in self.ring.values():
            row.x = np.concatenate([row.x, np.zeros(3 * columns, dtype=np.float32)])

    def grow_trees(self) -> None:
        """As many nodes as this label pays for."""
        self.credit = min(self.credit + self.CREDIT, self.CREDIT)
        if min(self.labels, self.MEMORY) < 6 or self.features == 0:
            return
        while self.credit > 0:
            if self.growing is None:
                self.begin()
            assert self.growing is not None
            self.grow_node(self.growing)
            if not self.growing.open:
                self.finish(self.growing)
                return

    def unmoderated(self, x: FloatArray) -> FloatArray:
        """q of rows by the mean weights alone, shape (rows,)."""
        a = np.full(len(x), self.regression.mean[0])
        for j in range(x.shape[1]):
            a = a + self.regression.mean[1 + j] * x[:, j]
        return np.asarray(expit(np.clip(a, -8, 8)), dtype=np.float64)

    def matrix(self, rows: Sequence[int]) -> FloatArray:
        """The rows of these labels."""
        found = [self.ring[row].x for row in rows]
        return np.array(found, dtype=np.float64).reshape(len(found), self.features)

    def begin(self) -> None:
        """The newest rows with their gradients, without those that were erased."""
        newest = range(self.labels - 1, self.labels - 1 - min(self.labels, self.MEMORY), -1)
        rows = np.array([row for row in newest if not self.ring[row].erased], dtype=np.int64)
        count = len(rows)
        y = np.array([self.ring[row].y for row in rows.tolist()])
        q = self.unmoderated(self.matrix(rows.tolist()))
        w = np.exp(-(self.labels - 1 - rows) / 400)
        g, h = w * (y - q), w * np.maximum(q * (1 - q), 0.001)
        self.growing = Growing(self.finished, self.labels, rows, g, h, [(0, count, 0, 0)])
        self.credit -= count

    def grow_node(self, tree: Growing) -> None:
        """The last open node becomes a leaf or is split."""
        a, b, place, depth = tree.open.pop()
        node = tree.nodes[place]
        node.g, node.h = in_order(tree.g[a:b]), in_order(tree.h[a:b])
        if b - a < 6 or depth >= 14:
            return
        self.credit -= 12 * (b - a)
        x = self.matrix(tree.rows[a:b].tolist())
        if not self.choose_split(tree, node, x, a, b):
            return
        i = self.part(tree, x[:, node.feature] <= node.threshold, a, b)
        node.left, node.right = len(tree.nodes), len(tree.nodes) + 1
        tree.nodes += [Node(), Node()]
        tree.open += [(a, i, node.left, depth + 1), (i, b, node.right, depth + 1)]

    def choose_split(self, tree: Growing, node: Node, x: FloatArray, a: int, b: int) -> bool:
        """The best of twelve drawn splits into the node; False if none is good enough."""
        leading = node.g**2 / (node.h + 0.3)
        for _ in range(12):
            r, s = tree.draw(), tree.draw()
            feature = math.floor(r * self.features)
            low, high = float(x[:, feature].min()), float(x[:, feature].max())
            if high - low < 1e-9:
                continue
            threshold = np.float32(low + s * (high - low))
            goes_left = x[:, feature] <= threshold
            lefts = int(goes_left.sum())
            if lefts < 3 or b - a - lefts < 3:
                continue
            g, h = in_order(tree.g[a:b][goes_left]), in_order(tree.h[a:b][goes_left])
            gain = g**2 / (h + 0.3) + (node.g - g) ** 2 / (node.h - h + 0.3)
            if gain > leading + 1e-9:
                leading, node.feature, node.threshold = gain, feature, threshold
        return node.feature >= 0

    @staticmethod
    def part(tree: Growing, goes_left: BoolArray, a: int, b: int) -> int:
        """Rows that go left first, by exchange with the last; where the others begin."""
        left = dict(zip(tree.rows[a:b].tolist(), goes_left.tolist(), strict=True))
        i, j = a, b - 1
        while i <= j:
            if left[int(tree.rows[i])]:
                i += 1
                continue
            for values in (tree.rows, tree.g, tree.h):
                values[i], values[j] = values[j], values[i]
            j -= 1
        return i

    def finish(self, tree: Growing) -> None:
        """Labels that came while the tree grew go to its leaves; it takes its place."""
        since = [n for n in range(tree.began, self.labels) if not self.ring[n].erased]
        q = self.unmoderated(self.matrix(since))
        for row, probability in zip(since, q.tolist(), strict=True):
            leaf = leaf_of(tree.nodes, self.ring[row].x)
            leaf.g += self.ring[row].y - probability
            leaf.h += probability * (1 - probability)
        self.trees[self.finished % self.TREES] = tree.nodes
        self.finished += 1
        self.growing = None
