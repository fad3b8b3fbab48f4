"""The steady consumer's book of gaps and its seeks, without a broker."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.structs import TopicPartition
from faust.types import TP

from pipeline.engine.consumer import SteadyConsumer, SteadyThread, watch_resets
from pipeline.engine.faustapp import lost_before
from pipeline.engine.isolation import CommittedConsumer, CommittedThread

AT = TP("features", 0)


@pytest.fixture
def consumer(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A consumer whose fetches are a list; nothing else of it is used."""
    made: Any = object.__new__(SteadyConsumer)
    made._last_fetched, made._before, made.out_of_range = {}, {}, {}
    made.app = SimpleNamespace()
    batches: list[list[int]] = []

    async def fetch(*_: Any) -> Any:
        return {AT: [SimpleNamespace(offset=offset) for offset in batches.pop(0)]}

    async def seek(*_: Any) -> None:
        return None

    monkeypatch.setattr(CommittedConsumer, "_getmany", fetch)
    monkeypatch.setattr(CommittedConsumer, "perform_seek", seek)

    def play(*offsets: int) -> None:
        batches.append(list(offsets))
        asyncio.run(made._getmany(None, 1.0))

    made.play = play
    return made


def lost(consumer: Any, offset: int, received: int) -> bool:
    message = SimpleNamespace(topic="features", partition=0, offset=offset)
    return lost_before(SimpleNamespace(consumer=consumer), message, received)


def test_a_partition_that_was_just_taken_away_has_no_end(
    consumer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen in the fault suite: aiokafka asserts, Faust's fetcher falls over, the worker hangs."""

    def gone(*_: Any) -> int:
        raise AssertionError("Partition is not assigned")

    monkeypatch.setattr(CommittedConsumer, "highwater", gone)
    assert consumer.highwater(AT) == 0
    monkeypatch.setattr(CommittedConsumer, "highwater", lambda *_: 7)
    assert consumer.highwater(AT) == 7


def test_who_runs_the_app_is_told_that_nothing_comes_any_more(
    consumer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fall(*_: Any) -> None:
        raise RuntimeError("of Faust's own")

    heard: list[Exception] = []
    consumer.app.on_fallen = heard.append
    monkeypatch.setattr(CommittedConsumer, "_drain_messages", fall)
    with pytest.raises(RuntimeError, match="of Faust's own"):
        asyncio.run(consumer._drain_messages(None))
    assert [str(each) for each in heard] == ["of Faust's own"]


def test_a_gap_that_the_broker_left_is_no_loss(consumer: Any) -> None:
    consumer.play(4, 5)
    consumer.play(8, 9)  # 6 and 7 were a transaction's markers
    assert not lost(consumer, 4, 3)
    assert not lost(consumer, 5, 4)
    assert not lost(consumer, 8, 5)
    assert not lost(consumer, 9, 8)


def test_a_record_that_was_fetched_and_never_received_is_a_loss(consumer: Any) -> None:
    consumer.play(4, 5, 8)
    assert lost(consumer, 8, 4)  # 5 was fetched
    consumer.play(9, 10)
    assert lost(consumer, 10, 8)


def test_after_a_seek_the_first_record_follows_nothing(consumer: Any) -> None:
    consumer.play(4, 5)
    asyncio.run(consumer.perform_seek())
    consumer.play(5, 6)
    assert not lost(consumer, 5, 5)
    assert not lost(consumer, 6, 5)


def test_the_book_holds_gaps_only(consumer: Any) -> None:
    consumer.play(*range(10, 1_000))
    consumer.play(*range(1_000, 2_000))
    assert consumer._before == {AT: {10: -1}}


def test_a_reset_is_told_before_the_records_behind_it_go_on(consumer: Any) -> None:
    told: list[Any] = []

    async def hear(place: TP, offset: int) -> None:
        told.append((place, offset, dict(consumer._last_fetched)))

    consumer.app.on_out_of_range = hear
    consumer.play(4, 5)
    consumer.out_of_range[AT] = 6
    consumer.play(30, 31)
    assert told == [(AT, 6, {AT: 5})]
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

    monkeypatch.setattr(CommittedThread, "seek_to_committed", committed)
    thread: Any = object.__new__(SteadyThread)
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

    monkeypatch.setattr(CommittedThread, "_commit", commit)
    monkeypatch.setattr(SteadyThread, "assignment", lambda _: {AT})
    thread: Any = object.__new__(SteadyThread)
    assert asyncio.run(thread._commit({TP("features", 1): 5})) is False
    assert asked == []
    assert asyncio.run(thread._commit({AT: 5, TP("features", 1): 5})) is True
