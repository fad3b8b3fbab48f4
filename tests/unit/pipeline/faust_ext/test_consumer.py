"""The safe consumer: its batches, seeks and commits, without a broker."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import GroupAuthorizationFailedError, TopicAuthorizationFailedError
from aiokafka.structs import ConsumerRecord, TopicPartition
from faust.transport import consumer as faust_consumer
from faust.transport.drivers import aiokafka as driver
from faust.types import TP

from pipeline.faust_ext.consumer import (
    FEW,
    GATHER_S,
    SafeConsumer,
    SafeConsumerThread,
    bound_headers,
    watch_resets,
)

AT = TP("features", 0)


@pytest.fixture
def consumer(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A consumer whose fetches are a list; nothing else of it is used."""
    made: Any = object.__new__(SafeConsumer)
    made._last_fetched, made.out_of_range, made._next_turn = {}, {}, 0.0
    made.app = SimpleNamespace(owner=SimpleNamespace())
    batches: list[list[int]] = []

    async def fetch(*_: Any) -> Any:
        return {AT: [SimpleNamespace(offset=offset) for offset in batches.pop(0)]}

    async def seek(*_: Any) -> None:
        return None

    monkeypatch.setattr(driver.Consumer, "_getmany", fetch)
    monkeypatch.setattr(driver.Consumer, "perform_seek", seek)

    def play(*offsets: int) -> Any:
        batches.append(list(offsets))
        return asyncio.run(made._getmany(None, 1.0))[AT][0]

    made.play = play
    return made


