"""The fine buffer and the graph over it, kept in step.

In: records as they arrive, true labels as they are learnt, instances that leave unanswered. Out:
slots of the buffer, and for every taken slot its parent in the graph.
"""

from typing import Any

import numpy as np

from dtgol_core.buffer import UNVERIFIED, FineBuffer
from dtgol_core.config import GraphConfig
from dtgol_core.graph import Graph
from dtgol_core.state import SnapshotError, flatten, subsection
from dtgol_core.types import Vectors


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
        self.buffer = FineBuffer(config)
        self.graph = Graph(config)
        self._linked = linked

    def grow(self, columns: int) -> None:
        """Add columns."""
        self.buffer.grow(columns)

    def enter(self, step: int, vectors: Vectors) -> int:
        """Let the present record in and bring the graph up to date. Returns its slot."""
        slot = self._enter(step, vectors, UNVERIFIED)
        if self._linked:
            self.graph.update(self.buffer.steps)
        return slot

    def join(self, slot: int) -> None:
        """The present record joins the unverified window."""
        self._leave(self.buffer.join_window(slot))

    def verify(self, step: int, vectors: Vectors, label: int) -> None:
        """A learnt instance moves to the verified set, or leaves if that holds only newer ones."""
        if not self.buffer.admits(step):
            self.forget(step)
            return
        slot = self.buffer.find(step)
        if slot is None:
            slot = self._enter(step, vectors, label)
        self._leave(self.buffer.verify(step, slot, label))

    def forget(self, step: int) -> None:
        """Let the instance of a step go, if it is here."""
        slot = self.buffer.find(step)
        self._leave([] if slot is None else [slot])

    def _enter(self, step: int, vectors: Vectors, label: int) -> int:
        slot = self.buffer.enter(step, vectors, label)
        if self._linked:
            self.graph.insert(slot, self.buffer.latent, self.buffer.steps)
        return slot

    def _leave(self, slots: list[int]) -> None:
        for slot in slots:
            if self._linked:
                self.graph.evict(slot)
            self.buffer.leave(slot)

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
        if sorted(geometry.graph.nodes().tolist()) != taken:
            raise SnapshotError("the snapshot does not fit together: nodes of the graph")
        return geometry
