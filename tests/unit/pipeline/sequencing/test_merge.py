"""The merge: the earlier timestamp first; a lagging side is waited for, a quiet one is not."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.kafka.record import Record
from pipeline.sequencing.merge import FEATURES, LABELS, Merge, SourceRecord


def record(side: int, offset: int, timestamp_ms: int) -> SourceRecord:
    return SourceRecord(side, Record("t", 0, offset, timestamp_ms, b"k", b"v"))


def filled(features: Sequence[int], labels: Sequence[int], wait_ms: float = 100) -> Merge:
    merge = Merge(wait_ms)
    for side, times in ((FEATURES, features), (LABELS, labels)):
        for offset, time in enumerate(times):
            merge.put(record(side, offset, time))
    return merge


def quiet(_: int) -> bool:
    return False


def lagging(_: int) -> bool:
    return True


def drained(merge: Merge) -> list[tuple[int, int]]:
    found = []
    while (taken := merge.take(0, quiet)) is not None:
        found.append((taken.side, taken.record.timestamp_ms))
    return found


def test_a_backlog_comes_in_the_order_of_its_timestamps() -> None:
    merge = filled([1, 3, 5], [2, 4, 6])
    assert [time for _, time in drained(merge)] == [1, 2, 3, 4, 5, 6]


def test_equal_timestamps_put_features_first() -> None:
    assert drained(filled([7], [7])) == [(FEATURES, 7), (LABELS, 7)]


def test_each_side_keeps_its_own_order_whatever_its_timestamps() -> None:
    merge = filled([9, 1, 5], [4])
    assert drained(merge) == [(LABELS, 4), (FEATURES, 9), (FEATURES, 1), (FEATURES, 5)]


def test_a_side_that_is_caught_up_is_not_waited_for() -> None:
    assert filled([1], []).take(0, quiet) is not None


def test_a_lagging_side_is_waited_for_and_not_for_ever() -> None:
    merge = filled([1, 2], [])
    assert merge.take(0, lagging) is None
    assert merge.take(99, lagging) is None
    assert merge.take(100, lagging) is not None
    assert merge.take(101, lagging) is not None  # no new wait for every record


def test_what_the_lagging_side_brings_starts_a_new_wait() -> None:
    merge = filled([1, 5], [])
    assert merge.take(0, lagging) is None
    merge.put(record(LABELS, 0, 3))
    assert [merge.take(50, lagging), merge.take(50, lagging)] == [
        record(FEATURES, 0, 1),
        record(LABELS, 0, 3),
    ]
    assert merge.take(120, lagging) is None
    assert merge.take(220, lagging) is not None


def test_an_empty_merge_has_nothing() -> None:
    merge = Merge(0)
    assert merge.take(0, lagging) is None
    assert len(merge) == 0
