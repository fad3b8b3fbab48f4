"""Snapshots in the compacted `snapshots` topic: any host can take a partition over.

An object is one or more chunks under the keys of `topics.snapshots`; the partition number is the
learner's own. A removed object is a tombstone per chunk. Names begin with the role, so worker and
evaluator have objects of their own in the same partition.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from pipeline.errors import DeliveryError, RefusalError, StoreError
from pipeline.kafka.clients import ClientSettings
from pipeline.kafka.reader import read_range, watermarks
from pipeline.kafka.record import Record
from pipeline.kafka.writer import CheckedProducer
from pipeline.snapshots.manifest import PREFIX
from topics.headers import read_headers, write_headers
from topics.reasons import Rejection
from topics.snapshots import CHUNK_BYTES_MAX, VERSION, Chunk, SnapshotKind, chunk_key

DURABLE_S = 90.0
"""How long a write may take before it counts as failed; the next snapshot tries again."""


class TopicStore:
    """Objects as chunks on a topic. Safe to call from threads, one partition at a time."""

    def __init__(
        self, client: ClientSettings, topic: str, role: str, durable_s: float = DURABLE_S
    ) -> None:
        self._client = dict(client)
        self._topic = topic
        self._role = role + "."
        self._parts: dict[tuple[int, str], int] = {}
        self._written_ms: dict[tuple[int, str], int] = {}
        more: dict[str, Any] = {
            "message.max.bytes": CHUNK_BYTES_MAX + 100_000,
            "linger.ms": 0,
            "log_level": 3,
        }
        self._producer = CheckedProducer(client, delivery_s=durable_s, **more)

    def read(self, partition: int) -> Mapping[str, bytes]:
        """Every object, by one pass over the partition; of a torn one what is there."""
        low, high = watermarks(self._client, self._topic, partition)
        newest: dict[bytes, tuple[Chunk, bytes]] = {}
        if low < high:
            for record in read_range(self._client, self._topic, partition, low):
                self._collect(record, newest)
        found: dict[str, dict[int, bytes]] = {}
        for chunk, data in newest.values():
            if chunk.version > VERSION:
                raise RefusalError(
                    f"{self._topic} partition {partition}: an object has format {chunk.version} "
                    f"and this version reads up to {VERSION}: upgrade before going on"
                )
            found.setdefault(chunk.name, {})[chunk.part] = data
            self._parts[partition, chunk.name] = chunk.parts
        return {
            name.removeprefix(self._role): b"".join(parts[part] for part in sorted(parts))
            for name, parts in found.items()
        }

    def _collect(self, record: Record, newest: dict[bytes, tuple[Chunk, bytes]]) -> None:
        assert record.key is not None
        chunk = read_headers(Chunk, record.headers)
        if record.value is None or isinstance(chunk, Rejection):
            # The last record of a key is what counts, before compaction too.
            newest.pop(record.key, None)
        elif chunk.name.startswith(self._role):
            newest[record.key] = chunk, record.value
            self._written_ms[record.partition, chunk.name] = record.timestamp_ms

    def written_ms(self, partition: int, name: str) -> int | None:
        """The time of the object's last chunk, by its writer's clock."""
        return self._written_ms.get((partition, self._role + name))

    def write(self, partition: int, objects: Mapping[str, bytes]) -> None:
        """Produce all chunks; every one is acknowledged on return."""
        producer = self._producer.share()
        try:
            for name, data in objects.items():
                self._put(producer, partition, self._role + name, data)
            producer.flush()
        except DeliveryError as error:
            producer.discard()
            if producer.shut_out:
                raise  # it can never write again: only the producer of a new process can
            raise StoreError(f"cannot write snapshots to {self._topic}: {error}") from None

    def _put(self, producer: CheckedProducer, partition: int, name: str, data: bytes) -> None:
        kind = _kind(name)
        parts = max(1, -(-len(data) // CHUNK_BYTES_MAX))
        digest = hashlib.sha256(data).hexdigest()
        for part in range(parts):
            chunk = Chunk(VERSION, kind, name, part, parts, len(data), digest)
            value = data[part * CHUNK_BYTES_MAX : (part + 1) * CHUNK_BYTES_MAX]
            key = chunk_key(kind, name, part)
            producer.send(self._topic, key, value, write_headers(chunk), partition)
        self._parts[partition, name] = parts

    def remove(self, partition: int, names: Iterable[str]) -> None:
        """Write tombstones; compaction does the rest. Not waited for: they may come late."""
        producer = self._producer.share()
        for name in (self._role + name for name in names):
            for part in range(self._parts.pop((partition, name), 1)):
                with suppress(DeliveryError):
                    producer.send(
                        self._topic, chunk_key(_kind(name), name, part), None, (), partition
                    )

    def discard(self, partition: int, names: Iterable[str]) -> None:
        """Leave a failed attempt as it is; a later `read` finds it, and it is removed then.

        A tombstone written while we are disconnected would arrive late, after the same content that
        our successor has written and needs.
        """


def _kind(name: str) -> SnapshotKind:
    return SnapshotKind.MANIFEST if PREFIX in name else SnapshotKind.BLOB
