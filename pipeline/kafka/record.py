"""One Kafka record, whichever client has read it; key, value and headers as on the wire."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from confluent_kafka import Message

from topics.headers import Header

RECORD_BYTES = 600
HEADER_BYTES = 150
"""Overhead of a header, a tuple with a str and bytes (146 bytes by `sys.getsizeof`, CPython 3.11),
and of a record with its delivery (370), rounded up for what is not seen that way."""


class Record(NamedTuple):
    """A record of a topic partition. `timestamp_ms` is -1 where there is none."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header] = ()

    @property
    def occupied(self) -> int:
        """Bytes of memory that it takes, about: Python's objects weigh more than what they hold."""
        size = len(self.key or b"") + len(self.value or b"") + RECORD_BYTES
        for name, value in self.headers:
            size += len(name) + HEADER_BYTES + (len(value) if value is not None else 0)
        return size

    @staticmethod
    def from_aiokafka(record: Any) -> Record:
        """From a record of Faust's consumer; repeated header names are kept."""
        return Record(
            record.topic,
            record.partition,
            record.offset,
            -1 if record.timestamp is None else record.timestamp,
            record.key,
            record.value,
            record.headers,
        )

    @staticmethod
    def from_confluent(message: Message) -> Record:
        """From a librdkafka message without an error."""
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        key: Any = message.key()
        value: Any = message.value()
        headers: Any = message.headers()
        assert topic is not None
        assert partition is not None
        assert offset is not None
        return Record(topic, partition, offset, message.timestamp()[1], key, value, headers or ())
