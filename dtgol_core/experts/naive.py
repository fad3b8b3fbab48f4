"""Naive: logistic regression in both spaces, learnt from true labels alone."""

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from dtgol_core.config import Config
from dtgol_core.ensemble import Ensemble
from dtgol_core.logistic import score_both
from dtgol_core.state import flatten, subsection
from dtgol_core.tracks import PersistentTrack
from dtgol_core.types import FloatArray, Inspection, Instance


class Naive:
    """The persistent tracks of both spaces, weighed by their risks.

    Parameters
    ----------
    config
        `tracks.rate`, `rate_floor` and `l2`; `ensemble.horizon`; `ablate.risk`.

    Notes
    -----
    ``p = α σ(w_Z·z) + (1−α) σ(w_O·o)``: what plain online gradient descent makes of the labels that
    have come. Records without a label change nothing. Cost: O(d).

    References
    ----------
    Zinkevich (2003), Online convex programming and generalized infinitesimal gradient ascent, ICML;
    delayed gradients applied on arrival as in Joulani, György and Szepesvári (2013), ICML.
    """

    name: ClassVar[str] = "naive"
    kept: ClassVar[tuple[str, ...]] = ("latent", "original")
    """The answers of both spaces on arrival: their losses are the risks."""
    scales: ClassVar[tuple[str, ...]] = ()

    def __init__(self, config: Config) -> None:
        self.latent = PersistentTrack(config.tracks)
        self.original = PersistentTrack(config.tracks)
        self.ensemble = Ensemble(config.ensemble, config.ablate.risk)

    def observe(self, instance: Instance) -> tuple[float, float]:
        """Nothing is learnt without a label."""
        return self._answers(instance)

    def score(self, instance: Instance) -> float:
        """The risk-weighted mean of both answers."""
        latent, original = self._answers(instance)
        weight = self.ensemble.latent_weight()
        return weight * latent + (1.0 - weight) * original

    def learn(self, instance: Instance, label: int) -> None:
        """Risks, then one step of both tracks."""
        latent, original = instance.kept
        self.ensemble.reweigh(latent, original, label)
        labels = self.ensemble.labels_learnt
        self.latent.learn(instance.vectors.latent, label, labels)
        self.original.learn(instance.vectors.original, label, labels)

    def forget(self, step: int) -> None:
        """Nothing is kept of an instance."""

    def correct(self, step: int, label: int) -> bool:
        """Nothing is kept of an instance."""
        return False

    def grow(self, columns: int) -> None:
        """Add columns of weight 0."""
        self.latent.grow(columns)
        self.original.grow(columns)

    def _answers(self, instance: Instance) -> tuple[float, float]:
        vectors, latent, original = instance.vectors, self.latent.weights, self.original.weights
        return score_both(latent, vectors.latent, original, vectors.original)

    def contributions(self, instance: Instance) -> FloatArray:
        """The risk-weighted mean of both spaces' products of weight and value."""
        weight = self.ensemble.latent_weight()
        latent = self.latent.weights[1:] * instance.vectors.latent
        original = self.original.weights[1:] * instance.vectors.original
        moved: FloatArray = weight * latent + (1.0 - weight) * original
        return moved

    def inspect(self) -> Inspection:
        """The weight of the latent space, and the weights of both tracks."""
        return Inspection(
            {"latent_weight": self.ensemble.latent_weight()},
            {"latent": self.latent.weights, "original": self.original.weights},
        )

    def snapshot(self) -> dict[str, Any]:
        """Both tracks and their risks."""
        return flatten(
            {
                "latent": self.latent.snapshot(),
                "original": self.original.snapshot(),
                "ensemble": self.ensemble.snapshot(),
            }
        )

    @classmethod
    def restore(cls, config: Config, snapshot: Mapping[str, Any], columns: int) -> Self:
        """The expert that `snapshot` described."""
        naive = cls(config)
        latent, original = subsection(snapshot, "latent"), subsection(snapshot, "original")
        naive.latent = PersistentTrack.restore(config.tracks, latent, columns)
        naive.original = PersistentTrack.restore(config.tracks, original, columns)
        risks = subsection(snapshot, "ensemble")
        naive.ensemble = Ensemble.restore(config.ensemble, risks, config.ablate.risk)
        return naive
