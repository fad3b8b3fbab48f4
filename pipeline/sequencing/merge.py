"""Two sources into one order: the earlier timestamp first, as Kafka Streams does it.

While one side is empty and known to lag, the other waits for it, up to a limit; a side that is
caught up is not waited for. Equal timestamps: features first. Pure: time is handed in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from pipeline.kafka.record import Record

FEATURES, LABELS = 0, 1


class SourceRecord(NamedTuple):
    """A record of features (side 0) or labels (side 1), and when it came to us, wall clock."""

    side: int
    record: Record
    received_ms: float = 0.0


class Merge:
    """The records of one partition that are not in the journal yet."""

    def __init__(self, wait_ms: float) -> None:
        self._wait_ms = wait_ms
        self._sides: tuple[deque[SourceRecord], deque[SourceRecord]] = (deque(), deque())
        self._sizes: tuple[deque[int], deque[int]] = (deque(), deque())
        self._occupied = [0, 0]
        self._waiting_since: float | None = None

    def __len__(self) -> int:
        return len(self._sides[0]) + len(self._sides[1])

    def size(self, side: int) -> int:
        """Records waiting of one side."""
        return len(self._sides[side])

    def occupied(self, side: int) -> int:
        """Bytes of memory that they take."""
        return self._occupied[side]

    def head(self, side: int) -> SourceRecord | None:
        """The next record of one side."""
        return self._sides[side][0] if self._sides[side] else None

    def put(self, source: SourceRecord) -> None:
        """Let a record wait; each side in the order of its offsets."""
        size = source.record.occupied
        self._sides[source.side].append(source)
        self._sizes[source.side].append(size)
        self._occupied[source.side] += size

    def take(self, now_ms: float, lags: Callable[[int], bool]) -> SourceRecord | None:
        """The record that comes next, or None if there is none or the other side is waited for."""
        features, labels = self._sides
        if features and labels:
            self._waiting_since = None
            first = features[0].record.timestamp_ms <= labels[0].record.timestamp_ms
            return self._pop(FEATURES if first else LABELS)
        if not features and not labels:
            self._waiting_since = None
            return None
        full, empty = (FEATURES, LABELS) if features else (LABELS, FEATURES)
        if not lags(empty):
            self._waiting_since = None
            return self._pop(full)
        if self._waiting_since is None:
            self._waiting_since = now_ms
        return self._pop(full) if now_ms - self._waiting_since >= self._wait_ms else None

    def clear(self) -> None:
        """Drop all."""
        for each in (*self._sides, *self._sizes):
            each.clear()
        self._occupied = [0, 0]

    def _pop(self, side: int) -> SourceRecord:
        self._occupied[side] -= self._sizes[side].popleft()
        return self._sides[side].popleft()
