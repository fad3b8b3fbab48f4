"""The snapshots of a trial seen from outside: listed by offset, damaged where they are stored.

The same for both stores: a file is overwritten in place; a chunk of the topic is overwritten under
its key, with its own headers, as a broker with a bad disk might hand it out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from pipeline.kafka.record import Record
from pipeline.snapshots.directory import DirectoryStore
from pipeline.snapshots.manifest import manifest_names
from pipeline.snapshots.topic import TopicStore
from tests.support.stage import Stage
from topics.snapshots import SnapshotKind, chunk_key

FLUSH_S = 30


@dataclass(frozen=True)
class StoredSnapshots:
    """One role's snapshots of one partition."""

    stage: Stage
    role: str
    partition: int

    def objects(self) -> Mapping[str, bytes]:
        if self._in_files:
            return DirectoryStore(self._root.parent).read(self.partition)
        config, topic = self.stage.broker.config, self.stage.topic("snapshots")
        return TopicStore(config, topic, self.role).read(self.partition)

    @property
    def _in_files(self) -> bool:
        return self.stage.chosen()["snapshots.store"] == "directory"

    @property
    def _root(self) -> Path:
        base = Path(str(self.stage.chosen()["snapshots.directory"]))
        return base / self.stage.prefix / self.role / str(self.partition)

    def manifests(self) -> list[str]:
        """Their names, the newest first."""
        return manifest_names(self.objects())

    def blobs(self, manifest: str) -> list[str]:
        """What a manifest names that the one before it does not."""
        objects, older = self.objects(), [m for m in self.manifests() if m < manifest]
        known = set(_named(objects[older[0]])) if older else set()
        return sorted(set(_named(objects[manifest])) - known)

    def damage(self, name: str, cut: bool = False) -> None:
        """Turn one bit of an object over, or cut its end off."""
        whole = self.objects()[name]
        bad = whole[:-7] if cut else whole[:-7] + bytes([whole[-7] ^ 1]) + whole[-6:]
        if self._in_files:
            (self._root / name).write_bytes(bad)
        else:
            self._overwrite(f"{self.role}.{name}", bad)

    def _overwrite(self, name: str, bad: bytes) -> None:
        stage = self.stage
        kind = SnapshotKind.MANIFEST if ".manifest." in name else SnapshotKind.BLOB
        key = chunk_key(kind, name, 0)
        (*_, chunk) = (record for record in stage.read("snapshots") if self._is(record, key))
        producer = Producer(stage.broker.config)
        headers: Any = chunk.headers
        topic = stage.topic("snapshots")
        producer.produce(topic, bad, key, partition=self.partition, headers=headers)
        assert producer.flush(FLUSH_S) == 0

    def _is(self, record: Record, key: bytes) -> bool:
        return (record.key, record.partition) == (key, self.partition)


def offset_of(manifest: str) -> int:
    """The offset in a manifest's name."""
    return int(manifest.split(".")[1])


def _named(manifest: bytes) -> list[str]:
    blobs = json.loads(manifest)["blobs"]
    return [name for entry in blobs.values() for name in entry["objects"]]
