"""Paper: dual-track geometric online learning (DT-GOL), soft labels for the delay window.

Its stages are files of their own: fine buffer and graph (`geometry`), soft labels, tracks, risks.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from dtgol_core import geometry, logistic, tracks
from dtgol_core.buffer import LABEL, VERIFIED, WINDOW, BufferState, members
from dtgol_core.compiled import compiled, in_place
from dtgol_core.config import Config
from dtgol_core.ensemble import BETA, RISK_LABELS, Ensemble, latent_weight, reweigh
from dtgol_core.geometry import Geometry
from dtgol_core.graph import ORDER, PARENT, SIZE, GraphState
from dtgol_core.softlabels import SoftLabels, seed, spread
from dtgol_core.state import flatten, subsection
from dtgol_core.tracks import L2, PERSISTENT, TRANSIENT, DualTrack, rate_of
from dtgol_core.types import FloatArray, Inspection, Instance

NO_ROOM = -1.0


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
    of the unverified window; ``p = α p^Z + (1−α) p^O``. Without a verified instance there are no
    soft labels. The transient weights of the newest record stay until the next one, so that `score`
    can be called at any time. Cost per record over n nodes: O(n²·d) at a refresh of the graph, else
    O(n·d), once more for each node that has lost its parent.

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
        self.at = 0
        self._unverified, self._verified = config.graph.unverified, config.graph.verified
        self.geometry = Geometry(config.graph, linked=not ablate.softlabels)
        self.softlabels = SoftLabels(config.softlabels)
        self.latent = DualTrack(config.tracks, not ablate.dual_track)
        self.original = DualTrack(config.tracks, not ablate.dual_track)
        self.ensemble = Ensemble(config.ensemble, ablate.risk)

    def observe(self, instance: Instance) -> float:
        """The record enters the graph, soft labels spread, the transient tracks branch off.

        The soft labels that they learn are those of the window before the record joins it.
        """
        p = self._observe(instance)
        if p < 0.0:
            self.geometry.make_room()
            p = self._observe(instance)
        return p

    def _observe(self, instance: Instance) -> float:
        buffer, graph = self.geometry.buffer.state, self.geometry.graph.state
        return _observe(
            buffer, graph, self.geometry.linked, self._unverified, self.softlabels.table,
            self.latent.table, self.original.table, self.latent.rates, self.ensemble.table,
            instance.step, instance.vectors.spaces, instance.numbers, self.at,
        )  # fmt: skip

    def score(self, instance: Instance) -> float:
        """The risk-weighted mean of both spaces, each a blend of its two tracks."""
        latent, original, risks = self.latent.table, self.original.table, self.ensemble.table
        return _score(latent, original, risks, instance.vectors.spaces)

    def learn(self, instance: Instance, label: int) -> float:
        """Prototypes, risks, persistent tracks, verified set; then one rehearsal of that set."""
        p = self._learn(instance, label)
        if p < 0.0:
            self.geometry.make_room()
            p = self._learn(instance, label)
        return p

    def _learn(self, instance: Instance, label: int) -> float:
        buffer, graph = self.geometry.buffer.state, self.geometry.graph.state
        return _learn(
            buffer, graph, self.geometry.linked, self._verified, self.softlabels.table,
            self.latent.table, self.original.table, self.latent.rates, self.ensemble.table,
            instance.step, instance.vectors.spaces, instance.numbers, self.at, label,
        )  # fmt: skip

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
        ablate, linked = config.ablate, paper.geometry.linked
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


@compiled
def _observe(
    buffer: BufferState,
    graph: GraphState,
    linked: bool,
    unverified: int,
    softlabels: FloatArray,
    latent: FloatArray,
    original: FloatArray,
    rates: FloatArray,
    risks: FloatArray,
    step: int,
    spaces: FloatArray,
    numbers: FloatArray,
    at: int,
) -> float:
    """All stages of a record that arrives, in their order. Less than 0: there was no free slot, and
    nothing has changed."""
    if not geometry.has_room(buffer):
        return NO_ROOM
    vectors, columns, nodes, lists = buffer
    _, tree, graph_numbers = graph
    z, o = (vectors[0], columns[0]), (vectors[1], columns[1])
    slot = geometry.enter(buffer, graph, linked, step, spaces)
    if linked and lists[VERIFIED, 0] > 0:
        order = tree[ORDER, : int(graph_numbers[SIZE])]
        anchor = tracks.anchor(latent, rates)
        soft = spread(softlabels, order, tree[PARENT], z, nodes[LABEL], anchor)
        window = members(lists[WINDOW])
        tracks.branch(latent, rates, z, window, soft)
        tracks.branch(original, rates, o, window, soft)
    else:
        tracks.restart(latent, rates)
        tracks.restart(original, rates)
    geometry.join(buffer, graph, linked, slot, unverified)
    numbers[at] = logistic.score(latent[PERSISTENT], spaces[0])
    numbers[at + 1] = logistic.score(original[PERSISTENT], spaces[1])
    return _answer(latent, original, risks, spaces, numbers[at], numbers[at + 1])


@in_place
def _score(
    latent: FloatArray, original: FloatArray, risks: FloatArray, spaces: FloatArray
) -> float:
    z = logistic.score(latent[PERSISTENT], spaces[0])
    o = logistic.score(original[PERSISTENT], spaces[1])
    return _answer(latent, original, risks, spaces, z, o)


@in_place
def _answer(
    latent: FloatArray,
    original: FloatArray,
    risks: FloatArray,
    spaces: FloatArray,
    z: float,
    o: float,
) -> float:
    """The mean of both spaces, from the answers of their persistent tracks."""
    # written so that two equal tracks give their answer to the last bit
    share, weight = 1.0 - risks[BETA], latent_weight(risks)
    z += share * (logistic.score(latent[TRANSIENT], spaces[0]) - z)
    o += share * (logistic.score(original[TRANSIENT], spaces[1]) - o)
    return weight * z + (1.0 - weight) * o


@compiled
def _learn(
    buffer: BufferState,
    graph: GraphState,
    linked: bool,
    verified: int,
    softlabels: FloatArray,
    latent: FloatArray,
    original: FloatArray,
    rates: FloatArray,
    risks: FloatArray,
    step: int,
    spaces: FloatArray,
    numbers: FloatArray,
    at: int,
    label: int,
) -> float:
    """All stages of a label, in their order; the answer before that. Less than 0 as above."""
    if not geometry.has_room(buffer):
        return NO_ROOM
    vectors, columns, nodes, lists = buffer
    z = logistic.score(latent[PERSISTENT], spaces[0])
    o = logistic.score(original[PERSISTENT], spaces[1])
    p = _answer(latent, original, risks, spaces, z, o)
    seed(softlabels, z, label)
    reweigh(risks, numbers[at], numbers[at + 1], label)
    rate = rate_of(rates, risks[RISK_LABELS])
    logistic.learn(latent[PERSISTENT], spaces[0], label, rate, rates[L2])
    logistic.learn(original[PERSISTENT], spaces[1], label, rate, rates[L2])
    geometry.verify(buffer, graph, linked, step, spaces, label, verified)
    slots = members(lists[VERIFIED])
    tracks.rehearse(latent, rates, (vectors[0], columns[0]), nodes[LABEL], slots)
    tracks.rehearse(original, rates, (vectors[1], columns[1]), nodes[LABEL], slots)
    return p
