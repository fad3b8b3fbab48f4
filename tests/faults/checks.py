"""What is on the topics and in the stores after a trial, against the journal folded here.

Everything is read after the processes have ended, and nothing is taken from what they report:
inputs are what is on the source topics, outputs what is on the topics that they write, states what
their stores hold.
"""

from __future__ import annotations

import hashlib
import json
import logging
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from unittest.mock import patch

import orjson

from dtgol_core.learner import Learner
from dtgol_core.state import Snapshot, SnapshotError
from dtgol_core.state import digest as state_digest
from pipeline.kafka.cluster import Cluster, inspect_cluster
from pipeline.kafka.record import Record
from pipeline.learning.fold import Fold
from pipeline.learning.outputs import Output, PartitionRef
from pipeline.settings import Settings, read_settings
from pipeline.snapshots import make_store
from pipeline.snapshots.repository import SnapshotRepository, StateSnapshot
from tests.faults.history import History
from tests.support.stage import Stage

Identity = tuple[int, int]


@dataclass
class Found:
    """What the checks have found about one role; zeros and no remarks are what is wanted."""

    inputs: int = 0
    lost: int = 0
    duplicates: int = 0
    differing: int = 0
    twice: int = 0
    equal: bool = True
    snapshots: int = 0
    remarks: list[str] = field(default_factory=list)

    def differs(self, remark: str) -> None:
        self.equal = False
        self.remarks.append(remark)


@dataclass(frozen=True)
class Observed:
    """A stage as the checks see it: its settings, its cluster, its topics and its stores."""

    stage: Stage
    settings: Settings
    cluster: Cluster
    history: History

    @staticmethod
    def of(stage: Stage, history: History | None = None) -> Observed:
        given = {name: str(value) for name, value in stage.chosen().items()}
        given |= {"kafka.bootstrap_servers": stage.broker.bootstrap, "kafka.prefix": stage.prefix}
        settings = read_settings({}, stage.folder / "dtgol.toml", given)
        topics = ("features", "labels", "journal", "predictions", "scores")
        cluster = inspect_cluster(stage.broker.config, settings, topics)
        return Observed(stage, settings, cluster, history or History())

    def repositories(self, role: str, *topics: str) -> Iterator[tuple[int, SnapshotRepository]]:
        """The snapshots of every partition, in the role's own store."""
        store = make_store(self.settings, self.stage.broker.config, role)
        for number in range(self.stage.partitions):
            yield number, SnapshotRepository(store, number, self.cluster.identity(*topics))

    def ref(self, partition: int) -> PartitionRef:
        names = [self.stage.topic(name) for name in ("journal", "features", "labels")]
        return PartitionRef(
            self.cluster.topic_ids["journal"], names[0], partition, names[1], names[2]
        )

    def read(self, name: str) -> dict[int, list[Record]]:
        """A topic, partition by partition, with what a fault has trimmed of it."""
        found: dict[int, list[Record]] = {n: [] for n in range(self.stage.partitions)}
        for record in self.history.with_earlier(name, self.stage.read(name)):
            found[record.partition].append(record)
        return found


@dataclass
class Refolded:
    """One partition of the journal, folded here."""

    fold: Fold
    predictions: dict[int, Output] = field(default_factory=dict)
    letters: list[Output] = field(default_factory=list)
    applied: Counter[tuple[str, int]] = field(default_factory=Counter)
    learnt: Counter[str] = field(default_factory=Counter)
    digests: dict[int, str] = field(default_factory=dict)
    former: Refolded | None = None
    """As it was before an accepted gap: its predictions may be there, its state is forgotten."""

    def prediction(self, offset: int) -> Output | None:
        """The one prediction that a journal offset may have."""
        former = self.former.predictions if self.former is not None else {}
        return self.predictions.get(offset) or former.get(offset)

    def was_forgotten(self, source: tuple[str, int]) -> bool:
        """Whether a source record was applied in what is now a gap."""
        return self.former is not None and self.former.applied[source] > 0


def refold_over(
    ref: PartitionRef, journal: Sequence[Record], offsets: set[int], gap: range
) -> Refolded:
    """The same where a gap was accepted: folded without it, and once more as it was before."""

    def part(start: int, stop: int) -> list[Record]:
        return [each for each in journal if start <= each.offset < stop]

    early = {offset for offset in offsets if offset <= gap.start}
    done = refold(ref, part(0, gap.start), early)
    done.former = refold(ref, part(0, gap.stop), set())
    done.fold.jump(gap.stop)
    return refold(ref, part(gap.stop, sys.maxsize), offsets - early, done)


def refold(
    ref: PartitionRef, journal: Sequence[Record], offsets: set[int], done: Refolded | None = None
) -> Refolded:
    """Fold a partition; the state's digest at each of `offsets`."""
    done = done or Refolded(Fold(ref))
    fold = done.fold
    with _learning(done.learnt):
        for record in journal:
            for offset in [each for each in offsets if fold.next_offset <= each <= record.offset]:
                done.digests.setdefault(offset, _digest_at(fold, offset))
            before = dict(fold.marks.offsets)
            for output in fold.apply(record):
                if output.topic == "predictions":
                    done.predictions[record.offset] = output
                else:
                    done.letters.append(output)
            for (topic, id), mark in fold.marks.offsets.items():
                if before.get((topic, id)) != mark:
                    done.applied[topic, mark] += 1
    for offset in offsets - done.digests.keys():
        done.digests[offset] = _digest_at(fold, offset)
    return done


def _digest_at(fold: Fold, offset: int) -> str:
    """The digest of a fold that stands at `offset`: a transaction's marker is no record."""
    at, fold.next_offset = fold.next_offset, offset
    digest = fold.digest()
    fold.next_offset = at
    return digest


