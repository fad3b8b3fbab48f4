"""Composition root of the worker: sequencer and learner of every assigned partition."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from faust.types import TP

from pipeline.agents import add_agent
from pipeline.errors import FAILED, REFUSED, exit_now
from pipeline.kafka.auth import Security
from pipeline.kafka.cluster import (
    SOURCES,
    Cluster,
    find_gaps,
    find_lost_journal,
    inspect_cluster,
    refuse_gaps,
)
from pipeline.kafka.reader import Watermarks
from pipeline.kafka.writer import CheckedProducer, PartitionWriter
from pipeline.learning.fold_config import FoldConfig
from pipeline.learning.outputs import PartitionRef
from pipeline.learning.partition import LearnerConfig, Outputs, PartitionLearner
from pipeline.learning.poison import note_deaths
from pipeline.runtime.checkpoint import Checkpointer
from pipeline.runtime.fingerprint import fingerprint
from pipeline.runtime.port import LiveKafka
from pipeline.runtime.positions import PositionFile, positions_folder
from pipeline.runtime.process import PartitionPart, Process, Role
from pipeline.runtime.warmup import compiled, start_warm_up
from pipeline.sequencing.sequencer import PartitionSequencer, SequencerConfig
from pipeline.settings import Settings
from pipeline.snapshots import make_store
from pipeline.snapshots.repository import Archive, SnapshotRepository
from pipeline.snapshots.store import Store
from topics.dead_letters import connect_headers

log = logging.getLogger(__name__)

TOPICS = ("features", "labels", "journal", "predictions", "scores", "snapshots", "dead-letters")


@dataclass(frozen=True)
class StartOptions:
    """Decisions that hold for one start only."""

    accept_gap: bool = False
    reset_changed: bool = False


class Worker:
    """Opens and keeps the sequencers and learners of a process."""

    def __init__(
        self,
        settings: Settings,
        cluster: Cluster,
        store: Store,
        options: StartOptions,
        positions: PositionFile | None = None,
    ) -> None:
        self._positions = positions
        self._settings = settings
        self._cluster = cluster
        self._store = store
        self._options = options
        self.names = {name: settings.topic(name) for name in TOPICS}
        fold = FoldConfig.from_settings(settings)
        predictions = self.names["predictions"]
        self.config = LearnerConfig(
            fold,
            predictions,
            options.accept_gap,
            options.reset_changed,
            settings.web.metrics_streams_max,
        )
        self.await_kernels: Callable[[], None] = lambda: None
        self.learners: dict[int, PartitionLearner] = {}
        self.sequencers: dict[int, PartitionSequencer] = {}

    def open(self, process: Process, number: int) -> Sequence[PartitionPart]:
        """The learner and the sequencer of one partition."""
        self.learners[number] = self._learner(process, number)
        self.sequencers[number] = self._sequencer(process, number)
        return self.learners[number], self.sequencers[number]

    def close(self, number: int) -> None:
        """The partition was revoked: drop its state."""
        del self.learners[number], self.sequencers[number]

    def _learner(self, process: Process, number: int) -> PartitionLearner:
        names, outbox, snapshots = self.names, process.outbox, self._settings.snapshots
        outputs = Outputs(
            predictions=outbox.partition(names["predictions"], number),
            dead_letters=self._dead_letters(process, number),
            journal=outbox.partition(names["journal"], number),
            scores=self._any_partition(process, "scores", number),
        )
        kafka = self._kafka(process, number)
        identity = self._cluster.identity(*SOURCES, "journal")
        every_ms, most = snapshots.archive_ms, snapshots.archive_max
        archive = Archive(every_ms, most) if every_ms else None
        checkpoints = Checkpointer(
            number,
            SnapshotRepository(self._store, number, identity, fingerprint(), archive),
            [outputs.predictions, outputs.dead_letters, outputs.scores],
            kafka.commit,
            snapshots.every_records,
            snapshots.every_ms / 1000,
        )
        journal_id = self._cluster.topic_ids["journal"]
        sources = names["features"], names["labels"]
        ref = PartitionRef(journal_id, names["journal"], number, *sources)
        learner = PartitionLearner(
            ref, self.config, kafka, outbox, outputs, checkpoints, self._positions
        )
        learner.queue_bytes_max = self._settings.worker.queue_bytes_max
        learner.await_start = self.await_kernels
        learner.send_event = process.events.send
        return learner

    def _sequencer(self, process: Process, number: int) -> PartitionSequencer:
        names, ids, settings = self.names, self._cluster.topic_ids, self._settings
        config = SequencerConfig(
            partition=number,
            topics=(names["features"], names["labels"]),
            topic_ids=(ids["features"], ids["labels"]),
            record_bytes_max=settings.limits.record_bytes_max,
            headers_max=settings.limits.headers_max,
            merge_wait_ms=settings.worker.merge_wait_ms,
            buffer_records=settings.worker.merge_buffer_records,
            buffer_bytes=settings.worker.queue_bytes_max,
            ahead_max=settings.worker.journal_ahead_max,
            accept_gap=self._options.accept_gap,
        )
        return PartitionSequencer(
            config,
            self._kafka(process, number),
            self.learners[number],
            process.outbox,
            process.outbox.partition(names["journal"], number),
            self._dead_letters(process, number),
        )

    def _kafka(self, process: Process, number: int) -> LiveKafka:
        return LiveKafka(process.app, process.client, self._settings.group("worker"), number)

    def _dead_letters(self, process: Process, number: int) -> PartitionWriter:
        writer = self._any_partition(process, "dead-letters", number)
        if self._settings.worker.connect_headers:
            writer.more_headers = connect_headers
        return writer

    def _any_partition(self, process: Process, name: str, number: int) -> PartitionWriter:
        """Of a topic that may have any number of partitions; the journal's is taken modulo it."""
        return process.outbox.partition(self.names[name], number % self._cluster.counts[name])

    async def commit_sources(self, process: Process) -> None:
        """Commit source offsets whose records are durable in the journal."""
        ours = [self.sequencers[number] for number in process.partitions]
        offsets: dict[tuple[str, int], int] = {}
        for sequencer in ours:
            offsets |= await sequencer.committable()
        if offsets and await process.app.commit(offsets):
            for sequencer in ours:
                sequencer.committed(offsets)

    async def keep_committing(self, process: Process) -> None:
        """Commit source offsets periodically."""
        while True:
            await asyncio.sleep(self._settings.worker.commit_ms / 1000)
            await self.commit_sources(process)

    def on_gap(self, process: Process, place: TP, offset: int, there: Watermarks, gap: str) -> bool:
        """The next restore handles a gap in the journal: end, unless the learner is beyond it."""
        if place.topic != self.names["journal"]:
            return False
        trimmed = offset < there.low
        if trimmed and self._has(place.partition, there.low):
            return True
        if trimmed and not process.accept_gap:
            exit_now(REFUSED, f"{gap}; --accept-gap goes on without them")
        return exit_now(FAILED, gap)

    def _has(self, partition: int, offset: int) -> bool:
        """Whether the learner has the journal up to an offset, or is being restored.

        The group may be behind the snapshot, and so below a journal that was rightly trimmed.
        """
        learner = self.learners.get(partition)
        return learner is None or learner.state is None or learner.next_offset >= offset


