"""Controls of the benchmark: how much is due to tuning, and how much to replaying true labels.

Neither is in the paper's table. Whoever claims that soft labels help has to beat both.
"""

from dataclasses import replace

import numpy as np

from dtgol_core.baselines.base import Answer, Point
from dtgol_core.baselines.memory import Memory
from dtgol_core.baselines.naive import Naive
from dtgol_core.config import Config
from dtgol_core.delay import Ticket
from dtgol_core.types import FloatArray, IntArray

TUNED_RATE = 0.3
REPLAY_STEPS = 10
REPLAY_RATE = 1.0


class TunedNaive(Naive):
    """Naive with the one rate, for all data sets, that did best on the odd streams."""

    title = "naive, tuned"
    reference = "control"

    def __init__(self, config: Config, generator: np.random.Generator | None = None) -> None:
        super().__init__(replace(config, tracks=replace(config.tracks, rate=TUNED_RATE)), generator)


class Replay(Naive):
    """Naive whose transient branch replays the verified instances, without any soft label.

    Notes
    -----
    Before each answer a branch of the persistent weights takes full gradient steps on the mean
    cross entropy of the last verified instances (as many as the learner's graph holds); the answer
    blends both tracks as the learner does, and the branch is thrown away.
    """

    title = "replay"
    reference = "control"

    def __init__(self, config: Config, generator: np.random.Generator | None = None) -> None:
        super().__init__(config, generator)
        self.memory = Memory(config.graph.verified)

    def _widen(self, columns: int) -> None:
        super()._widen(columns)
        self.memory.grow(columns)

    def _teach(self, ticket: Ticket, point: Point, label: int) -> None:
        super()._teach(ticket, point, label)
        self.memory.store(point, label)

    def _answer(self, point: Point) -> Answer:
        said = super()._answer(point)
        if not len(self.memory):
            return said
        kept = len(self.memory)
        labels = self.memory.labels[:kept]
        latent = replayed(self.latent.weights, self.memory.latent[:kept], labels)
        original = replayed(self.original.weights, self.memory.original[:kept], labels)
        blend = self.ensemble.blend
        now = self._weigh(
            blend(said.latent, self.latent.score(point.latent, latent)),
            blend(said.original, self.original.score(point.original, original)),
        )
        # Risks are of what the persistent tracks said, as in the learner.
        return Answer(now.p, said.latent, said.original, now.latent_weight)


def replayed(weights: FloatArray, vectors: FloatArray, labels: IntArray) -> FloatArray:
    """The weights after full steps on labelled vectors, shape (rows, columns)."""
    moved = weights.copy()
    for _ in range(REPLAY_STEPS):
        logits = np.clip(vectors @ moved[1:] + moved[0], -700.0, 700.0)
        residuals = (1.0 / (1.0 + np.exp(-logits)) - labels) * (REPLAY_RATE / len(labels))
        moved[0] -= residuals.sum()
        moved[1:] -= residuals @ vectors
    return moved
