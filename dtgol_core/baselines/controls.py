"""The control of the benchmark: how much is due to replaying true labels.

It is not in the paper's table. If soft labels help, the learner beats it, and naive with the same
falling rate. All numbers were chosen on the odd streams, one setting for all.
"""

from dataclasses import replace

import numpy as np

from dtgol_core.baselines.base import Answer, sigmoid
from dtgol_core.baselines.memory import Memory
from dtgol_core.baselines.naive import Naive
from dtgol_core.config import Config
from dtgol_core.types import FloatArray, Instance, IntArray, Vectors

MEMORY = 500
PENALTY = 0.003
SHARE = 0.5
"""Weight of the online weights beside the replayed ones."""


class Replay(Naive):
    """Naive beside weights that replay the verified instances, without any soft label.

    Notes
    -----
    With every label the replayed weights of each space take one full gradient step on the mean
    cross entropy of the last 500 verified instances, with an l2 penalty of 0.003: they stay close
    to the logistic regression of that memory. The answer of a space is the mean of both.
    Cost: O(memory·d) per label.
    """

    title = "replay"
    reference = "control"

    def __init__(self, config: Config, generator: np.random.Generator | None = None) -> None:
        super().__init__(config, generator)
        self.memory = Memory(MEMORY)
        self.latent_replayed, self.original_replayed = np.zeros(1), np.zeros(1)

    def _widen(self, columns: int) -> None:
        super()._widen(columns)
        self.memory.grow(columns)
        self.latent_replayed = np.concatenate([self.latent_replayed, np.zeros(columns)])
        self.original_replayed = np.concatenate([self.original_replayed, np.zeros(columns)])

    def _teach(self, instance: Instance, label: int) -> None:
        super()._teach(instance, label)
        self.memory.store(instance.vectors, label)
        kept = len(self.memory)
        labels = self.memory.labels[:kept]
        replay(self.latent_replayed, self.memory.latent[:kept], labels)
        replay(self.original_replayed, self.memory.original[:kept], labels)

    def _answer(self, vectors: Vectors) -> Answer:
        online = super()._answer(vectors)
        latent = _score(self.latent_replayed, vectors.latent)
        original = _score(self.original_replayed, vectors.original)
        replayed = online.latent_weight * latent + (1.0 - online.latent_weight) * original
        # Risks are those of the online weights, as in the learner.
        return replace(online, p=SHARE * online.p + (1.0 - SHARE) * replayed)


def replay(weights: FloatArray, vectors: FloatArray, labels: IntArray) -> None:
    """One full step on labelled vectors, shape (rows, columns), in place."""
    logits = np.clip(vectors @ weights[1:] + weights[0], -700.0, 700.0)
    residuals = (1.0 / (1.0 + np.exp(-logits)) - labels) / len(labels)
    weights[0] -= residuals.sum()
    weights[1:] -= residuals @ vectors + PENALTY * weights[1:]


def _score(weights: FloatArray, vector: FloatArray) -> float:
    return sigmoid(float(weights[0] + weights[1:] @ vector))
