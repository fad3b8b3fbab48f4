"""Fetched batches that survive a header whose name is not UTF-8.

aiokafka decodes the names of headers strictly, and its iterator over a batch ends at the first
that is not UTF-8: the records behind it are never seen, now and after every restart. Here such a
batch is read on with aiokafka's parser in Python, and the record in question comes without its
headers, marked by `UNREADABLE`. A batch without one costs a generator.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from aiokafka.consumer import fetcher as fetching
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import _DefaultRecordBatchPy, _DefaultRecordPy
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.record.util import decode_varint

from pipeline.kafka.record import UNREADABLE

_LENGTH_AT, _BEFORE_LENGTH = 8, 12
"""In a batch on the wire: where its length stands, and the bytes that it does not count."""


class TolerantBatch:
    """One batch, as aiokafka has parsed it; `raw` are its bytes as they were fetched."""

    def __init__(self, parsed: Any, raw: memoryview) -> None:
        self._parsed = parsed
        self._raw = raw

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parsed, name)

    def __next__(self) -> Any:
        """The next record, strictly: what aiokafka asks of a batch that holds a marker."""
        return next(self._parsed)

    def __iter__(self) -> Iterator[Any]:
        """All records; from one that cannot be read on, with the parser in Python."""
        done = 0
        try:
            for record in self._parsed:
                yield record
                done += 1
        except (UnicodeDecodeError, CorruptRecordException) as error:
            if not _is_undecodable(error):
                raise
            yield from _read_on(self._raw, done)


class TolerantRecords:
    """What was fetched of one partition: aiokafka's `MemoryRecords` with tolerant batches."""

    def __init__(self, data: bytes) -> None:
        self._records: Any = MemoryRecords(data)  # type: ignore[no-untyped-call, unused-ignore]
        self._data = memoryview(data)
        self._start = 0

    def size_in_bytes(self) -> int:
        """Bytes of all batches."""
        return len(self._data)

    def has_next(self) -> bool:
        """Whether there is another whole batch."""
        return bool(self._records.has_next())

    def next_batch(self) -> Any:
        """The next batch; None after the last."""
        parsed = self._records.next_batch()
        if parsed is None:
            return None
        (length,) = struct.unpack_from(">i", self._data, self._start + _LENGTH_AT)
        start, self._start = self._start, self._start + _BEFORE_LENGTH + length
        raw = self._data[start : self._start]
        return TolerantBatch(parsed, raw) if hasattr(parsed, "base_sequence") else parsed


def _is_undecodable(error: Exception) -> bool:
    """The parser in Python says the same as a corrupt record, caused by it."""
    return isinstance(error, UnicodeDecodeError) or isinstance(error.__cause__, UnicodeDecodeError)


def _read_on(raw: memoryview, done: int) -> Iterator[Any]:
    """The records of a batch behind the first `done`."""
    batch: Any = iter(_DefaultRecordBatchPy(raw))
    for number in range(batch._num_records):
        try:
            record = batch._read_msg()
        except UnicodeDecodeError:
            record = _without_headers(batch)
        if number >= done:
            yield record


def _without_headers(batch: Any) -> Any:
    """The next record of a batch up to its headers; the batch goes on behind it."""
    data = batch._buffer
    length, start = decode_varint(data, batch._pos)
    _, position = decode_varint(data, start)  # its attributes
    time_delta, position = decode_varint(data, position)
    offset_delta, position = decode_varint(data, position)
    key, position = _bytes(data, position)
    value, _ = _bytes(data, position)
    batch._pos = start + length
    appended = batch.timestamp_type == batch.LOG_APPEND_TIME
    time_ms = batch.max_timestamp if appended else batch.first_timestamp + time_delta
    about = batch.base_offset + offset_delta, time_ms, batch.timestamp_type
    return _DefaultRecordPy(*about, key, value, UNREADABLE)


def _bytes(data: bytearray, position: int) -> tuple[bytes | None, int]:
    size, position = decode_varint(data, position)
    if size < 0:
        return None, position
    return bytes(data[position : position + size]), position + size


def tolerate_header_names() -> None:
    """From now on aiokafka's consumers in this process read batches tolerantly."""
    assert hasattr(fetching, "MemoryRecords"), "aiokafka has moved its batches"
    fetching.MemoryRecords = TolerantRecords
