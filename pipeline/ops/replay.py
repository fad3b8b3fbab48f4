"""The journal folded again, and its predictions compared with those on `predictions`.

By identity (journal, partition, offset). A prediction that is not there is a fault only where the
worker has committed past its record and the topic still reaches back so far: beyond the committed
offset the worker is only behind, and before the topic's beginning it was trimmed. What another
version of the fold has answered, by the beginning of its model's name, can be computed again by
that version alone. Reads only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Literal

from pipeline.errors import FoldBugError, RefusalError
from pipeline.kafka.clients import ClientSettings
from pipeline.kafka.reader import Progress, read_range, watermarks
from pipeline.kafka.record import Record
from pipeline.learning.fold import Fold
from pipeline.learning.outputs import Output, PartitionRef
from pipeline.learning.poison import CrashLog, apply_or_report
from pipeline.ops.journal_archive import JournalArchive
from pipeline.ops.snapshots import restore_fold
from pipeline.snapshots.manifest import find_snapshots
from pipeline.snapshots.store import Store
from topics.codec import read_prediction
from topics.predictions import Prediction
from topics.reasons import Rejection

EXAMPLES_MAX = 20
Class = Literal[
    "equal",
    "missing",
    "different",
    "other_model",
    "other_version",
    "unexpected",
    "behind",
    "trimmed",
]
FAULTS: tuple[Class, ...] = ("missing", "different", "other_model", "unexpected")


@dataclass(frozen=True)
class ReplayTarget:
    """What is replayed: a partition, its predictions, and how far the worker has committed."""

    client: ClientSettings
    ref: PartitionRef
    predictions: str
    committed: int


@dataclass
class ReplayReport:
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
        offsets = self.examples.setdefault(kind, [])
        if kind in FAULTS and len(offsets) < EXAMPLES_MAX:
            offsets.append(offset)

    @property
    def faultless(self) -> bool:
        """Whether everything that could be compared is equal."""
        return self.bug is None and not any(self.classes.get(kind) for kind in FAULTS)


class _Published:
    """What is on the predictions topic, by journal offset: a hash of the bytes, and the model."""

    def __init__(self, ref: PartitionRef, trimmed: bool) -> None:
        self._ref = ref
        self._trimmed = trimmed
        self._first: int | None = None
        self._models: dict[str, str] = {}
        self._copies: dict[int, set[tuple[bytes, str]]] = {}
        self.other_journal = 0

    def add(self, key: bytes | None, value: bytes | None) -> None:
        prediction = read_prediction(value)
        if isinstance(prediction, Rejection):
            return
        at = prediction.at
        if (at.journal, at.partition) != (self._ref.journal_id, self._ref.partition):
            self.other_journal += 1
            return
        if self._first is None:
            self._first = at.offset
        model = self._models.setdefault(prediction.model, prediction.model)
        self._copies.setdefault(at.offset, set()).add((_hash(key, value), model))

    @property
    def offsets(self) -> set[int]:
        """Journal offsets that have a prediction."""
        return set(self._copies)

    def about(self, offset: int) -> set[tuple[bytes, str]]:
        """Every different prediction for one record; empty if there is none."""
        return self._copies.get(offset, set())

    def reaches(self, offset: int) -> bool:
        """Whether the topic, as it is kept, would have it: it is written in journal order, and
        what is written again begins further back, so all from the first one kept on is there."""
        return not self._trimmed or (self._first is not None and offset >= self._first)


def journal_records(
    target: ReplayTarget, archive: JournalArchive | None, start: int, end: int
) -> Iterator[Record]:
    """Journal records from files where there are any, from the topic beyond them."""
    ref = target.ref
    files = archive.files(ref.partition) if archive is not None else []
    there = files[-1].end if files else 0
    if archive is not None and start < there:
        yield from archive.read(ref.journal, ref.partition, start, min(end, there))
    if max(start, there) < end:
        yield from read_range(target.client, ref.journal, ref.partition, max(start, there), end)


def archived_from(archive: JournalArchive | None, partition: int, low: int) -> int:
    """The first journal offset that can be read, where the topic begins at `low`."""
    files = archive.files(partition) if archive is not None else []
    if not files:
        return low
    if files[-1].end < low:
        raise RefusalError(
            f"the archive of partition {partition} ends at {files[-1].end} and its journal begins "
            f"at {low}: records between are gone"
        )
    return min(low, files[0].first)


def start_fold(ref: PartitionRef, low: int, store: Store | None) -> Fold:
    """Where to begin: at the journal's beginning, or with a store at the oldest snapshot kept.

    Raises `RefusalError` where that cannot be.
    """
    if store is None:
        if low > 0:
            raise RefusalError(
                f"partition {ref.partition} of {ref.journal} begins at {low}: what was before "
                f"is gone and cannot be computed again; use --from snapshot"
            )
        return Fold(ref)
    for found in reversed(find_snapshots(store.read(ref.partition))):
        fold = restore_fold(found)
        if fold is None or fold.next_offset < low:
            continue
        if fold.ref != ref:
            raise RefusalError(
                f"the snapshots of partition {ref.partition} belong to another journal: "
                f"use the store and the prefix that go together"
            )
        return fold
    raise RefusalError(
        f"partition {ref.partition} has no whole snapshot from which its journal is still there"
    )


def replay(
    target: ReplayTarget,
    store: Store | None,
    progress: Progress,
    archive: JournalArchive | None = None,
) -> ReplayReport:
    """Fold one partition and compare; `progress` gets how many records, then how many so far."""
    client, ref = target.client, target.ref
    low, high = watermarks(client, ref.journal, ref.partition)
    fold = start_fold(ref, archived_from(archive, ref.partition, low), store)
    published = _read_published(target)
    log = CrashLog(fold.next_offset)
    log.read(journal_records(target, archive, fold.next_offset, high))
    fold.skips = log.skips
    parked = log.parked_at(fold.next_offset)
    end = high if parked is None or parked >= high else parked
    report = ReplayReport(ref.partition, fold.next_offset, end, parked_at=parked)
    report.other_journal = published.other_journal
    with progress(report.end - report.start) as update:
        records = journal_records(target, archive, report.start, report.end)
        _compare(target, fold, published, report, update, records)
    return report


def _compare(
    target: ReplayTarget,
    fold: Fold,
    published: _Published,
    report: ReplayReport,
    update: Callable[[int], None],
    records: Iterator[Record],
) -> None:
    predicted = set()
    try:
        for number, record in enumerate(records, start=1):
            for output in apply_or_report(fold, record):
                if output.topic == "predictions":
                    predicted.add(record.offset)
                    kind = _classify(target, output, record.offset, published)
                    report.count(kind, record.offset)
            update(number)
    except FoldBugError as bug:
        report.bug, report.end = str(bug), bug.offset
    for offset in sorted(published.offsets - predicted):
        if report.start <= offset < report.end:
            report.count("unexpected", offset)


def _classify(target: ReplayTarget, output: Output, offset: int, published: _Published) -> Class:
    found = published.about(offset)
    if not found:
        if offset >= target.committed:
            return "behind"
        return "missing" if published.reaches(offset) else "trimmed"
    ours = read_prediction(output.value)
    assert isinstance(ours, Prediction)
    if found == {(_hash(output.key, output.value), ours.model)}:
        return "equal"
    if any(_version(model) != _version(ours.model) for _, model in found):
        return "other_version"
    return "other_model" if any(model != ours.model for _, model in found) else "different"


def _version(model: str) -> str:
    """The part of a model's name that says which version folded, and from where on."""
    return model.partition("-")[0]


def _read_published(target: ReplayTarget) -> _Published:
    client, topic, partition = target.client, target.predictions, target.ref.partition
    low, high = watermarks(client, topic, partition)
    published = _Published(target.ref, low > 0)
    if low < high:
        for record in read_range(client, topic, partition, low):
            published.add(record.key, record.value)
    return published


def _hash(key: bytes | None, value: bytes | None) -> bytes:
    """Sixteen bytes for a key and a value: a whole topic of them fits into memory."""
    text = b"%d:" % (-1 if key is None else len(key)) + (key or b"") + (value or b"")
    return blake2b(text, digest_size=16).digest()
