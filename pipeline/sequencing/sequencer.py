"""The sequencer: features and labels of one partition -> the one order of its journal.

Bytes and the producer's own headers are copied untouched; ours are added behind them. Stateless:
after a crash it goes on from the committed source offsets, and the fold drops what comes twice. At
least once, ordered by what is in the journal; a source offset is committed when every journal
record up to it is durable. What was committed and is not in the journal any more is copied again
before anything else. A record over the limit of its size or of its headers, or with a header whose
name is not UTF-8, becomes a dead letter and leaves a stub without key and value: what is in the
journal is read alike by every client, and its copies fit every topic.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from math import inf
from typing import Any, NamedTuple, Protocol

from pipeline.errors import RequestError, UnansweredError
from pipeline.faust_ext.consumer import FetchedBatch
from pipeline.kafka.record import Record
from pipeline.kafka.writer import Outbox, PartitionWriter
from pipeline.runtime.metrics import Sample, StageTime, lag_sample
from pipeline.runtime.partition import wait_for_event
from pipeline.runtime.port import PartitionKafka, lag_of
from pipeline.runtime.watchdog import Ends, Probe
from pipeline.sequencing.journal_repair import (
    ResumePoint,
    read_lost,
    resume_point,
    source_offsets,
)
from pipeline.sequencing.merge import FEATURES, LABELS, Merge, SourceRecord
from pipeline.sequencing.record_age import LeastAge
from topics.dead_letters import DeadLetter, truncate
from topics.headers import producer_headers, record_bytes, write_headers
from topics.journal import NO_OFFSET, CopyHeaders, Padding, RecordKind, Source, write_control
from topics.reasons import Reason, Rejection

log = logging.getLogger(__name__)

BATCH = 256
COPY_MS = 3.0
"""How long copying may hold the event loop: records may have many headers."""
IDLE_S = 0.05
FETCHED_MS = 200.0
"""What was fetched reaches the agent well within this; else it was a transaction's marker."""
HOLD_MS = 200.0
"""A label waits so long at most for a fetch of features that was answered after it came."""
PART_OF_LIMIT = 4
"""A key, or headers, over this part of the limit of a record are left out of its dead letter."""
AHEAD = 200


class Clock(NamedTuple):
    """Wall clock, to compare with Kafka's timestamps, and monotonic clock; in milliseconds."""

    wall_ms: Callable[[], float] = lambda: time.time() * 1000
    monotonic_ms: Callable[[], float] = lambda: time.monotonic() * 1000


class LearnerView(Protocol):
    """What the sequencer must know of the learner that folds its journal."""

    ready: asyncio.Event

    @property
    def next_offset(self) -> int:
        """The first journal offset that is not folded."""

    @property
    def lost_offsets(self) -> int:
        """How many offsets after the end of the journal were answered before it lost its tail."""

    def marks(self, sources: Iterable[tuple[str, str]]) -> list[int | None]:
        """The last record of each source, by topic and id, that was applied; None if unknown."""


@dataclass(frozen=True)
class SequencerConfig:
    """Names, ids and limits of one partition's way from its sources to its journal."""

    partition: int
    topics: tuple[str, str]
    topic_ids: tuple[str, str]
    record_bytes_max: int
    merge_wait_ms: int
    buffer_records: int
    ahead_max: int
    headers_max: int = 1_000
    buffer_bytes: int = 1 << 24
    accept_gap: bool = False


