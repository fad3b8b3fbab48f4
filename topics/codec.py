"""Bytes to message and back; every record from outside is read here.

Bytes in, `Features` or `Label` or `Rejection` out; strict, and it never raises, whatever the bytes.
The first reason found is returned. Of a JSON key given twice the last one counts: RFC 8259 leaves
it open, the parser keeps the last, and looking for it would cost a second parse of every record;
the same bytes always give the same record. An empty key is a key. JSON in the frame of a schema
registry (a zero byte and four of the schema's number) is read without its frame; no registry is
asked. What needs memory (kinds, columns, duplicates) is decided by the fold, not here.
"""

import re
from collections.abc import Container, Mapping
from math import isfinite
from typing import Any

import orjson

from topics.events import ProcessEvent
from topics.features import DEFAULT_STREAM, STREAM_PATTERN, Features, FeatureValue
from topics.labels import Erasure, Label
from topics.predictions import Prediction
from topics.reasons import DEFAULT_LIMITS, NUMBER_MAX, SECONDS, TS_MAX, Limits, Reason, Rejection
from topics.scores import Event, Score
from topics.wire import as_integer, read, write

_FEATURES_FIELDS = frozenset(("stream", "id", "x", "ts"))
_LABEL_FIELDS = frozenset(("stream", "id", "y", "ts"))
_STREAM = re.compile(STREAM_PATTERN)
FRAME_BYTES = 5
"""A zero byte and the schema's number, as a schema registry's serializers put before a value."""
AVRO_MAGIC = b"Obj\x01"
"""What an Avro file begins with."""
_QUOTE_CHARS_MAX = 64
"""A feature name in a detail is truncated to this: the detail travels in a header."""


def read_features(
    value: bytes | None,
    key: bytes | None,
    timestamp_ms: int,
    limits: Limits = DEFAULT_LIMITS,
    streams: Container[str] | None = None,
) -> Features | Rejection:
    """One features record; ``streams`` are the described ones when streams are closed."""
    raw = _open(value, key, limits)
    if isinstance(raw, Rejection):
        return raw
    head = _head(raw, timestamp_ms, limits, streams)
    if isinstance(head, Rejection):
        return head
    x = _observed(raw.get("x"), limits)
    if isinstance(x, Rejection):
        return _hinted(x, raw)
    stream, instance, ts = head
    # Only an escape can spell U+0000, so a record without a backslash has none.
    if value is not None and b"\\" in value and _has_nul(instance, raw["x"]):
        return Rejection(Reason.NUL_CHARACTER, "id or x: a character U+0000")
    return Features(stream, instance, x, ts, _unknown(raw, _FEATURES_FIELDS))


def read_label(
    value: bytes | None,
    key: bytes | None,
    timestamp_ms: int,
    limits: Limits = DEFAULT_LIMITS,
    streams: Container[str] | None = None,
) -> Label | Rejection:
    """One label record; ``streams`` are the described ones when streams are closed."""
    raw = _open(value, key, limits)
    if isinstance(raw, Rejection):
        return raw
    head = _head(raw, timestamp_ms, limits, streams)
    if isinstance(head, Rejection):
        return head
    y = raw.get("y")
    if y is None:
        return _hinted(Rejection(Reason.MISSING_FIELD, "y: must be there"), raw)
    if type(y) not in (int, float, bool) or y not in (0, 1):
        return Rejection(Reason.LABEL_NOT_BINARY, "y: must be 0, 1, false or true")
    stream, instance, ts = head
    if "\x00" in instance:
        return Rejection(Reason.NUL_CHARACTER, "id: a character U+0000")
    return Label(stream, instance, int(y), ts, _unknown(raw, _LABEL_FIELDS))


def read_erasure(value: bytes | None) -> Erasure | None:
    """The erasure request in a record of the labels topic, if it is one."""
    raw = parse(value)
    if isinstance(raw, Rejection) or "erase" not in raw:
        return None
    erasure = read(Erasure, raw)
    return None if isinstance(erasure, Rejection) else erasure


def write_erasure(erasure: Erasure) -> bytes:
    """The bytes of an erasure request."""
    return write(erasure)


