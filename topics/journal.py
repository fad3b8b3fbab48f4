"""The journal: the one order of features and labels in a partition. Internal.

Most records are copies of features and labels, bytes and the producer's own headers untouched, with
the headers of a `Source` added; headers that came as ``dtgol-…`` are left out. A record that cannot
be copied (over a limit, or with a header that not every client can read) leaves a stub: no key and
no value, the reason in the headers, and length and hash of a value over the limit. Control records
(`config`, `reset`, `retype`, `crash`, `skip`, `retry`, `version`, `padding`) have no key, one
header (`dtgol-kind`) and a JSON value. The journal stamps records on append, so the source's own
timestamp travels in a header.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, TypeAlias

from topics.codec import parse
from topics.headers import PREFIX, Header, header_name, read_headers, write_headers
from topics.reasons import Rejection
from topics.wire import read, wire, write

NO_OFFSET = -1
"""``prev`` of the first record that was ever handled of a source partition."""


class RecordKind(StrEnum):
    """What a journal record is."""

    COPY = "copy"
    STUB = "stub"
    CONFIG = "config"
    RESET = "reset"
    RETYPE = "retype"
    CRASH = "crash"
    SKIP = "skip"
    RETRY = "retry"
    VERSION = "version"
    PADDING = "padding"


@dataclass(frozen=True, slots=True)
class Source:
    """Headers of a copy or a stub: where it comes from, and the chain.

    ``prev`` is the source offset handled before this one. The learner keeps the last offset applied
    of each source: a record at or below it is a duplicate, and one whose ``prev`` is beyond it is
    not applied, because something before it is missing.
    """

    kind: RecordKind = field(metadata=wire("What the record is."))
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
    reason: str | None = field(
        default=None, metadata=wire("Stub: why the record was left out, as in its dead letter.")
    )


SOURCE_HEADERS_MAX = len(fields(Source))
"""So many headers a copy or stub has at most besides the producer's own."""


class CopyHeaders:
    """Writes the headers of the copies of one source partition.

    The same bytes as `write_headers` makes of a `Source`, without looking at every field: they
    are written for every record.

    >>> copies = CopyHeaders("features", "id-of-topic", 0)
    >>> copies.write(7, 6, 1_000) == write_headers(
    ...     Source(RecordKind.COPY, "features", "id-of-topic", 0, 7, 6, 1_000)
    ... )
    True
    """

    def __init__(self, topic: str, topic_id: str, partition: int) -> None:
        copy = Source(RecordKind.COPY, topic, topic_id, partition, 0, NO_OFFSET, 0)
        self._fixed = write_headers(copy)[:4]

    def write(self, offset: int, prev: int, timestamp_ms: int) -> list[Header]:
        """The headers of one copy."""
        return [
            *self._fixed,
            ("dtgol-offset", b"%d" % offset),
            ("dtgol-prev", b"%d" % prev),
            ("dtgol-timestamp-ms", b"%d" % timestamp_ms),
        ]


_COPY_NAMES = tuple(header_name(item.name) for item in fields(Source))[:7]


def read_source(headers: Sequence[Header]) -> Source | Rejection:
    """The `Source` in the headers of a journal record, or why there is none.

    The same as `read_headers` gives, quicker for a copy: its last headers are ours, and those
    before them are the producer's.
    """
    own = len(headers) - len(_COPY_NAMES)
    if own < 0:
        return read_headers(Source, headers)
    for name, _ in headers[:own]:
        if name.startswith(PREFIX):
            return read_headers(Source, headers)
    # Spelled out: this runs for every record of the journal.
    (
        (kind_name, kind),
        (topic_name, topic),
        (id_name, topic_id),
        (partition_name, partition),
        (offset_name, offset),
        (prev_name, prev),
        (stamp_name, stamp),
    ) = headers[own:]
    names = kind_name, topic_name, id_name, partition_name, offset_name, prev_name, stamp_name
    if (
        names != _COPY_NAMES
        or kind != b"copy"
        or not (topic and topic_id and partition and offset and prev and stamp)
        or not (partition.isdigit() and offset.isdigit() and prev.isdigit() and stamp.isdigit())
        or max(len(partition), len(offset), len(prev), len(stamp)) >= 20
    ):
        return read_headers(Source, headers)
    try:
        place = topic.decode(), topic_id.decode()
    except UnicodeDecodeError:
        return read_headers(Source, headers)
    return Source(RecordKind.COPY, *place, int(partition), int(offset), int(prev), int(stamp))


