"""The flow of one topic partition: what is new, what was lost, how far it is, pausing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from aiokafka.structs import TopicPartition
from faust.types import TP

from pipeline.errors import FAILED
from pipeline.faust_ext import flow as flow_module
from pipeline.faust_ext.consumer import FetchedBatch, SafeConsumer
from pipeline.faust_ext.flow import PartitionFlow
from pipeline.kafka.record import Record

AT = TP("features", 0)


class EndedError(BaseException):
    """In place of the end of the process."""


@pytest.fixture
def consumer() -> Any:
    """The real consumer's notes about what was fetched, and a fake of the rest of it."""
    made: Any = object.__new__(SafeConsumer)
    made.fetched, made._before = {}, {}
    made.app = SimpleNamespace(consumer_generation_id=1)
    made.sought = {}
    made.paused, made.resumed = [], []
    made.pause_partitions = made.paused.append
    made.resume_partitions = made.resumed.append
    made.assignment = lambda: {AT}
    made._thread = SimpleNamespace(_consumer=None)
    return made


@pytest.fixture
def flow(consumer: Any) -> PartitionFlow:
    return PartitionFlow(SimpleNamespace(consumer=consumer), *AT)


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []

    def exit_now(code: int, why: str) -> NoReturn:
        found.append((code, why))
        raise EndedError

    monkeypatch.setattr(flow_module, "exit_now", exit_now)
    return found


def fetch(consumer: Any, *offsets: int, start: int | None = None) -> FetchedBatch:
    """A batch as `SafeConsumer` hands it out, fetched from `start` or where the last one ended."""
    known = consumer.fetched.get(AT)
    start = start if start is not None else known.position if known else offsets[0]
    consumer.note_fetch(AT, start, offsets[-1] + 1, [record(offset) for offset in offsets])
    batch: FetchedBatch = consumer.batches({AT: [record(offset) for offset in offsets]})[AT]
    return batch


def seek(consumer: Any, committed: int, *offsets: int) -> FetchedBatch:
    """The first batch after Faust has sought what the group has committed."""
    consumer.sought[AT] = committed
    return fetch(consumer, *offsets, start=committed)


def record(offset: int) -> Any:
    return SimpleNamespace(
        topic=AT.topic,
        partition=AT.partition,
        offset=offset,
        timestamp=1500,
        key=b"k",
        value=b"v",
        headers=[("a", b"1"), ("a", b"2")],
    )


def accepted(flow: PartitionFlow, *batches: FetchedBatch) -> list[tuple[int, bool]]:
    found = [delivery for batch in batches for delivery in flow.accept(batch)]
    return [(each.record.offset, each.linked) for each in found]


def test_a_record_is_taken_as_it_is(flow: PartitionFlow, consumer: Any) -> None:
    (delivery,) = flow.accept(fetch(consumer, 0))
    assert delivery.record == Record(
        *AT,
        0,
        1500,
        b"k",
        b"v",
        [("a", b"1"), ("a", b"2")],
    )


def test_a_gap_that_the_broker_left_is_no_loss(flow: PartitionFlow, consumer: Any) -> None:
    consumer.sought[AT] = 4
    assert flow.received == 3
    batches = fetch(consumer, 4, 5), fetch(consumer, 8, 9)  # 6 and 7: a transaction's markers
    assert accepted(flow, *batches) == [(4, False), (5, True), (8, True), (9, True)]
    assert flow.received == 9


@pytest.mark.parametrize("lost", [5, 8])
def test_a_record_that_was_fetched_and_never_received_ends_the_process(
    flow: PartitionFlow, consumer: Any, ends: list[tuple[int, str]], lost: int
) -> None:
    consumer.sought[AT] = 4
    batches = {offset: fetch(consumer, offset) for offset in (4, 5, 8, 9)}
    del batches[lost]
    with pytest.raises(EndedError):
        accepted(flow, *batches.values())
    ((code, why),) = ends
    assert code == FAILED
    after = next(offset for offset in batches if offset > lost)
    assert why.startswith(f"features partition 0: Faust lost records in front of {after}; ")


def test_after_a_seek_what_came_before_is_left_out(flow: PartitionFlow, consumer: Any) -> None:
    assert accepted(flow, fetch(consumer, 0, 1)) == [(0, False), (1, True)]
    fetch(consumer, 2)
    again = seek(consumer, 1, 1, 2, 3)  # a rebalance; 2 was dropped on its way
    assert accepted(flow, again) == [(2, True), (3, True)]
    assert accepted(flow, seek(consumer, 2, 2, 3)) == []


