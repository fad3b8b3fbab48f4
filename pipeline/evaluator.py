"""Composition root of the evaluator: one agent on predictions and labels in a Faust app of its own.

It has its own group, so it can be stopped, moved and rebuilt without touching the learner.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from pipeline.access.security import Security
from pipeline.agents.evaluator import Bench, Booth
from pipeline.cluster import Cluster, find_gaps, look
from pipeline.engine.faustapp import (
    bursts,
    commit,
    guarded,
    make_app,
    partitions_of,
    raw_topic,
    refuse_gap,
)
from pipeline.evaluation import Bounds
from pipeline.fingerprint import fingerprint
from pipeline.metrics import Gauge, StateCollector, make_registry
from pipeline.outbox import Outbox
from pipeline.settings import Settings
from pipeline.signs import booth_signs, make_vigil, process_signs
from pipeline.snapshots import RefusalError, Shelf
from pipeline.stores import make_store
from pipeline.watchdog import Ends, Sign
from pipeline.web.server import Views, WebServer

log = logging.getLogger(__name__)

TOPICS = ("predictions", "labels", "journal", "snapshots", "scores")
READ = ("predictions", "labels")


class Evaluator:
    """The evaluator's app, its booths, and what can be seen of them from outside."""

    def __init__(
        self, settings: Settings, security: Security, cluster: Cluster, accept_gap: bool
    ) -> None:
        self.settings = settings
        self.cluster = cluster
        self.client = security.librdkafka() | settings.kafka.patience
        self.names = {name: settings.topic(name) for name in TOPICS}
        self.booths: dict[int, tuple[Booth, asyncio.Task[None]]] = {}
        self.store = make_store(settings, self.client, "evaluator")
        self.outbox = Outbox(self.client)
        self.assigned_at: float | None = None
        self.closing = False
        self.bench = self._bench(accept_gap)
        collector = StateCollector("evaluator", self._counts, self._gauges)
        views = Views(self.unready, self.status, make_registry(collector))
        self.web = WebServer(settings.web, views)
        self.app = make_app(settings, security, "evaluator")
        topic = raw_topic(self.app, *(self.names[name] for name in READ))
        self.app.agent(topic, name="evaluator")(self._evaluator)
        self.app.task(self._start)
        self.app.on_partitions_assigned.connect(self._assigned, weak=False)
        self.app.on_before_shutdown.connect(self._closing, weak=False)
        self.app.on_out_of_range = self._out_of_range
        self.vigil = make_vigil(settings, self.client, self._signs, self._places)

    def _bench(self, accept_gap: bool) -> Bench:
        settings, own = self.settings, self.settings.evaluator
        return Bench(
            client=self.client,
            group=settings.group("evaluator"),
            journal_id=self.cluster.topic_ids["journal"],
            names={name: self.names[name] for name in READ},
            bounds=Bounds(own.pairs_max, own.labels_max, own.window_rows, own.windows_max),
            limits=settings.rules.limits,
            snapshot_records=settings.snapshots.every_records,
            snapshot_s=settings.snapshots.every_ms / 1000,
            accept_gap=accept_gap,
        )

    async def _evaluator(self, stream: Any) -> None:
        await guarded(self._feed(stream))

    async def _feed(self, stream: Any) -> None:
        async for messages in bursts(self.app, stream):
            for message in messages:
                if message.partition in self.booths:
                    self.booths[message.partition][0].put(message)

    async def _start(self) -> None:
        self.vigil.start()
        for work in (self.web.start(), self.outbox.pump()):
            self.app.add_future(guarded(work))

    async def _assigned(self, _: Any, assigned: set[Any], **__: Any) -> None:
        if self.closing:
            return
        ours = partitions_of(assigned, (self.names[name] for name in READ))
        for partition in set(self.booths) - ours:
            booth, task = self.booths.pop(partition)
            booth.abandon()
            task.cancel()
        for partition in ours:
            if partition in self.booths:
                self.booths[partition][0].rejoin()
            else:
                booth = self._open(partition)
                task = asyncio.create_task(guarded(booth.run(self._keeper(partition))))
                self.booths[partition] = booth, task
        self.assigned_at = time.monotonic()
        log.info("partitions: %s", sorted(self.booths))

    def _open(self, partition: int) -> Booth:
        # Scores may have any number of partitions; the predictions' own is taken modulo it.
        count = self.cluster.counts["scores"]
        scores = self.outbox.lane(self.names["scores"], partition % count)
        identity = self.cluster.identity("predictions", "labels", "journal")
        shelf = Shelf(self.store, partition, identity, fingerprint())
        return Booth(partition, self.bench, self.outbox, scores, shelf, self.app)

    def _keeper(self, partition: int) -> Callable[[Mapping[str, int]], Any]:
        async def keep(offsets: Mapping[str, int]) -> bool:
            named = {(self.names[name], partition): each for name, each in offsets.items()}
            return await commit(self.app, named)

        return keep

    async def _closing(self, _: Any, **__: Any) -> None:
        """An orderly end: stop, a last snapshot of every partition."""
        self.closing = True
        tasks = [task for _, task in self.booths.values()]
        for booth, task in self.booths.values():
            booth.stop_reading()
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for partition, (booth, _) in self.booths.items():
            await booth.finish(self._keeper(partition))
        await self.web.stop()

    async def _out_of_range(self, place: Any, offset: int) -> None:
        """Records are gone that we were about to read, or our place in a topic is."""
        await refuse_gap(self.client, place, offset, self.bench.accept_gap)

    def _places(self) -> list[tuple[str, int]]:
        return [(self.names[name], number) for number in list(self.booths) for name in READ]

    def _signs(self, ends: Ends) -> Iterator[Sign]:
        yield from process_signs(self.assigned_at is not None, self.outbox)
        for number, (booth, _) in list(self.booths.items()):
            yield from booth_signs(number, booth, ends)

    def unready(self) -> list[str]:
        """Why this evaluator is not ready; empty when it is."""
        if self.assigned_at is None:
            return ["not in the group yet"]
        reasons = list(self.vigil.standing)
        for partition, (booth, _) in sorted(self.booths.items()):
            if not booth.ready.is_set():
                reasons.append(f"partition {partition}: restoring")
            elif booth.save_failure is not None:
                reasons.append(f"partition {partition}: {booth.save_failure}")
        return reasons

    def status(self) -> dict[str, Any]:
        """What `/status` shows."""
        return {
            "role": "evaluator",
            "group": self.settings.group("evaluator"),
            "cluster": self.cluster.id,
            "topic_ids": dict(self.cluster.topic_ids),
            "fingerprint": fingerprint(),
            "unready": self.unready(),
            "partitions": {
                str(number): _about(booth) for number, (booth, _) in sorted(self.booths.items())
            },
        }

    def _counts(self) -> Mapping[int, Mapping[str, int]]:
        found = {number: booth.evaluation for number, (booth, _) in self.booths.items()}
        return {number: each.counts for number, each in found.items() if each is not None}

    def _gauges(self) -> Iterable[Gauge]:
        yield Gauge("dtgol_evaluator_ready", "1 when ready.", float(not self.unready()))
        for number, (booth, _) in self.booths.items():
            yield from _booth_gauges(booth, str(number))


