"""The journal: the one order of a partition. Internal, documented all the same.

Most records are copies of features and labels, bytes and the producer's own headers untouched, with
the headers of a `Source` added; what came as ``dtgol-…`` is left behind. A record over the size
limit leaves a stub: no value, length and hash in the headers. Control records (`config`, `reset`,
`crash`, `skip`, `retry`) have no key, one header (`dtgol-kind`) and a JSON value. The journal
stamps records on append, so the source's own timestamp travels in a header.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

from topics.codec import parse
from topics.headers import Header, header_name, read_headers
from topics.refusals import Rejection
from topics.wire import read, wire, write

NO_OFFSET = -1
"""``prev`` of the first record that was ever handled of a source partition."""


class Kind(StrEnum):
    """What a journal record is."""

    COPY = "copy"
    STUB = "stub"
    CONFIG = "config"
    RESET = "reset"
    CRASH = "crash"
    SKIP = "skip"
    RETRY = "retry"


@dataclass(frozen=True, slots=True)
class Source:
    """Headers of a copy or a stub: where it comes from, and the chain.

    ``prev`` is the source offset handled before this one; the learner drops a record at or
    below its mark and does not apply one whose ``prev`` is beyond it.
    """

    kind: Kind = field(metadata=wire("What the record is."))
    topic: str = field(metadata=wire("Source topic."))
    topic_id: str = field(metadata=wire("Its id, as Kafka prints it."))
    partition: int = field(metadata=wire("Source partition.", minimum=0))
    offset: int = field(metadata=wire("Source offset.", minimum=0))
    prev: int = field(metadata=wire("Source offset handled before; -1 for none.", minimum=-1))
    timestamp_ms: int = field(metadata=wire("The source record's timestamp; -1 for none."))
    length: int | None = field(
        default=None, metadata=wire("Stub: bytes of the value left out.", minimum=0)
    )
    sha256: str | None = field(default=None, metadata=wire("Stub: hash of that value in hex."))


@dataclass(frozen=True, slots=True)
class Marker:
    """The one header of a control record."""

    kind: Kind = field(metadata=wire("What the record is."))


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """From here on this configuration holds."""

    hash: str = field(metadata=wire("Hash of the effective configuration."))
    config: Mapping[str, Any] = field(metadata=wire("The effective configuration."))


@dataclass(frozen=True, slots=True)
class Reset:
    """From here on a stream, or the whole partition, starts anew."""

    stream: str | None = field(default=None, metadata=wire("The stream; null is all of them."))
    note: str = field(default="", metadata=wire("Why, in the operator's words."))


@dataclass(frozen=True, slots=True)
class Crash:
    """A worker failed on the record at this journal offset; the third such note parks it there."""

    offset: int = field(metadata=wire("Offset in this journal partition.", minimum=0))
    error: str = field(default="", metadata=wire("Kind of the exception; never its text."))
    place: str = field(default="", metadata=wire("File and line that raised it."))


@dataclass(frozen=True, slots=True)
class Skip:
    """The record at this journal offset is never applied: an operator's decision.

    It counts only where the partition is parked at that offset: what was applied stays applied.
    """

    offset: int = field(metadata=wire("Offset in this journal partition.", minimum=0))
    note: str = field(default="", metadata=wire("Why, in the operator's words."))


@dataclass(frozen=True, slots=True)
class Retry:
    """The crashes noted so far at this journal offset count no more: it may be tried again."""

    offset: int = field(metadata=wire("Offset in this journal partition.", minimum=0))
    note: str = field(default="", metadata=wire("Why, in the operator's words."))


Control: TypeAlias = ConfigChange | Reset | Crash | Skip | Retry
_CONTROLS: Mapping[Kind, type[Control]] = {
    Kind.CONFIG: ConfigChange,
    Kind.RESET: Reset,
    Kind.CRASH: Crash,
    Kind.SKIP: Skip,
    Kind.RETRY: Retry,
}
_KINDS = {control: kind for kind, control in _CONTROLS.items()}
_KIND_HEADER = header_name("kind")


def read_control(value: bytes | None, headers: Iterable[Header]) -> Control | Rejection | None:
    """The control record, None if the record is a copy or a stub, or why it is neither."""
    marker = read_headers(Marker, headers)
    if isinstance(marker, Rejection):
        return marker
    if marker.kind not in _CONTROLS:
        return None
    raw = parse(value)
    return raw if isinstance(raw, Rejection) else read(_CONTROLS[marker.kind], raw)


def write_control(control: Control) -> tuple[bytes, list[Header]]:
    """Value and headers of a control record."""
    return write(control), [(_KIND_HEADER, _KINDS[type(control)].encode())]
