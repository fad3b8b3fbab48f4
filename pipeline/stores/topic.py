"""Snapshots in the compacted `snapshots` topic: any host can take a partition over.

An object is one or more chunks under the keys of `topics.snapshots`; the partition number is the
learner's own. A removed object is a tombstone per chunk. `room` keeps the worker's objects apart
from the evaluator's in the same partition.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import KafkaError, Message

from pipeline.access.door import ListeningProducer, said
from pipeline.reader import bounds, open_reader, read_range
from pipeline.snapshots import StoreError
from topics.headers import read_headers, write_headers
from topics.refusals import Rejection
from topics.snapshots import CHUNK_BYTES_MAX, VERSION, Chunk, SnapshotKind, chunk_key

DURABLE_S = 90.0
"""How long a write may take before it counts as failed; the next snapshot tries again."""


class TopicStore:
    """Objects as chunks on a topic. Safe to call from threads, one partition at a time."""

    def __init__(
        self, client: Mapping[str, Any], topic: str, room: str, durable_s: float = DURABLE_S
    ) -> None:
        self._client = dict(client)
        self._topic = topic
        self._room = room + "."
        self._durable_s = durable_s
        self._parts: dict[tuple[int, str], int] = {}
        self._written_ms: dict[tuple[int, str], int] = {}
        self._producer = ListeningProducer(
            {
                **self._client,
                "enable.idempotence": True,
                "message.timeout.ms": int(durable_s * 1000),
                "message.max.bytes": CHUNK_BYTES_MAX + 100_000,
                "linger.ms": 0,
                "log_level": 3,
            }
        )

    def read(self, partition: int) -> Mapping[str, bytes]:
        """Every object, by one pass over the partition; of a torn one what is there."""
        consumer = open_reader(self._client)
        try:
            low, high = bounds(consumer, self._topic, partition)
        finally:
            consumer.close()
        newest: dict[bytes, tuple[Chunk, bytes]] = {}
        if low < high:
            for message in read_range(self._client, self._topic, partition, low):
                self._take(message, newest)
        return self._join(partition, newest)

    def _take(self, message: Message, newest: dict[bytes, tuple[Chunk, bytes]]) -> None:
        key, value = message.key(), message.value()
        assert isinstance(key, bytes)
        if value is None:
            newest.pop(key, None)
            return
        chunk = read_headers(Chunk, message.headers() or [])  # type: ignore[arg-type]
        if isinstance(chunk, Rejection) or chunk.version > VERSION:
            newest.pop(key, None)  # the last record of a key is what counts, before compaction too
            return
        if chunk.name.startswith(self._room):
            assert isinstance(value, bytes)
            newest[key] = chunk, value
            stamp = message.timestamp()[1]
            self._written_ms[message.partition() or 0, chunk.name] = stamp

    def _join(
        self, partition: int, newest: Mapping[bytes, tuple[Chunk, bytes]]
    ) -> dict[str, bytes]:
        found: dict[str, dict[int, bytes]] = {}
        for chunk, data in newest.values():
            found.setdefault(chunk.name, {})[chunk.part] = data
            self._parts[partition, chunk.name] = chunk.parts
        return {
            name.removeprefix(self._room): b"".join(parts[part] for part in sorted(parts))
            for name, parts in found.items()
        }

    def written_ms(self, partition: int, name: str) -> int | None:
        """The time of the object's last chunk, by its writer's clock."""
        return self._written_ms.get((partition, self._room + name))

    def write(self, partition: int, objects: Mapping[str, bytes]) -> None:
        """Produce all chunks; every one is acknowledged on return."""
        failures: list[str] = []

        def report(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failures.append(said(error))

        for name, data in objects.items():
            self._put(partition, self._room + name, data, report)
        left = self._producer.flush(self._durable_s)
        if left or failures:
            why = failures[0] if failures else f"not acknowledged within {self._durable_s:g} s"
            self._producer.purge()
            self._producer.flush(5)
            raise StoreError(f"cannot write snapshots to {self._topic}: {why}")

    def _put(self, partition: int, name: str, data: bytes, report: Any) -> None:
        kind = SnapshotKind.MANIFEST if "manifest." in name else SnapshotKind.BLOB
        parts = max(1, -(-len(data) // CHUNK_BYTES_MAX))
        digest = hashlib.sha256(data).hexdigest()
        for part in range(parts):
            chunk = Chunk(VERSION, kind, name, part, parts, len(data), digest)
            value = data[part * CHUNK_BYTES_MAX : (part + 1) * CHUNK_BYTES_MAX]
            self._produce(partition, chunk_key(kind, name, part), value, chunk, report)
        self._parts[partition, name] = parts

    def _produce(
        self, partition: int, key: bytes, value: bytes | None, chunk: Chunk | None, report: Any
    ) -> None:
        while True:
            try:
                self._producer.produce(
                    self._topic,
                    key=key,
                    value=value,
                    partition=partition,
                    headers=write_headers(chunk) if chunk else [],
                    on_delivery=report,
                )
                self._producer.poll(0)
                return
            except BufferError:
                self._producer.poll(0.1)

    def remove(self, partition: int, names: Iterable[str]) -> None:
        """Write tombstones; compaction does the rest. Not waited for: they may come late."""
        for name in (self._room + name for name in names):
            kind = SnapshotKind.MANIFEST if "manifest." in name else SnapshotKind.BLOB
            for part in range(self._parts.pop((partition, name), 1)):
                key = chunk_key(kind, name, part)
                self._produce(partition, key, None, None, lambda *_: None)
        self._producer.poll(0)

    def discard(self, partition: int, names: Iterable[str]) -> None:
        """Leave a failed attempt as it is; a later `read` finds it, and it is removed then.

        A tombstone written while we are cut off would arrive late, behind the same content that our
        successor has written and counts on.
        """
