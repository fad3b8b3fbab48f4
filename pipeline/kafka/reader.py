"""The one way to read from Kafka outside Faust: committed records only, and it blocks.

`Reader` reads chosen partitions from chosen offsets on, in no group: nothing is joined or
committed. `read_range` is one partition up to an offset or its end, for restores and replays;
`Tail` the last records of topics and what comes after them. With a group a `Reader` shares a topic
with others, for consumers of predictions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from typing import Any, NamedTuple
from uuid import uuid4

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from pipeline.errors import AbandonedError, RefusalError, UnansweredError
from pipeline.kafka.clients import (
    CONNECT_S,
    ClientSettings,
    MonitoredConsumer,
    describe,
    fetch_metadata,
    request,
)
from pipeline.kafka.record import Record

BATCH = 500
POLL_S = 0.5
ANSWER_S = 30.0
RETRY_S = 0.2
SETTINGS: ClientSettings = {
    "isolation.level": "read_committed",
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "allow.auto.create.topics": False,
    "auto.offset.reset": "error",
    "log_level": 0,
}
GROUP_HIDDEN = KafkaError.GROUP_AUTHORIZATION_FAILED
"""librdkafka wants a group's name and looks for its coordinator even if it is never joined; a
user without rights to that group can read all the same, so a reader outside groups needs no such
right and ignores this error."""
_LEADERLESS = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError._UNKNOWN_PARTITION,  # a broker that has just come back knows none for a moment
)
_TRANSIENT = (
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError._TIMED_OUT,
)
"""Errors that librdkafka reports and then recovers from by itself."""
_AUTH = (
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError._SSL,
)


Progress = Callable[[int], AbstractContextManager[Callable[[int], None]]]
"""Shows how far a long read is: gets how many records it is about, then how many so far."""


def no_progress(_: int) -> AbstractContextManager[Callable[[int], None]]:
    """For who does not want to see it."""
    return nullcontext(lambda _: None)


class Watermarks(NamedTuple):
    """The first offset that is kept, and the one after the last."""

    low: int
    high: int


def never() -> bool:
    """For readers that are never abandoned."""
    return False


class Reader:
    """Records of chosen topic partitions; close it, or use `contextlib.closing`.

    Parameters
    ----------
    group
        Share a topic with the other members of this group: `subscribe` in place of `start`, and
        `store` for what is handled.
    settings
        Of librdkafka, on top of those that every reader has.
    """

    def __init__(self, client: ClientSettings, group: str | None = None, **settings: Any) -> None:
        self._in_group = group is not None
        name = group or f"dtgol-reader-{uuid4().hex[:12]}"  # librdkafka wants one; never joined
        self._consumer = MonitoredConsumer({**SETTINGS, "group.id": name, **client, **settings})
        self._ends: dict[tuple[str, int], int] = {}

    def close(self) -> None:
        """Release the connections."""
        self._consumer.close()

    def metadata(self, limit_s: float = CONNECT_S) -> Any:
        """Brokers and topics of the cluster; asking creates none."""
        self._consumer.poll(0)  # takes a fresh OAUTHBEARER token, where there are such
        return fetch_metadata(self._consumer, limit_s)

    def partition_counts(self) -> dict[str, int]:
        """Every topic of the cluster with its number of partitions."""
        return {name: len(each.partitions) for name, each in self.metadata().topics.items()}

    def watermarks(self, topic: str, partition: int, limit_s: float = ANSWER_S) -> Watermarks:
        """Asked now, and again while the partition has no leader that knows it.

        So it is a moment after it was created, and while brokers change.
        """
        until = time.monotonic() + limit_s
        place = TopicPartition(topic, partition)
        with request(f"{topic} partition {partition} cannot be read"):
            while True:
                try:
                    low, high = self._consumer.get_watermark_offsets(place, timeout=limit_s)
                    return Watermarks(int(low), int(high))
                except KafkaException as error:
                    if error.args[0].code() not in _LEADERLESS or time.monotonic() > until:
                        raise
                    time.sleep(RETRY_S)

    def start(self, positions: Mapping[tuple[str, int], int]) -> None:
        """Read these topic partitions from these offsets on."""
        self._ends.clear()
        places = [TopicPartition(*place, offset) for place, offset in positions.items()]
        with request():
            self._consumer.assign(places)

    def subscribe(self, topic: str) -> None:
        """Read the share of a topic that the group gives us."""
        self._consumer.subscribe([topic])

    def store(self, record: Record) -> None:
        """A record is handled: the group goes on behind it."""
        place = TopicPartition(record.topic, record.partition, record.offset + 1)
        # After a rebalance the partition may be another member's, who will handle it again.
        with suppress(KafkaException):
            self._consumer.store_offsets(offsets=[place])

    def poll(self, timeout_s: float = POLL_S, most: int = BATCH) -> list[Record]:
        """What comes within the timeout, or `most` records sooner; empty if nothing does."""
        with request():
            messages = self._consumer.consume(most, timeout_s)
            return [Record.from_confluent(each) for each in messages if self._is_record(each)]

    def end_of(self, topic: str, partition: int) -> int | None:
        """Where a partition ended when it was last read to its end; None if it was not yet."""
        return self._ends.get((topic, partition))

    def _is_record(self, message: Message) -> bool:
        """Whether a message is a record; an end is noted, errors that do not pass are raised."""
        error = message.error()
        if error is None:
            return True
        if error.code() == KafkaError._PARTITION_EOF:
            place = message.topic() or "", message.partition() or 0
            self._ends[place] = message.offset() or 0
        elif error.code() == GROUP_HIDDEN and not self._in_group:
            pass
        elif error.code() not in _TRANSIENT and not error.retriable():
            raise KafkaException(error)
        return False


class Tail(Reader):
    """The last records of some topics, and whatever comes after them.

    Parameters
    ----------
    topics
        Full names. One that is not there is left out, and in `missing`.
    last
        Begin this many offsets before each partition's end; ``None`` begins at its beginning.
    """

    def __init__(
        self, client: ClientSettings, topics: Sequence[str], last: int | None = None
    ) -> None:
        super().__init__(client, **{"auto.offset.reset": "earliest"})
        try:
            counts = self.partition_counts()
            self.missing = [topic for topic in topics if topic not in counts]
            self.watermarks_at_start = {
                (topic, number): self.watermarks(topic, number)
                for topic in topics
                for number in range(counts.get(topic, 0))
            }
        except BaseException:
            self.close()
            raise
        starts = {
            place: low if last is None else max(low, high - last)
            for place, (low, high) in self.watermarks_at_start.items()
        }
        self._behind = {
            place for place, (_, high) in self.watermarks_at_start.items() if starts[place] < high
        }
        self.behind_at_start = sum(
            max(0, high - starts[place]) for place, (_, high) in self.watermarks_at_start.items()
        )
        """Offsets between where reading begins and where the topics ended then."""
        self.start(starts)

    @property
    def caught_up(self) -> bool:
        """Whether every partition has been read to its end at least once."""
        return all(self.end_of(*place) is not None for place in self._behind)

    def catch_up(self, limit_s: float) -> Iterator[Record]:
        """Everything up to where the topics end; stops, not caught up, at the limit."""
        until = time.monotonic() + limit_s
        while not self.caught_up and time.monotonic() < until:
            yield from self.poll()


def watermarks(client: ClientSettings, topic: str, partition: int) -> Watermarks:
    """The watermarks of one partition, where no reader is open."""
    with closing(Reader(client)) as reader:
        return reader.watermarks(topic, partition)


def read_range(
    client: ClientSettings,
    topic: str,
    partition: int,
    start: int,
    end: int | None = None,
    abandoned: Callable[[], bool] = never,
) -> Iterator[Record]:
    """Records from `start` up to before `end`, or to the end of the partition as it is at first.

    Raises `AbandonedError` once `abandoned` gives True.
    """
    with closing(Reader(client)) as reader:
        # Asked for: librdkafka tells of an end only after a fetch that brought nothing, which does
        # not come while records come more often than twice a second.
        last = reader.watermarks(topic, partition).high if end is None else end
        reader.start({(topic, partition): start})
        while start < last:
            if abandoned():
                raise AbandonedError
            for record in reader.poll():
                if record.offset >= last:
                    return
                start = record.offset + 1
                yield record
            reached = reader.end_of(topic, partition)
            # The last offsets may be a transaction's markers, which are no records, or belong to
            # one that is open.
            if reached is not None and (end is None or reached >= last):
                return


def committed_offsets(
    client: ClientSettings, group: str, topic: str, partitions: Sequence[int]
) -> dict[int, int | None]:
    """What a group has committed, without joining it; a coordinator that moves is waited for."""
    found = _ask_committed(client, group, topic, partitions)
    if not isinstance(found, KafkaError):
        return {each.partition: each.offset if each.offset >= 0 else None for each in found}
    why = f"the offsets of group {group} cannot be read: {describe(found)}"
    raise RefusalError(why) if found.code() in _AUTH else UnansweredError(why)


def is_hidden(client: ClientSettings, group: str, topic: str) -> bool:
    """Whether our user has no right to see a group: then it may not join it either."""
    found = _ask_committed(client, group, topic, [0])
    return isinstance(found, KafkaError) and found.code() == GROUP_HIDDEN


def _ask_committed(
    client: ClientSettings, group: str, topic: str, partitions: Sequence[int]
) -> list[TopicPartition] | KafkaError:
    """The answer, or the last error.

    That a group is hidden from us only comes by a poll, while the question goes on until its time
    is over: so it is asked for a moment first, then for longer.
    """
    settings = {"group.id": group, "enable.auto.commit": False, "log_level": 0}
    until, patience_s = time.monotonic() + ANSWER_S, RETRY_S
    with closing(Consumer({**client, **settings})) as consumer:
        while True:
            left_s = max(RETRY_S, until - time.monotonic())
            patience_s = min(2 * patience_s, left_s)
            places = [TopicPartition(topic, number) for number in partitions]
            try:
                answer: list[TopicPartition] = consumer.committed(places, timeout=patience_s)
                return answer
            except KafkaException as failure:
                error: KafkaError = failure.args[0]
            message = consumer.poll(0)
            hidden = message.error() if message is not None else None
            if hidden is not None and hidden.code() == GROUP_HIDDEN:
                return hidden
            if error.code() in _AUTH or time.monotonic() > until:
                return error
            time.sleep(RETRY_S)
