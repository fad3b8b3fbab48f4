"""The journal folded again, and what it gives against what was said on `predictions`.

By identity (journal, partition, offset). A prediction that is not there is a fault only where the
worker has committed past its record and the topic still reaches back so far: beyond the committed
offset the worker is just behind, and before the topic's beginning it was trimmed. Reads only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Literal

from pipeline.answers import Output, Place
from pipeline.decisions import Ahead, BugError, applied, journal_record, read_ahead
from pipeline.fold import Fold
from pipeline.operators.inspection import fold_of
from pipeline.reader import look_at, read_range
from pipeline.snapshots import RefusalError, Store, find_snapshots
from topics.codec import read_prediction
from topics.predictions import Prediction
from topics.refusals import Rejection

EXAMPLES_MAX = 20
Class = Literal["equal", "missing", "different", "other_model", "unexpected", "behind", "trimmed"]
Progress = Callable[[int], AbstractContextManager[Callable[[int], None]]]
FAULTS: tuple[Class, ...] = ("missing", "different", "other_model", "unexpected")


@dataclass(frozen=True)
class Route:
    """What is replayed: a place, its predictions, and how far the worker has committed."""

    client: Mapping[str, Any]
    place: Place
    predictions: str
    committed: int


@dataclass
class Report:
    """One partition: how many predictions of each class, and some of the offsets that differ."""

    partition: int
    start: int
    end: int
    classes: dict[Class, int] = field(default_factory=dict)
    examples: dict[Class, list[int]] = field(default_factory=dict)
    parked_at: int | None = None
    bug: str | None = None
    other_journal: int = 0

    def count(self, kind: Class, offset: int) -> None:
        """One prediction of a class."""
        self.classes[kind] = self.classes.get(kind, 0) + 1
        places = self.examples.setdefault(kind, [])
        if kind in FAULTS and len(places) < EXAMPLES_MAX:
            places.append(offset)

    @property
    def faultless(self) -> bool:
        """Whether everything that could be compared is equal."""
        return self.bug is None and not any(self.classes.get(kind) for kind in FAULTS)


class _Said:
    """What was said on the topic, by journal offset: a hash of the bytes, and the model."""

    def __init__(self, place: Place, trimmed: bool) -> None:
        self._place = place
        self._trimmed = trimmed
        self._first: int | None = None
        self._models: dict[str, str] = {}
        self._told: dict[int, tuple[bytes, str]] = {}
        self._others: dict[int, set[tuple[bytes, str]]] = {}
        self.other_journal = 0

    def take(self, key: bytes | None, value: bytes | None) -> None:
        said = read_prediction(value)
        if isinstance(said, Rejection):
            return
        if (said.at.journal, said.at.partition) != (
            self._place.journal_id,
            self._place.partition,
        ):
            self.other_journal += 1
            return
        if self._first is None:
            self._first = said.at.offset
        model = self._models.setdefault(said.model, said.model)
        told = _hash(key, value), model
        if self._told.setdefault(said.at.offset, told) != told:
            self._others.setdefault(said.at.offset, set()).add(told)

    @property
    def offsets(self) -> set[int]:
        """Journal offsets about which something was said."""
        return set(self._told)

    def about(self, offset: int) -> set[tuple[bytes, str]]:
        """Every different thing that was said about one record; empty if nothing was."""
        if offset not in self._told:
            return set()
        return {self._told[offset]} | self._others.get(offset, set())

    def reaches(self, offset: int) -> bool:
        """Whether the topic, as it is kept, would have it: it is written in journal order, and
        what is written again begins further back, so all from the first one kept on is there."""
        return not self._trimmed or (self._first is not None and offset >= self._first)


def start_fold(place: Place, low: int, store: Store | None) -> Fold:
    """Where to begin: at the journal's beginning, or with a store at the oldest snapshot kept.

    Raises `RefusalError` where that cannot be.
    """
    if store is None:
        if low > 0:
            raise RefusalError(
                f"partition {place.partition} of {place.journal} begins at {low}: what was before "
                f"is gone and cannot be computed again; use --from snapshot"
            )
        return Fold(place)
    for found in reversed(find_snapshots(store.read(place.partition))):
        fold = fold_of(found)
        if fold is None or fold.next_offset < low:
            continue
        if fold.place != place:
            raise RefusalError(
                f"the snapshots of partition {place.partition} belong to another journal: "
                f"use the store and the prefix that go together"
            )
        return fold
    raise RefusalError(
        f"partition {place.partition} has no whole snapshot from which its journal is still there"
    )


def replay(route: Route, store: Store | None, progress: Progress) -> Report:
    """Fold one partition and compare; `progress` is told how many records, and how many so far."""
    place = route.place
    low, high = look_at(route.client, place.journal, place.partition)
    fold = start_fold(place, low, store)
    said = _read_said(route)
    ahead = Ahead(fold.next_offset)
    read_ahead(ahead, route.client, place.journal, place.partition, high)
    fold.skips = ahead.skips
    parked = ahead.parked(fold.next_offset)
    end = high if parked is None or parked >= high else parked
    report = Report(place.partition, fold.next_offset, end, parked_at=parked)
    report.other_journal = said.other_journal
    with progress(report.end - report.start) as tell:
        _fold(route, fold, said, report, tell)
    return report


def _fold(
    route: Route, fold: Fold, said: _Said, report: Report, tell: Callable[[int], None]
) -> None:
    place, told = route.place, set()
    messages = read_range(route.client, place.journal, place.partition, report.start, report.end)
    try:
        for number, message in enumerate(messages, start=1):
            record = journal_record(message)
            for output in applied(fold, record):
                if output.topic == "predictions":
                    told.add(record.offset)
                    report.count(_judge(route, output, record.offset, said), record.offset)
            tell(number)
    except BugError as bug:
        report.bug, report.end = str(bug), bug.offset
    for offset in sorted(said.offsets - told):
        if report.start <= offset < report.end:
            report.count("unexpected", offset)


def _judge(route: Route, output: Output, offset: int, said: _Said) -> Class:
    found = said.about(offset)
    if not found:
        if offset >= route.committed:
            return "behind"
        return "missing" if said.reaches(offset) else "trimmed"
    ours = read_prediction(output.value)
    assert isinstance(ours, Prediction)
    if found == {(_hash(output.key, output.value), ours.model)}:
        return "equal"
    return "other_model" if any(model != ours.model for _, model in found) else "different"


def _read_said(route: Route) -> _Said:
    low, high = look_at(route.client, route.predictions, route.place.partition)
    said = _Said(route.place, low > 0)
    if low < high:
        for message in read_range(route.client, route.predictions, route.place.partition, low):
            key, value = message.key(), message.value()
            assert not isinstance(key, str)
            assert not isinstance(value, str)
            said.take(key, value)
    return said


def _hash(key: bytes | None, value: bytes | None) -> bytes:
    """Sixteen bytes for a key and a value: a whole topic of them fits into memory."""
    text = b"%d:" % (-1 if key is None else len(key)) + (key or b"") + (value or b"")
    return blake2b(text, digest_size=16).digest()
