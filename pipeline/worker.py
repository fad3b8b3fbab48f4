"""Composition root of the worker: sequencer and learner agents in one Faust app.

One `Post` per assigned partition: the sequence that writes its journal and the seat that folds it.
Posts stay through a rebalance that leaves us the partition. Whatever fails here ends the process:
all that counts is durable, and the next one begins where this one was.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dtgol_core.config import Config
from dtgol_core.learner import Learner
from pipeline.access.security import Security
from pipeline.agents.learner import Desk, Lanes, Seat
from pipeline.agents.sequencer import Route, Sequence
from pipeline.cluster import SOURCES, Cluster, find_gaps, gap_at, journal_was_lost, look
from pipeline.engine.faustapp import (
    FAILED,
    REFUSED,
    Valve,
    bursts,
    commit,
    end,
    guarded,
    make_app,
    partitions_of,
    raw_topic,
    refuse_gap,
)
from pipeline.fingerprint import fingerprint
from pipeline.fold import Place
from pipeline.metrics import Gauge, StateCollector, make_registry
from pipeline.outbox import Outbox
from pipeline.reader import look_at
from pipeline.settings import Settings
from pipeline.signs import broken_chains, make_vigil, post_signs, process_signs
from pipeline.snapshots import RefusalError, Shelf
from pipeline.stores import make_store
from pipeline.watchdog import Ends, Sign
from pipeline.web.server import Views, WebServer

log = logging.getLogger(__name__)

WARM_UP_RECORDS = 40
TOPICS = ("features", "labels", "journal", "predictions", "snapshots", "dead-letters")


@dataclass(frozen=True)
class Choices:
    """Decisions that hold for one start only."""

    accept_gap: bool = False
    reset_changed: bool = False


@dataclass
class Post:
    """One partition at work."""

    seat: Seat
    sequence: Sequence
    tasks: list[asyncio.Task[None]]


class Worker:
    """The worker's app, its posts, and what can be seen of them from outside."""

    def __init__(
        self, settings: Settings, security: Security, cluster: Cluster, choices: Choices
    ) -> None:
        self.settings = settings
        self.cluster = cluster
        self.choices = choices
        self.client = security.librdkafka() | settings.kafka.patience
        self.names = {name: settings.topic(name) for name in TOPICS}
        self.posts: dict[int, Post] = {}
        self.store = make_store(settings, self.client, "worker")
        self.outbox = Outbox(self.client)
        self.assigned_at: float | None = None
        self.closing = False
        collector = StateCollector("fold", self._counts, self._gauges)
        views = Views(self.unready, self.status, make_registry(collector))
        self.web = WebServer(settings.web, views)
        self.app = make_app(settings, security, "worker")
        self.vigil = make_vigil(settings, self.client, self._signs, self._places)
        self._wire()

    def _wire(self) -> None:
        """Agents, tasks and signals; Faust finds them on the app."""
        app, names = self.app, self.names
        sources = raw_topic(app, names["features"], names["labels"])
        app.agent(sources, name="sequencer")(self._sequencer)
        app.agent(raw_topic(app, names["journal"]), name="learner")(self._learner)
        app.task(self._start)
        app.on_partitions_assigned.connect(self._assigned, weak=False)
        app.on_before_shutdown.connect(self._closing, weak=False)
        app.on_out_of_range = self._out_of_range

    async def _sequencer(self, stream: Any) -> None:
        await guarded(self._feed(stream, lambda post, message: post.sequence.put(message)))

    async def _learner(self, stream: Any) -> None:
        await guarded(self._feed(stream, lambda post, message: post.seat.put(message)))

    async def _feed(self, stream: Any, put: Callable[[Post, Any], None]) -> None:
        async for messages in bursts(self.app, stream):
            for message in messages:
                post = self.posts.get(message.partition)
                if post is not None:
                    put(post, message)

    async def _start(self) -> None:
        self.vigil.start()
        for work in (self.web.start(), self.outbox.pump(), self._commit_sources()):
            self.app.add_future(guarded(work))

    async def _assigned(self, _: Any, assigned: set[Any], **__: Any) -> None:
        """Posts of partitions that went are given up, new ones taken, the others go on."""
        if self.closing:
            return
        ours = partitions_of(assigned, (self.names[name] for name in (*SOURCES, "journal")))
        for partition in set(self.posts) - ours:
            self._give_up(self.posts.pop(partition))
        for partition in ours:
            if partition in self.posts:
                self.posts[partition].seat.rejoin()
                self.posts[partition].sequence.rejoin()
            else:
                self.posts[partition] = self._open(partition)
        self.assigned_at = time.monotonic()
        log.info("partitions: %s", sorted(self.posts))

    def _open(self, partition: int) -> Post:
        seat, sequence = self._seat(partition), self._sequence(partition)

        def ahead() -> int:
            return sequence.journal_end - seat.next_offset

        async def keep(offset: int) -> bool:
            return await commit(self.app, {(self.names["journal"], partition): offset})

        def marks() -> list[int | None]:
            fold = seat.fold  # none again if it has just crashed; then the next start mends
            sources = self._sources().values()
            return [fold.mark(*each) if fold is not None else None for each in sources]

        runs = [seat.run(keep), sequence.run(seat.ready.wait(), ahead, marks)]
        tasks = [asyncio.create_task(guarded(run)) for run in runs]
        return Post(seat, sequence, tasks)

    def _seat(self, partition: int) -> Seat:
        names, settings = self.names, self.settings
        place = Place(
            self.cluster.topic_ids["journal"],
            names["journal"],
            partition,
            names["features"],
            names["labels"],
        )
        desk = Desk(
            client=self.client,
            group=settings.group("worker"),
            rules=settings.rules,
            snapshot_records=settings.snapshots.every_records,
            snapshot_s=settings.snapshots.every_ms / 1000,
            accept_gap=self.choices.accept_gap,
            reset_changed=self.choices.reset_changed,
        )
        lanes = Lanes(
            predictions=self.outbox.lane(names["predictions"], partition),
            dead=self._dead_lane(partition),
            journal=self.outbox.lane(names["journal"], partition),
        )
        identity = self.cluster.identity("features", "labels", "journal")
        shelf = Shelf(self.store, partition, identity, fingerprint())
        valve = Valve(self.app, names["journal"], partition)
        return Seat(place, desk, self.outbox, lanes, shelf, valve)

    def _sequence(self, partition: int) -> Sequence:
        names, ids, worker = self.names, self.cluster.topic_ids, self.settings.worker
        route = Route(
            client=self.client,
            group=self.settings.group("worker"),
            partition=partition,
            topics=(names["features"], names["labels"]),
            topic_ids=(ids["features"], ids["labels"]),
            record_bytes_max=self.settings.limits.record_bytes_max,
            merge_wait_ms=worker.merge_wait_ms,
            buffer_records=worker.merge_buffer_records,
            ahead_max=worker.journal_ahead_max,
            accept_gap=self.choices.accept_gap,
        )
        journal = self.outbox.lane(names["journal"], partition)
        return Sequence(self.app, route, self.outbox, journal, self._dead_lane(partition))

    def _dead_lane(self, partition: int) -> Any:
        count = self.cluster.counts["dead-letters"]
        return self.outbox.lane(self.names["dead-letters"], partition % count)

    def _give_up(self, post: Post) -> None:
        post.seat.abandon()
        post.sequence.abandon()
        for task in post.tasks:
            task.cancel()

    async def _commit_sources(self) -> None:
        """Commit source offsets whose records are durable in the journal, again and again."""
        while True:
            await asyncio.sleep(self.settings.worker.commit_ms / 1000)
            await self._commit_once()

    async def _commit_once(self) -> None:
        posts = list(self.posts.values())
        offsets: dict[tuple[str, int], int] = {}
        for post in posts:
            offsets |= await post.sequence.commitable()
        if offsets and await commit(self.app, offsets):
            for post in posts:
                post.sequence.committed(offsets)

    async def _closing(self, _: Any, **__: Any) -> None:
        """An orderly end: stop, a last snapshot of every partition, the last commits."""
        self.closing = True
        for post in self.posts.values():
            post.seat.stop_reading()
            post.sequence.abandon()
            for task in post.tasks:
                task.cancel()
        names = self.names
        for partition, post in self.posts.items():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.gather(*post.tasks, return_exceptions=True)

            async def keep(offset: int, partition: int = partition) -> bool:
                return await commit(self.app, {(names["journal"], partition): offset})

            await post.seat.finish(keep)
        await self._commit_once()
        await self.web.stop()

    async def _out_of_range(self, place: Any, offset: int) -> None:
        """Records are gone that we were about to read, or our place in a topic is."""
        if place.topic != self.names["journal"]:
            await refuse_gap(self.client, place, offset, self.choices.accept_gap)
            return
        there = await asyncio.to_thread(look_at, self.client, place.topic, place.partition)
        gap = gap_at(place.topic, place.partition, offset, there)
        if gap is not None and not (offset < there[0] and self._has(place.partition, there[0])):
            # What can be done about the journal is done when it is restored from: start again.
            trimmed = offset < there[0] and not self.choices.accept_gap
            if trimmed:
                end(REFUSED, f"{gap}; --accept-gap goes on without them")
            end(FAILED, gap)

    def _has(self, partition: int, offset: int) -> bool:
        """Whether the learner has the journal up to an offset, or is about to see about that.

        The group may be behind the snapshot, and so below a journal that was rightly trimmed.
        """
        post = self.posts.get(partition)
        return post is None or post.seat.fold is None or post.seat.next_offset >= offset

    def _sources(self) -> dict[int, tuple[str, str]]:
        """Name and id of the source of each side."""
        return {
            side: (self.names[name], self.cluster.topic_ids[name])
            for side, name in enumerate(SOURCES)
        }

    def _places(self) -> list[tuple[str, int]]:
        read = [self.names[name] for name in (*SOURCES, "journal")]
        return [(topic, number) for number in list(self.posts) for topic in read]

    def _signs(self, ends: Ends) -> Iterator[Sign]:
        yield from process_signs(self.assigned_at is not None, self.outbox)
        for number, post in list(self.posts.items()):
            yield from post_signs(number, post.seat, post.sequence, ends)

    def unready(self) -> list[str]:
        """Why this worker is not ready; empty when it is. Having no partition is no fault."""
        if self.assigned_at is None:
            return ["not in the group yet"]
        reasons = list(self.vigil.standing)
        for partition, post in sorted(self.posts.items()):
            seat = post.seat
            if seat.parking.offset is not None:
                reasons.append(seat.parking.sentence)
            elif not seat.ready.is_set():
                reasons.append(f"partition {partition}: restoring")
            elif seat.save_failure is not None:
                reasons.append(f"partition {partition}: {seat.save_failure}")
            for broken in broken_chains(seat, post.sequence, self._sources()):
                reasons.append(f"partition {partition}: {broken}; start it again to mend this")
        return reasons

    def status(self) -> dict[str, Any]:
        """What `/status` shows."""
        return {
            "role": "worker",
            "group": self.settings.group("worker"),
            "cluster": self.cluster.id,
            "topic_ids": dict(self.cluster.topic_ids),
            "rules": self.settings.rules.digest(),
            "fingerprint": fingerprint(),
            "unready": self.unready(),
            "outbox": {"waiting": self.outbox.waiting},
            "partitions": {
                str(number): _about(post) for number, post in sorted(self.posts.items())
            },
        }

    def _counts(self) -> Mapping[int, Mapping[str, int]]:
        folds = {number: post.seat.fold for number, post in self.posts.items()}
        return {number: fold.counts for number, fold in folds.items() if fold is not None}

    def _gauges(self) -> Iterable[Gauge]:
        yield Gauge("dtgol_worker_ready", "1 when ready.", float(not self.unready()))
        doc = "Records handed over and not yet acknowledged."
        yield Gauge("dtgol_outbox_waiting_records", doc, self.outbox.waiting)
        for number, post in self.posts.items():
            yield from _post_gauges(post, (("partition", str(number)),))


