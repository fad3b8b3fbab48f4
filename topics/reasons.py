"""Why a record is refused, and the limits of a record.

A refusal is a value and never an exception: bad input becomes a dead letter and the next record is
read. ``detail`` names fields, features and limits, never a feature's value and never an id: they
may be about patients.
"""

from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """Every reason of a dead letter: first those of the decoder, about in the order in which it
    checks, then those that depend on what came before."""

    NULL_KEY = "null-key"
    """No key: features and label could not meet in one partition."""
    TOO_LARGE = "too-large"
    """Key and value (and headers, for the sequencer) are over the record limit."""
    EMPTY_VALUE = "empty-value"
    """No value (a tombstone) or zero bytes."""
    NOT_JSON = "not-json"
    """NaN, Infinity, invalid UTF-8, a byte order mark, trailing bytes, nested too deep, ..."""
    NOT_AN_OBJECT = "not-an-object"
    """JSON, but not an object."""
    WRONG_TYPE = "wrong-type"
    """A field of another JSON type than the contract's; the detail names the field."""
    STREAM_NAME = "stream-name"
    """Empty, too long, or with characters other than letters, digits, dot, dash, underscore."""
    UNKNOWN_STREAM = "unknown-stream"
    """Streams are closed and this one is not described."""
    MISSING_ID = "missing-id"
    """No id, or null."""
    ID_EMPTY = "id-empty"
    """An id of no characters."""
    ID_TOO_LONG = "id-too-long"
    """An id over the limit, counted in bytes of UTF-8."""
    OUT_OF_RANGE = "out-of-range"
    """A number outside the bounds of its field, a feature over 1e150, or a number beyond what a
    float holds; the detail names the place."""
    MISSING_FIELD = "missing-field"
    """A field that must be there is absent or null; the detail names it."""
    LABEL_NOT_BINARY = "label-not-binary"
    """``y`` is something else than 0, 1, false or true."""
    TOO_MANY_FEATURES = "too-many-features"
    """More feature names in one record than a stream may have columns."""
    NESTED_VALUE = "nested-value"
    """A feature whose value is an object or an array."""
    FEATURE_NAME = "feature-name"
    """A feature name that is empty or too long."""
    TEXT_TOO_LONG = "text-too-long"
    """A feature whose value is a text over the limit: it would be kept as a level."""
    NUL_CHARACTER = "nul-character"
    """U+0000 in an id, a name or a text: numpy drops it at the end, and two ids become one."""
    BAD_HEADERS = "bad-headers"
    """An internal record whose headers are missing or unreadable; the detail names the header."""
    NOT_FINITE = "not-finite"
    """A feature that is NaN or infinite; JSON cannot carry one, a caller of the learner can."""
    KIND_CONFLICT = "kind-conflict"
    """A value of another kind than its feature has had so far."""
    OUT_OF_BOUNDS = "out-of-bounds"
    """A value outside the bounds declared for its feature."""
    TOO_MANY_COLUMNS = "too-many-columns"
    """A new feature or level that would exceed the columns of the stream."""
    TOO_MANY_STREAMS = "too-many-streams"
    """A new stream that would exceed the streams of the partition."""
    STATE_FULL = "state-full"
    """A new stream or feature, and the learners of the partition have the memory they may."""
    LABEL_LATE = "label-late"
    """The instance had expired when its label came; the detail names the setting."""
    LABEL_ORPHAN = "label-orphan"
    """A label whose features did not come while there was room to hold it, or in `early_steps`."""
    CORRECTION_TOO_LATE = "correction-too-late"
    """Another value than the label that was learnt, and the instance is no longer rehearsed, or
    `delay.corrected` is `first`. The evaluator scores by it, the learner cannot."""
    SKIPPED = "skipped"
    """The worker failed on it repeatedly, and an operator decided to leave it out."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """A record that was refused: why, and where in it."""

    reason: Reason
    detail: str


@dataclass(frozen=True, slots=True)
class Limits:
    """What one record may cost; settings with safe defaults.

    A name is also a column, a metric and a line in a snapshot, so names are short. A text
    becomes a level that the learner remembers, so texts are short too. The size of a record
    counts key, value and headers: then a copy of it, with ours added, fits any topic.
    """

    record_bytes_max: int = 262_144
    id_bytes_max: int = 256
    features_max: int = 512
    feature_name_bytes_max: int = 128
    text_bytes_max: int = 256
    stream_chars_max: int = 64

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise ValueError(f"{name} must be a whole number of at least 1")


DEFAULT_LIMITS = Limits()
TS_MAX = 253_402_300_799_999
"""The last millisecond of the year 9999; microseconds given by mistake are beyond it."""
SECONDS = range(1_000_000_000, 10_000_000_000)
"""Seconds from 2001 to 2286, given by mistake: as milliseconds they are days in early 1970. They
are refused: delays would be measured by a clock a thousand times too slow."""
NUMBER_MAX = 1e150
"""Above it the squares in the learner would overflow."""
