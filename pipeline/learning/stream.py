"""The state of one stream: its learner, and the bytes of its early labels.

An early label may become a dead letter much later, and a dead letter carries the original bytes;
the learner keeps only ids and values, so the bytes are kept here. Bounded by `early_max`, and in
bytes by `early_bytes_max`.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dtgol_core.config import Config
from dtgol_core.learner import Learner
from dtgol_core.state import (
    CORRUPTION_ERRORS,
    Snapshot,
    SnapshotError,
    pack_ids,
    require_int,
    require_str,
    unpack_ids,
)
from pipeline.learning.fold_config import Lineage
from topics.headers import Header

MEASURE_STEPS = 256
_HELD = "held/"
_OWN = "stream"


class EarlyLabel(NamedTuple):
    """A label that came before its features, as it was on its topic."""

    offset: int
    key: bytes
    value: bytes
    headers: tuple[Header, ...]
    time_ms: int
    """When it was appended to the journal."""

    @property
    def size(self) -> int:
        """Its bytes."""
        own = sum(len(name.encode()) + len(raw or b"") for name, raw in self.headers)
        return len(self.key) + len(self.value) + own


class StreamState:
    """One stream of one partition. `next_offset` is one past the last record that changed it.

    `touched_ms` is when its last record was appended to the journal. `model` names what answers:
    the software and the configuration.
    """

    def __init__(self, config: Config, lineage: Lineage) -> None:
        self._lineage = lineage
        self.learner = Learner(config)
        self.early: dict[str, EarlyLabel] = {}
        self.early_bytes = 0
        self.next_offset = 0
        self.touched_ms = 0
        self.model = f"{lineage}-{config.digest()}"
        self._width = -1
        self.learner_bytes = 0
        """Memory of the learner when it was last measured."""

    def measure(self) -> int:
        """Measure the learner if its columns have grown, and now and then; how much it has grown.

        Not at every record: it costs about as much as one.
        """
        if self.learner.columns.width == self._width and self.learner.step % MEASURE_STEPS:
            return 0
        before = self.learner_bytes
        self._width, self.learner_bytes = self.learner.columns.width, self.learner.state_bytes
        return self.learner_bytes - before

    def keep_early(self, id: str, label: EarlyLabel) -> None:
        """Keep the bytes of a label that came before its features."""
        before = self.early.get(id)
        self.early[id] = label
        self.early_bytes += label.size - (before.size if before is not None else 0)

    def release_early(self, ids: Iterable[str]) -> list[EarlyLabel]:
        """Remove and return early labels that expired, or whose features came."""
        released = [self.early.pop(id) for id in ids if id in self.early]
        self.early_bytes -= sum(label.size for label in released)
        return released

    def shed_early(self, bytes_max: int) -> list[EarlyLabel]:
        """Remove and return the oldest early labels until the rest fit."""
        shed = []
        while self.early_bytes > bytes_max:
            id = self.learner.drop_oldest_early()
            shed += self.release_early([id])
        return shed

    def adopt(self, config: Config) -> None:
        """Go on with other settings, none of which shape the state."""
        self.learner = Learner.restore(config, self.learner.snapshot())
        self.model = f"{self._lineage}-{config.digest()}"

    def snapshot(self) -> Snapshot:
        """The learner's snapshot with the early labels and the offset added."""
        snapshot = self.learner.snapshot()
        held = self.early
        text, lengths = pack_ids(list(held))
        snapshot.arrays[_HELD + "id_text"] = text
        snapshot.arrays[_HELD + "id_lengths"] = lengths
        snapshot.arrays[_HELD + "offset"] = np.array(
            [label.offset for label in held.values()], dtype=np.int64
        )
        snapshot.arrays[_HELD + "time_ms"] = np.array(
            [label.time_ms for label in held.values()], dtype=np.int64
        )
        columns = {
            "key": [label.key for label in held.values()],
            "value": [label.value for label in held.values()],
            "headers": [_pack_headers(label.headers) for label in held.values()],
        }
        for name, texts in columns.items():
            snapshot.arrays[f"{_HELD}{name}"] = np.frombuffer(b"".join(texts), dtype=np.uint8)
            snapshot.arrays[f"{_HELD}{name}_lengths"] = np.array(
                [len(each) for each in texts], dtype=np.int64
            )
        snapshot.manifest[_OWN] = {
            "next_offset": self.next_offset,
            "touched_ms": self.touched_ms,
            "learner_bytes": self.learner_bytes,
        }
        return snapshot

    @staticmethod
    def restore(snapshot: Snapshot, lineage: Lineage) -> StreamState:
        """The stream that `snapshot` described, with the settings it was made with."""
        try:
            config = Config.read_whole(snapshot.manifest["config"])
            state = StreamState(config, lineage)
            own = snapshot.manifest[_OWN]
            state.next_offset = require_int(own["next_offset"])
            state.touched_ms = require_int(own["touched_ms"])
            state.learner_bytes = require_int(own["learner_bytes"])
            state.early = _unpack_held(snapshot)
            state.early_bytes = sum(label.size for label in state.early.values())
        except CORRUPTION_ERRORS as error:
            raise SnapshotError(f"the snapshot of a stream is damaged: {error!r}") from error
        state.learner = Learner.restore(config, snapshot)
        state._width = state.learner.columns.width
        return state


def _unpack_held(snapshot: Snapshot) -> dict[str, EarlyLabel]:
    arrays = {
        name.removeprefix(_HELD): array
        for name, array in snapshot.arrays.items()
        if name.startswith(_HELD)
    }
    ids = unpack_ids(arrays["id_text"], arrays["id_lengths"])
    labels = [
        EarlyLabel(offset, key, value, _unpack_headers(headers), time_ms)
        for offset, key, value, headers, time_ms in zip(
            arrays["offset"].tolist(),
            _split(arrays["key"], arrays["key_lengths"]),
            _split(arrays["value"], arrays["value_lengths"]),
            _split(arrays["headers"], arrays["headers_lengths"]),
            arrays["time_ms"].tolist(),
            strict=True,
        )
    ]
    return dict(zip(ids, labels, strict=True))


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
