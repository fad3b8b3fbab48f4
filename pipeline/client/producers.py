"""Producers of features and labels for Python users.

Features and labels are checked by the contract before they leave: what the worker would refuse
raises `RefusedError` here, with the same reason. The one rule: *features and their label carry
the same key*; without a key of yours it is the stream's name, one learner per stream.
Delivery: at least once, in order per key; `flush`, or the end of the ``with`` block, raises unless
every record is stored. Not for several threads at once.
"""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from math import isfinite, isnan
from types import TracebackType
from typing import Any, Self, TypeAlias

from pipeline.errors import ClusterError, DeliveryError, RefusedError
from pipeline.kafka.clients import ClientSettings, fetch_metadata
from pipeline.kafka.writer import CheckedProducer
from topics.catalog import partition_mismatch, topic_name
from topics.codec import read_features, read_label, write_features, write_label
from topics.features import DEFAULT_STREAM, Features
from topics.headers import Header, record_bytes
from topics.labels import Label
from topics.reasons import DEFAULT_LIMITS, Limits, Reason, Rejection

Given: TypeAlias = Any
"""A feature's value as Python users have it: also numpy's scalars, which have ``item()``."""

SETTINGS = {
    "partitioner": "murmur2_random",  # Java's: librdkafka's own would put keys elsewhere
    "compression.type": "lz4",  # gzip costs producer, broker and worker several times as much
}
ADVICE = "send the records since the last flush again: a repeated id is recognised"


class _Producer:
    """What both producers share: one topic, a checked producer, the limits of a record.

    It never creates a topic: one that appears by accident would have the wrong number of
    partitions, for life.
    """

    _name: str

    def __init__(
        self, client: ClientSettings, *, prefix: str = "", limits: Limits = DEFAULT_LIMITS
    ) -> None:
        self._limits = limits
        self._topic = topic_name(prefix, self._name)
        self._producer = CheckedProducer({**SETTINGS, **client}, advice=ADVICE)
        self.partitions = self._find_partitions(prefix)
        """How many partitions the topic has."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.flush()
        else:  # Keep the block's own error; still try to deliver what was sent.
            with contextlib.suppress(DeliveryError):
                self.flush()

    def flush(self) -> None:
        """Wait until every record is stored; `DeliveryError` if one is not."""
        self._producer.flush()

    def _send(
        self,
        value: bytes,
        key: bytes,
        timestamp_ms: int,
        headers: Sequence[Header],
        checked: object,
    ) -> None:
        if isinstance(checked, Rejection):
            raise RefusedError(checked.reason, checked.detail)
        try:
            size = record_bytes(key, value, headers)
        except UnicodeEncodeError:
            raise RefusedError(Reason.HEADER_NAME, "headers: a name that is not UTF-8") from None
        if size > self._limits.record_bytes_max:
            limit = self._limits.record_bytes_max
            raise RefusedError(Reason.TOO_LARGE, f"record: over {limit} bytes with its headers")
        self._producer.send(self._topic, key, value, headers, timestamp_ms=timestamp_ms)

    def _find_partitions(self, prefix: str) -> int:
        """Ask the cluster; the topic must be there, and features and labels must agree."""
        known = fetch_metadata(self._producer.client).topics
        if self._topic not in known:
            raise ClusterError(
                f"the cluster has no topic {self._topic}, or this user may not see it; "
                "run: dtgol topics apply, or grant the user Write"
            )
        names = [name for name in ("features", "labels") if prefix + name in known]
        counts = {name: len(known[prefix + name].partitions) for name in names}
        mismatch = partition_mismatch(counts)
        if mismatch is not None:
            raise ClusterError(f"{mismatch}; labels would not meet their features")
        return counts[self._name]


class FeatureProducer(_Producer):
    """Sends records to be answered.

    Example::

        with FeatureProducer({"bootstrap.servers": "localhost:9092"}) as features:
            features.send("patient-17/day-3", {"pulse": 92, "ward": "B", "fever": None})
    """

    _name = "features"

    def send(
        self,
        id: str | int,
        x: Mapping[str, Given],
        *,
        stream: str = DEFAULT_STREAM,
        key: str | bytes | None = None,
        ts_ms: int | None = None,
        timestamp_ms: int | None = None,
        headers: Sequence[Header] = (),
    ) -> None:
        """Hand over one record; it is stored once `flush` has returned.

        Parameters
        ----------
        id
            The instance; its label carries the same.
        x
            What was observed. ``None``, NaN, pandas' NaT and NA, or absent is missing; infinity is
            refused.
        key
            Which learner of the stream answers; the stream's name if not given.
        ts_ms
            Event time in epoch milliseconds, now if not given.
        timestamp_ms
            The Kafka record's own time, by which features and labels are put in order; now if
            not given. Do not give an old one: it may be past retention at once.
        """
        now = _now_ms() if timestamp_ms is None else timestamp_ms
        plain = {name: _plain(name, value) for name, value in x.items()}
        value = _written(write_features, Features(stream, str(id), plain, _time(ts_ms, now)))
        raw_key = _key(key, stream)
        checked = read_features(value, raw_key, now, self._limits)
        self._send(value, raw_key, now, headers, checked)


class LabelProducer(_Producer):
    """Sends the truth about records, whenever it is known; under the key of the features."""

    _name = "labels"

    def send(
        self,
        id: str | int,
        y: int | bool,
        *,
        stream: str = DEFAULT_STREAM,
        key: str | bytes | None = None,
        ts_ms: int | None = None,
        timestamp_ms: int | None = None,
        headers: Sequence[Header] = (),
    ) -> None:
        """Hand over one label; the parameters are those of `FeatureProducer.send`."""
        now = _now_ms() if timestamp_ms is None else timestamp_ms
        value = _written(write_label, Label(stream, str(id), _plain("y", y), _time(ts_ms, now)))
        raw_key = _key(key, stream)
        self._send(value, raw_key, now, headers, read_label(value, raw_key, now, self._limits))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _time(ts_ms: int | None, now: int) -> int:
    return now if ts_ms is None else ts_ms


def _key(key: str | bytes | None, stream: str) -> bytes:
    given = stream if key is None else key
    return given.encode() if isinstance(given, str) else given


def _plain(name: str, value: Given) -> Any:
    """The value as the wire has it: scalars of numpy become Python's, NaN, NaT and NA missing."""
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    plain = value.item() if hasattr(value, "item") and not hasattr(value, "__len__") else value
    if isinstance(plain, float) and isnan(plain):
        return None
    if isinstance(plain, float) and not isfinite(plain):
        raise RefusedError(Reason.NOT_JSON, f"{name}: not a finite number; give None for missing")
    return plain


def _written(write: Callable[[Any], bytes], message: Features | Label) -> bytes:
    try:
        return write(message)
    except (TypeError, ValueError) as error:
        # The serialiser names the type that it does not know, never the value.
        raise RefusedError(Reason.NOT_JSON, str(error)) from None
