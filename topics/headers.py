"""Our record headers: `dtgol-` names, readable text, the same for every topic.

A field ``topic_id`` of a header message travels as header ``dtgol-topic-id``; whole numbers are
decimal ASCII, texts UTF-8, None is absent. Readable with kcat on purpose. A record may carry
headers of its own, and some that look like ours (a redriven dead letter): of ours the last counts,
and `producer_headers` gives those that are the producer's.
"""

from collections.abc import Callable, Iterable
from enum import StrEnum
from functools import cache
from types import NoneType
from typing import Any, TypeAlias, TypeVar, get_args

from topics.reasons import Reason, Rejection
from topics.wire import described

PREFIX = "dtgol-"
Header: TypeAlias = tuple[str, bytes | None]
Message = TypeVar("Message")


def header_name(field_name: str) -> str:
    """The header that carries a field."""
    return PREFIX + field_name.replace("_", "-")


def producer_headers(headers: Iterable[Header]) -> list[Header]:
    """The headers that are the producer's own, in order; these are carried over."""
    return [header for header in headers if not header[0].startswith(PREFIX)]


def trace_headers(headers: Iterable[Header]) -> list[Header]:
    """The headers of W3C Trace Context: a score carries those of the record that completed it."""
    return [header for header in headers if header[0] in ("traceparent", "tracestate")]


def record_bytes(key: bytes | None, value: bytes | None, headers: Iterable[Header]) -> int:
    """The size of a record that is compared with its limit: key, value and headers.

    Headers count as on the wire, each name and value behind its length: an empty header is not
    nothing, and half a million of them fill a message.
    """
    own = 0
    for name, raw in headers:  # for every record written: without a call per header
        size = len(name) if name.isascii() else len(name.encode())
        own += size + 1 if size < 64 else _with_length(size)
        size = len(raw) if raw is not None else 0
        own += size + 1 if size < 64 else _with_length(size)
    return len(key or b"") + len(value or b"") + own


def _with_length(size: int) -> int:
    """Bytes of a text of that size behind its length, which is a zigzag varint."""
    return size + (size.bit_length() + 7) // 7


def write_headers(message: object) -> list[Header]:
    """A header message as headers; append them after the record's own."""
    kind: Any = type(message)
    pairs = ((name, getattr(message, field_name)) for field_name, name, *_ in _plan(kind))
    return [(name, str(value).encode()) for name, value in pairs if value is not None]


def read_headers(cls: type[Message], headers: Iterable[Header]) -> Message | Rejection:
    """The header message in a record's headers, or which header is missing or unreadable."""
    found = dict(headers)
    wanted: Any = cls
    values: list[Any] = []
    for _, name, reader, optional, minimum in _plan(wanted):
        raw = found.get(name)
        if raw is None:
            if not optional:
                return Rejection(Reason.BAD_HEADERS, f"{name}: must be there")
            values.append(None)
            continue
        value = reader(raw)
        if value is None or (minimum is not None and value < minimum):
            return Rejection(Reason.BAD_HEADERS, f"{name}: unreadable or out of its range")
        values.append(value)
    return cls(*values)


@cache
def _plan(cls: type) -> list[tuple[str, str, Callable[[bytes], Any], bool, int | None]]:
    """Per field: its name, its header, its reader, whether it may be absent, its minimum."""
    plan = []
    for item, hint in described(cls):
        optional, minimum = NoneType in get_args(hint), item.metadata["schema"].get("minimum")
        kinds = [kind for kind in get_args(hint) or (hint,) if kind is not NoneType]
        plan.append((item.name, header_name(item.name), _reader(kinds[0]), optional, minimum))
    return plan


def _reader(kind: Any) -> Callable[[bytes], Any]:
    """From bytes to a value of the kind, or None."""
    if kind is int:
        return _number
    if issubclass(kind, StrEnum):
        return {member.encode(): member for member in kind}.get
    return _text


def _number(raw: bytes) -> int | None:
    digits = raw[1:] if raw[:1] == b"-" else raw
    return int(raw) if digits.isdigit() and len(digits) < 20 else None


def _text(raw: bytes) -> str | None:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None