def write_features(features: Features) -> bytes:
    """The bytes of a features record. Give None for missing; NaN and infinity raise ValueError."""
    x = {name: given for name, given in features.x.items() if given is not None}
    if not all(isfinite(given) for given in x.values() if isinstance(given, float)):
        raise ValueError("a feature that is not a finite number; leave out what is missing")
    return orjson.dumps({"stream": features.stream, "id": features.id, "x": x, "ts": features.ts})


def write_label(label: Label) -> bytes:
    """The bytes of a label record."""
    return orjson.dumps({"stream": label.stream, "id": label.id, "y": label.y, "ts": label.ts})


def read_prediction(value: bytes | None) -> Prediction | Rejection:
    """One prediction; fields of a newer writer are ignored."""
    raw = parse(value)
    return raw if isinstance(raw, Rejection) else read(Prediction, raw)


def read_score(value: bytes | None) -> Score | Rejection:
    """One score; fields of a newer writer are ignored."""
    raw = parse(value)
    return raw if isinstance(raw, Rejection) else read(Score, raw)


def read_process_event(value: bytes | None) -> ProcessEvent | Rejection:
    """One event of a process; fields of a newer writer are ignored."""
    raw = parse(value)
    return raw if isinstance(raw, Rejection) else read(ProcessEvent, raw)


def write_process_event(event: ProcessEvent) -> bytes:
    """The bytes of an event of a process."""
    return write(event)


def write_prediction(prediction: Prediction) -> bytes:
    """The bytes of a prediction; a number that is not finite raises ValueError."""
    return write(prediction)


def write_score(score: Score) -> bytes:
    """The bytes of a score; a number that is not finite raises ValueError."""
    return write(score)


def write_event(event: Event) -> bytes:
    """The bytes of an event."""
    return write(event)


def parse(value: bytes | None) -> dict[str, Any] | Rejection:
    """The JSON object in the bytes of a record, or why there is none."""
    if not value:
        return Rejection(Reason.EMPTY_VALUE, "value: must be there")
    framed = value[:1] == b"\x00" and len(value) > FRAME_BYTES
    try:
        raw = orjson.loads(value[FRAME_BYTES:] if framed else value)
    except orjson.JSONDecodeError as error:
        if framed or value.startswith(AVRO_MAGIC):
            return Rejection(Reason.NOT_JSON, "looks like Avro: JSON is expected")
        # The parser's texts are fixed sentences and quote nothing of the record.
        huge = "infinity" in error.msg
        reason = Reason.OUT_OF_RANGE if huge else Reason.NOT_JSON
        return Rejection(reason, f"{error.msg} (line {error.lineno} column {error.colno})")
    if type(raw) is not dict:
        return Rejection(Reason.NOT_AN_OBJECT, "value: must be a JSON object")
    return raw


def _open(value: bytes | None, key: bytes | None, limits: Limits) -> dict[str, Any] | Rejection:
    if key is None:
        return Rejection(Reason.NULL_KEY, "key: must be there")
    if value is not None and len(value) + len(key) > limits.record_bytes_max:
        return Rejection(Reason.TOO_LARGE, f"record: over {limits.record_bytes_max} bytes")
    return parse(value)