def _about(booth: Booth) -> dict[str, Any]:
    about: dict[str, Any] = {
        "ready": booth.ready.is_set(),
        "waiting": booth.waiting,
        "snapshot": booth.saved.name if booth.saved else None,
        "snapshot_failure": booth.save_failure,
    }
    evaluation = booth.evaluation
    if evaluation is None:
        return about
    totals = {name: board.summary().total for name, board in evaluation.boards.items()}
    return about | {
        "next_offsets": dict(evaluation.next_offsets),
        "remembered": len(evaluation.said),
        "counts": dict(evaluation.counts),
        "streams": {
            name: {
                "scored": total.count,
                "accuracy": total.forecast.accuracy,
                "naive_accuracy": total.naive.accuracy,
                "log_loss": total.forecast.log_loss,
                "auc": total.forecast.auc,
            }
            for name, total in totals.items()
        },
    }


def _booth_gauges(booth: Booth, number: str) -> Iterable[Gauge]:
    evaluation = booth.evaluation
    if evaluation is None:
        return
    at = (("partition", number),)
    said = len(evaluation.said)
    yield Gauge("dtgol_evaluator_remembered_predictions", "Kept, scored or not.", said, at)
    doc = "Scored again by this process: the label was corrected."
    yield Gauge("dtgol_evaluator_rescored", doc, evaluation.rescored, at, True)
    for stream, board in evaluation.boards.items():
        total = board.summary().total
        labels = (*at, ("stream", stream))
        yield Gauge("dtgol_scoring_count", "Scored predictions.", total.count, labels)
        pairs = (("forecast", total.forecast), ("naive", total.naive))
        for which, quality in pairs:
            said_by = (*labels, ("forecast", which))
            for name in ("accuracy", "auc", "log_loss", "brier", "calibration_error"):
                value = getattr(quality, name)
                if value is not None:
                    yield Gauge(f"dtgol_scoring_{name}", f"Prequential {name}.", value, said_by)


def prepare_evaluator(
    settings: Settings, accept_gap: bool = False, say: Callable[[str], None] = log.warning
) -> Evaluator:
    """An evaluator that may start, or a `RefusalError` or `ConfigError` that says why not."""
    security = Security.of(settings)
    client = security.librdkafka()
    topics = [name for name in TOPICS if name != "snapshots" or settings.snapshots.store == "topic"]
    cluster = look(client, settings, topics, "evaluator")
    gaps = find_gaps(client, settings, cluster, "evaluator", READ)
    if gaps and not accept_gap:
        raise RefusalError(f"{gaps[0]}; --accept-gap goes on without them")
    for gap in gaps:
        say(f"accepted: {gap}")
    return Evaluator(settings, security, cluster, accept_gap)
