"""What the live page shows besides scores: events of processes, and dead letters by reason.

Read from their topics in no group and bounded: the newest of each partition of a topic, and all
that come while this process runs. Nothing depends on it: topics that are missing, or that our user
may not read, cost the page its marks and are tried again.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter, deque
from collections.abc import Callable
from contextlib import closing
from typing import Any

from confluent_kafka import KafkaException

from pipeline.errors import ClusterError, RefusalError
from pipeline.kafka.clients import ClientSettings
from pipeline.kafka.reader import Tail
from pipeline.kafka.record import Record
from topics.codec import parse, read_process_event
from topics.dead_letters import DeadLetter, is_marker
from topics.events import EventKind, ProcessEvent
from topics.features import DEFAULT_STREAM
from topics.headers import read_headers
from topics.reasons import Rejection

log = logging.getLogger(__name__)

LAST_RECORDS = 2_000
"""How many records of a partition of each topic are read at the start."""
EVENTS_MAX = 100
"""Per partition, and as many snapshots: they come often and would push out all else."""
PARTITIONS_MAX = 1_000
STREAMS_MAX = 2_000
"""Streams whose dead letters are counted apart; those of further ones only in total."""
REASONS_MAX = 100
BATCH = 1_000
BUSY_S, IDLE_S, RETRY_S = 0.1, 1.0, 60.0
SETTINGS: ClientSettings = {"queued.max.messages.kbytes": 4_096}


class Notices:
    """Events by partition and dead letters by reason, bounded."""

    def __init__(self, events: str, dead_letters: str) -> None:
        self._events_topic = events
        self._dead_letters_topic = dead_letters
        self._events: dict[tuple[int, bool], deque[ProcessEvent]] = {}
        self._dead_letters: Counter[str] = Counter()
        self._by_stream: dict[tuple[str, int], Counter[str]] = {}
        self.problem: str | None = None
        """Why they cannot be read, if so."""

    def add(self, record: Record) -> None:
        """Take one record of either topic."""
        if record.topic == self._dead_letters_topic:
            self._add_dead_letter(record)
            return
        event = read_process_event(record.value)
        if isinstance(event, Rejection) or event.partition >= PARTITIONS_MAX:
            return
        key = event.partition, event.kind == EventKind.SNAPSHOT
        self._events.setdefault(key, deque(maxlen=EVENTS_MAX)).append(event)

    def _add_dead_letter(self, record: Record) -> None:
        letter = read_headers(DeadLetter, record.headers)
        if is_marker(record.headers) or isinstance(letter, Rejection):
            return
        if letter.reason not in self._dead_letters and len(self._dead_letters) >= REASONS_MAX:
            return  # of a writer that is much newer, or no writer of ours
        self._dead_letters[letter.reason] += 1
        value = parse(record.value)
        stream = None if isinstance(value, Rejection) else value.get("stream", DEFAULT_STREAM)
        key = stream, letter.partition
        if isinstance(stream, str) and (key in self._by_stream or self._has_space):
            self._by_stream.setdefault((stream, letter.partition), Counter())[letter.reason] += 1

    @property
    def _has_space(self) -> bool:
        return len(self._by_stream) < STREAMS_MAX

    def events(self, partition: int) -> list[ProcessEvent]:
        """The newest events of a partition, oldest first."""
        both = [*self._events.get((partition, True), ()), *self._events.get((partition, False), ())]
        return sorted(both, key=lambda event: event.at_ms)

    def page(self, selected: dict[str, Any] | None) -> dict[str, Any]:
        """For the live page: dead letters by reason, of all streams and of the one shown."""
        key = None if selected is None else (selected["stream"], selected["partition"])
        return {
            "dead_letters": dict(self._dead_letters.most_common()),
            "stream_dead_letters": dict(self._by_stream.get(key, {})) if key else {},
            "notices_problem": self.problem,
        }

    async def follow(self, client: ClientSettings, open_tail: Callable[..., Tail] = Tail) -> None:
        """Read both topics for ever."""
        topics = [self._events_topic, self._dead_letters_topic]
        while True:
            try:
                tail = await asyncio.to_thread(
                    open_tail, {**client, **SETTINGS}, topics, LAST_RECORDS
                )
                with closing(tail):
                    await self._take(tail)
            except (ClusterError, RefusalError, KafkaException) as error:
                if self.problem is None:
                    log.warning("the live page lacks events and dead letters: %s", error)
                self.problem = str(error)
                await asyncio.sleep(RETRY_S)

    async def _take(self, tail: Tail) -> None:
        """What comes; begun again when a topic is missing, in case it is made meanwhile."""
        missing = ", ".join(tail.missing)
        self.problem = f"no topic {missing}: run dtgol topics apply" if missing else None
        self._forget()
        until = time.monotonic() + RETRY_S if missing else math.inf
        while time.monotonic() < until:
            records = tail.poll(0, BATCH)
            for record in records:
                self.add(record)
            await asyncio.sleep(BUSY_S if len(records) == BATCH else IDLE_S)

    def _forget(self) -> None:
        """A new tail reads the newest records again."""
        self._events.clear()
        self._dead_letters.clear()
        self._by_stream.clear()
