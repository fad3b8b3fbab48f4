"""Views of the inside of the fast learner; nothing here changes it.

`Watched` is a learner of which tree and soft labels of the last record are kept: by the time
`observe` returns, the record has joined the window and another may have left it.
"""

from dataclasses import dataclass

import numpy as np

from dtgol_core.buffer import UNVERIFIED
from dtgol_core.combination import Combination
from dtgol_core.config import Config
from dtgol_core.experts.naive import Naive
from dtgol_core.experts.paper import Paper
from dtgol_core.geometry import Geometry
from dtgol_core.graph import ROOT, Graph
from dtgol_core.learner import Learner
from dtgol_core.pending import BLOCK_STEPS
from dtgol_core.state import clone, combine, decode, digest, encode
from dtgol_core.tracks import DualTrack
from dtgol_core.types import (
    FeatureValues,
    Forecast,
    Instance,
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


def stages_digest(geometry: Geometry, latent: DualTrack, original: DualTrack) -> str:
    """A name for all the bits of these stages."""
    parts = {
        "geometry": geometry.snapshot(),
        "latent": latent.snapshot(),
        "original": original.snapshot(),
    }
    return digest(combine(parts))


class WatchedPaper(Paper):
    """Remembers the tree and the soft labels of its last record.

    They are those of a copy that goes through the same stages one by one, and ends in the same
    state to the bit.
    """

    tree: Tree
    soft_labels: dict[int, float]

    def observe(self, instance: Instance) -> float:
        geometry = clone(self.geometry)
        latent, original = clone(self.latent), clone(self.original)
        slot = geometry.enter(instance.step, instance.vectors)
        buffer, graph = geometry.buffer, geometry.graph
        self.tree, self.soft_labels = tree_of(graph, buffer.steps), {}
        if geometry.linked and len(buffer.verified):
            soft = self.softlabels.spread(
                graph.nodes(), graph.parent, buffer.latent, buffer.label, latent.anchor
            )
            nodes = graph.nodes().tolist()
            self.soft_labels = {int(buffer.steps[node]): float(soft[node]) for node in nodes}
            latent.branch(buffer.latent, buffer.window, soft)
            original.branch(buffer.original, buffer.window, soft)
        else:
            latent.restart()
            original.restart()
        geometry.join(slot)
        p = super().observe(instance)
        assert stages_digest(self.geometry, self.latent, self.original) == stages_digest(
            geometry, latent, original
        )
        return p


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
    """A fast learner whose paper's expert is watched."""

    def __init__(self, config: Config) -> None:
        self.learner = Learner(config)
        self.paper = WatchedPaper(config)
        self.paper.at = paper_of(self.learner).at
        self.learner.experts["paper"] = self.paper

    def observe(
        self, id: str, x: FeatureValues, event_time_ms: int | None = None
    ) -> Forecast | Rejection:
        return self.learner.observe(id, x, event_time_ms)

    def learn(self, id: str, y: int, event_time_ms: int | None = None) -> LabelReceipt:
        return self.learner.learn(id, y, event_time_ms)

    @property
    def tree(self) -> Tree:
        """The tree of the last record."""
        return self.paper.tree

    @property
    def soft_labels(self) -> dict[int, float]:
        """Soft labels made for the last record, by step: every node's, the record's own too."""
        return self.paper.soft_labels

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
    return Vectors.of(buffer.latent[slot], buffer.original[slot])


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
