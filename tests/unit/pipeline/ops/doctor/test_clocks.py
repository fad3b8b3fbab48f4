"""Clocks that disagree, from the timestamps of records."""

from pipeline.kafka.record import Record
from pipeline.ops.doctor.clocks import check_broker, check_producers, check_slow_producers
from pipeline.ops.doctor.findings import Status
from topics.headers import write_headers
from topics.journal import RecordKind, Source


def copy(sent_ms: int, appended_ms: int) -> Record:
    """A journal record: when its source was stamped, and when the broker appended it."""
    source = Source(RecordKind.COPY, "features", "id", 0, 0, -1, sent_ms)
    return Record("journal", 0, 0, appended_ms, b"k", b"{}", write_headers(source))


def test_a_record_from_the_future_means_a_clock_is_wrong() -> None:
    assert check_broker([1_000, 5_000], 4_500).status is Status.OK
    assert check_broker([9_000], 4_500).status is Status.PROBLEM
    assert check_broker([], 0).status is Status.NOTE


def test_a_source_stamped_after_its_copy_means_a_producers_clock_is_wrong() -> None:
    assert check_producers([copy(1_000, 1_005), copy(2_500, 1_000)]).status is Status.OK
    wrong = check_producers([copy(1_000, 1_005), copy(9_000, 1_000)])
    assert wrong.status is Status.PROBLEM
    assert "8.0 s ahead" in wrong.text
    stranger = Record("journal", 0, 0, 0, None, b"", ())
    assert check_producers([stranger]).status is Status.NOTE


def test_a_topic_that_is_always_stamped_in_the_past_means_a_slow_clock() -> None:
    """Seen: label producers one hour slow, and 14,000 of 15,000 labels were orphans."""
    backlog = [copy(1_000, 5_000_000), copy(4_999_000, 5_000_000)]
    assert [each.status for each in check_slow_producers(backlog)] == [Status.OK]
    (slow,) = check_slow_producers([copy(1_000, 3_700_000), copy(2_000, 3_601_000)])
    assert slow.status is Status.PROBLEM
    assert "stamped 3599 s or more in the past" in slow.text
