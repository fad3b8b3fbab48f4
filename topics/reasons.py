"""Why a record is refused, and the limits of a record.

A refusal is a value and never an exception: bad input becomes a dead letter and the next record is
read. ``detail`` names fields, features and limits, never a feature's value and never an id: they
may be about patients.
"""

import sys
from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """Every reason of a dead letter: first those of the decoder, about in the order in which it
    checks, then those that depend on what came before. Each with its meaning and what to do.

    >>> Reason("null-key").meaning
    'No key: features and label could not meet in one partition.'
    """

    meaning: str
    remedy: str

    def __new__(cls, value: str, meaning: str = "", remedy: str = "") -> "Reason":
        """The member is the text on the wire."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        member.remedy = remedy
        return member

    NULL_KEY = (
        "null-key",
        "No key: features and label could not meet in one partition.",
        "Give every record a key, the same for the features and the label of an instance: the "
        "name of the stream, or the instance.",
    )
    TOO_LARGE = (
        "too-large",
        "Key and value (and headers, for the sequencer) are over the record limit.",
        "Send less, or raise `limits.record_bytes_max` or `limits.headers_max`. The dead letter "
        "holds the beginning alone and cannot be sent back; the producer must send it again.",
    )
    HEADER_NAME = (
        "header-name",
        "A header whose name is not UTF-8, which not every Kafka client can read.",
        "Mend the producer. The dead letter has key and value and no header; sent back, the record "
        "comes without headers.",
    )
    EMPTY_VALUE = (
        "empty-value",
        "No value (a tombstone) or zero bytes.",
        "Nothing to learn from. Tombstones mean nothing on these topics: to forget an instance "
        "use `dtgol erase`.",
    )
    NOT_JSON = (
        "not-json",
        "NaN, Infinity, invalid UTF-8, a byte order mark, trailing bytes, nested too deep, ...",
        "Mend the serialiser: UTF-8 without a byte order mark, no NaN. A missing number is null "
        "or absent.",
    )
    NOT_AN_OBJECT = (
        "not-an-object",
        "JSON, but not an object.",
        "Send one JSON object per record, not a list or a text.",
    )
    WRONG_TYPE = (
        "wrong-type",
        "A field of another JSON type than the contract's; the detail names the field.",
        "Send the type that the schema of the topic has; the detail names the field.",
    )
    STREAM_NAME = (
        "stream-name",
        "Empty, too long, or with characters other than letters, digits, dot, dash, underscore.",
        "Rename the stream; without the field `stream` a record belongs to `default`.",
    )
    UNKNOWN_STREAM = (
        "unknown-stream",
        "Streams are closed and this one is not described.",
        "Describe it as `[streams.NAME]`, or set `streams.closed = false`; then redrive.",
    )
    MISSING_ID = (
        "missing-id",
        "No id, or null.",
        "Give features and label the same `id`.",
    )
    ID_EMPTY = (
        "id-empty",
        "An id of no characters.",
        "Give features and label the same `id`.",
    )
    ID_TOO_LONG = (
        "id-too-long",
        "An id over the limit, counted in bytes of UTF-8.",
        "Send a shorter id, such as a hash, or raise `limits.id_bytes_max`.",
    )
    OUT_OF_RANGE = (
        "out-of-range",
        "A number outside the bounds of its field, a feature over 1e150, or a number beyond what "
        "a float holds; the detail names the place.",
        "Check the unit: `ts` is in milliseconds since 1970, not in seconds or microseconds.",
    )
    MISSING_FIELD = (
        "missing-field",
        "A field that must be there is absent or null; the detail names it.",
        "Send the field that the detail names.",
    )
    LABEL_NOT_BINARY = (
        "label-not-binary",
        "`y` is something else than 0, 1, false or true.",
        "Labels are 0 or 1; choose one class to predict and send whether it is that one.",
    )
    TOO_MANY_FEATURES = (
        "too-many-features",
        "More feature names in one record than a stream may have columns.",
        "Send fewer, or raise `limits.features_max` and `copula.max_columns`.",
    )
    NESTED_VALUE = (
        "nested-value",
        "A feature whose value is an object or an array.",
        "Flatten it: one name per number or text.",
    )
    FEATURE_NAME = (
        "feature-name",
        "A feature name that is empty or too long.",
        "Shorten the name, or raise `limits.feature_name_bytes_max`.",
    )
    TEXT_TOO_LONG = (
        "text-too-long",
        "A feature whose value is a text over the limit: it would be kept as a level.",
        "Free text is no feature. Send a category, or raise `limits.text_bytes_max`.",
    )
    NUL_CHARACTER = (
        "nul-character",
        "U+0000 in an id, a name or a text: numpy drops it at the end, and two ids become one.",
        "Remove the character at the producer.",
    )
    BAD_HEADERS = (
        "bad-headers",
        "An internal record whose headers are missing or unreadable; the detail names the header.",
        "Something else than dtgol writes to the journal: take its right to do so away "
        "(docs/security.md).",
    )
    NOT_FINITE = (
        "not-finite",
        "A feature that is NaN or infinite; JSON cannot carry one, a caller of the learner can.",
        "Leave the feature out, or send null.",
    )
    KIND_CONFLICT = (
        "kind-conflict",
        "A value of another kind than its feature has had so far.",
        "Only with `columns.strict`. Mend the producer, or change the kind with `dtgol journal "
        "retype`.",
    )
    OUT_OF_BOUNDS = (
        "out-of-bounds",
        "A value outside the bounds declared for its feature.",
        "Check the sensor, or widen `low` and `high` of the feature.",
    )
    TOO_MANY_COLUMNS = (
        "too-many-columns",
        "A new feature or level that would exceed the columns of the stream.",
        "An id or a time as a feature makes a level of every value: leave it out. Else raise "
        "`copula.max_columns`.",
    )
    TOO_MANY_STREAMS = (
        "too-many-streams",
        "A new stream that would exceed the streams of the partition.",
        "Check that `stream` is no id. Else raise `limits.streams_max`, and "
        "`limits.state_bytes_max` with it.",
    )
    STATE_FULL = (
        "state-full",
        "A new stream or feature, and the learners of the partition have the memory they may.",
        "Raise `limits.state_bytes_max`, use the preset `light`, or have more partitions "
        "(docs/limits.md).",
    )
    LABEL_LATE = (
        "label-late",
        "The instance had expired when its label came; the detail names the setting.",
        "Raise the setting that the detail names. The label is lost to the learner; the evaluator "
        "scores with it.",
    )
    LABEL_ORPHAN = (
        "label-orphan",
        "A label whose features did not come while there was room to hold it, or in `early_steps`.",
        "Check that features and label have the same key, id and stream, and one partitioner: "
        "`dtgol doctor`. Features that came after all: redrive.",
    )
    CORRECTION_TOO_LATE = (
        "correction-too-late",
        "Another value than the label that was learnt, and the instance is no longer rehearsed, "
        "or `delay.corrected` is `first`. The evaluator scores by it, the learner cannot.",
        "Nothing, if it is rare. Scores and learner differ by it.",
    )
    SKIPPED = (
        "skipped",
        "The worker failed on it repeatedly, and an operator decided to leave it out.",
        "With the bug fixed: `dtgol dead-letters redrive --reason skipped`.",
    )


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

HEAD = """# Dead letters

Generated by `python -m topics.reasons`; do not edit. A record that cannot be used becomes a dead
letter: its key, bytes and headers, and headers `dtgol-…` that say where it stood and why. The next
record is read. `dtgol dead-letters list --reason … --since 1h` shows them,
`dtgol_fold_dead_letters_total` counts them. Find the cause first, then send them back:
[guide-operations.md](guide-operations.md#sending-dead-letters-back).

| reason | meaning | what to do |
|---|---|---|
"""


def page() -> str:
    """The page of the documentation: every reason with its meaning and what to do."""
    rows = [f"| `{reason}` | {reason.meaning} | {reason.remedy} |\n" for reason in Reason]
    return HEAD + "".join(rows)


if __name__ == "__main__":
    sys.stdout.write(page())
