"""Views of the inside of the fast learner; nothing here changes it.

`Watched` is a learner whose graph and soft labels remember what they last computed: by the time
`observe` returns, the record has joined the window and another may have left it.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dtgol_core.buffer import UNVERIFIED
from dtgol_core.combination import Combination
from dtgol_core.config import Config, SoftLabelsConfig
from dtgol_core.delay import BLOCK_STEPS
from dtgol_core.experts.naive import Naive
from dtgol_core.experts.paper import Paper
from dtgol_core.graph import ROOT, Graph
from dtgol_core.learner import Learner
from dtgol_core.softlabels import SoftLabels
from dtgol_core.state import decode, digest, encode
from dtgol_core.types import (
    FeatureValues,
    FloatArray,
    Forecast,
    IntArray,
    LabelReceipt,
    Rejection,
    Vectors,
)


@dataclass(frozen=True, slots=True)
class Tree:
    """The graph by the steps of its nodes."""

    parents: dict[int, int | None]
    densities: dict[int, float]
    cutoff: float
    since: int


def tree_of(graph: Graph, steps: IntArray) -> Tree:
    """The tree as it stands; `steps` is that of the fine buffer."""
    nodes = graph.nodes().tolist()
    above = {slot: int(graph.parent[slot]) for slot in nodes}
    return Tree(
        parents={
            int(steps[slot]): None if above[slot] == ROOT else int(steps[above[slot]])
            for slot in nodes
        },
        densities={int(steps[slot]): float(graph.density[slot]) for slot in nodes},
        cutoff=graph.cutoff,
        since=graph.since,
    )


class WatchedGraph(Graph):
    """Remembers the tree of its last update."""

    seen: Tree | None = None
    slots: dict[int, int]

    def update(self, steps: IntArray) -> None:
        super().update(steps)
        self.seen = tree_of(self, steps)
        self.slots = {slot: int(steps[slot]) for slot in self.nodes().tolist()}


class WatchedSoftLabels(SoftLabels):
    """Remembers the labels of its last spread, by slot."""

    def __init__(self, config: SoftLabelsConfig) -> None:
        super().__init__(config)
        self.seen: dict[int, float] = {}

    def spread(
        self,
        nodes: IntArray,
        parent: IntArray,
        latent: FloatArray,
        label: npt.NDArray[np.int8],
        weights: FloatArray,
    ) -> FloatArray:
        soft = super().spread(nodes, parent, latent, label, weights)
        self.seen = {slot: float(soft[slot]) for slot in nodes.tolist()}
        return soft


def paper_of(learner: Learner) -> Paper:
    """The paper's expert."""
    paper = learner.experts["paper"]
    assert isinstance(paper, Paper)
    return paper


def naive_of(learner: Learner) -> Naive:
    """The naive expert."""
    naive = learner.experts["naive"]
    assert isinstance(naive, Naive)
    return naive


class Watched:
    """A fast learner whose paper's expert has a watched graph and watched soft labels."""

    def __init__(self, config: Config) -> None:
        self.learner = Learner(config)
        self.paper = paper_of(self.learner)
        self._graph = self.paper.geometry.graph = WatchedGraph(config.graph)
        self._softlabels = self.paper.softlabels = WatchedSoftLabels(config.softlabels)

    def observe(
        self, id: str, x: FeatureValues, event_time_ms: int | None = None
    ) -> Forecast | Rejection:
        self._softlabels.seen = {}
        return self.learner.observe(id, x, event_time_ms)

    def learn(self, id: str, y: int, event_time_ms: int | None = None) -> LabelReceipt:
        return self.learner.learn(id, y, event_time_ms)

    @property
    def tree(self) -> Tree:
        """The tree of the last record."""
        assert self._graph.seen is not None
        return self._graph.seen

    @property
    def soft_labels(self) -> dict[int, float]:
        """Soft labels made for the last record, by step: every node's, the record's own too."""
        return {self._graph.slots[slot]: soft for slot, soft in self._softlabels.seen.items()}

    @property
    def window(self) -> list[int]:
        """Steps of the unverified window, oldest first."""
        buffer = self.paper.geometry.buffer
        return [int(buffer.steps[slot]) for slot in buffer.window.tolist()]


def vectors_of(learner: Learner, step: int) -> Vectors:
    """The vectors of an instance in the fine buffer."""
    buffer = paper_of(learner).geometry.buffer
    slot = buffer.find(step)
    assert slot is not None
    return Vectors(buffer.latent[slot], buffer.original[slot])


def digest_of(learner: Learner) -> str:
    """A name for all the bits of a learner's state."""
    return digest(learner.snapshot())


def reborn(learner: Learner, config: Config | None = None) -> Learner:
    """The learner after a crash: out as bytes, in again."""
    return Learner.restore(config or learner.config, decode(encode(learner.snapshot())))


def max_block_bytes(learner: Learner) -> int:
    """The newest block is kept whatever the bound."""
    return max((block.bytes for block in learner.delay._blocks.values()), default=0)


def sizes_beyond_bounds(learner: Learner) -> dict[str, tuple[int, int]]:
    """Every container that is larger than its bound: name to (size, bound)."""
    config, delay, pending = learner.config, learner.delay, learner.pending
    sizes = {
        "columns": (learner.columns.width, config.copula.max_columns),
        "coarse buffer": (learner.marginals.rows.shape[1], config.copula.window),
        "pending": (pending, config.delay.pending_max),
        "queued labels": (len(delay._labels), pending),
        "queue": (len(delay._queue), pending),
        "blocks": (len(delay._blocks), pending + 1),
        "bytes": (delay._bytes, config.delay.pending_bytes_max + max_block_bytes(learner)),
        "by time": (len(delay._by_time), 2 * config.delay.pending_max + BLOCK_STEPS + 2),
        "held": (delay.early_labels, config.delay.early_max),
        "settled": (len(delay.settled), config.delay.settled_max),
        "counts": (len(learner.counts), 40),
    }  # fmt: skip
    if isinstance(learner.combination, Combination):
        sizes["second answers"] = (len(learner.combination.second), pending)
    if "paper" in learner.experts:
        slots = config.graph.unverified + config.graph.verified + 2
        buffer, graph = paper_of(learner).geometry.buffer, paper_of(learner).geometry.graph
        sizes |= {
            "window": (len(buffer.window), config.graph.unverified),
            "verified": (len(buffer.verified), config.graph.verified),
            "slots": (len(buffer.steps), slots),
            "graph slots": (len(graph.density), slots),
            "distances": (graph.distance.size, slots * slots),
        }
    for name, feature in learner.columns.features.items():
        sizes[f"levels of {name}"] = (len(feature.levels), 32)
        sizes[f"distinct values of {name}"] = (len(feature.seen), 14)
    return {name: (size, bound) for name, (size, bound) in sizes.items() if size > bound}


def unverified_slots(learner: Learner) -> set[int]:
    """Slots that hold an instance without a learnt label."""
    buffer = paper_of(learner).geometry.buffer
    taken = np.flatnonzero(buffer.steps >= 0).tolist()
    return {slot for slot in taken if buffer.label[slot] == UNVERIFIED}
