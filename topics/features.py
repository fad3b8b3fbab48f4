"""The features message: one record to be answered. Written by you, read by the sequencer.

Absent and null mean missing, everywhere; so ``x`` holds what was observed and no nulls. ``x``
may be empty but must be there: a label sent to the wrong topic must not be taken for a record in
which nothing was observed. Of a JSON key given twice the last one counts (`codec`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from topics.reasons import DEFAULT_LIMITS, NUMBER_MAX, SECONDS, TS_MAX
from topics.wire import wire

FeatureValue: TypeAlias = float | int | bool | str
DEFAULT_STREAM = "default"
STREAM_PATTERN = "^[A-Za-z0-9_][A-Za-z0-9._-]*$"

STREAM_WIRE = wire(
    "The stream the record belongs to; one learner per stream and partition. Safe as a metric "
    "label and as a file name.",
    type=["string", "null"],
    default=DEFAULT_STREAM,
    pattern=STREAM_PATTERN,
    maxLength=DEFAULT_LIMITS.stream_chars_max,
    required=False,
)
ID_WIRE = wire(
    "The instance, the same in its features and its label. At most "
    f"{DEFAULT_LIMITS.id_bytes_max} bytes of UTF-8; a whole number is turned into a string.",
    type=["string", "integer"],
    pattern="^[^\\u0000]*$",
    minLength=1,
    maxLength=DEFAULT_LIMITS.id_bytes_max,
    minimum=-(2**63),
    maximum=2**64 - 1,
)
TS_WIRE = wire(
    "Event time in epoch milliseconds; the record's timestamp if absent. From 10^9 to 10^10 it is "
    "refused: that is a time in seconds.",
    type=["integer", "null"],
    minimum=0,
    maximum=TS_MAX,
    required=False,
    **{"not": {"type": "integer", "minimum": SECONDS.start, "maximum": SECONDS.stop - 1}},
)
X_WIRE = wire(
    "What was observed, by feature name: a number, a boolean or a text (a level). Absent or null "
    "is missing.",
    maxProperties=DEFAULT_LIMITS.features_max,
    propertyNames={
        "pattern": "^[^\\u0000]*$",
        "minLength": 1,
        "maxLength": DEFAULT_LIMITS.feature_name_bytes_max,
    },
    additionalProperties={
        "type": ["number", "boolean", "string", "null"],
        "minimum": -NUMBER_MAX,
        "maximum": NUMBER_MAX,
        "pattern": "^[^\\u0000]*$",
        "maxLength": DEFAULT_LIMITS.text_bytes_max,
    },
)


@dataclass(frozen=True, slots=True)
class Features:
    """One record to be answered with a prediction."""

    stream: str = field(metadata=STREAM_WIRE)
    id: str = field(metadata=ID_WIRE)
    x: Mapping[str, FeatureValue] = field(metadata=X_WIRE)
    ts: int = field(metadata=TS_WIRE)
    unknown: tuple[str, ...] = ()
    """Names of fields that the contract does not know: ignored, to be counted. Never written."""