def _about(post: Post) -> dict[str, Any]:
    seat, fold = post.seat, post.seat.fold
    about: dict[str, Any] = {
        "ready": seat.ready.is_set(),
        "parked": seat.parking.about(),
        "next_offset": seat.next_offset,
        "restored_records": seat.restored_records,
        "waiting": seat.waiting,
        "held_for_merge": post.sequence.waiting,
        "snapshot_offset": seat.saved_offset,
        "snapshot": seat.saved.name if seat.saved else None,
        "state": seat.saved.digest if seat.saved else None,
        "snapshot_failure": seat.save_failure,
    }
    if fold is not None:
        about |= {
            "marks": {topic: mark for (topic, _), mark in fold.marks.items()},
            "clock_ms": fold.clock_ms,
            "rules": fold.rules_digest,
            "streams": len(fold.streams),
            "counts": dict(fold.counts),
        }
    return about


def _post_gauges(post: Post, at: tuple[tuple[str, str], ...]) -> Iterable[Gauge]:
    seat, fold = post.seat, post.seat.fold
    yield Gauge("dtgol_learner_next_offset", "Journal offset folded up to.", seat.next_offset, at)
    yield Gauge("dtgol_learner_waiting_records", "Received, not folded.", seat.waiting, at)
    yield Gauge("dtgol_learner_busy_seconds", "Time spent folding.", seat.busy_s, at, True)
    yield Gauge("dtgol_snapshot_next_offset", "Offset of the snapshot.", seat.saved_offset, at)
    failed = float(seat.save_failure is not None)
    yield Gauge("dtgol_snapshot_failed", "1 if the last one could not be kept.", failed, at)
    parked = float(seat.parking.offset is not None)
    doc = "1 if it waits for a decision about a record on which the fold fails."
    yield Gauge("dtgol_learner_parked", doc, parked, at)
    copied = post.sequence.copied
    yield Gauge("dtgol_sequencer_copied_records", "Copied by this process.", copied, at, True)
    waiting = post.sequence.waiting
    yield Gauge("dtgol_sequencer_waiting_records", "Held back for the merge.", waiting, at)
    if fold is not None:
        learners = [stream.learner for stream in fold.streams.values()]
        yield Gauge("dtgol_fold_open_streams", "Streams with a learner.", len(learners), at)
        pending = sum(learner.pending for learner in learners)
        yield Gauge("dtgol_delay_pending_instances", "Instances without a label.", pending, at)
        held = sum(learner.delay.held for learner in learners)
        yield Gauge("dtgol_delay_held_labels", "Labels before their features.", held, at)


def warm_up() -> None:
    """Compile or load the kernels before the first record has to wait for them."""
    learner = Learner(Config())
    for number in range(WARM_UP_RECORDS):
        learner.observe(str(number), {"a": number % 5, "b": number * 0.1, "c": "xy"[number % 2]})
        learner.learn(str(number), number % 2)


def prepare_worker(
    settings: Settings, choices: Choices, say: Callable[[str], None] = log.warning
) -> Worker:
    """A worker that may start, or a `RefusalError` or `ConfigError` that says why not."""
    security = Security.of(settings)
    client = security.librdkafka()
    topics = [name for name in TOPICS if name != "snapshots" or settings.snapshots.store == "topic"]
    cluster = look(client, settings, topics, "worker")
    gaps = find_gaps(client, settings, cluster, "worker", SOURCES)
    lost = journal_was_lost(client, settings, cluster)
    gaps += [lost] if lost else []
    if gaps and not choices.accept_gap:
        raise RefusalError(f"{gaps[0]}; --accept-gap goes on without them")
    for gap in gaps:
        say(f"accepted: {gap}")
    warm_up()
    return Worker(settings, security, cluster, choices)
