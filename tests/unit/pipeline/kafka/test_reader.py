"""Reading outside Faust, on the embedded broker: ranges, ends and tails."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from pipeline.errors import AbandonedError, RequestError, UnansweredError
from pipeline.kafka.reader import (
    Reader,
    Tail,
    Watermarks,
    committed_offsets,
    read_range,
    watermarks,
)
from pipeline.kafka.record import Record
from pipeline.kafka.writer import CheckedProducer
from pipeline.sandbox.brokers import Broker, open_broker

LIMIT_S = 30.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Broker]:
    """Topics `ten` and `two`, with so many records in partition 1."""
    with open_broker("embedded") as broker:
        producer = CheckedProducer(broker.config)
        for topic, count in (("ten", 10), ("two", 2)):
            for number in range(count):
                producer.send(topic, b"k", b"%d" % number, [("n", b"%d" % number)], partition=1)
        producer.flush()
        yield broker


def test_the_watermarks_of_a_partition(cluster: Broker) -> None:
    assert watermarks(cluster.config, "ten", 1) == Watermarks(low=0, high=10)
    assert watermarks(cluster.config, "ten", 0) == (0, 0)


def test_a_range_ends_before_its_end_or_at_the_end_of_the_partition(cluster: Broker) -> None:
    def offsets(start: int, end: int | None) -> list[int]:
        return [record.offset for record in read_range(cluster.config, "ten", 1, start, end)]

    assert offsets(3, 6) == [3, 4, 5]
    assert offsets(7, None) == [7, 8, 9]
    assert offsets(4, 4) == []
    assert offsets(10, None) == []


def test_a_record_is_read_as_it_was_written(cluster: Broker) -> None:
    (record,) = read_range(cluster.config, "two", 1, 1, 2)
    assert record.timestamp_ms > 0
    assert record == Record("two", 1, 1, record.timestamp_ms, b"k", b"1", [("n", b"1")])


def test_a_range_that_nobody_wants_any_more_is_abandoned(cluster: Broker) -> None:
    with pytest.raises(AbandonedError):
        list(read_range(cluster.config, "ten", 1, 0, 10, lambda: True))


def test_a_position_that_is_not_there_is_an_error_and_no_other_record(cluster: Broker) -> None:
    """Restores and replays must not silently begin where the topic happens to."""
    with pytest.raises(RequestError):
        list(read_range(cluster.config, "ten", 1, 50, 60))


def test_a_tail_has_the_last_records_of_every_partition_and_what_comes_after(
    cluster: Broker,
) -> None:
    with closing(Tail(cluster.config, ["ten", "two", "none"], last=3)) as tail:
        assert tail.missing == ["none"]
        found = sorted((record.topic, record.offset) for record in tail.catch_up(LIMIT_S))
        assert found == [("ten", 7), ("ten", 8), ("ten", 9), ("two", 0), ("two", 1)]
        assert tail.caught_up
        assert tail.end_of("ten", 1) == 10
        producer = CheckedProducer(cluster.config)
        producer.send("later", b"k", b"v", partition=0)
        producer.flush()
    with closing(Tail(cluster.config, ["later"], last=0)) as tail:
        assert tail.caught_up, "nothing is waited for"
        producer.send("later", b"k", b"w", partition=0)
        producer.flush()
        assert [record.value for record in tail.poll(1.0)] == [b"w"]


def test_a_tail_without_a_number_begins_at_the_beginning(cluster: Broker) -> None:
    with closing(Tail(cluster.config, ["ten"])) as tail:
        assert not tail.caught_up
        assert len(list(tail.catch_up(LIMIT_S))) == 10


def test_a_reader_can_start_again_elsewhere(cluster: Broker) -> None:
    with closing(Reader(cluster.config)) as reader:
        for start in (8, 9):
            reader.start({("ten", 1): start})
            assert reader.end_of("ten", 1) is None
            seen: list[int] = []
            while reader.end_of("ten", 1) is None:
                seen += [record.offset for record in reader.poll()]
            assert seen == list(range(start, 10))


def test_a_group_that_has_committed_nothing(cluster: Broker) -> None:
    assert committed_offsets(cluster.config, "nobody", "ten", [0, 1]) == {0: None, 1: None}


def test_a_cluster_that_does_not_answer() -> None:
    with (
        closing(Reader({"bootstrap.servers": "127.0.0.1:1"})) as reader,
        pytest.raises(UnansweredError, match="does not answer within 0 s"),
    ):
        reader.metadata(0)
