"""Paper: dual-track geometric online learning (DT-GOL), soft labels for the delay window.

Its stages are files of their own: fine buffer and graph (`geometry`), soft labels, tracks, risks.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from dtgol_core.config import Config
from dtgol_core.ensemble import Ensemble
from dtgol_core.geometry import Geometry
from dtgol_core.logistic import score_both
from dtgol_core.softlabels import SoftLabels
from dtgol_core.state import flatten, subsection
from dtgol_core.tracks import DualTrack
from dtgol_core.types import FloatArray, Inspection, Instance


class Paper:
    """Persistent and transient tracks in both spaces, weighed by the risks of the persistent ones.

    Parameters
    ----------
    config
        `graph`, `softlabels`, `tracks`, `ensemble`; `ablate.softlabels`, `dual_track`, `risk`.

    Notes
    -----
    In each space ``p^U = β σ(w·u) + (1−β) σ(w_T·u)`` with persistent weights ``w`` and transient
    ones ``w_T``, which leave from the anchor for every record and take one step on the soft labels
    of the unverified window; ``p = α p^Z + (1−α) p^O``. Before the first label there are no soft
    labels. The transient weights of the newest record stay until the next one, so that `score` can
    be called at any time. Cost per record: that of graph and soft labels, at most O(n·d + n²) over
    n nodes.

    References
    ----------
    Wang, He, You and Wu, DT-GOL: Dual-Track Geometric Online Learning in Nonstationary Environment
    with Label Delay. What differs from the paper is in docs/learner.md.
    """

    name: ClassVar[str] = "paper"
    kept: ClassVar[tuple[str, ...]] = ("latent", "original")
    """The persistent answers of both spaces on arrival: their losses are the risks."""
    scales: ClassVar[tuple[str, ...]] = ()

    def __init__(self, config: Config) -> None:
        ablate = config.ablate
        self._soft = not ablate.softlabels
        self.geometry = Geometry(config.graph, self._soft)
        self.softlabels = SoftLabels(config.softlabels)
        self.latent = DualTrack(config.tracks, not ablate.dual_track)
        self.original = DualTrack(config.tracks, not ablate.dual_track)
        self.ensemble = Ensemble(config.ensemble, ablate.risk)

    def observe(self, instance: Instance) -> tuple[float, float]:
        """The record enters the graph, soft labels spread, the transient tracks branch off.

        The soft labels that they learn are those of the window before the record joins it.
        """
        slot = self.geometry.enter(instance.step, instance.vectors)
        self._branch()
        self.geometry.join(slot)
        vectors, latent, original = instance.vectors, self.latent.weights, self.original.weights
        return score_both(latent, vectors.latent, original, vectors.original)

    def score(self, instance: Instance) -> float:
        """The risk-weighted mean of both spaces, each a blend of its two tracks."""
        weight, blend = self.ensemble.latent_weight(), self.ensemble.blend
        latent = blend(*self.latent.answer(instance.vectors.latent))
        original = blend(*self.original.answer(instance.vectors.original))
        return weight * latent + (1.0 - weight) * original

    def learn(self, instance: Instance, label: int) -> None:
        """Prototypes, risks, persistent tracks, verified set; then one rehearsal of that set."""
        vectors, buffer = instance.vectors, self.geometry.buffer
        self.softlabels.seed(self.latent.score(vectors.latent), label)
        latent, original = instance.kept
        self.ensemble.reweigh(latent, original, label)
        labels = self.ensemble.labels_learnt
        self.latent.learn(vectors.latent, label, labels)
        self.original.learn(vectors.original, label, labels)
        self.geometry.verify(instance.step, vectors, label)
        self.latent.rehearse(buffer.latent, buffer.label, buffer.steps)
        self.original.rehearse(buffer.original, buffer.label, buffer.steps)

    def forget(self, step: int) -> None:
        """The instance leaves the window."""
        self.geometry.forget(step)

    def correct(self, step: int, label: int) -> bool:
        """The verified set, which is rehearsed and from which soft labels spread, has the truth."""
        return self.geometry.buffer.correct(step, label)

    def grow(self, columns: int) -> None:
        """Add columns of weight 0."""
        for stage in (self.geometry, self.latent, self.original):
            stage.grow(columns)

    def _branch(self) -> None:
        """New transient weights in both spaces."""
        if not (self._soft and self.ensemble.labels_learnt):
            self.latent.restart()
            self.original.restart()
            return
        buffer, graph = self.geometry.buffer, self.geometry.graph
        soft = self.softlabels.spread(
            graph.nodes(), graph.parent, buffer.latent, buffer.label, self.latent.anchor
        )
        self.latent.branch(buffer.latent, buffer.window, soft)
        self.original.branch(buffer.original, buffer.window, soft)

    def contributions(self, instance: Instance) -> FloatArray:
        """Products of weight and value, tracks and spaces weighed as in `score`."""
        weight, blend = self.ensemble.latent_weight(), self.ensemble.blend
        latent = blend(self.latent.weights, self.latent.transient)[1:] * instance.vectors.latent
        blended = blend(self.original.weights, self.original.transient)
        original = blended[1:] * instance.vectors.original
        moved: FloatArray = weight * latent + (1.0 - weight) * original
        return moved

    def inspect(self) -> Inspection:
        """The weight of the latent space, and the weights of the tracks, rehearsed ones if any."""
        weights = {"latent": self.latent.weights, "original": self.original.weights}
        for space, track in (("latent", self.latent), ("original", self.original)):
            if track.rehearsed is not None:
                weights[f"{space}_rehearsed"] = track.rehearsed
        return Inspection({"latent_weight": self.ensemble.latent_weight()}, weights)

    def snapshot(self) -> dict[str, Any]:
        """All stages."""
        return flatten(
            {
                "geometry": self.geometry.snapshot(),
                "softlabels": self.softlabels.snapshot(),
                "latent": self.latent.snapshot(),
                "original": self.original.snapshot(),
                "ensemble": self.ensemble.snapshot(),
            }
        )

    @classmethod
    def restore(cls, config: Config, snapshot: Mapping[str, Any], columns: int) -> Self:
        """The expert that `snapshot` described."""
        paper = cls(config)
        ablate, linked = config.ablate, paper._soft
        parts = {
            name: subsection(snapshot, name)
            for name in ("geometry", "softlabels", "latent", "original", "ensemble")
        }
        paper.geometry = Geometry.restore(config.graph, parts["geometry"], columns, linked)
        paper.softlabels = SoftLabels.restore(config.softlabels, parts["softlabels"])
        dual = not ablate.dual_track
        paper.latent = DualTrack.restore(config.tracks, parts["latent"], columns, dual)
        paper.original = DualTrack.restore(config.tracks, parts["original"], columns, dual)
        paper.ensemble = Ensemble.restore(config.ensemble, parts["ensemble"], ablate.risk)
        return paper