@dataclass(frozen=True, slots=True)
class ControlHeader:
    """The one header of a control record."""

    kind: RecordKind = field(metadata=wire("What the record is."))


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


class FeatureKind(StrEnum):
    """What a feature can be."""

    CONTINUOUS = "continuous"
    ORDINAL = "ordinal"
    NOMINAL = "nominal"


@dataclass(frozen=True, slots=True)
class Retype:
    """From here on a feature is of this kind; the stream keeps all else that it has learnt."""

    stream: str = field(metadata=wire("The stream."))
    feature: str = field(metadata=wire("The feature's name."))
    kind: FeatureKind = field(metadata=wire("What it is from here on."))
    note: str = field(default="", metadata=wire("Why, in the operator's words."))


@dataclass(frozen=True, slots=True)
class Crash:
    """A worker failed on the record at this journal offset; the third of these parks it there."""

    offset: int = field(metadata=wire("Offset in this journal partition.", minimum=0))
    error: str = field(default="", metadata=wire("Kind of the exception; never its text."))
    place: str = field(default="", metadata=wire("File and line that raised it."))


@dataclass(frozen=True, slots=True)
class Skip:
    """The record at this journal offset is never applied: an operator's decision.

    It has an effect only where the partition is parked at that offset: a record that was applied
    stays applied.
    """

    offset: int = field(metadata=wire("Offset in this journal partition.", minimum=0))
    note: str = field(default="", metadata=wire("Why, in the operator's words."))


@dataclass(frozen=True, slots=True)
class Retry:
    """The crashes recorded so far at this journal offset no longer count: it is tried again."""

    offset: int = field(metadata=wire("Offset in this journal partition.", minimum=0))
    note: str = field(default="", metadata=wire("Why, in the operator's words."))


@dataclass(frozen=True, slots=True)
class Version:
    """From here on the journal is folded by this version of the software.

    Appended where the version changes, or the state from which one goes on. A worker of an older
    version refuses to go past it.
    """

    fold: int = field(metadata=wire("Version of the fold.", minimum=1))
    since: int = field(
        metadata=wire("Journal offset at which it took over the state of another.", minimum=0)
    )
    software: str = field(default="", metadata=wire("Release of the software."))


@dataclass(frozen=True, slots=True)
class Padding:
    """Takes up an offset, and means nothing else.

    Where the journal has lost its tail, offsets that were answered would be given out again, and
    one ``at`` would stand for two answers. They are filled with these first.
    """

    left: int = field(metadata=wire("How many offsets are taken up from here on.", minimum=1))


Control: TypeAlias = ConfigChange | Reset | Retype | Crash | Skip | Retry | Version | Padding
_CONTROLS: Mapping[RecordKind, type[Control]] = {
    RecordKind.CONFIG: ConfigChange,
    RecordKind.RESET: Reset,
    RecordKind.RETYPE: Retype,
    RecordKind.CRASH: Crash,
    RecordKind.SKIP: Skip,
    RecordKind.RETRY: Retry,
    RecordKind.VERSION: Version,
    RecordKind.PADDING: Padding,
}
_KINDS = {control: kind for kind, control in _CONTROLS.items()}
_KIND_HEADER = header_name("kind")


def read_control(value: bytes | None, headers: Iterable[Header]) -> Control | Rejection | None:
    """The control record, None if the record is a copy or a stub, or why it is neither."""
    header = read_headers(ControlHeader, headers)
    if isinstance(header, Rejection):
        return header
    if header.kind not in _CONTROLS:
        return None
    raw = parse(value)
    return raw if isinstance(raw, Rejection) else read(_CONTROLS[header.kind], raw)


def write_control(control: Control) -> tuple[bytes, list[Header]]:
    """Value and headers of a control record."""
    return write(control), [(_KIND_HEADER, _KINDS[type(control)].encode())]
