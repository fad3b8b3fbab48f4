"""The outbox: order, counts of what is durable, and an end when something cannot be delivered."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from pipeline import outbox as outbox_module
from pipeline.brokers import Broker, open_broker
from pipeline.outbox import DeliveryError, Outbox
from pipeline.reader import read_range


@pytest.fixture(scope="module")
def cluster() -> Iterator[Broker]:
    with open_broker("embedded") as broker:
        yield broker


def test_what_is_settled_is_on_the_topic_in_order(cluster: Broker) -> None:
    async def play() -> tuple[int, int]:
        outbox = Outbox(cluster.config)
        lane = outbox.lane("ordered", 1)
        for number in range(500):
            lane.send(b"k", b"%d" % number, [("n", b"1"), ("none", None)])
        await asyncio.wait_for(lane.settled(), 30)
        return lane.delivered, lane.last_offset

    assert asyncio.run(play()) == (500, 499)
    read = list(read_range(cluster.config, "ordered", 1, 0, 500))
    assert [message.value() for message in read] == [b"%d" % number for number in range(500)]
    assert read[0].headers() == [("n", b"1"), ("none", None)]


def test_two_lanes_to_one_partition_count_for_themselves(cluster: Broker) -> None:
    async def play() -> tuple[int, int, list[int]]:
        outbox = Outbox(cluster.config)
        one, two = outbox.lane("shared", 0), outbox.lane("shared", 0)
        seen: list[int] = []
        one.on_delivered = lambda: seen.append(one.delivered)
        for _ in range(10):
            one.send(None, b"1", [])
            two.send(None, b"2", [])
            two.send(None, None, [])
        await asyncio.wait_for(one.settled(), 30)
        await asyncio.wait_for(two.settled(), 30)
        return one.delivered, two.delivered, seen

    assert asyncio.run(play()) == (10, 20, list(range(1, 11)))


def test_senders_wait_for_bytes_as_for_records(
    cluster: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox_module, "WAITING_BYTES_MAX", 10_000)

    async def play() -> list[bool]:
        outbox = Outbox(cluster.config)
        lane = outbox.lane("large", 0)
        seen = [outbox.full]
        lane.send(b"k" * 5_000, b"v" * 4_000, [("name", b"h" * 2_000)])
        seen.append(outbox.full)
        await asyncio.wait_for(outbox.room(), 30)
        seen.append(outbox.full)
        assert (outbox.waiting_bytes, lane.delivered) == (0, 1)
        return seen

    assert asyncio.run(play()) == [False, True, False]


def test_a_failed_report_ends_everything(cluster: Broker) -> None:
    async def play() -> None:
        overrides = {"message.timeout.ms": 300, "socket.timeout.ms": 200}
        outbox = Outbox({"bootstrap.servers": "127.0.0.1:1"}, **overrides)
        lane = outbox.lane("nowhere", 0)
        lane.send(b"k", b"v", [])
        with pytest.raises(DeliveryError, match=r"nowhere\[0\]"):
            await asyncio.wait_for(lane.settled(), 30)
        with pytest.raises(DeliveryError):
            outbox.check()

    asyncio.run(play())


def test_a_record_that_librdkafka_refuses_is_a_failure_too(cluster: Broker) -> None:
    outbox = Outbox(cluster.config)
    with pytest.raises(DeliveryError, match="too"):
        outbox.lane("large", 0).send(b"k", b"v" * 2_000_000, [])
    with pytest.raises(DeliveryError):
        outbox.check()
