"""Risk-weighted answer over the two spaces.

In: the probabilities of both spaces. Out: one probability. The weight of a space falls with its
risk, the sum of the losses of the persistent predictions it made on arrival, each counted when
its label is learnt and never predicted again.
"""

import math
from typing import Any, TypeVar

import numpy as np

from dtgol_core.compiled import in_place
from dtgol_core.config import EnsembleConfig
from dtgol_core.elementary import sigmoid
from dtgol_core.losses import log_loss
from dtgol_core.state import SnapshotError, require_count
from dtgol_core.types import FloatArray

Number = TypeVar("Number", float, FloatArray)

LATENT_RISK, ORIGINAL_RISK, RISK_LABELS, HORIZON, LATENT_ONLY, BETA = range(6)
"""Places in the table of an ensemble; a horizon of 0 is none."""
_TWICE_LN2 = 1.3862943611198906
"""2 ln 2, written out: the C library's logarithm decides no bit."""


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
        settings = config.horizon or 0, latent_only, config.beta
        self.beta = config.beta
        self.table = np.array([0.0, 0.0, 0.0, *settings])
        """Risks, labels learnt and settings: a compiled loop takes all of it as one array."""

    @property
    def latent_risk(self) -> float:
        """Losses of the latent space so far."""
        return float(self.table[LATENT_RISK])

    @property
    def original_risk(self) -> float:
        """Losses of the original space so far."""
        return float(self.table[ORIGINAL_RISK])

    @property
    def labels_learnt(self) -> int:
        """Labels so far."""
        return int(self.table[RISK_LABELS])

    def latent_weight(self) -> float:
        """α, the weight of the latent space."""
        return latent_weight(self.table)

    def blend(self, persistent: Number, transient: Number) -> Number:
        """The answer of one space from its two tracks; weights are blended like answers."""
        # written so that two equal tracks give their answer to the last bit
        return persistent + (1.0 - self.beta) * (transient - persistent)

    def reweigh(self, latent: float, original: float, label: int) -> None:
        """Add the losses of the answers that both spaces gave on arrival."""
        reweigh(self.table, latent, original, label)

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
        ensemble.table[LATENT_RISK] = snapshot["latent_risk"]
        ensemble.table[ORIGINAL_RISK] = snapshot["original_risk"]
        ensemble.table[RISK_LABELS] = require_count(snapshot["labels_learnt"])
        risks = ensemble.table[: ORIGINAL_RISK + 1]
        if not ((risks >= 0.0) & (risks < math.inf)).all():
            raise SnapshotError("the snapshot is damaged: a risk that is no sum of losses")
        return ensemble


@in_place
def latent_weight(table: FloatArray) -> float:
    """α, by the table of an ensemble."""
    if table[LATENT_ONLY] != 0.0:
        return 1.0
    if table[RISK_LABELS] == 0.0:
        return 0.5
    horizon = table[HORIZON] if table[HORIZON] > 0.0 else table[RISK_LABELS]
    rate = math.sqrt(_TWICE_LN2 / horizon)
    return sigmoid(rate * (table[ORIGINAL_RISK] - table[LATENT_RISK]))


@in_place
def reweigh(table: FloatArray, latent: float, original: float, label: int) -> None:
    """Add two losses and a label to the table of an ensemble."""
    table[LATENT_RISK] += log_loss(latent, label)
    table[ORIGINAL_RISK] += log_loss(original, label)
    table[RISK_LABELS] += 1.0
