"""What the fold keeps of one stream: its learner, and the bytes of labels that are held.

A held label may become a dead letter much later, and a dead letter carries the original bytes; the
learner keeps only ids and values, so the bytes are kept here. Bounded by `early_max`, and in bytes
by the rules.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dtgol_core.config import Config
from dtgol_core.learner import Learner
from dtgol_core.state import DAMAGE, Snapshot, SnapshotError, pack_ids, text, unpack_ids, whole
from pipeline.rules import FOLD_VERSION
from topics.headers import Header, record_bytes

_HELD = "held/"
_OWN = "stream"


class Held(NamedTuple):
    """A label that came before its features, as it was on its topic."""

    offset: int
    key: bytes
    value: bytes
    headers: tuple[Header, ...]

    @property
    def size(self) -> int:
        """Its bytes on the wire."""
        return record_bytes(self.key, self.value, self.headers)


class StreamState:
    """One stream of one partition. `next_offset` is one past the last record that changed it."""

    def __init__(self, config: Config) -> None:
        self.learner = Learner(config)
        self.held: dict[str, Held] = {}
        self.held_bytes = 0
        self.next_offset = 0
        self.touched_ms = 0
        self.model = _model(config)

    def hold(self, id: str, label: Held) -> None:
        """Keep the bytes of a label that the learner holds."""
        before = self.held.get(id)
        self.held[id] = label
        self.held_bytes += label.size - (before.size if before is not None else 0)

    def release(self, ids: Iterable[str]) -> list[Held]:
        """Take out held labels that were given up, or found their features."""
        released = [self.held.pop(id) for id in ids if id in self.held]
        self.held_bytes -= sum(label.size for label in released)
        return released

    def shed(self, bytes_max: int) -> list[Held]:
        """Give up held labels, the oldest first, until the rest fit."""
        shed = []
        while self.held_bytes > bytes_max:
            id = self.learner.drop_held()
            shed += self.release([id])
        return shed

    def adopt(self, config: Config) -> None:
        """Go on with other settings, none of which shape the state."""
        self.learner = Learner.restore(config, self.learner.snapshot())
        self.model = _model(config)

    def snapshot(self) -> Snapshot:
        """The learner's snapshot with the held labels and the offset added."""
        snapshot = self.learner.snapshot()
        held = self.held
        text, lengths = pack_ids(list(held))
        snapshot.arrays[_HELD + "id_text"] = text
        snapshot.arrays[_HELD + "id_lengths"] = lengths
        snapshot.arrays[_HELD + "offset"] = np.array(
            [label.offset for label in held.values()], dtype=np.int64
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
        snapshot.manifest[_OWN] = {"next_offset": self.next_offset, "touched_ms": self.touched_ms}
        return snapshot

    @staticmethod
    def restore(snapshot: Snapshot) -> StreamState:
        """The stream that `snapshot` described, with the settings it was made with."""
        try:
            config = Config.read(snapshot.manifest["config"])
            state = StreamState(config)
            own = snapshot.manifest[_OWN]
            state.next_offset = whole(own["next_offset"])
            state.touched_ms = whole(own["touched_ms"])
            state.held = _unpack_held(snapshot)
            state.held_bytes = sum(label.size for label in state.held.values())
        except DAMAGE as error:
            raise SnapshotError(f"the snapshot of a stream is damaged: {error!r}") from error
        state.learner = Learner.restore(config, snapshot)
        return state


def _model(config: Config) -> str:
    return f"{FOLD_VERSION}-{config.digest()}"


def _unpack_held(snapshot: Snapshot) -> dict[str, Held]:
    arrays = {
        name.removeprefix(_HELD): array
        for name, array in snapshot.arrays.items()
        if name.startswith(_HELD)
    }
    ids = unpack_ids(arrays["id_text"], arrays["id_lengths"])
    labels = [
        Held(offset, key, value, _unpack_headers(headers))
        for offset, key, value, headers in zip(
            arrays["offset"].tolist(),
            _split(arrays["key"], arrays["key_lengths"]),
            _split(arrays["value"], arrays["value_lengths"]),
            _split(arrays["headers"], arrays["headers_lengths"]),
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
        (text(name), None if value is None else b64decode(value))
        for name, value in json.loads(packed)
    )
