"""OVFM: online learning in variable feature spaces with mixed data.

Two adaptive FTRL learners, one on the original and one on the copula's latent vectors, and one
answer from both. Unlabelled records teach the copula at once and the learners nothing.
*Reconstructed* from the public code.
"""

import math

import numpy as np

from dtgol_core.baselines.base import Answer, Baseline, Point, sigmoid, with_bias
from dtgol_core.baselines.ftrl import Ftrl
from dtgol_core.config import Config
from dtgol_core.delay import Ticket
from dtgol_core.losses import log_loss

TAU = 0.001


class Ovfm(Baseline):
    """Two FTRL learners weighted by their losses.

    Notes
    -----
    ``λ = exp(−τR_o)/(exp(−τR_o) + exp(−τR_z))``, τ = 0.001; score ``σ(λ w_o·o + (1−λ) w_z·z)``.
    Risks add the loss of what a space said on arrival. Differs from the public code: the copula is
    online (theirs reads the file more than twice before the first prediction), kinds are inferred
    as records come, the two spaces are not swapped, missing values are 0 after standardisation
    instead of before. One decay for all data sets. Cost: O(d) besides the copula.

    References
    ----------
    He, Dong, Hou, Wang and Wang (2021), Online learning in variable feature spaces with mixed data,
    ICDM; github.com/xiexvying/OVFM.
    """

    title = "OVFM"
    reference = "He et al., ICDM 2021; public code"
    reconstructed = True

    def __init__(self, config: Config, generator: np.random.Generator | None = None) -> None:
        super().__init__(config, generator)
        self.latent, self.original = Ftrl(), Ftrl()
        self.latent_risk = self.original_risk = 0.0

    def _widen(self, columns: int) -> None:
        self.latent.grow(columns)
        self.original.grow(columns)

    def _teach(self, ticket: Ticket, point: Point, label: int) -> None:
        self._train(point, label)
        self.latent_risk += log_loss(ticket.latent_said, label)
        self.original_risk += log_loss(ticket.original_said, label)

    def _train(self, point: Point, label: int) -> None:
        self.latent.learn(with_bias(point.latent), label)
        self.original.learn(with_bias(point.original), label)

    def _answer(self, point: Point) -> Answer:
        latent = self.latent.logit(with_bias(point.latent))
        original = self.original.logit(with_bias(point.original))
        weight = 1.0 / (1.0 + math.exp(min(700.0, TAU * (self.latent_risk - self.original_risk))))
        p = sigmoid(weight * latent + (1.0 - weight) * original)
        return Answer(p, sigmoid(latent), sigmoid(original), weight)
