"""What the pipeline takes for granted about Faust, on real Kafka; run it before bumping Faust.

The subject is `faust_probe.py`, a process made as the real worker is. The facts come
from reading and measuring faust-streaming 0.15.3 and aiokafka 0.14 (docs/decisions/0010).
"""

import contextlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from pipeline.sandbox.brokers import Broker
from tests.broker.conftest import MakeTopics
from tests.support.forkserver import running
from tests.support.waiting import wait_until

PARTITIONS = 4
NOTHING = -1001  # librdkafka's value for a group that has committed nothing
COMMIT_INTERVALS_S = 2.0  # four of the probe's; a commit of Faust's own would have come by then

Headers = list[tuple[str, str | bytes | None]]


@dataclass(frozen=True)
class Probe:
    """A running probe; its events are read from its report."""

    report: Path
    process: Any

    def events(self, kind: str) -> list[dict[str, Any]]:
        lines = self.report.read_text().splitlines() if self.report.exists() else []
        return [event for event in map(json.loads, lines) if event["event"] == kind]

    def owned(self) -> set[tuple[str, int]]:
        assignments = self.events("assigned")
        return (
            {(topic, number) for topic, number in assignments[-1]["tps"]} if assignments else set()
        )

    def await_owned(self, count: int) -> set[tuple[str, int]]:
        def enough() -> set[tuple[str, int]]:
            return self.owned() if len(self.owned()) == count else set()

        return wait_until(enough, f"{count} partitions owned", alive=self.alive)

    def await_events(self, kind: str, count: int) -> list[dict[str, Any]]:
        def enough() -> list[dict[str, Any]]:
            return self.events(kind)[:count] if len(self.events(kind)) >= count else []

        return wait_until(enough, f"{count} times {kind}", alive=self.alive)

    def alive(self) -> bool:
        return self.process.poll() is None


@dataclass(frozen=True)
class Setup:
    """Two topics with equal partition counts, a group, and hands to send and look with."""

    broker: Broker
    topics: list[str]
    group: str
    folder: Path

    @contextlib.contextmanager
    def probe(self, name: str = "one", **settings: Any) -> Iterator[Probe]:
        committed_only = settings.pop("committed_only", True)
        report = self.folder / f"{name}.jsonl"
        order = {
            "app": self.group,
            "bootstrap": self.broker.bootstrap,
            "topics": self.topics,
            "report": str(report),
            "committed_only": committed_only,
            "settings": settings,
        }
        arguments = [json.dumps(order), "worker"]
        log_path = self.folder / f"{name}.log"
        with running("tests.broker.faust_probe", arguments, log_path) as process:
            yield Probe(report, process)

    def send(self, *records: tuple[bytes | None, bytes | None, Headers]) -> None:
        """Records to partition 0 of the first topic."""
        producer = Producer(self.broker.config)
        for key, value, headers in records:
            producer.produce(self.topics[0], value, key, partition=0, headers=headers)
        assert producer.flush(30) == 0

    def order_commit(self, offset: int, partition: int = 0) -> tuple[bytes, bytes, Headers]:
        """The record that makes the probe commit exactly this."""
        return b"k", b"v", [("commit", f"{self.topics[0]} {partition} {offset}".encode())]

    def committed(self) -> dict[tuple[str, int], int]:
        """What the group has committed, by the broker."""
        consumer = Consumer({**self.broker.config, "group.id": self.group})
        asked = [TopicPartition(topic, n) for topic in self.topics for n in range(PARTITIONS)]
        answer = consumer.committed(asked, timeout=30)
        consumer.close()
        return {
            (each.topic, each.partition): each.offset for each in answer if each.offset != NOTHING
        }


@pytest.fixture
def setup(real_broker: Broker, make_topics: MakeTopics, prefix: str, tmp_path: Path) -> Setup:
    topics = make_topics({"features": PARTITIONS, "labels": PARTITIONS})
    return Setup(real_broker, topics, f"{prefix}group", tmp_path)


def stay(seconds: float) -> None:
    """Let Faust's own timers run: the absence of a commit cannot be waited for otherwise."""
    until = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() > until, "time to pass", seconds + 5)


def test_commit_is_exactly_what_was_ordered(setup: Setup) -> None:
    """Also backwards, and not where the acks or the stream's position would put it."""
    with setup.probe() as probe:
        setup.send(*[(b"k", b"v", [])] * 5, setup.order_commit(3))
        assert probe.await_events("committed", 1) == [{"event": "committed", "answer": True}]
        assert setup.committed() == {(setup.topics[0], 0): 3}
        setup.send(setup.order_commit(1))
        probe.await_events("committed", 2)
        stay(COMMIT_INTERVALS_S)
        assert setup.committed() == {(setup.topics[0], 0): 1}
    assert setup.committed() == {(setup.topics[0], 0): 1}, "the end of a worker commits nothing"


def test_next_worker_starts_at_the_committed_offset(setup: Setup) -> None:
    with setup.probe() as first:
        setup.send(
            *[(b"k", str(number).encode(), []) for number in range(5)], setup.order_commit(3)
        )
        first.await_events("committed", 1)
    with setup.probe("two") as second:
        assert [each["offset"] for each in second.await_events("record", 3)] == [3, 4, 5]


def test_commit_for_a_foreign_partition_is_refused(setup: Setup) -> None:
    with setup.probe() as probe:
        setup.send(setup.order_commit(1, partition=PARTITIONS + 5))
        assert probe.await_events("committed", 1)[0]["answer"] is False
    assert setup.committed() == {}


