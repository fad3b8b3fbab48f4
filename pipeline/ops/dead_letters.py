"""Dead letters listed and sent back: every refused record once, whatever fails in between.

A letter may be on its topic twice (it is written at least once), so records are identified by
where they came from. What was sent back has a marker beside the letters, written in one transaction
with the record itself; markers are read after the transactional id is ours, so that of two redrives
at the same time the older is fenced. A record that is refused again is a new letter, since it has a
new offset at its source; if its bytes were refused for the same reason before, it is sent back only
where that is asked for: nothing has changed for it. A topic that was deleted and created anew has
the old offsets and another id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Producer

from pipeline.errors import ClusterError, FencedError, RequestError
from pipeline.kafka.clients import ClientSettings, request
from pipeline.kafka.reader import Progress, Reader, no_progress, read_range
from pipeline.kafka.record import Record
from topics.dead_letters import (
    REDRIVEN,
    DeadLetter,
    Redriven,
    is_marker,
    without_connect_headers,
)
from topics.headers import producer_headers, read_headers, record_bytes, write_headers
from topics.reasons import Reason, Rejection

BATCH = 100
"""Records per transaction: a crash sends at most so many again from the beginning."""
TRANSACTION_S = 60.0
SourcePosition = tuple[str, str | None, int, int]
Content = tuple[str, int, str, bytes]


@dataclass(frozen=True, slots=True)
class DeadLetterEntry:
    """One refused record: where its letter is, where it came from, why. No bytes of it."""

    partition: int
    offset: int
    time_ms: int
    letter: DeadLetter
    size: int
    redriven: bool = False
    copies: int = 1
    digest: bytes = b""
    """Hash of key and value."""
    refused_again: bool = False
    """Whether the same bytes were sent back before and are refused for the same reason."""

    @property
    def source(self) -> SourcePosition:
        """Where the record was read: what it is known by."""
        letter = self.letter
        return letter.topic, letter.topic_id, letter.partition, letter.offset

    @property
    def content(self) -> Content:
        """What it is known by when it comes again under another offset."""
        return self.letter.topic, self.letter.partition, self.letter.reason, self.digest


class Filter(NamedTuple):
    """Which dead letters; empty and None mean all."""

    reasons: Sequence[str] = ()
    since_ms: int | None = None
    until_ms: int | None = None

    def takes(self, letter: DeadLetterEntry) -> bool:
        """Whether a letter is among them; `until_ms` itself is not."""
        return (
            (not self.reasons or letter.letter.reason in self.reasons)
            and (self.since_ms is None or letter.time_ms >= self.since_ms)
            and (self.until_ms is None or letter.time_ms < self.until_ms)
        )


class DeadLetterTopic(NamedTuple):
    """The dead-letters topic of a prefix; `client` may hold secrets."""

    client: ClientSettings
    name: str
    prefix: str


def read_dead_letters(
    topic: DeadLetterTopic, progress: Progress = no_progress
) -> list[DeadLetterEntry]:
    """Every refused record, the oldest first, once; committed markers are taken into account."""
    first: dict[SourcePosition, DeadLetterEntry] = {}
    copies: dict[SourcePosition, int] = {}
    sent_back: dict[SourcePosition, int] = {}
    for record in _records(topic, progress):
        if is_marker(record.headers):
            marker = read_headers(Redriven, record.headers)
            if not isinstance(marker, Rejection):
                source = marker.topic, marker.topic_id, marker.partition, marker.offset
                sent_back[source] = record.timestamp_ms
            continue
        entry = _entry(record)
        if entry is not None:
            first.setdefault(entry.source, entry)
            copies[entry.source] = copies.get(entry.source, 0) + 1
    tried: dict[Content, int] = {}
    for source, each in first.items():
        if source in sent_back:
            before = tried.get(each.content, sent_back[source])
            tried[each.content] = min(before, sent_back[source])
    found = [
        replace(
            each,
            redriven=source in sent_back,
            copies=copies[source],
            refused_again=tried.get(each.content, each.time_ms + 1) <= each.time_ms,
        )
        for source, each in first.items()
    ]
    return sorted(found, key=lambda each: (each.time_ms, each.partition, each.offset))


def why_not(letter: DeadLetterEntry, sources: Mapping[str, int], again: bool = False) -> str | None:
    """Why a letter cannot be sent back, or None; `sources` are topics with their partitions.

    With `again` also one whose bytes were refused before for the same reason.
    """
    if letter.redriven:
        return "was redriven before"
    if letter.refused_again and not again:
        return "was sent back before and refused for the same reason; --again tries once more"
    if letter.letter.reason == Reason.TOO_LARGE or letter.letter.length is not None:
        return "was truncated: send the record again from its source"
    if letter.letter.topic not in sources:
        return f"comes from {letter.letter.topic}, to which only dtgol writes"
    if letter.letter.partition >= sources[letter.letter.topic]:
        return f"comes from a partition that {letter.letter.topic} does not have"
    return None


class Redrive:
    """A transactional producer for one redrive; makes every earlier one of the prefix fail."""

    def __init__(self, topic: DeadLetterTopic) -> None:
        self._topic = topic
        with request("no transaction can be begun"):
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

    def send(self, letters: Sequence[DeadLetterEntry], update: Callable[[int], None]) -> int:
        """Send records back, with their markers; how many. Raises `FencedError`."""
        done = 0
        by_partition: dict[int, dict[int, DeadLetterEntry]] = {}
        for letter in letters:
            by_partition.setdefault(letter.partition, {})[letter.offset] = letter
        for partition, wanted in sorted(by_partition.items()):
            batch: list[tuple[DeadLetterEntry, Record]] = []
            for record in self._fetch(partition, wanted):
                batch.append((wanted[record.offset], record))
                if len(batch) == BATCH:
                    done += self._commit(batch)
                    update(done)
                    batch = []
            done += self._commit(batch)
            update(done)
        return done

    def _fetch(self, partition: int, wanted: Mapping[int, DeadLetterEntry]) -> Iterator[Record]:
        client, start, end = self._topic.client, min(wanted), max(wanted) + 1
        for record in read_range(client, self._topic.name, partition, start, end):
            if record.offset in wanted:
                yield record

    def _commit(self, batch: Sequence[tuple[DeadLetterEntry, Record]]) -> int:
        if not batch:
            return 0
        try:
            self._producer.begin_transaction()
            for entry, record in batch:
                self._put(entry, record)
            self._producer.commit_transaction(TRANSACTION_S)
        except KafkaException as error:
            raise self._failed(error.args[0]) from None
        except KeyboardInterrupt:
            self._abort()  # else readers of committed records wait for it to time out
            raise
        return len(batch)

    def _put(self, entry: DeadLetterEntry, record: Record) -> None:
        """The record to the partition it came from, and the marker beside its dead letter."""
        topic, topic_id, partition, offset = entry.source
        name = f"{entry.partition}/{entry.offset}"
        own = without_connect_headers(producer_headers(record.headers))
        headers: list[Any] = [*own, (REDRIVEN, name.encode())]
        self._producer.produce(
            topic, record.value, record.key, partition=partition, headers=headers
        )
        marker: list[Any] = write_headers(Redriven(topic, partition, offset, name, topic_id))
        self._producer.produce(self._topic.name, partition=entry.partition, headers=marker)

    def _abort(self) -> None:
        """Take the open transaction back; where that fails the broker does, when its time is up."""
        with suppress(KafkaException):
            self._producer.abort_transaction(TRANSACTION_S)

    def _failed(self, error: KafkaError) -> Exception:
        """What became of a transaction that was not committed: nothing of it counts."""
        if error.fatal():
            return FencedError(
                "another redrive has begun, and this one was fenced; nothing is half done: "
                "wait until it has ended, then run this again"
            )
        if error.txn_requires_abort():
            self._abort()
        why = f"a transaction was not completed: {error.str()}"
        return RequestError(f"{why}; run this again, it skips what was sent")


def source_counts(topic: DeadLetterTopic, names: Sequence[str]) -> dict[str, int]:
    """The partitions of the topics that records may be sent back to."""
    with closing(Reader(topic.client)) as reader:
        counts = reader.partition_counts()
    return {name: counts[name] for name in names if name in counts}


def _records(topic: DeadLetterTopic, progress: Progress) -> Iterator[Record]:
    with closing(Reader(topic.client)) as reader:
        count = reader.partition_counts().get(topic.name)
        if count is None:
            raise ClusterError(f"no topic {topic.name}: run dtgol topics apply first")
        marks = [reader.watermarks(topic.name, number) for number in range(count)]
    read = 0
    with progress(sum(high - low for low, high in marks)) as update:
        for number, (low, high) in enumerate(marks):
            for record in read_range(topic.client, topic.name, number, low) if low < high else ():
                yield record
                update(min(read + high - low, read + record.offset + 1 - low))
            read += high - low


def _entry(record: Record) -> DeadLetterEntry | None:
    letter = read_headers(DeadLetter, record.headers)
    if isinstance(letter, Rejection):
        return None
    own = producer_headers(record.headers)
    size = letter.length or record_bytes(record.key, record.value, own)
    digest = sha256(record.key or b"")
    digest.update(record.value or b"")
    return DeadLetterEntry(
        *(record.partition, record.offset, record.timestamp_ms, letter, size),
        digest=digest.digest(),
    )