def _head(
    raw: Mapping[str, Any], timestamp_ms: int, limits: Limits, streams: Container[str] | None
) -> tuple[str, str, int] | Rejection:
    """Stream, id and event time, which features and labels share."""
    stream = raw.get("stream")
    if stream is None:
        stream = DEFAULT_STREAM
    if type(stream) is not str:
        return Rejection(Reason.WRONG_TYPE, "stream: must be a string")
    if len(stream) > limits.stream_chars_max or _STREAM.fullmatch(stream) is None:
        allowed = f"1 to {limits.stream_chars_max} of A-Z a-z 0-9 . _ -, no dot or dash first"
        return Rejection(Reason.STREAM_NAME, f"stream: must be {allowed}")
    if streams is not None and stream not in streams:
        return Rejection(Reason.UNKNOWN_STREAM, f"stream: {stream} is not described")
    instance = raw.get("id")
    if type(instance) is not str:
        if instance is None:
            return Rejection(Reason.MISSING_ID, "id: must be there")
        number = as_integer(instance)
        if number is None:
            return Rejection(Reason.WRONG_TYPE, "id: must be a string or a whole number")
        instance = str(number)
    if not instance:
        return Rejection(Reason.ID_EMPTY, "id: must not be empty")
    if _longer(instance, limits.id_bytes_max):
        return Rejection(Reason.ID_TOO_LONG, f"id: over {limits.id_bytes_max} bytes")
    given = raw.get("ts")
    ts = timestamp_ms if given is None else as_integer(given)
    if ts is None:
        return Rejection(Reason.WRONG_TYPE, "ts: must be a whole number")
    if not 0 <= ts <= TS_MAX:
        where = "ts" if given is not None else "ts: absent, and the record's timestamp"
        return Rejection(Reason.OUT_OF_RANGE, f"{where}: must be 0 to {TS_MAX} epoch milliseconds")
    if given is not None and ts in SECONDS:
        return Rejection(Reason.OUT_OF_RANGE, "ts: looks like seconds; epoch milliseconds expected")
    return stream, instance, ts


def _observed(x: Any, limits: Limits) -> dict[str, FeatureValue] | Rejection:
    """The features that are there, without nulls; runs once per feature, so it is spelled out."""
    if type(x) is not dict:
        return _not_an_object(x)
    if len(x) > limits.features_max:
        return Rejection(Reason.TOO_MANY_FEATURES, f"x: over {limits.features_max} features")
    name_bytes_max, text_bytes_max = limits.feature_name_bytes_max, limits.text_bytes_max
    # A character takes at most four bytes: shorter ones fit without being encoded.
    name_fits, text_fits = name_bytes_max // 4, text_bytes_max // 4
    low, high, nulls = -NUMBER_MAX, NUMBER_MAX, False
    for name, given in x.items():
        if not name or (len(name) > name_fits and _longer(name, name_bytes_max)):
            return Rejection(
                Reason.FEATURE_NAME, f"x: a feature name must have 1 to {name_bytes_max} bytes"
            )
        kind = type(given)
        if kind is float or kind is int:
            if not low <= given <= high:
                return _refuse_feature(Reason.OUT_OF_RANGE, name, f"beyond ±{high:g}")
        elif kind is str:
            if len(given) > text_fits and _longer(given, text_bytes_max):
                problem = f"a text over {text_bytes_max} bytes"
                return _refuse_feature(Reason.TEXT_TOO_LONG, name, problem)
        elif given is None:
            nulls = True
        elif kind is not bool:
            return _refuse_feature(Reason.NESTED_VALUE, name, "must not be an object or an array")
    if nulls:
        return {name: given for name, given in x.items() if given is not None}
    return x


def _refuse_feature(reason: Reason, name: str, problem: str) -> Rejection:
    return Rejection(reason, f"x: feature {name[:_QUOTE_CHARS_MAX]!r}: {problem}")


def _not_an_object(x: object) -> Rejection:
    if x is None:
        return Rejection(Reason.MISSING_FIELD, "x: must be there, if only as {}")
    return Rejection(Reason.WRONG_TYPE, "x: must be an object")


def _hinted(refusal: Rejection, raw: Mapping[str, Any]) -> Rejection:
    """The refusal, with a hint where the record is a CloudEvent in structured mode."""
    if refusal.reason is not Reason.MISSING_FIELD or "specversion" not in raw:
        return refusal
    return Rejection(refusal.reason, f"{refusal.detail}; of CloudEvents only binary mode is read")


def _longer(text: str, bytes_max: int) -> bool:
    """Whether a text is longer in UTF-8; encodes only where the length leaves it open."""
    if text.isascii():
        return len(text) > bytes_max
    return len(text.encode()) > bytes_max


def _has_nul(instance: str, x: Mapping[str, FeatureValue]) -> bool:
    texts = (given for given in x.values() if isinstance(given, str))
    return any("\x00" in text for text in (instance, *x, *texts))


def _unknown(raw: Mapping[str, Any], known: frozenset[str]) -> tuple[str, ...]:
    if raw.keys() <= known:
        return ()
    return tuple(name for name in raw if name not in known)
