"""Risk-weighted answer over the two spaces.

In: the probabilities of both spaces. Out: one probability. The weight of a space falls with its
risk, the sum of the losses of the persistent predictions it made on arrival, each counted when
its label is learnt and never predicted again.
"""

import math
from typing import Any, TypeVar

from dtgol_core.config import EnsembleConfig
from dtgol_core.losses import log_loss
from dtgol_core.types import FloatArray

Number = TypeVar("Number", float, FloatArray)


class Ensemble:
    """Risks of the latent and the original space.

    Parameters
    ----------
    config
        `beta`, the weight of the persistent track within a space; `horizon`, the T of the rate
        (none: the number of labels learnt so far).
    latent_only
        True: the weight of the latent space is 1 (ablation).

    Notes
    -----
    ``α = softmax(−μR)`` with ``μ = sqrt(2 ln 2 / T)``, ½ before the first label. T as the labels so
    far needs no guess of the length of the stream. Cost: O(1).

    >>> ensemble = Ensemble(EnsembleConfig())
    >>> ensemble.reweigh(latent=0.9, original=0.6, label=1)
    >>> round(ensemble.latent_weight(), 3)
    0.617
    """

    def __init__(self, config: EnsembleConfig, latent_only: bool = False) -> None:
        self._config = config
        self._latent_only = latent_only
        self.latent_risk = 0.0
        self.original_risk = 0.0
        self.labels_learnt = 0

    def latent_weight(self) -> float:
        """α, the weight of the latent space."""
        if self._latent_only:
            return 1.0
        if not self.labels_learnt:
            return 0.5
        horizon = self._config.horizon or self.labels_learnt
        x = math.sqrt(2.0 * math.log(2.0) / horizon) * (self.original_risk - self.latent_risk)
        # beyond 700 the exponential overflows and the weight is 0 or 1 to the last bit anyway
        return 1.0 / (1.0 + math.exp(-min(max(x, -700.0), 700.0)))

    def blend(self, persistent: Number, transient: Number) -> Number:
        """The answer of one space from its two tracks; weights are blended like answers."""
        # written so that two equal tracks give their answer to the last bit
        return persistent + (1.0 - self._config.beta) * (transient - persistent)

    def reweigh(self, latent: float, original: float, label: int) -> None:
        """Add the losses of the answers that both spaces gave on arrival."""
        self.latent_risk += log_loss(latent, label)
        self.original_risk += log_loss(original, label)
        self.labels_learnt += 1

    def snapshot(self) -> dict[str, Any]:
        """Both risks and the number of labels learnt."""
        return {
            "latent_risk": self.latent_risk,
            "original_risk": self.original_risk,
            "labels_learnt": self.labels_learnt,
        }

    @staticmethod
    def restore(
        config: EnsembleConfig, snapshot: dict[str, Any], latent_only: bool = False
    ) -> "Ensemble":
        """The ensemble that `snapshot` described."""
        ensemble = Ensemble(config, latent_only)
        ensemble.latent_risk = snapshot["latent_risk"]
        ensemble.original_risk = snapshot["original_risk"]
        ensemble.labels_learnt = snapshot["labels_learnt"]
        return ensemble
