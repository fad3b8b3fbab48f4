"""The corridor: one record, one walk through all rooms.

`observe` takes a record and says what it thinks; `learn` takes a label; `peek` looks without
changing anything. A label only queues: it is learnt at the start of the next step at which it is
due. The state depends on the order of these calls and on nothing else: no clock, no chance.
"""

import json
from collections import Counter
from dataclasses import replace

import numpy as np

from dtgol_core.buffer import UNVERIFIED, FineBuffer
from dtgol_core.columns import Columns, Reading
from dtgol_core.config import Config
from dtgol_core.copula import Copula
from dtgol_core.delay import DelayTable, Ticket
from dtgol_core.ensemble import Ensemble
from dtgol_core.graph import Graph
from dtgol_core.losses import entropy
from dtgol_core.marginals import Marginals
from dtgol_core.softlabels import SoftLabels
from dtgol_core.state import (
    DAMAGE,
    Snapshot,
    SnapshotError,
    check_types,
    clone,
    gather,
    part,
    whole,
)
from dtgol_core.tracks import Tracks
from dtgol_core.types import Contribution, FloatArray, Forecast, LabelReceipt, Record, Rejection


class Learner:
    """Dual-track geometric online learner of one stream.

    Parameters
    ----------
    config
        Settings of all rooms.

    Notes
    -----
    Cost per record: the sum of its rooms', a fraction of a millisecond at 16 columns and 500
    nodes (``make bench``).

    References
    ----------
    Wang, He, You and Wu, DT-GOL: Dual-Track Geometric Online Learning in Nonstationary Environment
    with Label Delay. What differs from the paper is in docs/learner.md.

    >>> learner = Learner(Config())
    >>> learner.observe("a", {"temperature": 36.6, "ward": "B"}).p
    0.5
    >>> learner.learn("a", 1).outcome
    <LabelOutcome.QUEUED: 'queued'>
    >>> learner.observe("b", {"temperature": 36.8, "ward": "B"}).labels_learnt
    1
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self._settings = json.dumps(config.as_mapping())
        self.columns = Columns(config)
        self.delay = DelayTable(config.delay)
        self.marginals = Marginals(config.copula.window)
        self.copula = Copula(config.copula)
        self.buffer = FineBuffer(config.graph)
        self.graph = Graph(config.graph)
        self.softlabels = SoftLabels(config.softlabels)
        self.latent = Tracks(config.tracks, dual=not config.ablate.dual_track)
        self.original = Tracks(config.tracks, dual=not config.ablate.dual_track)
        self.ensemble = Ensemble(config.ensemble)
        self.counts: Counter[str] = Counter()
        self.step = 0
        self.clock_ms: int | None = None

    @property
    def labels_learnt(self) -> int:
        """Labels learnt so far."""
        return self.ensemble.labels_learnt

    @property
    def pending(self) -> int:
        """Instances that wait for their label."""
        return len(self.delay)

    def observe(
        self, id: str, x: Record, event_time_ms: int | None = None, why: int = 0
    ) -> Forecast | Rejection:
        """Answer a record and let it into the window; `why` asks for that many reasons.

        A record that is refused, or whose id has been answered before, changes nothing but counts.
        """
        reading = self.columns.read(x)
        if isinstance(reading, Rejection):
            self.counts[f"rejected.{reading.reason}"] += 1
            return reading
        if self.delay.knows(id):
            self.counts["repeats"] += 1
            return replace(self._look(reading, why), repeat=True)
        self.counts["observed"] += 1
        return self._walk(id, reading, event_time_ms, why)

    def learn(self, id: str, y: int, event_time_ms: int | None = None) -> LabelReceipt:
        """Queue a label; it is learnt at the start of the step at which it is due."""
        if y not in (0, 1):
            raise ValueError(f"a label is 0 or 1, not {y!r}")
        self._hear(event_time_ms)
        outcome, orphans = self.delay.file(id, int(y), self.step)
        self.counts[outcome] += 1
        self.counts["orphaned"] += len(orphans)
        return LabelReceipt(outcome, tuple(orphans))

    def drop_held(self) -> str:
        """Give up the label that was held longest; its id."""
        self.counts["orphaned"] += 1
        return self.delay.drop_held()

    def peek(self, x: Record, why: int = 0) -> Forecast | Rejection:
        """What `observe` would say now. Changes nothing."""
        reading = self.columns.read(x)
        return reading if isinstance(reading, Rejection) else self._look(reading, why)

    def _walk(self, id: str, reading: Reading, event_time_ms: int | None, why: int) -> Forecast:
        """One step through all rooms."""
        self._hear(event_time_ms)
        self.step += 1
        learnt = tuple(self._verify(*due) for due in self.delay.settle_due(self.step))
        expired = self._forget(self.delay.expire(self.step, self.clock_ms))
        orphans = self.delay.give_up(self.step)
        waiting = len(self.delay)

        self._widen(reading)
        latent, original = self._encode(reading)
        slot = self.buffer.enter(self.step, latent, original, UNVERIFIED)
        latent_branch, original_branch = self._branch(slot)

        latent_said, latent_now = self.latent.answer(latent, latent_branch)
        original_said, original_now = self.original.answer(original, original_branch)
        weight = 1.0 if self.config.ablate.risk else self.ensemble.latent_weight()
        blend = self.ensemble.blend
        p = weight * blend(latent_said, latent_now)
        p += (1.0 - weight) * blend(original_said, original_now)

        ticket = Ticket(id, self.step, latent, original, latent_said, original_said, event_time_ms)
        pushed_out = self.delay.open(ticket)
        self._leave(self.buffer.join_window(slot))
        expired += self._forget(pushed_out)
        self.counts["learnt"] += len(learnt)
        self.counts["expired"] += len(expired)
        self.counts["orphaned"] += len(orphans)
        return Forecast(
            step=self.step,
            p=p,
            label=int(p > 0.5),
            naive=weight * latent_said + (1.0 - weight) * original_said,
            latent_weight=weight,
            latent_persistent=latent_said,
            latent_transient=latent_now,
            original_persistent=original_said,
            original_transient=original_now,
            labels_learnt=self.labels_learnt,
            unverified=waiting,
            observed_share=reading.observed / max(1, len(self.columns.features)),
            uncertainty=entropy(p),
            why=self._why(ticket, weight, latent_branch, original_branch, why),
            learnt=learnt,
            expired=tuple(expired),
            orphans=tuple(orphans),
        )

    def _look(self, reading: Reading, why: int) -> Forecast:
        """The walk of a twin, which is thrown away. The id is free: the twin tells nobody."""
        forecast = clone(self)._walk("", reading, None, why)
        return replace(forecast, learnt=(), expired=(), orphans=())

    def _hear(self, event_time_ms: int | None) -> None:
        """The clock of the stream is the largest event time it has carried."""
        if event_time_ms is not None and (self.clock_ms is None or event_time_ms > self.clock_ms):
            self.clock_ms = event_time_ms

    def _verify(self, ticket: Ticket, label: int) -> str:
        """Learn a true label: prototypes, persistent tracks, risks, verified set, rehearsal."""
        latent, original = self._padded(ticket.latent), self._padded(ticket.original)
        self.softlabels.seed(self.latent.score(latent), label)
        self.ensemble.reweigh(ticket.latent_said, ticket.original_said, label)
        self.latent.learn(latent, label, self.labels_learnt)
        self.original.learn(original, label, self.labels_learnt)
        self._admit(ticket.step, latent, original, label)
        self.latent.rehearse(self.buffer.latent, self.buffer.label, self.buffer.steps)
        self.original.rehearse(self.buffer.original, self.buffer.label, self.buffer.steps)
        return ticket.id

    def _admit(self, step: int, latent: FloatArray, original: FloatArray, label: int) -> None:
        """A learnt instance moves to the verified set, or leaves if that holds only newer ones."""
        slot = self.buffer.find(step)
        if not self.buffer.admits(step):
            self._leave([] if slot is None else [slot])
            return
        if slot is None:
            slot = self.buffer.enter(step, latent, original, label)
            self._link(slot)
        self._leave(self.buffer.verify(step, slot, label))

    def _forget(self, expired: list[tuple[str, int]]) -> list[str]:
        """Instances that have left the delay table unanswered leave the window too."""
        ids = []
        for id, step in expired:
            slot = self.buffer.find(step)
            self._leave([] if slot is None else [slot])
            ids.append(id)
        return ids

    def _widen(self, reading: Reading) -> None:
        """Make room for features and levels never seen before."""
        self.columns.absorb(reading)
        if not reading.additions:
            return
        fresh = len(reading.additions)
        self.marginals.grow(fresh, [addition.sibling for addition in reading.additions])
        for room in (self.copula, self.buffer, self.latent, self.original):
            room.grow(fresh)

    def _encode(self, reading: Reading) -> tuple[FloatArray, FloatArray]:
        """The latent and the original vector of a row; marginals and correlation learn it."""
        self.marginals.absorb(reading.row)
        scores = self.marginals.score(reading.row, self.columns.kinds)
        if self.config.ablate.copula:
            return scores.original, scores.original
        if self.config.ablate.marginals:
            return np.nan_to_num(scores.latent), scores.original
        return self.copula.absorb(scores.latent, scores.spread, self.step), scores.original

    def _branch(self, slot: int) -> tuple[FloatArray, FloatArray]:
        """Weights of both transient tracks; without a label or soft labels, their anchors."""
        if not self.config.ablate.softlabels:
            self._link(slot)
            self.graph.update(self.buffer.steps)
        if self.config.ablate.softlabels or not self.labels_learnt:
            return self.latent.anchor, self.original.anchor
        soft = self.softlabels.spread(
            self.graph.nodes(),
            self.graph.parent,
            self.buffer.latent,
            self.buffer.label,
            self.latent.anchor,
        )
        latent = self.latent.branch(self.buffer.latent, self.buffer.window, soft)
        original = self.original.branch(self.buffer.original, self.buffer.window, soft)
        if self.config.ablate.dual_track:
            self.latent.weights, self.original.weights = latent, original
        return latent, original

    def _link(self, slot: int) -> None:
        if not self.config.ablate.softlabels:
            self.graph.insert(slot, self.buffer.latent, self.buffer.steps)

    def _leave(self, slots: list[int]) -> None:
        for slot in slots:
            if not self.config.ablate.softlabels:
                self.graph.evict(slot)
            self.buffer.leave(slot)

    def _padded(self, vector: FloatArray) -> FloatArray:
        """A vector from a time when there were fewer columns: 0 in the new ones."""
        missing = self.columns.width - len(vector)
        return np.concatenate([vector, np.zeros(missing)]) if missing else vector

    def _why(
        self,
        ticket: Ticket,
        weight: float,
        latent_branch: FloatArray,
        original_branch: FloatArray,
        most: int,
    ) -> tuple[Contribution, ...]:
        """The features that moved the log-odds most, both tracks and spaces taken together."""
        if not most:
            return ()
        blend = self.ensemble.blend
        latent = blend(self.latent.weights, latent_branch)[1:] * ticket.latent
        original = blend(self.original.weights, original_branch)[1:] * ticket.original
        moved = weight * latent + (1.0 - weight) * original
        contributions = [
            Contribution(name, float(moved[list(feature.columns)].sum()))
            for name, feature in self.columns.features.items()
        ]
        # Ties go by name: the order of first sight is not in a snapshot.
        contributions.sort(key=lambda each: (-abs(each.log_odds), each.feature))
        return tuple(contributions[:most])

    def snapshot(self) -> Snapshot:
        """All state as named arrays and a manifest; equal states give equal snapshots."""
        snapshot = gather(
            {
                "learner": {
                    "step": self.step,
                    "clock_ms": self.clock_ms,
                    "counts": {name: n for name, n in sorted(self.counts.items()) if n},
                },
                "columns": {"features": self.columns.snapshot()},
                "delay": self.delay.snapshot(),
                "marginals": self.marginals.snapshot(),
                "copula": self.copula.snapshot(),
                "buffer": self.buffer.snapshot(),
                "graph": self.graph.snapshot(),
                "softlabels": self.softlabels.snapshot(),
                "latent": self.latent.snapshot(),
                "original": self.original.snapshot(),
                "ensemble": self.ensemble.snapshot(),
            }
        )
        snapshot.manifest["config"] = json.loads(self._settings)
        return snapshot

    @staticmethod
    def restore(config: Config, snapshot: Snapshot) -> "Learner":
        """The learner that `snapshot` described; going on gives the same bits as never stopping.

        Settings that do not shape the state may differ from those it was made with.
        """
        try:
            made_with = Config.read(snapshot.manifest.get("config", {}))
        except DAMAGE as error:
            raise SnapshotError(f"the snapshot's settings cannot be read: {error}") from error
        differ = config.shape_differs(made_with)
        if differ:
            raise SnapshotError(
                f"the snapshot was made with another {', '.join(differ)}: "
                f"restore it with the old settings, or start anew"
            )
        learner = Learner(config)
        check_types(snapshot, learner.snapshot())
        try:
            own = part(snapshot, "learner")
            learner.step, learner.clock_ms = own["step"], own["clock_ms"]
            learner.counts = Counter({name: whole(n) for name, n in own["counts"].items()})
            features = part(snapshot, "columns")["features"]
            learner.columns = Columns.restore(config, features)
            learner.delay = DelayTable.restore(config.delay, part(snapshot, "delay"))
            learner.marginals = Marginals.restore(config.copula.window, part(snapshot, "marginals"))
            learner.copula = Copula.restore(config.copula, part(snapshot, "copula"))
            learner.buffer = FineBuffer.restore(config.graph, part(snapshot, "buffer"))
            learner.graph = Graph.restore(
                config.graph, part(snapshot, "graph"), learner.buffer.latent
            )
            learner.softlabels = SoftLabels.restore(config.softlabels, part(snapshot, "softlabels"))
            dual = not config.ablate.dual_track
            learner.latent = Tracks.restore(config.tracks, part(snapshot, "latent"), dual)
            learner.original = Tracks.restore(config.tracks, part(snapshot, "original"), dual)
            learner.ensemble = Ensemble.restore(config.ensemble, part(snapshot, "ensemble"))
            learner._check()
        except DAMAGE as error:
            if isinstance(error, SnapshotError):
                raise
            raise SnapshotError(f"the snapshot does not fit together: {error!r}") from error
        return learner

    def _check(self) -> None:
        """Refuse rooms that do not agree on the number of columns or slots."""
        width = self.columns.width
        slots = self.buffer.steps.shape
        nodes = self.graph.nodes()
        agree = {
            "marginals": self.marginals.rows.shape == (width, self.config.copula.window),
            "copula": self.copula.correlation.shape == (width, width),
            "buffer": self.buffer.latent.shape[1:] == self.buffer.original.shape[1:] == (width,),
            "latent": self.latent.weights.shape == self.latent.anchor.shape == (width + 1,),
            "original": self.original.weights.shape == self.original.anchor.shape == (width + 1,),
            "slots": self.buffer.label.shape == self.buffer.latent.shape[:1] == slots
            and set(self.buffer.window.tolist()) <= set(range(*slots)),
            "graph": self.config.ablate.softlabels
            or set(nodes.tolist()) == set(np.flatnonzero(self.buffer.steps >= 0).tolist()),
        }
        wrong = [room for room, right in agree.items() if not right]
        if wrong:
            raise SnapshotError(f"the snapshot does not fit together: {', '.join(wrong)}")
