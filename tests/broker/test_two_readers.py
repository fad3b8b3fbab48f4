"""Odd records through both Kafka clients: what is in the journal is read alike by either.

aiokafka (behind Faust) reads the journal while a worker runs, librdkafka when it is restored or
replayed. They differ: librdkafka shows no header of a record with more than 100,000, and ends a
header's name at a NUL; neither reads a name that is not UTF-8. The sequencer, whose sources are
read by aiokafka alone, keeps such records out of the journal.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.faust_ext.consumer import FetchedBatch
from pipeline.faust_ext.source_reader import SourceReader
from pipeline.kafka.reader import read_range, watermarks
from pipeline.kafka.record import Record
from pipeline.kafka.writer import Outbox
from pipeline.sandbox.brokers import Broker
from pipeline.sequencing.sequencer import Clock, PartitionSequencer, SequencerConfig
from tests.broker.conftest import MakeTopics
from tests.support.fake_kafka import FakeKafka
from tests.support.latin_header import Latin, send_batch
from tests.support.stage import Stage
from topics.dead_letters import DeadLetter
from topics.headers import Header, producer_headers, read_headers
from topics.journal import SOURCE_HEADERS_MAX, RecordKind, Source

BOMB_FACTOR = 4
HEADERS_KEPT = 1_000 + SOURCE_HEADERS_MAX
TOPICS = ("features", "journal", "dead-letters")
texts = st.none() | st.binary(max_size=20) | st.just(b"x" * 300_000)
odd_names = ["", "a", "é", "a\0b", "\0", "dtgol-kind", "n" * 300, Latin("größe"), Latin("ÿ")]
names = st.sampled_from(odd_names) | st.text(max_size=8)
few = st.lists(st.tuples(names, st.none() | st.binary(max_size=200)), max_size=6)
many = st.sampled_from([1_000, 1_001, 100_001, 150_000]).map(lambda n: [("", b"")] * n)
odd_records = st.lists(st.tuples(texts, texts, few | many), min_size=1, max_size=8)


class Wire:
    """One partition of the topics, written and read by either client."""

    def __init__(self, broker: Broker, names: list[str]) -> None:
        self.broker = broker
        self.features, self.journal, self.dead_letters = names

    def send(self, records: list[Any]) -> None:
        asyncio.run(send_batch(self.broker.bootstrap, self.features, records))

    def by_aiokafka(self, topic: str, start: int, end: int) -> list[Record]:
        """As Faust's consumer delivers them."""
        reader = SourceReader({"bootstrap_servers": self.broker.bootstrap}, HEADERS_KEPT)
        found = reader.read(topic, 0, start, end, lambda: False)
        return [record._replace(headers=list(record.headers)) for record in found]

    def by_librdkafka(self, topic: str, start: int, end: int) -> list[Record]:
        found = read_range(self.broker.config, topic, 0, start, end)
        return [record._replace(headers=list(record.headers)) for record in found]

    def end(self, topic: str) -> int:
        return watermarks(self.broker.config, topic, 0).high

    async def sequence(self, records: list[Record]) -> None:
        """Copy source records as a worker does."""
        outbox: Any = Outbox(self.broker.config)
        writers = outbox.partition(self.journal, 0), outbox.partition(self.dead_letters, 0)
        config = SequencerConfig(
            0, (self.features, "labels"), ("f", "l"), 262_144, 0, 10_000, 10_000
        )
        kafka, learner = FakeKafka(), Any
        clock = Clock(lambda: 0.0, lambda: 0.0)
        sequencer = PartitionSequencer(config, kafka, learner, outbox, *writers, clock)  # type: ignore[arg-type]
        sequencer.put(self.features, FetchedBatch(records, -1, 1))
        assert sequencer.copy_batch() == len(records)
        for writer in writers:
            await writer.settled()


@pytest.fixture
def wire(real_broker: Broker, make_topics: MakeTopics) -> Wire:
    return Wire(real_broker, make_topics(dict.fromkeys(TOPICS, 1)))


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(records=odd_records)
def test_both_clients_read_the_same_journal(wire: Wire, records: list[Any]) -> None:
    starts = {topic: wire.end(topic) for topic in (wire.features, wire.journal)}
    wire.send(records)
    first = starts[wire.features]
    sources = wire.by_aiokafka(wire.features, first, first + len(records))
    alike = wire.by_librdkafka(wire.features, first, first + len(records))
    assert [each.unreadable for each in sources] == [each.unreadable for each in alike]
    asyncio.run(wire.sequence(sources))
    start, end = starts[wire.journal], wire.end(wire.journal)
    live = wire.by_aiokafka(wire.journal, start, end)
    assert len(live) == len(records)
    assert live == wire.by_librdkafka(wire.journal, start, end)
    for record, (key, value, headers) in zip(live, records, strict=True):
        source = read_headers(Source, record.headers)
        assert isinstance(source, Source)
        latin = any(isinstance(name, Latin) for name, _ in headers)
        if source.kind is RecordKind.COPY:
            assert (record.key, record.value) == (key, value)
            assert not latin
            assert producer_headers(record.headers) == [_ended(each) for each in own(headers)]
        else:
            assert (record.key, record.value, own(record.headers)) == (None, None, [])
            large = len(headers) > 1_000 or len(key or b"") + len(value or b"") > 262_144
            assert source.reason == ("header-name" if latin else "too-large")
            assert large or latin
    letters = wire.by_librdkafka(wire.dead_letters, 0, wire.end(wire.dead_letters))
    assert all(isinstance(read_headers(DeadLetter, each.headers), DeadLetter) for each in letters)


def own(headers: list[Header] | Any) -> list[Header]:
    return producer_headers(headers)


def _ended(header: Header) -> Header:
    """As librdkafka writes it: a name ends at its first NUL."""
    return header[0].partition("\0")[0], header[1]


async def send_bomb(bootstrap: str, topic: str, size: int) -> None:
    """One record that is small on the wire and large in memory."""
    settings = {"max_request_size": 2 * size, "compression_type": "gzip"}
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, **settings) as producer:
        await producer.send_and_wait(topic, bytes(size), b"key", 0)


def test_a_decompression_bomb_is_a_dead_letter(
    real_broker: Broker, prefix: str, tmp_path: Path
) -> None:
    """200 MB out of 200 kB; docs/limits.md gives the memory that it takes."""
    stage = Stage(real_broker, prefix, tmp_path, partitions=1)
    with stage.worker() as worker:
        worker.await_ready(1)
        before = peak_bytes(worker.child.pid)
        asyncio.run(send_bomb(real_broker.bootstrap, stage.topic("features"), 200_000_000))
        stage.features("behind", {"v": 1})
        stage.flush()
        stage.await_answers({"behind"}, worker)
        taken = peak_bytes(worker.child.pid) - before
        assert taken < BOMB_FACTOR * 200_000_000, taken
    ((letter, record),) = stage.letters()
    assert (letter.reason, letter.length) == ("too-large", 200_000_000)
    assert len(record.value or b"") < 1_000_000
    stage.verify()


def peak_bytes(pid: int) -> int:
    """The most memory that a process has had."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024
