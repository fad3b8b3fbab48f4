"""What goes into the fold and what comes out of it: journal records, predictions, dead letters.

Values and their making; no state. Every byte of an output comes from the journal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from dtgol_core.types import Forecast
from pipeline.streamstate import Held
from topics.codec import write_prediction
from topics.deadletters import DETAIL_CHARS_MAX, DeadLetter, FoldReason
from topics.features import Features
from topics.headers import Header, foreign, write_headers
from topics.journal import NO_OFFSET, Kind, Source
from topics.predictions import Contribution, Identity, Prediction


@dataclass(frozen=True, slots=True)
class Place:
    """Which journal partition is folded, and the names of its two sources."""

    journal_id: str
    journal: str
    partition: int
    features: str
    labels: str


class JournalRecord(NamedTuple):
    """One record as it stands in the journal; the timestamp is that of its append."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header]


class Output(NamedTuple):
    """One record to be written."""

    topic: Literal["predictions", "dead-letters"]
    key: bytes | None
    value: bytes | None
    headers: list[Header]


class Letter(NamedTuple):
    """A record that may become a dead letter: its bytes, and where it came from."""

    record: JournalRecord
    source: Source

    def write(self, reason: str, detail: str) -> Output:
        """The dead letter, with the original's key, bytes and headers."""
        source = self.source
        cut = detail[:DETAIL_CHARS_MAX]
        letter = DeadLetter(source.topic, source.partition, source.offset, reason, cut)
        headers = [*foreign(self.record.headers), *write_headers(letter)]
        return Output("dead-letters", self.record.key, self.record.value, headers)


def stray(place: Place, record: JournalRecord) -> Letter:
    """A journal record that is no copy: its letter names the journal itself."""
    source = Source(
        kind=Kind.COPY,
        topic=place.journal,
        topic_id=place.journal_id,
        partition=place.partition,
        offset=record.offset,
        prev=NO_OFFSET,
        timestamp_ms=record.timestamp_ms,
    )
    return Letter(record, source)


def orphan(place: Place, held: Held) -> Output:
    """The dead letter of a label whose features never came."""
    letter = DeadLetter(
        place.labels,
        place.partition,
        held.offset,
        FoldReason.LABEL_ORPHAN,
        "its features did not come while it was held",
    )
    headers = [*held.headers, *write_headers(letter)]
    return Output("dead-letters", held.key, held.value, headers)


def answer(
    place: Place, record: JournalRecord, features: Features, forecast: Forecast, model: str
) -> Output:
    """The prediction, under the key of the features and with the producer's headers."""
    prediction = Prediction(
        stream=features.stream,
        id=features.id,
        step=forecast.step,
        model=model,
        at=Identity(place.journal_id, place.partition, record.offset),
        ts=features.ts,
        p=float(forecast.p),
        label=forecast.label,
        naive=float(forecast.naive),
        latent_weight=float(forecast.latent_weight),
        latent_persistent=float(forecast.latent_persistent),
        latent_transient=float(forecast.latent_transient),
        original_persistent=float(forecast.original_persistent),
        original_transient=float(forecast.original_transient),
        labels_learnt=forecast.labels_learnt,
        unverified=forecast.unverified,
        observed_share=float(forecast.observed_share),
        uncertainty=float(forecast.uncertainty),
        repeat=forecast.repeat,
        why=tuple(Contribution(why.feature, float(why.log_odds)) for why in forecast.why),
    )
    value = write_prediction(prediction)
    return Output("predictions", record.key, value, foreign(record.headers))
