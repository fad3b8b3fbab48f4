"""Fetched batches with a header whose name is not UTF-8, without a broker."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka.errors import CorruptRecordException
from aiokafka.record import memory_records
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy, _DefaultRecordBatchPy
from aiokafka.record.memory_records import _MemoryRecordsPy

from pipeline.faust_ext import tolerant
from pipeline.faust_ext.tolerant import TolerantRecords
from pipeline.kafka.record import UNREADABLE
from tests.support.latin_header import Latin

NONE, GZIP = 0, 1


Plain = tuple[bytes | None, bytes | None, list[Any]]


def batch(compression: int, base_offset: int, records: list[Plain]) -> bytes:
    about: Any = (2, compression, 0, -1, -1, -1, 1 << 20)
    builder = _DefaultRecordBatchBuilderPy(*about)
    for number, (key, value, headers) in enumerate(records):
        builder.append(number, 1_000 + number, key, value, headers)
    raw = bytearray(builder.build())
    raw[:8] = base_offset.to_bytes(8, "big")
    return bytes(raw)


def read(data: bytes) -> list[tuple[int, int, bytes | None, bytes | None, Any]]:
    records, found = TolerantRecords(data), []
    while records.has_next():
        for each in records.next_batch():
            headers = "unreadable" if each.headers is UNREADABLE else list(each.headers)
            found.append((each.offset, each.timestamp, each.key, each.value, headers))
    assert records.next_batch() is None
    assert records.size_in_bytes() == len(data)
    return found


BAD: Plain = (b"k1", b"v1", [("a", b"1"), (Latin("größe"), b"2"), ("b", None)])
GOOD: Plain = (b"k", None, [("é", None)])
BARE: Plain = (None, b"v", [])


@pytest.mark.parametrize("compression", [NONE, GZIP])
@pytest.mark.parametrize("parser", ["compiled", "python"])
def test_records_around_one_that_cannot_be_read_come_whole(
    monkeypatch: pytest.MonkeyPatch, compression: int, parser: str
) -> None:
    """Seen: aiokafka ended at it, and with it the process, at every start."""
    if parser == "python":
        monkeypatch.setattr(tolerant, "MemoryRecords", _MemoryRecordsPy)
        monkeypatch.setattr(memory_records, "DefaultRecordBatch", _DefaultRecordBatchPy)
    data = batch(compression, 10, [GOOD, BAD, BARE, BAD]) + batch(compression, 20, [BARE])
    assert read(data) == [
        (10, 1_000, b"k", None, [("é", None)]),
        (11, 1_001, b"k1", b"v1", "unreadable"),
        (12, 1_002, None, b"v", []),
        (13, 1_003, b"k1", b"v1", "unreadable"),
        (20, 1_000, None, b"v", []),
    ]


def test_a_batch_stamped_by_the_broker_has_its_time() -> None:
    raw = bytearray(batch(NONE, 0, [BAD, BARE]))
    raw[22] |= 0x08  # attributes: stamped on append, by the largest time of the batch
    assert [time_ms for _, time_ms, *_ in read(bytes(raw))] == [1_001, 1_001]


def test_null_keys_and_values_are_read_too() -> None:
    lone: Plain = (None, None, [(Latin("ß"), None)])
    assert read(batch(NONE, 0, [lone])) == [(0, 1_000, None, None, "unreadable")]


def test_what_is_really_damaged_is_still_an_error() -> None:
    raw = bytearray(batch(NONE, 0, [BARE]))
    raw[61] += 20  # the length of the record
    with pytest.raises(CorruptRecordException):
        read(bytes(raw))
