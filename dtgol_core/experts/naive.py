"""Naive: logistic regression in both spaces, learnt from true labels alone."""

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from dtgol_core.compiled import in_place
from dtgol_core.config import Config
from dtgol_core.ensemble import RISK_LABELS, Ensemble, latent_weight, reweigh
from dtgol_core.logistic import learn, score
from dtgol_core.state import flatten, subsection
from dtgol_core.tracks import L2, PersistentTrack, rate_of
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
        self.at = 0
        self.ensemble = Ensemble(config.ensemble, config.ablate.risk)
        self.latent = PersistentTrack(config.tracks)
        self.original = PersistentTrack(config.tracks)

    def observe(self, instance: Instance) -> float:
        """Nothing is learnt without a label."""
        latent, original, spaces = self.latent, self.original, instance.vectors.spaces
        return _observe(
            self.ensemble.table, latent.weights, original.weights, spaces, instance.numbers, self.at
        )

    def score(self, instance: Instance) -> float:
        """The risk-weighted mean of both answers."""
        latent, original, spaces = self.latent, self.original, instance.vectors.spaces
        return _score(self.ensemble.table, latent.weights, original.weights, spaces)

    def learn(self, instance: Instance, label: int) -> float:
        """Risks, then one step of both tracks."""
        latent, original, spaces = self.latent, self.original, instance.vectors.spaces
        return _learn(
            self.ensemble.table, latent.weights, original.weights, latent.rates,
            spaces, instance.numbers, self.at, label,
        )  # fmt: skip

    def forget(self, step: int) -> None:
        """Nothing is kept of an instance."""

    def correct(self, step: int, label: int) -> bool:
        """Nothing is kept of an instance."""
        return False

    def grow(self, columns: int) -> None:
        """Add columns of weight 0."""
        self.latent.grow(columns)
        self.original.grow(columns)

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


@in_place
def _observe(
    risks: FloatArray,
    latent: FloatArray,
    original: FloatArray,
    spaces: FloatArray,
    numbers: FloatArray,
    at: int,
) -> float:
    """The answer to a record that arrives; those of both spaces are kept for its label."""
    z, o, weight = score(latent, spaces[0]), score(original, spaces[1]), latent_weight(risks)
    numbers[at], numbers[at + 1] = z, o
    return weight * z + (1.0 - weight) * o


@in_place
def _score(
    risks: FloatArray, latent: FloatArray, original: FloatArray, spaces: FloatArray
) -> float:
    z, o, weight = score(latent, spaces[0]), score(original, spaces[1]), latent_weight(risks)
    return weight * z + (1.0 - weight) * o


@in_place
def _learn(
    risks: FloatArray,
    latent: FloatArray,
    original: FloatArray,
    rates: FloatArray,
    spaces: FloatArray,
    numbers: FloatArray,
    at: int,
    label: int,
) -> float:
    """Learn a label; the answer before that."""
    weight = latent_weight(risks)
    reweigh(risks, numbers[at], numbers[at + 1], label)
    rate = rate_of(rates, risks[RISK_LABELS])
    z = learn(latent, spaces[0], label, rate, rates[L2])
    o = learn(original, spaces[1], label, rate, rates[L2])
    return weight * z + (1.0 - weight) * o
