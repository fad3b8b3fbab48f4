"""Which records hold an id, and the request that goes to every partition."""

from __future__ import annotations

import pytest

from pipeline.errors import DeliveryError
from pipeline.kafka.record import Record
from pipeline.ops import erase
from pipeline.ops.erase import Holds, holds_id, request_erasure
from topics.dead_letters import DeadLetter
from topics.headers import Header, write_headers

TRUNCATED = write_headers(DeadLetter("features", 0, 3, "too-large", "record", 300_000, "00" * 32))
WHOLE = write_headers(DeadLetter("features", 0, 3, "not-json", "value"))


def record(
    value: bytes | None, key: bytes | None = b"k", headers: list[Header] | None = None
) -> Record:
    return Record("topic", 0, 0, 0, key, value, headers or [])


@pytest.mark.parametrize(
    ("value", "holds"),
    [
        (b'{"id":"7","x":{}}', "yes"),
        (b'{"id":7,"stream":null,"y":1}', "yes"),
        (b'{"id":"8","defaulted":["7"]}', "yes"),
        (b'{"id":"7","stream":"other"}', "no"),
        (b'{"erase":"8a4de21a67b0f915","stream":"default"}', "no"),
        (b"not json", "no"),
        (None, "no"),
    ],
)
def test_a_record_holds_an_id_or_not(value: bytes | None, holds: Holds) -> None:
    assert holds_id(record(value), "default", "7") == holds


@pytest.mark.parametrize(
    ("letter", "holds"),
    [
        (record(b'{"id":"other-1","x":{"te', headers=TRUNCATED), "maybe"),
        (record(b'{"id":"patient-7"', headers=WHOLE), "maybe"),
        (record(b"\x00\x01avro\x12patient-7", headers=WHOLE), "maybe"),
        (record(b"oops", b"patient-7", WHOLE), "maybe"),
        (record(None, b"patient-7"), "maybe"),
        (record(b'{"id":"patient-8"', headers=WHOLE), "no"),
        (record(b'{"id":"patient-8","x":{}}', headers=WHOLE), "no"),
    ],
)
def test_what_cannot_be_read_may_hold_it(letter: Record, holds: Holds) -> None:
    """Seen: a truncated dead letter with the patient in it was not among what remains."""
    assert holds_id(letter, "default", "patient-7") == holds


class FakeProducer:
    """Takes records; fails at the end if it is told to."""

    failure: str | None = None

    def __init__(self, client: object, advice: str) -> None:
        self.sent: list[tuple[bytes, int]] = []
        made.append(self)

    def send(self, topic: str, key: bytes, value: bytes, partition: int) -> None:
        self.sent.append((value, partition))

    def flush(self) -> None:
        if self.failure is not None:
            raise DeliveryError(self.failure)


made: list[FakeProducer] = []


class FakeReader:
    """A cluster with three partitions of labels."""

    def __init__(self, client: object) -> None:
        pass

    def partition_counts(self) -> dict[str, int]:
        return {"labels": 3}

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def fake_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    made.clear()
    monkeypatch.setattr(erase, "CheckedProducer", FakeProducer)
    monkeypatch.setattr(erase, "Reader", FakeReader)


def test_the_request_goes_to_every_partition_without_the_id() -> None:
    assert request_erasure({}, "labels", "ward", "patient-7") == 3
    (producer,) = made
    assert [partition for _, partition in producer.sent] == [0, 1, 2]
    assert not any(b"patient-7" in value for value, _ in producer.sent)


def test_a_request_that_is_not_delivered_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeProducer, "failure", "1 record was not delivered to labels[2]")
    with pytest.raises(DeliveryError, match=r"not written everywhere: .* labels\[2\]"):
        request_erasure({}, "labels", "ward", "patient-7")
