"""Writing: order, counts of what is durable, and an end when something cannot be delivered."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError

from pipeline.errors import DeliveryError
from pipeline.kafka import writer
from pipeline.kafka.reader import read_range
from pipeline.kafka.writer import CheckedProducer, Outbox
from pipeline.sandbox.brokers import Broker, open_broker

NOWHERE = {"bootstrap.servers": "127.0.0.1:1"}
SHORT = {"message.timeout.ms": 300, "socket.timeout.ms": 200}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Broker]:
    with open_broker("embedded") as broker:
        yield broker


def test_what_is_settled_is_on_the_topic_in_order(cluster: Broker) -> None:
    async def play() -> tuple[int, int]:
        ordered = Outbox(cluster.config).partition("ordered", 1)
        for number in range(500):
            ordered.send(b"k", b"%d" % number, [("n", b"1"), ("none", None)])
        await asyncio.wait_for(ordered.settled(), 30)
        return ordered.delivered, ordered.last_offset

    assert asyncio.run(play()) == (500, 499)
    read = list(read_range(cluster.config, "ordered", 1, 0, 500))
    assert [record.value for record in read] == [b"%d" % number for number in range(500)]
    assert read[0].headers == [("n", b"1"), ("none", None)]


def test_two_writers_to_one_partition_count_for_themselves(cluster: Broker) -> None:
    async def play() -> tuple[int, int, list[int]]:
        outbox = Outbox(cluster.config)
        one, two = outbox.partition("shared", 0), outbox.partition("shared", 0)
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
    monkeypatch.setattr(writer, "WAITING_BYTES_MAX", 10_000)

    async def play() -> list[bool]:
        outbox = Outbox(cluster.config)
        large = outbox.partition("large", 0)
        seen = [outbox.full]
        large.send(b"k" * 5_000, b"v" * 4_000, [("name", b"h" * 2_000)])
        seen.append(outbox.full)
        await asyncio.wait_for(outbox.wait_for_space(), 30)
        seen.append(outbox.full)
        assert (outbox.waiting_bytes, large.delivered) == (0, 1)
        return seen

    assert asyncio.run(play()) == [False, True, False]


def test_a_failed_report_ends_everything() -> None:
    async def play() -> None:
        outbox = Outbox(NOWHERE, **SHORT)
        nowhere = outbox.partition("nowhere", 0)
        nowhere.send(b"k", b"v", [])
        with pytest.raises(DeliveryError, match=r"1 record was not delivered to nowhere\[0\]"):
            await asyncio.wait_for(nowhere.settled(), 30)
        for call in (outbox.check, outbox.poll, lambda: nowhere.send(b"k", b"v")):
            with pytest.raises(DeliveryError, match=r"nowhere\[0\]"):
                call()

    asyncio.run(play())


def test_a_partition_whose_offsets_go_back_has_lost_its_tail() -> None:
    """Whoever goes on writing answers other records under offsets used before."""
    outbox = Outbox(NOWHERE)
    journal = outbox.partition("journal", 0)
    for offset in (7, 8):
        journal._sizes.append(1)
        journal.report(None, SimpleNamespace(offset=lambda offset=offset: offset))  # type: ignore[arg-type]
    outbox.check()
    journal._sizes.append(1)
    journal.report(None, SimpleNamespace(offset=lambda: 8))  # type: ignore[arg-type]
    with pytest.raises(DeliveryError, match=r"journal\[0\] gave offset 8 after 8: it has lost"):
        outbox.check()
    assert journal.delivered == 2, "the sender must not commit by it"


def test_a_record_that_librdkafka_refuses_is_a_failure_too(cluster: Broker) -> None:
    outbox = Outbox(cluster.config)
    with pytest.raises(
        DeliveryError, match=r"cannot be sent to large\[0\] .*too large.*topics check"
    ):
        outbox.partition("large", 0).send(b"k", b"v" * 2_000_000, [])
    with pytest.raises(DeliveryError):
        outbox.check()


def test_a_rejected_login_ends_everything() -> None:
    """librdkafka would retry for ever; the next process reads the secrets anew."""
    outbox = Outbox(NOWHERE)
    no = KafkaError(KafkaError._AUTHENTICATION, "SASL authentication error: no")
    outbox._producer.client.listener(no)
    for _ in range(2):
        with pytest.raises(DeliveryError, match=r"does not let us in .*: see that user, password"):
            outbox.poll()


def test_a_producer_that_was_given_up_can_never_send_again() -> None:
    """A snapshot store whose producer is in this state must not retry: its process must end."""
    assert CheckedProducer(NOWHERE).shut_out is False
    producer = CheckedProducer(NOWHERE)
    text = "Fatal error: Broker: Cluster authorization failed: no PID"
    producer.client.listener.log(50, "%s [%s] %s", "FATAL", "rdkafka#producer-1", text)
    for call in (producer.poll, producer.flush, lambda: producer.send("t", b"k", b"v")):
        with pytest.raises(
            DeliveryError, match=r"shut out .*no PID.: .*grant it Write on the topic"
        ):
            call()
    assert producer.shut_out
    assert producer.share().shut_out


def test_accounts_that_share_a_producer_do_not_see_each_others_failures() -> None:
    producer = CheckedProducer({**NOWHERE, "socket.timeout.ms": 200}, delivery_s=0.3)
    one, other = producer.share(), producer.share()
    one.send("t", b"k", b"v")
    with pytest.raises(DeliveryError, match=r"1 record was not delivered to t "):
        one.flush()
    other.flush()
    one.flush()
