"""Everything that a partition needs from Kafka. Tests pass a fake; `LiveKafka` is the real one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from pipeline.faust_ext.app import FaustApp
from pipeline.faust_ext.consumer import FetchedBatch
from pipeline.faust_ext.flow import Delivery
from pipeline.kafka.clients import ClientSettings
from pipeline.kafka.reader import Watermarks, committed_offsets, read_range, watermarks
from pipeline.kafka.record import Record


class Flow(Protocol):
    """The records of one topic partition on their way from Faust; see `PartitionFlow`."""

    @property
    def received(self) -> int: ...
    @property
    def position(self) -> int | None: ...
    @property
    def position_and_end(self) -> tuple[int, int] | None: ...
    @property
    def last_fetch_ms(self) -> int: ...

    def accept(self, batch: FetchedBatch) -> list[Delivery]: ...
    def has_backlog(self, received: int, end: int | None = None) -> bool: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def rejoined(self) -> None: ...


def lag_of(flows: Iterable[Flow]) -> int | None:
    """Records at the broker that were not fetched; None if the end of a topic is not known yet."""
    known = [flow.position_and_end for flow in flows]
    if None in known:
        return None
    return sum(max(0, each[1] - each[0]) for each in known if each is not None)


class PartitionKafka(Protocol):
    """Kafka as one partition of a worker or evaluator sees it; topics by their full names."""

    def flow(self, topic: str) -> Flow:
        """The records that come through Faust."""

    def watermarks(self, topic: str) -> Watermarks:
        """The first offset that is kept, and the one after the last. Blocks."""

    def committed(self, topic: str) -> int | None:
        """What the group has committed. Blocks."""

    def read(self, topic: str, start: int, end: int | None = None) -> Iterator[Record]:
        """Records outside Faust and any group; `AbandonedError` after `stop_reading`. Blocks."""

    def read_source(self, topic: str, start: int, end: int) -> Iterator[Record]:
        """The same of features or labels, as they are delivered by `flow`. Blocks."""

    def stop_reading(self) -> None:
        """Make a read that is under way end soon, by `AbandonedError`."""

    @property
    def stopped(self) -> bool:
        """Whether `stop_reading` was called."""

    async def commit(self, offsets: Mapping[str, int]) -> bool:
        """Move the group's offsets; False if the broker refused, which only costs a replay."""


class LiveKafka:
    """One partition number on a cluster."""

    def __init__(self, app: FaustApp, client: ClientSettings, group: str, partition: int) -> None:
        self._app = app
        self._client = client
        self._group = group
        self._partition = partition
        self._stopped = False

    def flow(self, topic: str) -> Flow:
        """The records that come through Faust."""
        return self._app.flow(topic, self._partition)

    def watermarks(self, topic: str) -> Watermarks:
        """Asked from the broker at every call."""
        return watermarks(self._client, topic, self._partition)

    def committed(self, topic: str) -> int | None:
        """Asked from the broker at every call, without joining the group."""
        number = self._partition
        return committed_offsets(self._client, self._group, topic, [number])[number]

    def read(self, topic: str, start: int, end: int | None = None) -> Iterator[Record]:
        """With a new reader per call."""
        return read_range(self._client, topic, self._partition, start, end, lambda: self._stopped)

    def read_source(self, topic: str, start: int, end: int) -> Iterator[Record]:
        """By the client that Faust reads with."""
        reader = self._app.source_reader()
        return reader.read(topic, self._partition, start, end, lambda: self._stopped)

    def stop_reading(self) -> None:
        """From now on every read ends by `AbandonedError`."""
        self._stopped = True

    @property
    def stopped(self) -> bool:
        """Whether `stop_reading` was called."""
        return self._stopped

    async def commit(self, offsets: Mapping[str, int]) -> bool:
        """Through Faust's consumer."""
        number = self._partition
        return await self._app.commit({(topic, number): at for topic, at in offsets.items()})
