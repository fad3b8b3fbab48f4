"""The sequencer: features and labels of one partition -> the one order of its journal.

Bytes and the producer's own headers are copied untouched; ours are added behind them. Stateless:
after a crash it goes on from the committed source offsets, and the fold drops what comes twice. At
least once, ordered by what is in the journal; a source offset is committed when every journal
record up to it is durable. What was committed and is not in the journal any more is copied again
before anything else. A record over the size limit becomes a dead letter, cut, and leaves a stub
without key and value.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from pipeline.engine.faustapp import (
    Valve,
    committed,
    end,
    fetched,
    headers_of,
    heard_ms,
    lost_before,
    milliseconds,
    progress,
    unread,
)
from pipeline.mending import Link, ask_sources, link, read_lost
from pipeline.merge import FEATURES, LABELS, Merge, SourceRecord
from pipeline.outbox import Lane, Outbox
from topics.deadletters import DeadLetter, cut
from topics.headers import foreign, record_bytes, write_headers
from topics.journal import NO_OFFSET, Kind, Source
from topics.refusals import Reason

log = logging.getLogger(__name__)

BURST = 256
IDLE_S = 0.05
FETCHED_S = 0.2
"""What was fetched reaches the agent well within this; else it was a transaction's marker."""
HOLD_MS = 200
"""A label waits so long at most for a fetch of features that was answered after it came."""
KEY_BYTES_MAX = 65_536
"""Of an oversized record: a longer key, or more headers, are left out of the dead letter."""
VALUE_BYTES_MAX = 600_000
AHEAD = 200


@dataclass(frozen=True)
class Route:
    """Names, ids and limits of one partition's way from its sources to its journal."""

    client: Mapping[str, Any]
    group: str
    partition: int
    topics: tuple[str, str]
    topic_ids: tuple[str, str]
    record_bytes_max: int
    merge_wait_ms: int
    buffer_records: int
    ahead_max: int
    accept_gap: bool = False


