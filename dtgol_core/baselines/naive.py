"""Naive: the same method as the expert of that name, under the verbs of a baseline.

In: true labels as they arrive. Out: the risk-weighted answer of both spaces. Unlabelled records
teach nothing but the copula.
"""

import numpy as np

from dtgol_core.baselines.base import Answer, Baseline
from dtgol_core.config import Config
from dtgol_core.ensemble import Ensemble
from dtgol_core.tracks import PersistentTrack
from dtgol_core.types import Instance, Vectors


class Naive(Baseline):
    """One step of online gradient descent per label in both spaces, risk-weighted.

    Notes
    -----
    ``p = α σ(w_Z·z) + (1−α) σ(w_O·o)``: the ``naive`` of every forecast, to the bit. Cost: O(d)
    besides the copula.

    References
    ----------
    Zinkevich (2003), Online convex programming and generalized infinitesimal gradient ascent, ICML;
    delayed gradients applied on arrival as in Joulani, György and Szepesvári (2013), ICML.
    """

    title = "naive"
    reference = "the learner's persistent tracks only"

    def __init__(self, config: Config, generator: np.random.Generator | None = None) -> None:
        super().__init__(config, generator)
        self.latent = PersistentTrack(config.tracks)
        self.original = PersistentTrack(config.tracks)
        self.ensemble = Ensemble(config.ensemble)

    def _widen(self, columns: int) -> None:
        self.latent.grow(columns)
        self.original.grow(columns)

    def _teach(self, instance: Instance, label: int) -> None:
        latent, original = instance.numbers.tolist()
        self.ensemble.reweigh(latent, original, label)
        self.latent.learn(instance.vectors.latent, label, self.labels_learnt)
        self.original.learn(instance.vectors.original, label, self.labels_learnt)

    def _answer(self, vectors: Vectors) -> Answer:
        latent = self.latent.score(vectors.latent)
        original = self.original.score(vectors.original)
        weight = self.ensemble.latent_weight()
        return Answer(weight * latent + (1.0 - weight) * original, latent, original, weight)
