"""Two sources into one order: the earlier timestamp first, as Kafka Streams does it.

While one side is empty and known to lag, the other waits for it, up to a limit; a side that is
caught up is not waited for. Equal timestamps: features first. Pure: time is handed in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from topics.headers import Header

FEATURES, LABELS = 0, 1


class SourceRecord(NamedTuple):
    """A record of features (side 0) or labels (side 1), bytes untouched."""

    side: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: list[Header]
    came_ms: float = 0.0
    """When it came to us, wall clock."""


class Merge:
    """The records of one partition that are not in the journal yet."""

    def __init__(self, wait_ms: float) -> None:
        self._wait_ms = wait_ms
        self._sides: tuple[deque[SourceRecord], deque[SourceRecord]] = (deque(), deque())
        self._waiting_since: float | None = None

    def __len__(self) -> int:
        return len(self._sides[0]) + len(self._sides[1])

    def size(self, side: int) -> int:
        """Records held of one side."""
        return len(self._sides[side])

    def head(self, side: int) -> SourceRecord | None:
        """The next record of one side."""
        return self._sides[side][0] if self._sides[side] else None

    def put(self, record: SourceRecord) -> None:
        """Hold a record; each side in the order of its offsets."""
        self._sides[record.side].append(record)

    def take(self, now_ms: float, lags: Callable[[int], bool]) -> SourceRecord | None:
        """The record that comes next, or None if there is none or the other side is waited for."""
        features, labels = self._sides
        if features and labels:
            self._waiting_since = None
            first = features[0].timestamp_ms <= labels[0].timestamp_ms
            return (features if first else labels).popleft()
        if not features and not labels:
            self._waiting_since = None
            return None
        held, empty = (features, LABELS) if features else (labels, FEATURES)
        if not lags(empty):
            self._waiting_since = None
            return held.popleft()
        if self._waiting_since is None:
            self._waiting_since = now_ms
        return held.popleft() if now_ms - self._waiting_since >= self._wait_ms else None
