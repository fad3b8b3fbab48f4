"""One record, whichever client has read it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from pipeline.kafka.record import UNREADABLE, Record

HEADERS = [("trace", b"1"), ("trace", b"2"), ("none", None)]


def aiokafka_record(**more: Any) -> Any:
    given = {"timestamp": 1234, "key": b"k", "value": b"v", "headers": HEADERS}
    return SimpleNamespace(topic="t", partition=3, offset=7, **(given | more))


class ConfluentMessage(SimpleNamespace):
    """librdkafka's message: everything is a call."""

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        return found if name.startswith("_") else lambda: found


def test_a_record_is_a_plain_value() -> None:
    assert Record("t", 0, 1, 2, None, None) == Record("t", 0, 1, 2, None, None, ())


def test_it_is_the_same_from_both_clients() -> None:
    expected = Record("t", 3, 7, 1234, b"k", b"v", HEADERS)
    assert Record.from_aiokafka(aiokafka_record()) == expected
    fields: dict[str, Any] = {"topic": "t", "partition": 3, "offset": 7, "headers": HEADERS}
    message: Any = ConfluentMessage(**fields, key=b"k", value=b"v", timestamp=(1, 1234))
    assert Record.from_confluent(message) == expected


def test_what_is_not_there() -> None:
    given = aiokafka_record(timestamp=None, key=None, value=None, headers=())
    assert Record.from_aiokafka(given) == Record("t", 3, 7, -1, None, None, ())


def test_a_header_name_that_is_not_utf_8_is_seen_by_both_clients() -> None:
    """confluent-kafka raises at the first question, and gives null pointers at the second."""

    class Unreadable(ConfluentMessage):
        def headers(self) -> Any:
            raise SystemError("returned a result with an exception set")

        def __getattribute__(self, name: str) -> Any:
            return (
                object.__getattribute__(self, name)
                if name == "headers"
                else super().__getattribute__(name)
            )

    expected = Record("t", 3, 7, 1234, b"k", b"v", (), unreadable=True)
    assert Record.from_aiokafka(aiokafka_record(headers=UNREADABLE)) == expected
    message: Any = Unreadable(
        topic="t", partition=3, offset=7, key=b"k", value=b"v", timestamp=(1, 1234)
    )
    assert Record.from_confluent(message) == expected
