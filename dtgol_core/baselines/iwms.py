"""IWMS: importance-weighted memory sampling, ported from images.

Labelled instances are remembered by class; what is rehearsed is what looks like the newest
unlabelled records. *Reconstructed*: the public code is for images.
"""

import numpy as np

from dtgol_core.baselines.base import Answer
from dtgol_core.baselines.memory import Memory
from dtgol_core.baselines.naive import Naive
from dtgol_core.config import Config
from dtgol_core.types import Instance, Vectors

MEMORY_PER_CLASS = 500
SHARPNESS = 5.0
"""Of the sampling weights exp(sharpness · cosine); chosen on the odd streams among 1, 5, 20."""


class Iwms(Naive):
    """Rehearsal of remembered instances that resemble the unlabelled ones.

    Notes
    -----
    For the newest record: predict its class, draw a remembered instance of that class with
    probability rising with the cosine of the latent vectors, take a step on it with its true label.
    When a label comes: a step on it and one on a random remembered instance. Ours: online gradient
    descent in both spaces in place of a deep network, vectors in place of learnt features, and the
    rehearsal comes before the record is answered, which helps it. Cost: O(memory·d).

    References
    ----------
    Csaba, Zhang, Müller, Lim, Torr and Bibi (2024), Label delay in online continual learning,
    NeurIPS, arXiv 2312.00923; github.com/botcs/label-delay-exp.
    """

    title = "IWMS"
    reference = "Csaba et al., NeurIPS 2024; ported from images"
    reconstructed = True

    def __init__(self, config: Config, generator: np.random.Generator | None = None) -> None:
        super().__init__(config, generator)
        self.memories = Memory(MEMORY_PER_CLASS), Memory(MEMORY_PER_CLASS)

    def _widen(self, columns: int) -> None:
        super()._widen(columns)
        for memory in self.memories:
            memory.grow(columns)

    def _teach(self, instance: Instance, label: int) -> None:
        super()._teach(instance, label)
        self.memories[label].store(instance.vectors, label)
        place = int(self.generator.integers(len(self.memories[0]) + len(self.memories[1])))
        side = int(place >= len(self.memories[0]))
        self._rehearse(side, place - side * len(self.memories[0]))

    def _answer(self, vectors: Vectors) -> Answer:
        side = int(super()._answer(vectors).p > 0.5)
        memory = self.memories[side]
        if len(memory):
            kept = memory.latent[: len(memory)]
            length = np.linalg.norm(kept, axis=1) * np.linalg.norm(vectors.latent)
            cosine = (kept @ vectors.latent) / np.maximum(length, 1e-12)
            sums = np.cumsum(np.exp(SHARPNESS * cosine))
            drawn = np.searchsorted(sums, self.generator.random() * sums[-1], side="right")
            self._rehearse(side, min(int(drawn), len(memory) - 1))
        return super()._answer(vectors)

    def _rehearse(self, side: int, place: int) -> None:
        vectors = self.memories[side].vectors(place)
        self.latent.learn(vectors.latent, side, self.labels_learnt)
        self.original.learn(vectors.original, side, self.labels_learnt)
