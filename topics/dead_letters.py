"""The dead-letters message: a refused record, whole, with the reason in its headers.

Key, value and headers are the original's; ours are added after them. A record too large to be
carried is truncated, and the headers give length and sha256 of the whole.

For tools that know Kafka Connect's dead letter queues, a dead letter can carry the headers of
these too (`connect_headers`); they are left out when it is sent back.

A dead letter that was sent back is followed by a marker on the same topic: a record without key
and value whose headers are those of a `Redriven`. A reader of dead letters leaves markers out.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import sha256

from topics.headers import Header, header_name, read_headers
from topics.reasons import Rejection
from topics.wire import wire

DETAIL_CHARS_MAX = 512
CONNECT_PREFIX = "__connect.errors."
"""Of the headers that Kafka Connect adds to what it puts into a dead letter queue."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """The headers of a dead letter: where the record came from and why it was refused."""

    topic: str = field(metadata=wire("Topic the record was read from."))
    partition: int = field(metadata=wire("Its partition.", minimum=0))
    offset: int = field(metadata=wire("Its offset.", minimum=0))
    reason: str = field(metadata=wire("Why it was refused: a `Reason`, or one of a newer writer."))
    detail: str = field(metadata=wire("Field, feature or limit; never a value, never an id."))
    length: int | None = field(
        default=None, metadata=wire("Bytes of the whole value, if truncated.", minimum=0)
    )
    sha256: str | None = field(
        default=None, metadata=wire("Hash of the whole value in hex, if truncated.")
    )
    topic_id: str | None = field(
        default=None, metadata=wire("Id of that topic: one that is created anew has another.")
    )

    def __post_init__(self) -> None:
        assert len(self.detail) <= DETAIL_CHARS_MAX


@dataclass(frozen=True, slots=True)
class Redriven:
    """The headers of a marker: the record was sent back to its topic in the same transaction.

    The record that was sent back carries the last of them (``dtgol-redriven``) and no other.
    """

    topic: str = field(metadata=wire("Topic the record was sent back to."))
    partition: int = field(metadata=wire("Its partition.", minimum=0))
    offset: int = field(metadata=wire("The offset it had there when it was refused.", minimum=0))
    redriven: str = field(
        metadata=wire("The dead letter: its partition and offset.", pattern="^[0-9]+/[0-9]+$")
    )
    topic_id: str | None = field(
        default=None, metadata=wire("Id of the topic, if the dead letter has one.")
    )


REDRIVEN = header_name("redriven")


def is_marker(headers: Iterable[Header]) -> bool:
    """Whether a record of dead-letters is a marker."""
    return any(name == REDRIVEN for name, _ in headers)


def connect_headers(headers: Iterable[Header]) -> list[Header]:
    """The headers of a dead letter once more, under the names that Kafka Connect gives them.

    Connect's `exception.class.name` is the reason; there is no connector, task or stack trace.
    """
    letter = read_headers(DeadLetter, headers)
    if isinstance(letter, Rejection):
        return []
    named = {
        "topic": letter.topic,
        "partition": letter.partition,
        "offset": letter.offset,
        "exception.class.name": letter.reason,
        "exception.message": letter.detail,
    }
    return [(CONNECT_PREFIX + name, str(value).encode()) for name, value in named.items()]


def without_connect_headers(headers: Iterable[Header]) -> list[Header]:
    """What is left of a record's headers when it is sent back."""
    return [header for header in headers if not header[0].startswith(CONNECT_PREFIX)]


@dataclass(frozen=True, slots=True)
class Truncated:
    """A value made to fit: its beginning, and what identifies the whole; None if it fitted."""

    value: bytes | None
    length: int | None = None
    sha256: str | None = None


def truncate(value: bytes | None, bytes_max: int) -> Truncated:
    """The value where it fits into ``bytes_max``, else its beginning with length and hash."""
    if value is None or len(value) <= bytes_max:
        return Truncated(value)
    return Truncated(value[:bytes_max], len(value), sha256(value).hexdigest())
