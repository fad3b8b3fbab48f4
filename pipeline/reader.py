"""A partition read outside Faust and outside any group: for restores and replays.

Nothing is joined and nothing is committed; committed records only. It blocks, so it runs in a
thread, and it stops when it is told that nobody wants the rest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

BATCH = 500
POLL_S = 0.5
ASK_S = 30.0
AGAIN_S = 0.2


class AbandonedError(Exception):
    """The partition was taken away while it was being read."""


def never() -> bool:
    """Nobody takes the partition away."""
    return False


def bounds(consumer: Consumer, topic: str, partition: int) -> tuple[int, int]:
    """The first offset that is there, and the one after the last.

    Asked again while the partition has no leader that knows it: a moment after it was created, and
    while brokers change.
    """
    until = time.monotonic() + ASK_S
    while True:
        try:
            place = TopicPartition(topic, partition)
            low, high = consumer.get_watermark_offsets(place, timeout=ASK_S)
            return int(low), int(high)
        except KafkaException as error:
            if error.args[0].code() not in _LEADERLESS or time.monotonic() > until:
                raise
            time.sleep(AGAIN_S)


def open_reader(client: Mapping[str, Any]) -> Consumer:
    """A consumer in no group; `client` holds address and security."""
    return Consumer(
        {
            **client,
            "group.id": "dtgol-reader",  # never joined: librdkafka wants a name
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "allow.auto.create.topics": False,
        }
    )


def look_at(client: Mapping[str, Any], topic: str, partition: int) -> tuple[int, int]:
    """The bounds of one partition, for who has no reader open."""
    consumer = open_reader(client)
    try:
        return bounds(consumer, topic, partition)
    finally:
        consumer.close()


def read_range(
    client: Mapping[str, Any],
    topic: str,
    partition: int,
    start: int,
    end: int | None = None,
    abandoned: Callable[[], bool] = never,
) -> Iterator[Message]:
    """Records from `start` up to before `end`, or to the end of the partition as it is then."""
    consumer = open_reader(client)
    try:
        consumer.assign([TopicPartition(topic, partition, start)])
        while end is None or start < end:
            if abandoned():
                raise AbandonedError
            for message in consumer.consume(BATCH, POLL_S):
                error = message.error()
                if error is not None:
                    if error.code() == KafkaError._PARTITION_EOF:
                        if end is None or (message.offset() or 0) >= end:
                            return
                        continue
                    if not error.retriable() and error.code() not in _PASSING:
                        raise KafkaException(error)
                    continue
                offset = message.offset()
                assert offset is not None
                if end is not None and offset >= end:
                    return
                start = offset + 1
                yield message
    finally:
        consumer.close()


NEVER_JOINED = KafkaError.GROUP_AUTHORIZATION_FAILED
"""librdkafka wants a group's name and looks for its coordinator even if nobody ever joins it; who
may not know that group reads all the same. So a reader in no group needs no right to one."""
_LEADERLESS = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError._UNKNOWN_PARTITION,  # a broker that has just come back knows none for a moment
)
_PASSING = (
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError._TIMED_OUT,
    NEVER_JOINED,
)
"""Errors that librdkafka reports and then mends by itself, or that do not matter here."""
