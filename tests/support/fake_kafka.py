"""Kafka in memory, as one partition object sees it: the ports of `pipeline.runtime.port`, faked.

`FakeKafka` holds topics as lists of records and delivers them as Faust would: some of one topic,
then some of the next, as long as it is not paused. `FakeOutbox` keeps what is written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipeline.errors import AbandonedError, UnansweredError
from pipeline.faust_ext.consumer import FetchedBatch
from pipeline.faust_ext.flow import Delivery
from pipeline.kafka.reader import Watermarks
from pipeline.kafka.record import Record
from topics.headers import Header


@dataclass
class FakeFlow:
    """What Faust has delivered of one topic. Offsets in `unlinked` come first after a seek."""

    received: int = -1
    position: int | None = None
    end: int | None = None
    last_fetch_ms: int = 0
    paused: bool = False
    unlinked: set[int] = field(default_factory=set)

    @property
    def position_and_end(self) -> tuple[int, int] | None:
        return None if self.position is None or self.end is None else (self.position, self.end)

    def accept(self, batch: FetchedBatch) -> list[Delivery]:
        fresh = [record for record in batch.records if record.offset > self.received]
        if fresh:
            self.received = fresh[-1].offset
        return [Delivery(record, record.offset not in self.unlinked) for record in fresh]

    def has_backlog(self, received: int, end: int | None = None) -> bool:
        position, known = self.position_and_end or (received + 1, received + 1)
        return position - 1 > received or max(known, end or 0) > max(position, received + 1)

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False

    def rejoined(self) -> None:
        self.paused = False


@dataclass
class FakeKafka:
    """Topics of one partition number; `low` is where each begins, what is before it is gone."""

    topics: dict[str, list[Record]] = field(default_factory=dict)
    low: dict[str, int] = field(default_factory=dict)
    commits: dict[str, int] = field(default_factory=dict)
    flows: dict[str, FakeFlow] = field(default_factory=dict)
    reads: list[tuple[str, int, int | None]] = field(default_factory=list)
    stopped: bool = False
    unanswered: int = 0
    """How many of the next questions get no answer, as from a broker that stands still."""

    def flow(self, topic: str) -> FakeFlow:
        return self.flows.setdefault(topic, FakeFlow())

    def watermarks(self, topic: str) -> Watermarks:
        if self.unanswered:
            self.unanswered -= 1
            raise UnansweredError("the cluster did not answer")
        records = self.topics.get(topic, [])
        high = records[-1].offset + 1 if records else 0
        return Watermarks(self.low.get(topic, 0), max(high, self.low.get(topic, 0)))

    def committed(self, topic: str) -> int | None:
        return self.commits.get(topic)

    def read(self, topic: str, start: int, end: int | None = None) -> Iterator[Record]:
        self.reads.append((topic, start, end))
        for record in self.topics.get(topic, []):
            if self.stopped:
                raise AbandonedError
            if record.offset >= start and (end is None or record.offset < end):
                yield record

    def read_source(self, topic: str, start: int, end: int) -> Iterator[Record]:
        return self.read(topic, start, end)

    def stop_reading(self) -> None:
        self.stopped = True

    async def commit(self, offsets: Mapping[str, int]) -> bool:
        self.commits |= offsets
        return True

    async def deliver(self, partition: Any, chunks: Mapping[str, int]) -> None:
        """Hand all topics over as aiokafka does: some of one, then of the next, if not paused."""
        left = {topic: list(records) for topic, records in self.topics.items()}
        for topic, records in left.items():
            self.flow(topic).position, self.flow(topic).end = 0, len(records)
        while any(left.values()):
            for topic, records in left.items():
                flow, handed = self.flow(topic), 0
                while handed < chunks[topic] and not flow.paused and records:
                    size = min(50, chunks[topic])
                    batch, handed = records[:size], handed + size
                    del records[:size]
                    flow.position = batch[-1].offset + 1
                    partition.put(topic, FetchedBatch(batch, -1, 1))
                    await asyncio.sleep(0)
            await asyncio.sleep(0)


@dataclass
class FakeWriter:
    """One topic partition to write to; `answers` says whether deliveries are reported."""

    answers: bool = True
    sent: list[tuple[bytes | None, bytes | None, list[Header]]] = field(default_factory=list)
    last_offset: int = -1
    on_delivered: Any = None
    on_send: Any = None

    def send(self, key: bytes | None, value: bytes | None, headers: Sequence[Header] = ()) -> None:
        self.sent.append((key, value, list(headers)))
        if self.on_send is not None:
            self.on_send(key, value, list(headers))

    def report(self) -> None:
        """Everything sent so far is durable."""
        while self.last_offset + 1 < len(self.sent):
            self.last_offset += 1
            if self.on_delivered is not None:
                self.on_delivered()

    async def settled(self) -> None:
        if not self.answers:
            await asyncio.Event().wait()


@dataclass
class FakeOutbox:
    """A producer that takes everything."""

    full: bool = False
    writers: dict[tuple[str, int], FakeWriter] = field(default_factory=dict)

    def partition(self, topic: str, partition: int) -> FakeWriter:
        return self.writers.setdefault((topic, partition), FakeWriter())

    async def wait_for_space(self) -> None:
        await asyncio.sleep(0)

    def poll(self) -> None:
        pass


class MemoryStore:
    """A snapshot store in memory; `log` is called with everything that is written."""

    def __init__(self, log: Any = lambda _: None) -> None:
        self.objects: dict[int, dict[str, bytes]] = {}
        self._log = log

    def read(self, partition: int) -> dict[str, bytes]:
        return dict(self.objects.get(partition, {}))

    def write(self, partition: int, objects: Mapping[str, bytes]) -> None:
        self._log(sorted(objects))
        self.objects.setdefault(partition, {}).update(objects)

    def remove(self, partition: int, names: Iterable[str]) -> None:
        for name in names:
            self.objects.get(partition, {}).pop(name, None)

    discard = remove

    def written_ms(self, partition: int, name: str) -> int | None:
        return None
