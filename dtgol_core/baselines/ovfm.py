"""OVFM: online learning in variable feature spaces with mixed data.

Two adaptive FTRL learners, one on the original and one on the copula's latent vectors, and one
answer from both. Unlabelled records teach the copula at once and the learners nothing.
*Reconstructed* from the public code.
"""

import math

import numpy as np

from dtgol_core.baselines.base import Answer, Baseline, sigmoid, with_bias
from dtgol_core.baselines.ftrl import Ftrl
from dtgol_core.config import Config
from dtgol_core.losses import log_loss
from dtgol_core.types import Instance, Vectors

TAU = 0.001


class Ovfm(Baseline):
    """Two FTRL learners weighted by their losses.

    Notes
    -----
    ``λ = exp(−τR_o)/(exp(−τR_o) + exp(−τR_z))``, τ = 0.001; score ``σ(λ w_o·o + (1−λ) w_z·z)``.
    Risks add the losses of the answers on arrival. Differs from the public code: the copula is
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

    def _teach(self, instance: Instance, label: int) -> None:
        self._train(instance.vectors, label)
        latent, original = instance.numbers.tolist()
        self.latent_risk += log_loss(latent, label)
        self.original_risk += log_loss(original, label)

    def _train(self, vectors: Vectors, label: int) -> None:
        self.latent.learn(with_bias(vectors.latent), label)
        self.original.learn(with_bias(vectors.original), label)

    def _answer(self, vectors: Vectors) -> Answer:
        latent = self.latent.logit(with_bias(vectors.latent))
        original = self.original.logit(with_bias(vectors.original))
        weight = 1.0 / (1.0 + math.exp(min(700.0, TAU * (self.latent_risk - self.original_risk))))
        p = sigmoid(weight * latent + (1.0 - weight) * original)
        return Answer(p, sigmoid(latent), sigmoid(original), weight)