class PartitionSequencer:
    """Copies one partition of both sources to its journal, and knows what may be committed."""

    retry_s = 2.0

    def __init__(
        self,
        config: SequencerConfig,
        kafka: PartitionKafka,
        learner: LearnerView,
        outbox: Outbox,
        journal: PartitionWriter,
        dead_letters: PartitionWriter,
        clock: Clock | None = None,
    ) -> None:
        self._config = config
        self._kafka = kafka
        self._learner = learner
        self._outbox = outbox
        self._journal = journal
        self._dead_letters = dead_letters
        self._clock = clock or Clock()
        self._merge = Merge(config.merge_wait_ms)
        self._flows = [kafka.flow(topic) for topic in config.topics]
        self._sources = list(zip(config.topics, config.topic_ids, strict=True))
        self._copy_headers = [CopyHeaders(*each, config.partition) for each in self._sources]
        self._prev = [NO_OFFSET, NO_OFFSET]
        self._fetched_since: list[tuple[int, float] | None] = [None, None]
        """The position up to which a side was fetched, and since when that is known."""
        self._inflight: deque[tuple[int, int] | None] = deque()
        self._durable: list[int | None] = [None, None]
        self._committed: list[int | None] = [None, None]
        self._wake = asyncio.Event()
        self._waits_for_learner = False
        self._run_waits = False
        """Whether `run` waits for more: what comes is copied at once then."""
        self._ages = [LeastAge(), LeastAge()]
        self._stage = StageTime("sequence")
        self.copied = 0
        self.stubs = 0
        journal.on_delivered = self._delivered

    def put(self, topic: str, batch: FetchedBatch) -> None:
        """Take from Faust what a fetch brought of a source; copied at once if `run` waits."""
        side = FEATURES if topic == self._config.topics[FEATURES] else LABELS
        deliveries = self._flows[side].accept(batch)
        if not deliveries:
            return
        self._fetched_since[side] = None
        received_ms = self._clock.wall_ms()
        for delivery in deliveries:
            self._ages[side].add(received_ms - delivery.record.timestamp_ms)
            self._merge.put(SourceRecord(side, delivery.record, received_ms))
        if not self._flows[side].has_backlog(self._flows[side].received):
            self._ages[side].report(f"{topic} partition {self._config.partition}", received_ms)
        size, config = self._merge.size(side), self._config
        full = size >= config.buffer_records or self._merge.occupied(side) >= config.buffer_bytes
        if full or (size >= AHEAD and not self._merge.size(1 - side) and self._lags(1 - side)):
            # Pause the side that is ahead: records of the other may be queued behind it in Faust.
            self._flows[side].pause()
        if not (self._run_waits and self._copy_until_blocked()):
            self._run_waits = False  # `run` copies the rest, and lets others have their turn
            self._wake.set()

    async def run(self) -> None:
        """Copy until cancelled; not before the learner is ready, nor while it is far behind."""
        config = self._config
        offsets, _ = await asyncio.gather(self._source_offsets(), self._learner.ready.wait())
        points = []
        marks = self._learner.marks(self._sources)
        for topic, mark, (committed, low) in zip(config.topics, marks, offsets, strict=True):
            where = f"{topic} partition {config.partition}"
            points.append(resume_point(where, mark, committed, low, config.accept_gap))
        await self._pad(self._learner.lost_offsets)
        await self._repair(points)
        while True:
            await self._outbox.wait_for_space()
            if self._copy_until_blocked():
                self._run_waits = True
                try:
                    await wait_for_event(self._wake, IDLE_S)
                finally:
                    self._run_waits = False
            else:
                await asyncio.sleep(0)
            self._outbox.poll()

    async def _source_offsets(self) -> list[tuple[int, int]]:
        """Ask until the cluster answers; the watchdog ends the process if it never does."""
        while True:
            try:
                return await asyncio.to_thread(source_offsets, self._kafka, self._config.topics)
            except (UnansweredError, RequestError) as error:
                log.warning("partition %d: %s; trying again", self._config.partition, error)
                await asyncio.sleep(self.retry_s)

    async def _pad(self, count: int) -> None:
        """Take up offsets of the journal that were used before it lost its tail."""
        for left in range(count, 0, -1):
            await self._outbox.wait_for_space()
            self._inflight.append(None)
            value, headers = write_control(Padding(left))
            self._journal.send(None, value, headers)

    async def _repair(self, points: list[ResumePoint]) -> None:
        """Set where the chains begin, and copy again what the journal has lost, in batches."""
        config = self._config
        self._prev = [point.prev for point in points]
        for topic, point in zip(config.topics, points, strict=True):
            if point.lost:
                what = f"partition {config.partition}: records {point.start} to {point.end - 1}"
                log.warning("%s %s: the journal has lost them, copied again", topic, what)
        lost = read_lost(self._kafka, config.topics, points)
        while sources := await asyncio.to_thread(lambda: list(islice(lost, BATCH))):
            await self._outbox.wait_for_space()
            for source in sources:
                self._copy(source)

    def _copy_until_blocked(self) -> bool:
        """Copy what may be copied now, for a moment; whether nothing more may be copied.

        Then a record of the other side must come first, or the learner is far behind.
        """
        behind = self._journal.last_offset + 1 - self._learner.next_offset
        self._waits_for_learner = behind > self._config.ahead_max
        if self._waits_for_learner:
            return True
        until_ms = self._clock.monotonic_ms() + COPY_MS
        few = self.copy_batch(until_ms) < BATCH
        return few and not self._outbox.full and self._clock.monotonic_ms() < until_ms

    def copy_batch(self, until_ms: float = inf) -> int:
        """Copy what may be copied now, no longer than `until_ms`; returns how many."""
        done, begun = 0, time.monotonic()
        while done < BATCH and not self._outbox.full:
            now_ms = self._clock.monotonic_ms()
            source = self._merge.take(now_ms, self._lags) if now_ms < until_ms else None
            if source is None:
                break
            self._copy(source)
            done += 1
        if done:
            self._stage.seconds += time.monotonic() - begun
            self._stage.records += done
        for side, flow in enumerate(self._flows):
            roomy = self._merge.occupied(side) < self._config.buffer_bytes // 2
            if roomy and self._merge.size(side) < AHEAD // 2:
                flow.resume()
        return done

    def _lags(self, side: int) -> bool:
        """Whether records of a side are known to be on their way, or nothing is known yet."""
        flow = self._flows[side]
        known = flow.position_and_end
        if known is None:
            return True
        position, end = known
        if flow.received + 1 >= end:
            return side == FEATURES and self._features_may_come()
        if position < end:
            self._fetched_since[side] = None
            return True
        # Fetched to the end, but not all of it was received: on its way, or never to come.
        now = self._clock.monotonic_ms()
        known_since = self._fetched_since[side]
        if known_since is None or known_since[0] != position:
            known_since = self._fetched_since[side] = position, now
        return now - known_since[1] < FETCHED_MS

    def _features_may_come(self) -> bool:
        """Whether a label came after the last fetch of features: these may have been sent first.

        The other way round nothing is waited for: features must be answered soon, and a label that
        comes a moment later is learnt all the same.
        """
        label = self._merge.head(LABELS)
        if label is None or not 0 <= self._clock.wall_ms() - label.received_ms < HOLD_MS:
            return False
        return self._flows[FEATURES].last_fetch_ms <= label.received_ms

    def _copy(self, source: SourceRecord) -> None:
        side, record, _ = source
        refusal, prev = self._refusal(record), self._prev[side]
        self._inflight.append((side, record.offset))
        self._prev[side] = record.offset
        if refusal is not None:
            self._send_dead_letter(source, refusal)
            self._journal.send(None, None, write_headers(self._stub(source, prev, refusal.reason)))
            self.stubs += 1
        else:
            headers = self._copy_headers[side].write(record.offset, prev, record.timestamp_ms)
            own = producer_headers(record.headers)
            self._journal.send(record.key, record.value, [*own, *headers])
            self.copied += 1

    def _refusal(self, record: Record) -> Rejection | None:
        """Why a record cannot be copied; None if it can."""
        config = self._config
        if record.unreadable:
            return Rejection(Reason.HEADER_NAME, "record: a header's name is not UTF-8")
        if len(record.headers) > config.headers_max:
            return Rejection(Reason.TOO_LARGE, f"record: over {config.headers_max} headers")
        if record_bytes(record.key, record.value, record.headers) > config.record_bytes_max:
            return Rejection(Reason.TOO_LARGE, f"record: over {config.record_bytes_max} bytes")
        return None

    def _stub(self, source: SourceRecord, prev: int, reason: Reason) -> Source:
        side, record, _ = source
        left_out = truncate(record.value, 0)
        return Source(
            kind=RecordKind.STUB,
            topic=self._config.topics[side],
            topic_id=self._config.topic_ids[side],
            partition=self._config.partition,
            offset=record.offset,
            prev=prev,
            timestamp_ms=record.timestamp_ms,
            length=left_out.length,
            sha256=left_out.sha256,
            reason=reason,
        )

    def _send_dead_letter(self, source: SourceRecord, refusal: Rejection) -> None:
        """The dead letter of a record that cannot be copied.

        Its key, value and headers are within the limit of a record, as those of every other dead
        letter: what does not fit is left out, or truncated.
        """
        record, limit = source.record, self._config.record_bytes_max
        own = producer_headers(record.headers)
        own_bytes = record_bytes(None, None, own)
        if len(own) > self._config.headers_max or own_bytes > limit // PART_OF_LIMIT:
            own, own_bytes = [], 0
        key = record.key if len(record.key or b"") <= limit // PART_OF_LIMIT else None
        beginning = truncate(record.value, limit - own_bytes - len(key or b""))
        letter = DeadLetter(
            self._config.topics[source.side],
            self._config.partition,
            record.offset,
            refusal.reason,
            refusal.detail,
            beginning.length,
            beginning.sha256,
            self._config.topic_ids[source.side],
        )
        self._dead_letters.send(key, beginning.value, [*own, *write_headers(letter)])

    # --- commits ---------------------------------------------------------------------------------

    def _delivered(self) -> None:
        copied = self._inflight.popleft()
        if copied is not None:
            side, offset = copied
            self._durable[side] = offset

    async def committable(self) -> dict[tuple[str, int], int]:
        """Source offsets whose records are durable in the journal and not committed yet."""
        durable = list(self._durable)
        if durable == self._committed:
            return {}
        await self._dead_letters.settled()
        return {
            (self._config.topics[side], self._config.partition): offset + 1
            for side, offset in enumerate(durable)
            if offset is not None and offset != self._committed[side]
        }

    def committed(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """Remember what was committed."""
        for side, topic in enumerate(self._config.topics):
            offset = offsets.get((topic, self._config.partition))
            if offset is not None:
                self._committed[side] = offset - 1

    # --- the end ---------------------------------------------------------------------------------

    def rejoined(self) -> None:
        """After a rebalance that left us the partition."""
        for flow in self._flows:
            flow.rejoined()

    def stop_reading(self) -> None:
        """Make a repair that is under way end soon."""
        self._kafka.stop_reading()

    def abandon(self) -> None:
        """The partition was revoked: what it held is fetched by another process."""
        self.stop_reading()
        self._merge.clear()

    async def finish(self) -> None:
        """Nothing to save: the worker commits the source offsets."""

    # --- what can be seen from outside -----------------------------------------------------------

    @property
    def progress(self) -> tuple[Any, ...]:
        """A value that changes with every step forward."""
        return self.copied, self.stubs, *(flow.position for flow in self._flows)

    def probes(self, ends: Ends) -> Iterator[Probe]:
        """What the watchdog watches; one that waits for its learner is not stalled."""
        number = self._config.partition
        backlog = bool(self._merge) or any(
            flow.has_backlog(flow.received, ends.get((topic, number)))
            for topic, flow in zip(self._config.topics, self._flows, strict=True)
        )
        works = self._learner.ready.is_set() and not self._waits_for_learner and backlog
        what = f"partition {number}: features or labels wait and none is copied"
        yield Probe(what, works, self.progress)

    def unready(self) -> list[str]:
        """Sources whose records are in the journal and were not applied: one before is missing."""
        if self._learner.next_offset <= self._journal.last_offset:
            return []
        marks = self._learner.marks(self._sources)
        return [
            f"{topic} was applied up to {mark} only: the journal has lost what came after; restart "
            f"the worker to repair this"
            for topic, mark, durable in zip(self._config.topics, marks, self._durable, strict=True)
            if mark is not None and durable is not None and durable > mark
        ]

    def health(self) -> dict[str, Any]:
        """What `/status` and the live page show of it."""
        return {"held_for_merge": len(self._merge), "sources_lag": lag_of(self._flows)}

    async def status(self) -> dict[str, Any]:
        """What `/status` shows of it."""
        ages = {
            topic: age.least_ms for topic, age in zip(self._config.topics, self._ages, strict=True)
        }
        return self.health() | {"least_age_ms": ages}

    @property
    def counts(self) -> Mapping[str, int]:
        """The fold counts what is copied."""
        return {}

    def samples(self) -> Iterable[Sample]:
        """What this process has copied, and what waits."""
        yield Sample("dtgol_sequencer_copied_records_total", self.copied)
        yield Sample("dtgol_sequencer_waiting_records", len(self._merge))
        yield from self._stage.samples()
        for side, topic in enumerate(self._config.topics):
            here = self._merge.size(side)
            yield from lag_sample(topic, self._flows[side].position_and_end, here)
            least_ms = self._ages[side].least_ms
            if least_ms is not None:
                of = (("topic", topic),)
                yield Sample("dtgol_sequencer_least_age_seconds", least_ms / 1000, of)
