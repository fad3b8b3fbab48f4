"""One Kafka record, whichever client has read it; key, value and headers as on the wire."""

from __future__ import annotations

from collections.abc import Sequence
from operator import methodcaller
from typing import Any, NamedTuple

from confluent_kafka import Message

from topics.headers import Header

RECORD_BYTES = 600
HEADER_BYTES = 150
"""Overhead of a header, a tuple with a str and bytes (146 bytes by `sys.getsizeof`, CPython 3.11),
and of a record with its delivery (370), rounded up for what is not seen that way."""
UNREADABLE: tuple[Header, ...] = (("", b"not UTF-8"),)
"""In place of the headers of aiokafka's record, one of which has a name that is not UTF-8."""

_headers = methodcaller("headers")
"""At a name that is not UTF-8 `Message.headers` of confluent-kafka 2.16 gives a list with an
exception set: a `SystemError` where the interpreter checks for that. It does in a call from C; in
one that it has optimised it does not, and a later call that has nothing to do with it fails."""


class Record(NamedTuple):
    """A record of a topic partition. `timestamp_ms` is -1 where there is none."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header] = ()
    unreadable: bool = False
    """Whether a header has a name that is not UTF-8; then `headers` is empty."""

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
            () if record.headers is UNREADABLE else record.headers,
            record.headers is UNREADABLE,
        )

    @staticmethod
    def from_confluent(message: Message) -> Record:
        """From a librdkafka message without an error."""
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        key: Any = message.key()
        value: Any = message.value()
        headers: Any = None
        unreadable = False
        try:
            headers = _headers(message)
        except SystemError:
            # A second call would give null pointers for such names.
            unreadable = True
        assert topic is not None
        assert partition is not None
        assert offset is not None
        at = topic, partition, offset, message.timestamp()[1]
        return Record(*at, key, value, headers or (), unreadable)