def test_what_others_have_committed_is_no_loss_and_not_linked(
    flow: PartitionFlow, consumer: Any
) -> None:
    assert accepted(flow, fetch(consumer, 0, 1)) == [(0, False), (1, True)]
    assert accepted(flow, seek(consumer, 7, 7, 8)) == [(7, False), (8, True)]
    assert accepted(flow, seek(consumer, 10, 12)) == [(12, False)]  # 10, 11: markers


def test_what_was_dropped_right_after_a_seek_ends_the_process(
    flow: PartitionFlow, consumer: Any, ends: list[tuple[int, str]]
) -> None:
    """Seen in tests/faults: 25 labels fetched after a seek, dropped, and the next were taken."""
    assert accepted(flow, fetch(consumer, 0, 1)) == [(0, False), (1, True)]
    seek(consumer, 2, 2, 3, 4)
    with pytest.raises(EndedError):
        flow.accept(fetch(consumer, 5))
    assert [code for code, _ in ends] == [FAILED]


def test_what_an_earlier_owner_had_fetched_is_not_taken_by_a_new_flow(
    flow: PartitionFlow, consumer: Any, ends: list[tuple[int, str]]
) -> None:
    """Taken before the seek and handed out after it: what is committed comes first."""
    fetch(consumer, 99, 100)
    late = fetch(consumer, 101, 102)
    consumer.sought[AT] = 50
    with pytest.raises(EndedError):
        flow.accept(late)
    assert accepted(flow, fetch(consumer, 50, 51, start=50)) == [(50, False), (51, True)]


def test_a_partition_may_begin_anywhere_if_nothing_is_known_of_it(
    flow: PartitionFlow, consumer: Any
) -> None:
    """Nothing is committed and its beginning is gone; also after a reset that the app has seen."""
    assert accepted(flow, fetch(consumer, 30, 31, start=30)) == [(30, False), (31, True)]
    consumer.out_of_range = {}
    consumer.note_reset(AT, 32)
    assert accepted(flow, fetch(consumer, 60, start=60)) == [(60, False)]


def test_a_pause_is_asked_for_once_and_forgotten_by_a_rebalance(
    flow: PartitionFlow, consumer: Any
) -> None:
    flow.resume()
    flow.pause()
    flow.pause()
    assert (consumer.paused, consumer.resumed) == ([{AT}], [])
    flow.resume()
    flow.resume()
    assert consumer.resumed == [{AT}]
    flow.pause()
    flow.rejoined()  # Faust has resumed it by itself
    flow.resume()
    assert consumer.resumed == [{AT}]
    flow.pause()
    assert len(consumer.paused) == 3


def test_a_partition_that_is_not_ours_any_more_is_not_resumed(
    flow: PartitionFlow, consumer: Any
) -> None:
    flow.pause()
    consumer.assignment = set
    flow.resume()
    assert consumer.resumed == []


def known(consumer: Any, position: int | None, end: int | None) -> None:
    """What aiokafka knows of the partition."""
    state = SimpleNamespace(_position=position, lso=end, timestamp=12_345)
    place = TopicPartition(*AT)
    assignment = SimpleNamespace(tps={place}, state_value=lambda _: state)
    subscription = SimpleNamespace(subscription=SimpleNamespace(assignment=assignment))
    consumer._thread._consumer = SimpleNamespace(_subscription=subscription)


def test_nothing_is_known_before_the_first_fetch(flow: PartitionFlow, consumer: Any) -> None:
    assert (flow.position, flow.position_and_end, flow.last_fetch_ms) == (None, None, 0)
    assert not flow.has_backlog(-1)
    known(consumer, None, None)
    assert (flow.position, flow.position_and_end) == (None, None)
    known(consumer, 5, 9)
    assert (flow.position, flow.position_and_end, flow.last_fetch_ms) == (5, (5, 9), 12_345)


@pytest.mark.parametrize(
    ("fetched", "position", "end", "answered", "backlog"),
    [
        ((), 5, 9, None, True),  # at the broker, as far as the consumer knows
        ((), 9, 9, None, False),
        ((), 9, 9, 12, True),  # at the broker, which was asked: the consumer is silent
        ((6, 8), 9, 9, None, True),  # on its way to the agent
        ((), 9, 9, 9, False),  # the rest are markers of transactions
        ((3, 4), 9, 9, None, False),  # others have taken what is between, and it was sought
        ((8, 12), 9, 9, None, False),  # fetched before a seek back: its position is what counts
    ],
)
def test_a_backlog_is_what_is_on_its_way_or_at_the_broker(
    flow: PartitionFlow,
    consumer: Any,
    fetched: tuple[int, ...],
    position: int,
    end: int,
    answered: int | None,
    backlog: bool,
) -> None:
    if fetched:
        fetch(consumer, *fetched)
    known(consumer, position, end)
    assert flow.has_backlog(5, answered) is backlog
