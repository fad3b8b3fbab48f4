"""A journal in memory: what the sequencer would have written, record by record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from pipeline.kafka.record import Record
from pipeline.learning.fold import Fold
from pipeline.learning.outputs import Output, PartitionRef
from topics.dead_letters import DeadLetter
from topics.headers import Header, read_headers, write_headers
from topics.journal import NO_OFFSET, Control, RecordKind, Source, write_control
from topics.reasons import Rejection

REF = PartitionRef("journal-id", "journal", 0, "features", "labels")
START_MS = 1_700_000_000_000


@dataclass
class Journal:
    """Builds journal records; keeps source offsets and the `prev` chain as the sequencer does."""

    records: list[Record] = field(default_factory=list)
    sources: dict[str, int] = field(default_factory=dict)

    def features(self, id: Any, x: Mapping[str, Any] | None = None, **more: Any) -> Record:
        return self.copy("features", _json({"id": id, "x": x or {}}, more))

    def label(self, id: Any, y: Any, **more: Any) -> Record:
        return self.copy("labels", _json({"id": id, "y": y}, more))

    def copy(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = b"key",
        headers: Sequence[Header] = (),
        kind: RecordKind = RecordKind.COPY,
    ) -> Record:
        """A record of a source, appended with the headers of its place there."""
        prev = self.sources.get(topic, NO_OFFSET)
        self.sources[topic] = prev + 1
        source = Source(kind, topic, topic + "-id", 0, prev + 1, prev, self.now_ms)
        return self.append(key, value, [*headers, *write_headers(source)])

    def control(self, control: Control) -> Record:
        value, headers = write_control(control)
        return self.append(None, value, headers)

    def append(self, key: bytes | None, value: bytes | None, headers: Sequence[Header]) -> Record:
        record = Record(
            REF.journal, REF.partition, len(self.records), self.now_ms, key, value, list(headers)
        )
        self.records.append(record)
        return record

    def again(self, record: Record) -> Record:
        """The same record appended once more: a sequencer that had not committed."""
        return self.append(record.key, record.value, record.headers)

    @property
    def now_ms(self) -> int:
        return START_MS + len(self.records) * 1000


def _json(fields: Mapping[str, Any], more: Mapping[str, Any]) -> bytes:
    return orjson.dumps({**fields, **more})


def fold_all(records: Sequence[Record], fold: Fold | None = None) -> tuple[Fold, list[Output]]:
    """All records through a fold; a fresh one unless given."""
    fold = fold or Fold(REF)
    return fold, [output for record in records for output in fold.apply(record)]


def restore_fold(state: Mapping[str, Any], blobs: Mapping[str, Any]) -> Fold:
    """The fold of a snapshot; for `SnapshotRepository.load`."""
    return Fold.restore(REF, state, blobs)


def predictions(outputs: Sequence[Output]) -> list[dict[str, Any]]:
    """The predictions among outputs, parsed."""
    return [orjson.loads(o.value or b"") for o in outputs if o.topic == "predictions"]


def letters(outputs: Sequence[Output]) -> list[tuple[DeadLetter, Output]]:
    """The dead letters among outputs, with their headers read."""
    found = []
    for output in outputs:
        if output.topic == "dead-letters":
            letter = read_headers(DeadLetter, output.headers)
            assert not isinstance(letter, Rejection), letter
            found.append((letter, output))
    return found
