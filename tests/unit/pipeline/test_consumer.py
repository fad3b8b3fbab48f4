"""The steady consumer's book of gaps and its seeks, without a broker."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from faust.types import TP

from pipeline.consumer import SteadyConsumer, SteadyThread
from pipeline.faustapp import lost_before
from pipeline.isolation import CommittedConsumer, CommittedThread

AT = TP("features", 0)


@pytest.fixture
def consumer(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A consumer whose fetches are a list; nothing else of it is used."""
    made: Any = object.__new__(SteadyConsumer)
    made._last_fetched, made._before = {}, {}
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
