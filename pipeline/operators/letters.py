"""Dead letters listed and sent back: every refused record once, whatever fails in between.

A letter may stand on its topic twice (it is written at least once), so records are known by where
they came from. What was sent back has a marker beside the letters, written in one transaction with
the record itself; markers are read after the transactional id is ours, so that of two who redrive
at the same time one is shut out. At most once per refusal: a record that is refused again is a new
letter, since it has a new offset at its source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from pipeline.access.door import ClusterError, said
from pipeline.client.tail import open_consumer, partition_counts
from pipeline.reader import bounds, read_range
from topics.deadletters import REDRIVEN, DeadLetter, Redriven, is_marker
from topics.headers import Header, foreign, read_headers, record_bytes, write_headers
from topics.refusals import Reason, Rejection

BATCH = 100
"""Records per transaction: a crash sends at most so many again from the beginning."""
TRANSACTION_S = 60.0
Source = tuple[str, int, int]


class FencedError(RuntimeError):
    """Somebody else has begun to redrive the same topics; nothing was left half done."""


@dataclass(frozen=True, slots=True)
class Refused:
    """One refused record: where its letter is, where it came from, why. No bytes of it."""

    partition: int
    offset: int
    time_ms: int
    letter: DeadLetter
    size: int
    redriven: bool = False
    copies: int = 1

    @property
    def source(self) -> Source:
        """Where the record was read: what it is known by."""
        return self.letter.topic, self.letter.partition, self.letter.offset


class Filter(NamedTuple):
    """Which letters; empty and None mean all."""

    reasons: Sequence[str] = ()
    since_ms: int | None = None
    until_ms: int | None = None

    def takes(self, letter: Refused) -> bool:
        """Whether a letter is among them; `until_ms` itself is not."""
        return (
            (not self.reasons or letter.letter.reason in self.reasons)
            and (self.since_ms is None or letter.time_ms >= self.since_ms)
            and (self.until_ms is None or letter.time_ms < self.until_ms)
        )


class Topic(NamedTuple):
    """The dead-letters topic of a prefix; `client` may hold secrets."""

    client: Mapping[str, Any]
    name: str
    prefix: str


def read_letters(topic: Topic) -> list[Refused]:
    """Every refused record, the oldest first, once; committed markers are taken into account."""
    first: dict[Source, Refused] = {}
    copies: dict[Source, int] = {}
    sent_back: set[Source] = set()
    for message in _messages(topic):
        headers: list[Header] = message.headers() or []  # type: ignore[assignment]
        if is_marker(headers):
            marker = read_headers(Redriven, headers)
            if not isinstance(marker, Rejection):
                sent_back.add((marker.topic, marker.partition, marker.offset))
            continue
        letter = _letter(message, headers)
        if letter is not None:
            first.setdefault(letter.source, letter)
            copies[letter.source] = copies.get(letter.source, 0) + 1
    found = [
        Refused(
            each.partition,
            each.offset,
            each.time_ms,
            each.letter,
            each.size,
            source in sent_back,
            copies[source],
        )
        for source, each in first.items()
    ]
    return sorted(found, key=lambda each: (each.time_ms, each.partition, each.offset))


def why_not(letter: Refused, sources: Mapping[str, int]) -> str | None:
    """Why a letter cannot be sent back, or None; `sources` are topics with their partitions."""
    if letter.redriven:
        return "was redriven before"
    if letter.letter.reason == Reason.TOO_LARGE or letter.letter.length is not None:
        return "was cut: send the record again from where it came"
    if letter.letter.topic not in sources:
        return f"comes from {letter.letter.topic}, to which nobody but dtgol writes"
    if letter.letter.partition >= sources[letter.letter.topic]:
        return f"comes from a partition that {letter.letter.topic} does not have"
    return None


class Redrive:
    """A transactional producer for one redrive; makes every earlier one of the prefix fail."""

    def __init__(self, topic: Topic) -> None:
        self._topic = topic
        try:
            self._producer = Producer(
                {
                    **topic.client,
                    "transactional.id": f"{topic.prefix}dtgol-redrive",
                    "transaction.timeout.ms": int(TRANSACTION_S * 1000),
                    "message.max.bytes": 1_048_576,
                    "log_level": 0,
                }
            )
            self._producer.init_transactions(TRANSACTION_S)
        except KafkaException as error:
            raise ClusterError(f"no transaction can be begun: {said(error.args[0])}") from None

    def send(self, letters: Sequence[Refused], tell: Callable[[int], None]) -> int:
        """Send records back, with their markers; how many. Raises `FencedError`."""
        done = 0
        by_partition: dict[int, dict[int, Refused]] = {}
        for letter in letters:
            by_partition.setdefault(letter.partition, {})[letter.offset] = letter
        for partition, wanted in sorted(by_partition.items()):
            batch: list[tuple[Refused, Message]] = []
            for message in self._fetch(partition, wanted):
                batch.append((wanted[message.offset() or 0], message))
                if len(batch) == BATCH:
                    done += self._commit(batch)
                    tell(done)
                    batch = []
            done += self._commit(batch)
            tell(done)
        return done

    def _fetch(self, partition: int, wanted: Mapping[int, Refused]) -> Iterator[Message]:
        client, start, end = self._topic.client, min(wanted), max(wanted) + 1
        for message in read_range(client, self._topic.name, partition, start, end):
            if message.offset() in wanted:
                yield message

    def _commit(self, batch: Sequence[tuple[Refused, Message]]) -> int:
        if not batch:
            return 0
        try:
            self._producer.begin_transaction()
            for letter, message in batch:
                self._put(letter, message)
            self._producer.commit_transaction(TRANSACTION_S)
        except KafkaException as error:
            raise self._failed(error.args[0]) from None
        return len(batch)

    def _put(self, letter: Refused, message: Message) -> None:
        """The record to the partition it came from, and the marker beside its letter."""
        topic, partition, offset = letter.source
        name = f"{letter.partition}/{letter.offset}"
        own = foreign(message.headers() or [])  # type: ignore[arg-type]
        headers: list[Any] = [*own, (REDRIVEN, name.encode())]
        key, value = message.key(), message.value()
        self._producer.produce(topic, value, key, partition=partition, headers=headers)
        marker: list[Any] = write_headers(Redriven(topic, partition, offset, name))
        self._producer.produce(self._topic.name, partition=letter.partition, headers=marker)

    def _failed(self, error: KafkaError) -> Exception:
        """What became of a transaction that was not committed: nothing of it counts."""
        if error.fatal():
            return FencedError(
                "another redrive has begun, and this one was shut out; nothing is half done: "
                "wait until it has ended, then run this again"
            )
        if error.txn_requires_abort():
            self._producer.abort_transaction(TRANSACTION_S)
        why = f"a transaction was not completed: {error.str()}"
        return ClusterError(f"{why}; run this again, what was sent is known")


def source_counts(topic: Topic, names: Sequence[str]) -> dict[str, int]:
    """The partitions of the topics that records may be sent back to."""
    consumer = open_consumer(topic.client)
    try:
        counts = partition_counts(consumer)
    finally:
        consumer.close()
    return {name: counts[name] for name in names if name in counts}


def _messages(topic: Topic) -> Iterator[Message]:
    consumer = open_consumer(topic.client)
    try:
        count = partition_counts(consumer).get(topic.name)
        if count is None:
            raise ClusterError(f"no topic {topic.name}: run dtgol topics apply first")
        ranges = [bounds(consumer, topic.name, number) for number in range(count)]
    finally:
        consumer.close()
    for number, (low, high) in enumerate(ranges):
        if low < high:
            yield from read_range(topic.client, topic.name, number, low)


def _letter(message: Message, headers: list[Header]) -> Refused | None:
    letter = read_headers(DeadLetter, headers)
    if isinstance(letter, Rejection):
        return None
    key, value = message.key(), message.value()
    assert not isinstance(key, str)
    assert not isinstance(value, str)
    size = letter.length or record_bytes(key, value, foreign(headers))
    return Refused(
        message.partition() or 0, message.offset() or 0, message.timestamp()[1], letter, size
    )