def test_a_partition_that_was_just_taken_away_has_no_end(
    consumer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen in the fault suite: aiokafka asserts, Faust's fetcher crashes, the worker hangs."""

    def gone(*_: Any) -> int:
        raise AssertionError("Partition is not assigned")

    monkeypatch.setattr(driver.Consumer, "highwater", gone)
    assert consumer.highwater(AT) == 0
    monkeypatch.setattr(driver.Consumer, "highwater", lambda *_: 7)
    assert consumer.highwater(AT) == 7


def test_the_owner_of_the_app_learns_that_nothing_comes_any_more(
    consumer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def crash(*_: Any) -> None:
        raise RuntimeError("of Faust's own")

    crashes: list[Exception] = []
    consumer.app.owner.consumer_crashed = crashes.append
    monkeypatch.setattr(driver.Consumer, "_drain_messages", crash)
    with pytest.raises(RuntimeError, match="of Faust's own"):
        asyncio.run(consumer._drain_messages(None))
    assert [str(each) for each in crashes] == ["of Faust's own"]


def test_the_owner_of_the_app_learns_that_it_may_not_read_any_more(
    consumer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: Any) -> None:
        raise TopicAuthorizationFailedError("features")

    lost: list[Exception] = []
    consumer.app.owner.rights_lost = lost.append
    monkeypatch.setattr(driver.Consumer, "_getmany", refuse)
    with pytest.raises(TopicAuthorizationFailedError):
        asyncio.run(consumer._getmany(None, 1.0))
    assert [str(each) for each in lost] == [str(TopicAuthorizationFailedError("features"))]


@pytest.mark.parametrize("lost", [True, False])
def test_a_crash_of_the_consumers_thread_ends_the_process(consumer: Any, lost: bool) -> None:
    """Seen on a busy machine: a commit was refused for a lost right, and the process hung."""

    class EndedError(Exception):
        pass

    def end(reason: BaseException) -> None:
        raise EndedError(type(reason).__name__)

    owner = consumer.app.owner
    if lost:
        owner.rights_lost = end
    else:
        owner.consumer_crashed = end
    thread: Any = object.__new__(SafeConsumerThread)
    thread.consumer = consumer
    reason = GroupAuthorizationFailedError("dtgol-worker") if lost else RuntimeError("of Faust's")
    with pytest.raises(EndedError, match=type(reason).__name__):
        asyncio.run(thread.crash(reason))


def test_offsets_between_batches_are_not_remembered(consumer: Any) -> None:
    """Faust kept and sorted one more at every fetch: the worker grew slower by the minute."""
    tree: Any = vars(faust_consumer)["IntervalTree"]
    consumer._gap, consumer._committed_offset = defaultdict(tree), defaultdict(lambda: None)
    for offset in range(0, 100, 10):
        asyncio.run(consumer._add_gap(AT, offset + 1, offset + 9))
    assert not consumer._gap.get(AT)
    assert hasattr(driver.Consumer, "_add_gap"), "Faust has moved its gaps"


def test_a_batch_follows_the_record_that_was_fetched_before_it(consumer: Any) -> None:
    batches = consumer.play(4, 5), consumer.play(8, 9)  # 6 and 7: a transaction's markers
    assert [batch.before for batch in batches] == [-1, 5]
    assert consumer.last_fetched(AT) == 9


def test_after_a_seek_the_first_record_follows_nothing(consumer: Any) -> None:
    consumer.play(4, 5)
    asyncio.run(consumer.perform_seek())
    assert consumer.last_fetched(AT) == -1
    assert consumer.play(5, 6).before == -1


def test_a_batch_is_one_message_to_faust(consumer: Any) -> None:
    batch = consumer.play(4, 5)
    consumer.app.consumer_generation_id = 3
    fields = ("timestamp", "timestamp_type", "headers", "key", "value", "checksum")
    sizes = ("serialized_key_size", "serialized_value_size")
    for record in batch.records:
        vars(record).update(dict.fromkeys((*fields, *sizes)), topic=AT.topic, partition=0)
    message = consumer._to_message(AT, batch)
    assert (message.tp, message.offset, message.value, message.key) == (AT, 5, batch, None)


def test_a_reset_is_reported_before_the_records_behind_it_go_on(consumer: Any) -> None:
    reported: list[Any] = []

    async def note(place: TP, offset: int) -> None:
        reported.append((place, offset, dict(consumer._last_fetched)))

    consumer.app.owner.on_out_of_range = note
    consumer.play(4, 5)
    consumer.out_of_range[AT] = 6
    consumer.play(30, 31)
    assert reported == [(AT, 6, {AT: 5})]
    assert not consumer.out_of_range


def test_only_a_fetch_that_was_out_of_range_is_noted() -> None:
    """aiokafka resets the position inside the fetch; the wrapper looks right behind it."""
    noted: dict[TP, int] = {}
    states = {0: SimpleNamespace(awaiting_reset=False), 1: SimpleNamespace(awaiting_reset=True)}
    places = {TopicPartition("features", 0), TopicPartition("features", 1)}
    assignment = SimpleNamespace(tps=places, state_value=lambda place: states[place.partition])

    async def fetch(*_: Any) -> bool:
        return True

    fetcher: Any = SimpleNamespace(_proc_fetch_request=fetch)
    watch_resets(fetcher, noted.__setitem__)
    request = SimpleNamespace(topics=[("features", [(0, 10, 1), (1, 20, 1), (2, 30, 1)])])
    assert asyncio.run(fetcher._proc_fetch_request(assignment, 1, request)) is True
    assert noted == {TP("features", 1): 20}


def test_a_partition_of_which_nothing_is_committed_is_begun_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Seen in tests/faults: 96 labels fetched, dropped by a rebalance, and never fetched again."""
    offsets = {TP("labels", 0): None, TP("labels", 1): 0, TP("labels", 2): 7, TP("labels", 3): None}
    begun: list[TP] = []

    async def committed(_: Any) -> Any:
        return offsets

    async def seek_to_beginning(*partitions: TP) -> None:
        begun.extend(partitions)

    async def call_thread(work: Any, *args: Any) -> None:
        await work(*args)

    monkeypatch.setattr(driver.AIOKafkaConsumerThread, "seek_to_committed", committed)
    thread: Any = object.__new__(SafeConsumerThread)
    still_ours = set(offsets) - {TP("labels", 3)}
    thread._consumer = SimpleNamespace(
        assignment=lambda: still_ours, seek_to_beginning=seek_to_beginning
    )
    thread.call_thread = call_thread
    assert asyncio.run(thread.seek_to_committed()) == offsets
    assert sorted(begun) == [TP("labels", 0), TP("labels", 1)]


def test_a_commit_of_which_a_rebalance_has_left_nothing_is_refused_and_no_crash(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Seen in a trial with a woken worker: aiokafka raises ValueError, and Faust goes down."""
    asked: list[Any] = []

    async def commit(_: Any, offsets: Any) -> bool:
        asked.append(offsets)
        return True

    monkeypatch.setattr(driver.AIOKafkaConsumerThread, "_commit", commit)
    monkeypatch.setattr(SafeConsumerThread, "assignment", lambda _: {AT})
    thread: Any = object.__new__(SafeConsumerThread)
    assert asyncio.run(thread._commit({TP("features", 1): 5})) is False
    assert asked == []
    assert asyncio.run(thread._commit({AT: 5, TP("features", 1): 5})) is True


def test_of_a_record_with_too_many_headers_few_are_kept() -> None:
    """A fetch of 150 records with 300,000 headers took 6.7 GB of memory."""

    class Records:
        _partition_records: Any

        def _consumer_record(self, place: Any, record: Any) -> Any:
            return ConsumerRecord("t", 0, 0, 0, 0, None, None, None, -1, -1, record)

    fetched = Records()
    fetched._partition_records = fetched

    async def fetch(*_: Any) -> bool:
        return True

    fetcher: Any = SimpleNamespace(_proc_fetch_request=fetch, _records={AT: fetched})
    bound_headers(fetcher, 10)
    for _ in range(2):  # what is fetched is there for some fetches
        assert asyncio.run(fetcher._proc_fetch_request(None, 0, None))
    few, many = (("a", b""),) * 10, (("a", b""),) * 300
    assert fetched._consumer_record(AT, few).headers == few
    assert len(fetched._consumer_record(AT, many).headers) == 11


def test_few_records_are_followed_by_a_moment_in_which_more_can_come(
    consumer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async def wait(*_: Any) -> Any:
        return {}, None

    now = 100.0
    monkeypatch.setattr(driver.Consumer, "_wait_next_records", wait)
    monkeypatch.setattr(asyncio, "sleep", sleep)
    monkeypatch.setattr(time, "monotonic", lambda: now)

    def turn() -> None:
        asyncio.run(consumer._wait_next_records(1.0))

    turn()
    assert slept == []
    consumer.play(*range(FEW - 1))
    turn()
    assert slept == [pytest.approx(GATHER_S)]
    now += GATHER_S  # a quiet time has passed: the next record waits for nothing
    turn()
    consumer.play(*range(FEW))
    turn()
    assert len(slept) == 1


def test_a_sleep_for_no_time_makes_no_task(consumer: Any) -> None:
    async def work() -> int:
        made: list[Any] = []

        def note(loop: Any, coro: Any, **more: Any) -> Any:
            made.append(coro)
            return asyncio.Task(coro, loop=loop, **more)

        asyncio.get_running_loop().set_task_factory(note)
        await consumer.sleep(0)
        return len(made)

    assert asyncio.run(work()) == 0


@pytest.fixture
def thread() -> Iterator[Any]:
    """A consumer's thread whose loop runs; nothing else of it is used."""
    made: Any = object.__new__(SafeConsumerThread)
    made.thread_loop = asyncio.new_event_loop()
    made._consumer = SimpleNamespace(_max_poll_records=7)
    made._ensure_consumer = lambda: made._consumer
    runner = threading.Thread(target=made.thread_loop.run_forever)
    runner.start()
    yield made
    made.thread_loop.call_soon_threadsafe(made.thread_loop.stop)
    runner.join()
    made.thread_loop.close()


def test_records_are_fetched_in_the_consumers_thread(thread: Any) -> None:
    asked: list[Any] = []

    async def fetch(*given: Any) -> dict[TP, list[int]]:
        asked.append((given, threading.current_thread()))
        return {AT: [1]}

    async def work() -> Any:
        thread.parent_loop = asyncio.get_running_loop()
        return await thread.getmany({AT}, 1.0)

    thread._fetch_records = fetch
    assert asyncio.run(work()) == {AT: [1]}
    ((given, where),) = asked
    assert given == (thread._consumer, {AT}, 1.0, 7)
    assert where is not threading.current_thread()


def test_an_error_of_a_fetch_comes_to_who_asked(thread: Any) -> None:
    async def fetch(*_: Any) -> None:
        raise TopicAuthorizationFailedError("features")

    async def work() -> Any:
        thread.parent_loop = asyncio.get_running_loop()
        return await thread.getmany({AT}, 1.0)

    thread._fetch_records = fetch
    with pytest.raises(TopicAuthorizationFailedError):
        asyncio.run(work())
