"""What the fold writes: predictions and dead letters.

Functions of values, no state. Every byte of an output comes from the journal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from dtgol_core.types import Forecast
from pipeline.kafka.record import Record
from pipeline.learning.early import EarlyLabel
from pipeline.learning.stream import StreamState
from topics.codec import write_event
from topics.dead_letters import DETAIL_CHARS_MAX, DeadLetter
from topics.features import Features
from topics.headers import Header, producer_headers, record_bytes, write_headers
from topics.journal import NO_OFFSET, RecordKind, Source
from topics.predictions import Identity
from topics.reasons import Reason
from topics.scores import EVENT, Event
from topics.wire import write_fields


@dataclass(frozen=True, slots=True)
class PartitionRef:
    """Which journal partition is folded, and the names of its two sources."""

    journal_id: str
    journal: str
    partition: int
    features: str
    labels: str


class Output(NamedTuple):
    """One record to be written."""

    topic: Literal["predictions", "dead-letters", "scores"]
    key: bytes | None
    value: bytes | None
    headers: list[Header]

    @property
    def size(self) -> int:
        """Its bytes on the wire."""
        return record_bytes(self.key, self.value, self.headers)


class SourceContext(NamedTuple):
    """A record that may become a dead letter: its bytes, and where it came from."""

    record: Record
    source: Source

    def write(self, reason: Reason, detail: str) -> Output:
        """The dead letter, with the original's key, bytes and headers."""
        source = self.source
        short = detail[:DETAIL_CHARS_MAX]
        letter = DeadLetter(
            source.topic, source.partition, source.offset, reason, short, topic_id=source.topic_id
        )
        headers = [*producer_headers(self.record.headers), *write_headers(letter)]
        return Output("dead-letters", self.record.key, self.record.value, headers)


def journal_context(ref: PartitionRef, record: Record) -> SourceContext:
    """The context of a journal record that is no copy: its dead letter names the journal itself."""
    source = Source(
        kind=RecordKind.COPY,
        topic=ref.journal,
        topic_id=ref.journal_id,
        partition=ref.partition,
        offset=record.offset,
        prev=NO_OFFSET,
        timestamp_ms=record.timestamp_ms,
    )
    return SourceContext(record, source)


def orphan_dead_letter(ref: PartitionRef, held: EarlyLabel) -> Output:
    """The dead letter of a label whose features never came."""
    letter = DeadLetter(
        ref.labels,
        ref.partition,
        held.offset,
        Reason.LABEL_ORPHAN,
        "its features did not come while it was held",
        topic_id=held.topic_id,
    )
    headers = [*held.headers, *write_headers(letter)]
    return Output("dead-letters", held.key, held.value, headers)


def make_event(ref: PartitionRef, offset: int, event: str, stream: str, detail: str) -> Output:
    """An event of a stream, at the journal record of that offset."""
    at = Identity(ref.journal_id, ref.partition, offset)
    headers: list[Header] = [(EVENT, event.encode())]
    return Output("scores", None, write_event(Event(event, stream, at, detail)), headers)


def make_prediction(
    ref: PartitionRef,
    record: Record,
    features: Features,
    forecast: Forecast,
    stream: StreamState,
    labels_offset: int,
) -> Output:
    """The prediction, under the key of the features and with the producer's headers.

    The fields of a `topics.predictions.Prediction`, all of them and in its order.
    """
    config = stream.learner.config
    fields = {
        "stream": features.stream,
        "id": features.id,
        "step": forecast.step,
        "model": stream.model,
        "at": {"journal": ref.journal_id, "partition": ref.partition, "offset": record.offset},
        "ts": features.ts,
        "p": float(forecast.p),
        "label": forecast.label,
        "naive": float(forecast.naive),
        "experts": {
            name: {"p": float(each.p), "weight": float(each.weight)}
            for name, each in forecast.experts.items()
        },
        "labels_learnt": forecast.labels_learnt,
        "unverified": forecast.unverified,
        "observed_share": float(forecast.observed_share),
        "uncertainty": float(forecast.uncertainty),
        "repeat": forecast.repeat,
        "labels_offset": labels_offset,
        "defaulted": forecast.defaulted,
        "default": int(config.delay.expired) if forecast.defaulted else None,
        "why": [{"feature": why.feature, "log_odds": float(why.log_odds)} for why in forecast.why],
        "guard": {name: float(each) for name, each in forecast.guard.items()},
        "threshold": config.decision.label_1_above,
        "set": forecast.set,
        "missing": forecast.missing,
        "expire_ms": config.delay.expire_ms,
    }
    value = write_fields(fields)
    return Output("predictions", record.key, value, producer_headers(record.headers))
