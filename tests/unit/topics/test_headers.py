"""Headers of ours beside headers of others."""

from hypothesis import given
from hypothesis import strategies as st

from topics.dead_letters import (
    DeadLetter,
    connect_headers,
    truncate,
    without_connect_headers,
)
from topics.headers import (
    header_name,
    producer_headers,
    read_headers,
    record_bytes,
    trace_headers,
    write_headers,
)
from topics.journal import CopyHeaders, RecordKind, Source, read_control, read_source
from topics.reasons import Rejection
from topics.snapshots import CHUNK_BYTES_MAX, SnapshotKind, chunk_key

SOURCE = Source(RecordKind.COPY, "features", "tid", 2, 10, 9, 1_767_225_600_000)


def test_what_the_producer_said_is_carried_over_and_ours_is_not() -> None:
    theirs = [("trace-id", b"\xff\x00"), ("empty", None), ("trace-id", b"again")]
    assert producer_headers([*theirs, *write_headers(SOURCE)]) == theirs


def test_ours_win_over_older_ones_in_a_redriven_record() -> None:
    old = write_headers(Source(RecordKind.STUB, "labels", "old", 0, 1, 0, 5))
    assert read_headers(Source, [*old, *write_headers(SOURCE)]) == SOURCE


def test_absent_optional_header_is_none_and_not_written() -> None:
    names = {name for name, _ in write_headers(SOURCE)}
    assert header_name("sha256") not in names
    assert header_name("timestamp_ms") == "dtgol-timestamp-ms"


def test_header_without_value_or_not_utf8_is_refused() -> None:
    for raw in (None, b"\xff"):
        headers = [*write_headers(SOURCE), ("dtgol-topic", raw)]
        refused = read_headers(Source, headers)
        assert isinstance(refused, Rejection)
        assert refused.detail.startswith("dtgol-topic:")


odd_values = st.none() | st.sampled_from(
    [b"", b"-1", b"-0", b"+1", b"07", b"1" * 20, b" 1", "١".encode(), b"\xff", b"stub", b"config"]
)


@given(st.dictionaries(st.integers(0, 6), odd_values), st.permutations(range(7)), st.booleans())
def test_the_quick_reader_of_copies_agrees_with_the_general_one(
    damage: dict[int, bytes | None], order: list[int], shuffled: bool
) -> None:
    headers = write_headers(SOURCE)
    for place, raw in damage.items():
        headers[place] = (headers[place][0], raw)
    if shuffled:
        headers = [headers[place] for place in order]
    for more in ([], [("trace-id", b"x")], [("dtgol-length", b"3")], headers[:1]):
        assert read_source([*headers, *more]) == read_headers(Source, [*headers, *more])
        assert read_source([*more, *headers]) == read_headers(Source, [*more, *headers])


def test_the_quick_writer_of_copies_agrees_with_the_general_one() -> None:
    copies = CopyHeaders(SOURCE.topic, SOURCE.topic_id, SOURCE.partition)
    headers = copies.write(SOURCE.offset, SOURCE.prev, SOURCE.timestamp_ms)
    assert headers == write_headers(SOURCE)
    first = Source(RecordKind.COPY, "labels", "id", 0, 0, -1, -1)
    assert CopyHeaders("labels", "id", 0).write(0, -1, -1) == write_headers(first)


def test_a_dead_letter_has_connects_names_and_loses_them_on_the_way_back() -> None:
    own = [("trace", b"7")]
    letter = write_headers(DeadLetter("features", 2, 10, "not-json", "oops at 1"))
    connect = connect_headers([*own, *letter])
    assert connect == [
        ("__connect.errors.topic", b"features"),
        ("__connect.errors.partition", b"2"),
        ("__connect.errors.offset", b"10"),
        ("__connect.errors.exception.class.name", b"not-json"),
        ("__connect.errors.exception.message", b"oops at 1"),
    ]
    assert without_connect_headers(producer_headers([*own, *letter, *connect])) == own
    assert connect_headers(own) == []


def test_of_a_labels_headers_a_score_has_the_trace() -> None:
    trace = [("traceparent", b"00-0a-0b-01"), ("tracestate", b"vendor=1")]
    assert trace_headers([("own", b"1"), *trace, ("dtgol-kind", b"copy")]) == trace


def test_copy_and_stub_are_no_control_records() -> None:
    assert read_control(b"{}", write_headers(SOURCE)) is None
    assert isinstance(read_control(b"{}", []), Rejection)


def test_size_of_a_record_counts_everything() -> None:
    headers = [("é", b"f"), ("g", None)]
    assert record_bytes(b"ab", b"cde", headers) == 2 + 3 + (1 + 2 + 1 + 1) + (1 + 1 + 1)
    assert record_bytes(None, None, []) == 0
    for size, length in ((63, 1), (64, 2), (8191, 2), (8192, 3)):
        assert record_bytes(None, None, [("n", b"x" * size)]) == 2 + length + size
        assert record_bytes(None, None, [("n" * size, b"")]) == length + size + 1


def test_value_that_fits_is_not_cut() -> None:
    assert truncate(b"abc", 3).value == b"abc"
    assert truncate(b"abc", 3).length is None
    assert truncate(None, 3).value is None


def test_cut_value_says_length_and_hash_of_the_whole() -> None:
    made = truncate(b"abc", 2)
    assert (made.value, made.length) == (b"ab", 3)
    assert made.sha256 == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    letter = DeadLetter("features", 0, 1, "too-large", "record", made.length, made.sha256)
    assert read_headers(DeadLetter, write_headers(letter)) == letter


def test_chunk_keys_differ_by_kind_name_and_part() -> None:
    keys = {
        chunk_key(kind, name, part)
        for kind in SnapshotKind
        for name in ("ward-3@1", "ward-3@12")
        for part in (0, 1)
    }
    assert len(keys) == 8
    assert CHUNK_BYTES_MAX < 1_000_000
