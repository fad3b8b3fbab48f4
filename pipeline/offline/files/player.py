"""Sends rows and labels in the order in which they are due, and keeps that order on the way.

Two topics have no common order. The sequencer merges them by record time, so `RecordTimes` never
lets a record and a label tie; and with ``in_order`` all of one topic is stored before the other's
turn, so that not even a slow delivery can turn them round. At least once; `finish` raises unless
everything is stored.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

from pipeline.client import FeatureProducer, LabelProducer
from pipeline.offline.files.records import Row

AHEAD_MAX_MS = 60_000
"""Stamps may run ahead of the clock by this much; beyond it they tie rather than look broken."""


class Sent(NamedTuple):
    """What went out."""

    features: int
    labels: int
    seconds: float


class RecordTimes:
    """Record times in epoch milliseconds: the clock's, and one later where the topic changes."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._last = 0
        self._was_label: bool | None = None

    def next(self, is_label: bool) -> int:
        """The time of the next record sent."""
        now = self._now_ms()
        step = int(is_label != self._was_label)
        self._was_label = is_label
        self._last = max(now, min(self._last + step, now + AHEAD_MAX_MS))
        return self._last


class Player:
    """Sends what it is given to both topics. Rows must have an id and a key."""

    def __init__(
        self, features: FeatureProducer, labels: LabelProducer, *, in_order: bool = False
    ) -> None:
        self._features = features
        self._labels = labels
        self._in_order = in_order
        self._was_label = False
        self._stamps = RecordTimes(lambda: time.time_ns() // 1_000_000)
        self._start = time.monotonic()
        self.features_sent = 0
        self.labels_sent = 0

    def send(self, row: Row, is_label: bool, stream: str, ts_ms: int | None = None) -> None:
        """Send one record or one label; ``ts_ms`` is its event time."""
        if self._in_order and is_label != self._was_label:
            (self._labels if self._was_label else self._features).flush()
        self._was_label = is_label
        stamp = self._stamps.next(is_label)
        assert row.id is not None
        if is_label:
            assert row.label is not None
            self._labels.send(
                row.id, row.label, stream=stream, key=row.key, ts_ms=ts_ms, timestamp_ms=stamp
            )
            self.labels_sent += 1
        else:
            self._features.send(
                row.id, row.record, stream=stream, key=row.key, ts_ms=ts_ms, timestamp_ms=stamp
            )
            self.features_sent += 1

    def finish(self) -> Sent:
        """Wait until everything is stored."""
        self._features.flush()
        self._labels.flush()
        return Sent(self.features_sent, self.labels_sent, time.monotonic() - self._start)