def make_worker(
    settings: Settings, options: StartOptions, warn: Callable[[str], None] = log.warning
) -> Process:
    """A worker that may start; raises the error with the reason if it may not.

    Kernels are loaded beside the questions to the cluster, and beside joining the group unless
    they must be compiled, which takes too long for a member.
    """
    at_hand, kernels = compiled(), start_warm_up()
    security = Security.of(settings)
    client = security.librdkafka()
    topics = [name for name in TOPICS if name != "snapshots" or settings.snapshots.store == "topic"]
    config_bytes = FoldConfig.from_settings(settings).record_bytes
    cluster = inspect_cluster(client, settings, topics, "worker", config_bytes)
    gaps = find_gaps(client, settings, cluster, "worker", SOURCES)
    lost = find_lost_journal(client, settings, cluster)
    for gap in refuse_gaps([*gaps, lost] if lost else gaps, options.accept_gap):
        warn(f"accepted: {gap}")
    if not at_hand:
        kernels.result()
    store = make_store(settings, client | settings.kafka.timeouts, "worker")
    journal = settings.topic("journal")
    name = f"{journal}.{cluster.topic_ids['journal']}"
    positions = PositionFile(positions_folder(settings), name, cluster.partitions)
    note_deaths(positions, journal, CheckedProducer(client))
    worker = Worker(settings, cluster, store, options, positions)
    worker.await_kernels = kernels.result
    sources = [worker.names[name] for name in SOURCES]
    role = Role(
        name="worker",
        metrics="fold",
        topics=[*sources, journal],
        open=worker.open,
        close=worker.close,
        background=[worker.keep_committing],
        last=worker.commit_sources,
        on_gap=worker.on_gap,
        status={"config": worker.config.fold.digest()},
    )
    process = Process(settings, security, cluster, role, options.accept_gap)
    add_agent(process.app, "sequencer", sources, worker.sequencers)
    add_agent(process.app, "learner", [journal], worker.learners)
    return process
