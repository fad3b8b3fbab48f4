"""Labels that came before their features, as they were on their topic.

An early label may become a dead letter much later, and a dead letter carries the original bytes.
The learner keeps only ids and values, so the bytes are kept here: those of a stream with its
`StreamState`, those of streams without any features in `UnopenedLabels`. All that a partition holds
is bounded by `early_bytes_max`, in what a label really occupies.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Mapping, Sequence
from sys import intern
from typing import Any, NamedTuple

import numpy as np

from dtgol_core.ids import id_hash
from dtgol_core.state import (
    CORRUPTION_ERRORS,
    Snapshot,
    SnapshotError,
    pack_ids,
    require_int,
    require_str,
    unpack_ids,
)
from topics.codec import read_label
from topics.headers import Header
from topics.labels import Label

UNOPENED = "(unopened)"
"""Name of the blob of `UnopenedLabels`; no stream can be called this."""
LABEL_BYTES = 500
"""What a held label takes besides its own bytes: objects, and entries here and in the learner; by
measurement (tracemalloc, 20,000 labels)."""
_HELD = "held/"


class EarlyLabel(NamedTuple):
    """A label that came before its features."""

    offset: int
    key: bytes
    value: bytes
    headers: tuple[Header, ...]
    time_ms: int
    """When it was appended to the journal."""
    ts: int = 0
    """Its event time."""
    topic_id: str = ""
    """Of the topic it came from; one that is created anew has another."""

    @property
    def size(self) -> int:
        """The memory that it takes, about."""
        own = sum(len(name.encode()) + len(raw or b"") for name, raw in self.headers)
        return LABEL_BYTES + len(self.key) + len(self.value) + own


class UnopenedLabels:
    """Labels of streams without any features, in the order in which they came.

    They open no stream: a learner takes memory, and a stream its place among `streams_max`. They
    wait here until the first features of their stream come. `next_offset` is one past the last
    journal record that changed this.
    """

    def __init__(self) -> None:
        self._labels: deque[tuple[str, EarlyLabel]] = deque()
        self.early_bytes = 0
        self.next_offset = 0

    def __len__(self) -> int:
        return len(self._labels)

    @property
    def oldest(self) -> EarlyLabel | None:
        """The one that was held longest."""
        return self._labels[0][1] if self._labels else None

    def add(self, stream: str, label: EarlyLabel) -> None:
        """Hold a label."""
        self._labels.append((stream, label))
        self.early_bytes += label.size

    def drop_oldest_early(self) -> EarlyLabel:
        """Give up the label that was held longest."""
        _, label = self._labels.popleft()
        self.early_bytes -= label.size
        return label

    def take(self, stream: str | None) -> list[EarlyLabel]:
        """Remove and return the labels of a stream, or all of them."""
        return self._remove(lambda name, _: stream is None or name == stream)

    def erase(self, stream: str, hash: int) -> None:
        """Forget the labels of an id, by its hash."""

        def erased(name: str, label: EarlyLabel) -> bool:
            if name != stream:
                return False
            read = read_label(label.value, label.key, label.ts)
            return isinstance(read, Label) and id_hash(read.id) == hash

        self._remove(erased)

    def _remove(self, chosen: Any) -> list[EarlyLabel]:
        removed = [label for name, label in self._labels if chosen(name, label)]
        if removed:
            self._labels = deque(each for each in self._labels if not chosen(*each))
            self.early_bytes -= sum(label.size for label in removed)
        return removed

    def snapshot(self) -> Snapshot:
        """The labels, and the offset."""
        names, labels = [name for name, _ in self._labels], [label for _, label in self._labels]
        return Snapshot(pack_labels(names, labels), {"next_offset": self.next_offset})

    @staticmethod
    def restore(snapshot: Snapshot) -> UnopenedLabels:
        """What `snapshot` described."""
        unopened = UnopenedLabels()
        try:
            unopened.next_offset = require_int(snapshot.manifest["next_offset"])
            for name, label in unpack_labels(snapshot.arrays):
                unopened.add(name, label)
        except CORRUPTION_ERRORS as error:
            raise SnapshotError(f"the snapshot of held labels is damaged: {error!r}") from error
        return unopened


def pack_labels(names: Sequence[str], labels: Sequence[EarlyLabel]) -> dict[str, Any]:
    """Arrays of labels, each under a name: its id, or its stream."""
    text, lengths = pack_ids(list(names))
    arrays: dict[str, Any] = {_HELD + "id_text": text, _HELD + "id_lengths": lengths}
    for column in ("offset", "time_ms", "ts"):
        numbers = [getattr(label, column) for label in labels]
        arrays[_HELD + column] = np.array(numbers, dtype=np.int64)
    texts = {
        "key": [label.key for label in labels],
        "value": [label.value for label in labels],
        "headers": [_pack_headers(label.headers) for label in labels],
        "topic_id": [label.topic_id.encode() for label in labels],
    }
    for column, each in texts.items():
        arrays[f"{_HELD}{column}"] = np.frombuffer(b"".join(each), dtype=np.uint8)
        arrays[f"{_HELD}{column}_lengths"] = np.array([len(text) for text in each], dtype=np.int64)
    return arrays


def unpack_labels(packed: Mapping[str, Any]) -> list[tuple[str, EarlyLabel]]:
    """The names and labels in these arrays."""
    arrays = {
        name.removeprefix(_HELD): array for name, array in packed.items() if name.startswith(_HELD)
    }
    columns = zip(
        arrays["offset"].tolist(),
        _split(arrays["key"], arrays["key_lengths"]),
        _split(arrays["value"], arrays["value_lengths"]),
        map(_unpack_headers, _split(arrays["headers"], arrays["headers_lengths"])),
        arrays["time_ms"].tolist(),
        arrays["ts"].tolist(),
        (intern(each.decode()) for each in _split(arrays["topic_id"], arrays["topic_id_lengths"])),
        strict=True,
    )
    names = unpack_ids(arrays["id_text"], arrays["id_lengths"])
    return list(zip(names, (EarlyLabel(*each) for each in columns), strict=True))


def _split(data: Any, lengths: Any) -> list[bytes]:
    raw = data.tobytes()
    ends = np.cumsum(lengths).tolist()
    return [raw[end - length : end] for end, length in zip(ends, lengths.tolist(), strict=True)]


def _pack_headers(headers: Sequence[Header]) -> bytes:
    plain = [
        [name, None if value is None else b64encode(value).decode()] for name, value in headers
    ]
    return json.dumps(plain, separators=(",", ":")).encode()


def _unpack_headers(packed: bytes) -> tuple[Header, ...]:
    return tuple(
        (require_str(name), None if value is None else b64decode(value))
        for name, value in json.loads(packed)
    )