@contextmanager
def _learning(learnt: Counter[str]) -> Iterator[None]:
    """Write down every label that a learner learns; ids of a trial are unique over its streams."""
    observe = Learner.observe

    def watched(self: Learner, *args: Any) -> Any:
        forecast = observe(self, *args)
        learnt.update(getattr(forecast, "learnt", ()))
        return forecast

    with patch.object(Learner, "observe", watched):
        yield


def snapshots(repository: SnapshotRepository, build: Any) -> Iterator[tuple[int, Any]]:
    """Every whole snapshot of a partition, newest first: its offset and its state.

    By the repository's own `load`: each one is called damaged, so that it reads the next.
    """
    found: list[tuple[int, Any]] = []

    def keep(state: dict[str, Any], blobs: Mapping[str, Snapshot]) -> Any:
        made = build(state, blobs)
        found.append((sum(_offsets(state)), made))
        raise SnapshotError("seen; the next one, please")

    logger = logging.getLogger("pipeline.snapshots.repository")
    logger.disabled = True  # it would warn of every one
    assert repository.load(keep) is None
    logger.disabled = False
    yield from found


def _offsets(state: Mapping[str, Any]) -> list[int]:
    return [state["next_offset"]] if "next_offset" in state else [*state["next_offsets"].values()]


def check_worker(observed: Observed) -> tuple[Found, dict[int, Refolded]]:
    """Inputs, predictions and snapshots of the workers against the journal."""
    found = Found()
    journal, predictions = observed.read("journal"), observed.read("predictions")
    sources = {name: observed.read(name) for name in ("features", "labels")}
    folded: dict[int, Refolded] = {}
    for number, repository in observed.repositories("worker", "features", "labels", "journal"):
        ref = observed.ref(number)
        stored = list(snapshots(repository, partial(Fold.restore, ref)))
        offsets = {offset for offset, _ in stored}
        gap = observed.history.jumps.get(number)
        done = folded[number] = (
            refold(ref, journal[number], offsets)
            if gap is None
            else refold_over(ref, journal[number], offsets, gap)
        )
        _check_inputs(observed, found, done, {name: each[number] for name, each in sources.items()})
        _check_predictions(found, done, predictions[number])
        for label, times in done.learnt.items():
            if times > 1:
                found.twice += 1
                found.remarks.append(f"partition {number}: label {label} learnt {times} times")
        if not stored:
            found.differs(f"partition {number}: no whole snapshot")
        elif stored[0][0] != done.fold.next_offset:
            found.differs(f"partition {number}: the newest snapshot is not at the end")
        for offset, fold in stored:
            found.snapshots += 1
            if fold.digest() != done.digests[offset]:
                found.differs(f"partition {number}: the snapshot at {offset} differs")
    _check_letters(observed, found, folded.values())
    return found, folded


def _check_inputs(
    observed: Observed, found: Found, done: Refolded, sources: Mapping[str, Sequence[Record]]
) -> None:
    """Every source record was applied, exactly once."""
    for name, records in sources.items():
        topic = observed.stage.topic(name)
        found.inputs += len(records)
        for record in records:
            at = (topic, record.offset)
            times = done.applied[at]
            gone = done.was_forgotten(at) or not observed.history.was_read(name, record)
            if times != 1 and not (gone and not times):
                found.lost += not times
                found.twice += times > 1
                found.remarks.append(
                    f"{name}[{record.partition}] {record.offset}: applied {times} times"
                )


def _check_predictions(found: Found, done: Refolded, records: Sequence[Record]) -> None:
    """Every prediction is there, with the bytes that the journal gives, however often."""
    times: Counter[int] = Counter()
    for record in records:
        offset = orjson.loads(record.value or b"")["at"]["offset"]
        times[offset] += 1
        expected = done.prediction(offset)
        if expected is None or (record.key, record.value) != (expected.key, expected.value):
            found.differing += 1
            found.remarks.append(f"predictions[{record.partition}] of {offset}: other bytes")
    for offset in done.predictions.keys() - times.keys():
        found.lost += 1
        found.remarks.append(f"journal offset {offset} was never answered")
    found.duplicates += sum(each - 1 for each in times.values())


def _check_letters(observed: Observed, found: Found, folded: Iterable[Refolded]) -> None:
    """Every dead letter is there, and none that the journal does not give."""
    partitions = list(folded)
    expected = _letters(partitions)
    allowed = _letters([each.former for each in partitions if each.former])
    there = [
        _letter(record.key, record.value, record.headers)
        for record in observed.stage.read("dead-letters")
    ]
    lost, differing = expected - set(there), set(there) - expected - allowed
    found.lost += len(lost)
    found.differing += len(differing)
    found.duplicates += len(there) - len(set(there))
    if lost or differing:
        found.remarks.append(f"{len(lost | differing)} dead letters are missing or differ")


def _letters(folded: Iterable[Refolded]) -> set[tuple[Any, ...]]:
    return {
        _letter(output.key, output.value, output.headers)
        for each in folded
        for output in each.letters
    }


def _letter(key: Any, value: Any, headers: Any) -> tuple[Any, ...]:
    return key, value, tuple((name, bytes(text)) for name, text in headers)


def state_hash(taken: StateSnapshot) -> str:
    """A hash of all bits of an evaluator's state."""
    blobs = {name: state_digest(each) for name, each in taken.changed.items()}
    return hashlib.sha256(json.dumps([taken.state, blobs], sort_keys=True).encode()).hexdigest()


def append_times(records: Mapping[int, Sequence[Record]]) -> dict[int, list[float]]:
    """When the records of each partition were appended, in seconds, in order."""
    return {
        number: [record.timestamp_ms / 1000 for record in each] for number, each in records.items()
    }
