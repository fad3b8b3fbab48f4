"""The fine buffer and the graph over it, kept in step.

In: records as they arrive, true labels as they are learnt, instances that leave unanswered. Out:
slots of the buffer, and for every taken slot its parent in the graph.
"""

from typing import Any

import numpy as np

from dtgol_core import buffer as buffer_loops
from dtgol_core import graph as graph_loops
from dtgol_core.buffer import FREE, NOBODY, STEP, BufferState, FineBuffer
from dtgol_core.compiled import compiled, in_place
from dtgol_core.config import GraphConfig
from dtgol_core.graph import Graph, GraphState
from dtgol_core.state import SnapshotError, flatten, subsection
from dtgol_core.types import FloatArray, Vectors


class Geometry:
    """Instances by step, each in a slot of the fine buffer and a node of the graph.

    Parameters
    ----------
    config
        Sizes of the buffer and settings of the graph.
    linked
        False: there is no graph, only the buffer (ablation).
    """

    def __init__(self, config: GraphConfig, linked: bool = True) -> None:
        self._config = config
        self.buffer = FineBuffer(config)
        self.graph = Graph(config)
        self.linked = linked

    def grow(self, columns: int) -> None:
        """Add columns."""
        self.buffer.grow(columns)

    def make_room(self) -> None:
        """See to it that a slot is free."""
        self.buffer.make_room()
        self.graph.make_room(len(self.buffer.steps) if self.linked else 0)

    def enter(self, step: int, vectors: Vectors) -> int:
        """Let the present record in and bring the graph up to date. Returns its slot."""
        self.make_room()
        return enter(self.buffer.state, self.graph.state, self.linked, step, vectors.spaces)

    def join(self, slot: int) -> None:
        """The present record joins the unverified window."""
        join(self.buffer.state, self.graph.state, self.linked, slot, self._config.unverified)

    def verify(self, step: int, vectors: Vectors, label: int) -> None:
        """A learnt instance moves to the verified set, or leaves if that holds only newer ones."""
        self.make_room()
        verify(
            self.buffer.state, self.graph.state, self.linked,
            step, vectors.spaces, label, self._config.verified,
        )  # fmt: skip

    def forget(self, step: int) -> None:
        """Let the instance of a step go, if it is here."""
        forget(self.buffer.state, self.graph.state, self.linked, step)

    def snapshot(self) -> dict[str, Any]:
        """Buffer and graph."""
        return flatten({"buffer": self.buffer.snapshot(), "graph": self.graph.snapshot()})

    @staticmethod
    def restore(
        config: GraphConfig, snapshot: dict[str, Any], columns: int, linked: bool = True
    ) -> "Geometry":
        """The instances that `snapshot` described, over so many columns."""
        geometry = Geometry(config, linked)
        buffer = FineBuffer.restore(config, subsection(snapshot, "buffer"), columns)
        geometry.buffer = buffer
        geometry.graph = Graph.restore(config, subsection(snapshot, "graph"), buffer.latent)
        taken = np.flatnonzero(buffer.steps >= 0).tolist() if linked else []
        slots = len(buffer.steps) if linked else 0
        nodes = sorted(geometry.graph.nodes().tolist())
        if nodes != taken or len(geometry.graph.density) != slots:
            raise SnapshotError("the snapshot does not fit together: nodes of the graph")
        return geometry


@in_place
def has_room(buffer: BufferState) -> bool:
    """Whether a slot is free."""
    _, _, _, lists = buffer
    free: int = lists[FREE, 0]
    return free > 0


@compiled
def enter(
    buffer: BufferState, graph: GraphState, linked: bool, step: int, spaces: FloatArray
) -> int:
    """Let the present record in and bring the graph up to date; its slot."""
    vectors, columns, nodes, _ = buffer
    slot = buffer_loops.enter(buffer, step, spaces)
    if linked:
        latent = vectors[0], columns[0]
        graph_loops.insert(graph, slot, latent)
        graph_loops.update(graph, nodes[STEP], latent)
    return slot


@compiled
def join(buffer: BufferState, graph: GraphState, linked: bool, slot: int, most: int) -> None:
    """Let a slot join the window, and the oldest leave it if there are too many."""
    _, _, _, lists = buffer
    _leave(buffer, graph, linked, buffer_loops.join_window(lists, slot, most))


@compiled
def verify(
    buffer: BufferState,
    graph: GraphState,
    linked: bool,
    step: int,
    spaces: FloatArray,
    label: int,
    most: int,
) -> None:
    """Let a learnt instance join the verified ones, and the oldest of these leave if there are too
    many. One that had left the window comes back: a slot must be free."""
    vectors, columns, nodes, lists = buffer
    slot = buffer_loops.find(nodes, step)
    if not buffer_loops.admits(nodes, lists, step, most):
        _leave(buffer, graph, linked, slot)
        return
    if slot == NOBODY:
        slot = buffer_loops.enter(buffer, step, spaces)
        if linked:
            graph_loops.insert(graph, slot, (vectors[0], columns[0]))
    _leave(buffer, graph, linked, buffer_loops.verify(nodes, lists, slot, label, most))


@compiled
def forget(buffer: BufferState, graph: GraphState, linked: bool, step: int) -> None:
    """Let the instance of a step go, if it is here."""
    _, _, nodes, _ = buffer
    _leave(buffer, graph, linked, buffer_loops.find(nodes, step))


@compiled
def _leave(buffer: BufferState, graph: GraphState, linked: bool, slot: int) -> None:
    vectors, columns, _, _ = buffer
    if slot == NOBODY:
        return
    if linked:
        graph_loops.evict(graph, slot, (vectors[0], columns[0]))
    buffer_loops.leave(buffer, slot)