class Sequence:
    """One partition: what came in, what is in the journal, what may be committed."""

    def __init__(self, app: Any, route: Route, outbox: Outbox, journal: Lane, dead: Lane) -> None:
        self._app = app
        self._route = route
        self._outbox = outbox
        self._journal = journal
        self._dead = dead
        self._merge = Merge(route.merge_wait_ms)
        self._received: list[int | None] = [None, None]
        self._prev = [NO_OFFSET, NO_OFFSET]
        self._fetched_since: list[float | None] = [None, None]
        self._valves = [Valve(app, topic, route.partition) for topic in route.topics]
        self._inflight: deque[tuple[int, int]] = deque()
        self._durable: list[int | None] = [None, None]
        self._committed: list[int | None] = [None, None]
        self._wake = asyncio.Event()
        self._abandoned = False
        self.held_up = False
        self.copied = 0
        self.stubs = 0
        journal.on_delivered = self._delivered

    def put(self, message: Any) -> None:
        """Take in one message of a source; what was taken in before is known by its offset."""
        side = FEATURES if message.topic == self._route.topics[FEATURES] else LABELS
        received = self._last_received(side)
        lost = lost_before(self._app, message, received)
        if message.offset <= received:
            return
        if lost:
            end(
                1,
                f"{message.topic} partition {message.partition}: Faust lost records in front of "
                f"{message.offset}; they will be read again from the committed offset",
            )
        self._received[side] = message.offset
        self._fetched_since[side] = None
        self._merge.put(
            SourceRecord(
                side,
                message.offset,
                milliseconds(message),
                message.key,
                message.value,
                headers_of(message),
                time.time() * 1000,
            )
        )
        size = self._merge.size(side)
        if size >= self._route.buffer_records or (
            size >= AHEAD and not self._merge.size(1 - side) and self._lags(1 - side)
        ):
            # The side that is ahead makes room for the other, which may be queued behind it.
            self._valves[side].close()
        self._wake.set()

    def _last_received(self, side: int) -> int:
        """The last record that came, or the one before the offset from which Faust reads."""
        received = self._received[side]
        if received is not None:
            return received
        return committed(self._app, self._route.topics[side], self._route.partition) - 1

    def rejoin(self) -> None:
        """After a rebalance that left us the partition: Faust has opened all valves."""
        for valve in self._valves:
            valve.closed = False

    async def run(
        self,
        ready: Awaitable[Any],
        ahead: Callable[[], int],
        marks: Callable[[], list[int | None]],
    ) -> None:
        """Copy for ever; not before the learner is `ready`, nor while it is far behind.

        `marks` are the last records of each source that the learner has, once it is ready.
        """
        route = self._route
        asked = route.client, route.group, route.topics, route.partition
        told, _ = await asyncio.gather(asyncio.to_thread(ask_sources, *asked), ready)
        links = []
        for topic, mark, (offset, low) in zip(route.topics, marks(), told, strict=True):
            where = f"{topic} partition {route.partition}"
            links.append(link(where, mark, offset, low, route.accept_gap))
        await self._mend(links)
        while True:
            await self._outbox.room()
            self.held_up = ahead() > route.ahead_max
            if self.held_up or not self._burst():
                self._wake.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), IDLE_S)
            else:
                await asyncio.sleep(0)
            self._outbox.poll()

    async def _mend(self, links: list[Link]) -> None:
        """Begin the chains; first copy again what the journal has lost, some at a time."""
        route = self._route
        self._prev = [each.prev for each in links]
        for topic, each in zip(route.topics, links, strict=True):
            if each.lost:
                what = f"partition {route.partition}: records {each.start} to {each.end - 1}"
                log.warning("%s %s: the journal has lost them, copied again", topic, what)
        place = route.client, route.topics, route.partition
        lost = read_lost(*place, links, lambda: self._abandoned)
        while records := await asyncio.to_thread(lambda: list(islice(lost, BURST))):
            await self._outbox.room()
            for record in records:
                self._copy(record)

    def _burst(self) -> int:
        """Copy what may be copied now; returns how many."""
        done = 0
        while done < BURST and not self._outbox.full:
            record = self._merge.take(time.monotonic() * 1000, self._lags)
            if record is None:
                break
            self._copy(record)
            done += 1
        for side, valve in enumerate(self._valves):
            if self._merge.size(side) < AHEAD // 2:
                valve.open()
        return done

    def _lags(self, side: int) -> bool:
        """Whether records of a side are known to be on their way, or nothing is known yet."""
        known = progress(self._app, self._route.topics[side], self._route.partition)
        if known is None:
            return True
        position, end = known
        if self._last_received(side) + 1 >= end:
            return side == FEATURES and self._unasked()
        if position < end:
            self._fetched_since[side] = None
            return True
        # Fetched to the end, but not all of it was received: on its way, or never to come.
        now = time.monotonic()
        since = self._fetched_since[side] = self._fetched_since[side] or now
        return now - since < FETCHED_S

    def _unasked(self) -> bool:
        """Whether a label came after the last answer about features: they may have been first.

        The other way round nothing is waited for: features must be answered soon, and a label that
        comes a moment later is learnt all the same.
        """
        label = self._merge.head(LABELS)
        if label is None or not 0 <= time.time() * 1000 - label.came_ms < HOLD_MS:
            return False
        topic, partition = self._route.topics[FEATURES], self._route.partition
        return heard_ms(self._app, topic, partition) <= label.came_ms

    def _copy(self, record: SourceRecord) -> None:
        size = record_bytes(record.key, record.value, record.headers)
        stub = size > self._route.record_bytes_max
        source = self._source(record, Kind.STUB if stub else Kind.COPY)
        self._inflight.append((record.side, record.offset))
        self._prev[record.side] = record.offset
        if stub:
            self._bury(record)
            self._journal.send(None, None, write_headers(source))
            self.stubs += 1
        else:
            headers = [*foreign(record.headers), *write_headers(source)]
            self._journal.send(record.key, record.value, headers)
            self.copied += 1

    def _source(self, record: SourceRecord, kind: Kind) -> Source:
        side, route = record.side, self._route
        whole = cut(record.value, 0) if kind is Kind.STUB else None
        return Source(
            kind=kind,
            topic=route.topics[side],
            topic_id=route.topic_ids[side],
            partition=route.partition,
            offset=record.offset,
            prev=self._prev[side],
            timestamp_ms=record.timestamp_ms,
            length=whole.length if whole else None,
            sha256=whole.sha256 if whole else None,
        )

    def _bury(self, record: SourceRecord) -> None:
        """The dead letter of an oversized record; what must be cut of it is cut."""
        limit = self._route.record_bytes_max
        piece = cut(record.value, min(limit, VALUE_BYTES_MAX))
        letter = DeadLetter(
            self._route.topics[record.side],
            self._route.partition,
            record.offset,
            Reason.TOO_LARGE,
            f"record: over {limit} bytes",
            piece.length,
            piece.sha256,
        )
        own = foreign(record.headers)
        if record_bytes(None, None, own) > KEY_BYTES_MAX:
            own = []
        key = record.key if len(record.key or b"") <= KEY_BYTES_MAX else None
        self._dead.send(key, piece.value, [*own, *write_headers(letter)])

    def _delivered(self) -> None:
        side, offset = self._inflight.popleft()
        self._durable[side] = offset

    async def commitable(self) -> dict[tuple[str, int], int]:
        """Source offsets whose records are durable in the journal and not committed yet."""
        durable = list(self._durable)
        if durable == self._committed:
            return {}
        await self._dead.settled()
        return {
            (self._route.topics[side], self._route.partition): offset + 1
            for side, offset in enumerate(durable)
            if offset is not None and offset != self._committed[side]
        }

    def committed(self, offsets: dict[tuple[str, int], int]) -> None:
        """Remember what the broker has taken."""
        for side, topic in enumerate(self._route.topics):
            offset = offsets.get((topic, self._route.partition))
            if offset is not None:
                self._committed[side] = offset - 1

    def behind(self, ends: Mapping[tuple[str, int], int]) -> bool:
        """Whether there is anything to copy: here, on its way, or at the broker by `ends`."""
        at = self._route.partition
        return bool(self._merge) or any(
            unread(self._app, topic, at, self._last_received(side), ends.get((topic, at)))
            for side, topic in enumerate(self._route.topics)
        )

    @property
    def moved(self) -> tuple[Any, ...]:
        """Something that changes with every step forward."""
        at = self._route.partition
        return (self.copied, self.stubs, *(fetched(self._app, t, at) for t in self._route.topics))

    def durable(self, side: int) -> int | None:
        """The last record of a side that this process has put into the journal for sure."""
        return self._durable[side]

    def abandon(self) -> None:
        """The partition is not ours any more: stop reading."""
        self._abandoned = True

    @property
    def journal_end(self) -> int:
        """One past the last journal offset that this process has written."""
        return self._journal.last_offset + 1

    @property
    def waiting(self) -> int:
        """Records held back for the merge."""
        return len(self._merge)
