"""The dead-letters message: a refused record, whole, with the reason in its headers.

Key, value and headers are the original's; ours are added after them. A record too large to be
carried is cut, and length and sha256 of the whole are said. Decoding refuses with a `Reason`;
the fold refuses with a `FoldReason`.

A letter that was sent again has a marker behind it on the same topic: a record without key and
value whose headers are those of a `Redriven`. A reader of letters leaves markers out.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256

from topics.headers import Header, header_name
from topics.wire import wire

DETAIL_CHARS_MAX = 512


class FoldReason(StrEnum):
    """Refusals that depend on what came before, decided inside the fold."""

    KIND_CONFLICT = "kind-conflict"
    """A value of another kind than its feature has had so far."""
    OUT_OF_BOUNDS = "out-of-bounds"
    """A value outside the bounds declared for its feature."""
    TOO_MANY_COLUMNS = "too-many-columns"
    """A new feature or level that would exceed the columns of the stream."""
    TOO_MANY_STREAMS = "too-many-streams"
    """A new stream that would exceed the streams of the partition."""
    LABEL_LATE = "label-late"
    """The instance had expired when its label came."""
    LABEL_ORPHAN = "label-orphan"
    """A label whose features did not come within `early_steps`."""
    SKIPPED = "skipped"
    """The worker failed on it again and again, and an operator decided to leave it out."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """The headers of a dead letter: where the record came from and why it was refused."""

    topic: str = field(metadata=wire("Topic the record was read from."))
    partition: int = field(metadata=wire("Its partition.", minimum=0))
    offset: int = field(metadata=wire("Its offset.", minimum=0))
    reason: str = field(metadata=wire("Named reason of the refusal."))
    detail: str = field(metadata=wire("Field, feature or limit; never a value, never an id."))
    length: int | None = field(
        default=None, metadata=wire("Bytes of the whole value, if it was cut.", minimum=0)
    )
    sha256: str | None = field(
        default=None, metadata=wire("Hash of the whole value in hex, if it was cut.")
    )

    def __post_init__(self) -> None:
        assert len(self.detail) <= DETAIL_CHARS_MAX


@dataclass(frozen=True, slots=True)
class Redriven:
    """The headers of a marker: this letter was sent back to its topic, in one transaction with it.

    The record that was sent back carries the last of them (``dtgol-redriven``) and no other.
    """

    topic: str = field(metadata=wire("Topic the record was sent back to."))
    partition: int = field(metadata=wire("Its partition.", minimum=0))
    offset: int = field(metadata=wire("The offset it had there when it was refused.", minimum=0))
    redriven: str = field(
        metadata=wire("The dead letter: its partition and offset.", pattern="^[0-9]+/[0-9]+$")
    )


REDRIVEN = header_name("redriven")


def is_marker(headers: Iterable[Header]) -> bool:
    """Whether a record of dead-letters is a marker and no letter."""
    return any(name == REDRIVEN for name, _ in headers)


@dataclass(frozen=True, slots=True)
class Cut:
    """A value made to fit: its beginning, and what identifies the whole; None if it fitted."""

    value: bytes | None
    length: int | None = None
    sha256: str | None = None


def cut(value: bytes | None, bytes_max: int) -> Cut:
    """The value where it fits into ``bytes_max``, else its beginning with length and hash."""
    if value is None or len(value) <= bytes_max:
        return Cut(value)
    return Cut(value[:bytes_max], len(value), sha256(value).hexdigest())
