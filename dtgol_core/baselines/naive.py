"""Naive: the learner's persistent tracks and nothing else.

In: true labels as they arrive. Out: the risk-weighted answer of both spaces. Unlabelled records
teach nothing but the copula.
"""

import numpy as np

from dtgol_core.baselines.base import Answer, Baseline, Point
from dtgol_core.config import Config
from dtgol_core.delay import Ticket
from dtgol_core.ensemble import Ensemble
from dtgol_core.tracks import Tracks


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
    reference = "spec §4, persistent tracks only"

    def __init__(self, config: Config, generator: np.random.Generator | None = None) -> None:
        super().__init__(config, generator)
        self.latent = Tracks(config.tracks)
        self.original = Tracks(config.tracks)
        self.ensemble = Ensemble(config.ensemble)

    def _widen(self, columns: int) -> None:
        self.latent.grow(columns)
        self.original.grow(columns)

    def _teach(self, ticket: Ticket, point: Point, label: int) -> None:
        self.latent.learn(point.latent, label, self.labels_learnt)
        self.original.learn(point.original, label, self.labels_learnt)
        self.ensemble.reweigh(ticket.latent_said, ticket.original_said, label)

    def _answer(self, point: Point) -> Answer:
        return self._weigh(self.latent.score(point.latent), self.original.score(point.original))

    def _weigh(self, latent: float, original: float) -> Answer:
        weight = self.ensemble.latent_weight()
        return Answer(weight * latent + (1.0 - weight) * original, latent, original, weight)