def test_no_ack_stream_commits_nothing_by_itself(setup: Setup) -> None:
    with setup.probe() as probe:
        setup.send((b"k", b"v", []), (None, None, []), (b"k", None, []), (b"", b"", []))
        seen = probe.await_events("record", 4)
        stay(COMMIT_INTERVALS_S)
        assert setup.committed() == {}
    assert setup.committed() == {}, "nor at its end"
    pairs = [(each["key"], each["value"]) for each in seen]
    assert pairs == [("6b", "76"), (None, None), ("6b", None), ("", "")]


def test_headers_survive_byte_for_byte(setup: Setup) -> None:
    every_byte = bytes(range(256))
    with setup.probe() as probe:
        setup.send((b"k", b"v", [("every", every_byte), ("empty", b""), ("name-µ", b"1")]))
        (seen,) = probe.await_events("record", 1)
    assert seen["headers"] == {"every": every_byte.hex(), "empty": "", "name-µ": "31"}


def test_two_workers_own_equal_partition_numbers_of_both_topics(setup: Setup) -> None:
    everything = {(topic, number) for topic in setup.topics for number in range(PARTITIONS)}
    half = len(everything) // 2
    with setup.probe() as first:
        assert first.await_owned(len(everything)) == everything
        assert first.events("assigned")[-1]["assignor"] == "PartitionAssignor"
        with setup.probe("two") as second:
            shares = [first.await_owned(half), second.await_owned(half)]
            assert shares[0] | shares[1] == everything
            for share in shares:
                numbers = [
                    {number for topic, number in share if topic == name} for name in setup.topics
                ]
                assert numbers[0] == numbers[1]
        assert first.await_owned(len(everything)) == everything, "and all of it comes back"


def test_without_standbys_faust_falls_back_to_another_assignor(setup: Setup) -> None:
    """Why `table_standby_replicas` stays at its default although there is no table."""
    with setup.probe(table_standby_replicas=0) as probe:
        probe.await_owned(2 * PARTITIONS)
        assert probe.events("assigned")[-1]["assignor"] != "PartitionAssignor"


def test_a_seek_of_faust_while_records_flow_loses_none(setup: Setup) -> None:
    """Where one rebalance follows another; it used to drop what came right after the seek."""
    producer = Producer({**setup.broker.config, "linger.ms": 1})
    places = [(topic, number) for topic in setup.topics for number in range(PARTITIONS)]

    def send() -> None:
        for topic, number in places:
            producer.produce(topic, b"v", b"k", partition=number)
        producer.poll(0)

    with setup.probe() as probe:
        probe.await_owned(len(places))
        setup.send((b"k", b"v", [("resume", b"100")]))
        rounds = 0
        while not probe.events("resumed"):
            assert probe.alive()
            for _ in range(20):
                send()
                time.sleep(0.003)
            rounds += 20
        assert producer.flush(30) == 0
        ends = {place: rounds + (place == places[0]) for place in places}

        def seen(place: tuple[str, int]) -> set[int]:
            found = probe.events("record")
            return {each["offset"] for each in found if each["tp"] == [*place]}

        def last_came() -> bool:
            return all(end - 1 in seen(place) for place, end in ends.items())

        wait_until(last_came, "the last record of every partition", alive=probe.alive)
        missing = {place: set(range(end)) - seen(place) for place, end in ends.items()}
    assert not any(missing.values()), missing


@pytest.mark.parametrize("committed_only", [True, False])
def test_aborted_transactions_are_delivered_only_without_the_override(
    setup: Setup, committed_only: bool
) -> None:
    producer = Producer({**setup.broker.config, "transactional.id": setup.group})
    init_transactions(producer)
    for value, ends_well in ((b"aborted", False), (b"kept", True), (b"aborted", False)):
        producer.begin_transaction()
        producer.produce(setup.topics[0], value, b"k", partition=0)
        assert producer.flush(30) == 0
        (producer.commit_transaction if ends_well else producer.abort_transaction)(30)
    setup.send((b"k", b"last", []))
    with setup.probe(committed_only=committed_only) as probe:
        expected = (
            [b"kept", b"last"] if committed_only else [b"aborted", b"kept", b"aborted", b"last"]
        )
        seen = probe.await_events("record", len(expected))
    assert [bytes.fromhex(each["value"]) for each in seen] == expected


def test_open_transaction_holds_the_stream_back(setup: Setup) -> None:
    """A reader of committed records waits at the first undecided one; order is kept."""
    producer = Producer({**setup.broker.config, "transactional.id": setup.group})
    init_transactions(producer)
    producer.begin_transaction()
    producer.produce(setup.topics[0], b"undecided", b"k", partition=0)
    assert producer.flush(30) == 0
    setup.send((b"k", b"after", []))
    with setup.probe() as probe:
        probe.await_owned(2 * PARTITIONS)
        stay(COMMIT_INTERVALS_S)
        assert probe.events("record") == []
        producer.commit_transaction(30)
        values = [bytes.fromhex(each["value"]) for each in probe.await_events("record", 2)]
    assert values == [b"undecided", b"after"]


def init_transactions(producer: Producer) -> None:
    """The first transaction of a broker's life waits for its coordinator to load."""

    def ready() -> bool:
        try:
            producer.init_transactions(10)
        except KafkaException as failure:
            if not failure.args[0].retriable():
                raise
            return False
        return True

    wait_until(ready, "the transaction coordinator")
