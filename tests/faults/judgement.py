"""The judge: what is on the topics and in the stores, against the journal folded here.

Everything is read after the processes have ended. Nothing is taken from their word: inputs are what
is on the source topics, outputs what is on the topics they write, states what their stores give.
"""

from __future__ import annotations

import hashlib
import json
import logging
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from unittest.mock import patch

import orjson
from confluent_kafka import Message

from dtgol_core.learner import Learner
from dtgol_core.state import Snapshot, SnapshotError
from dtgol_core.state import digest as state_digest
from pipeline.cluster import Cluster, look
from pipeline.decisions import journal_record
from pipeline.fold import Fold, Output, Place
from pipeline.settings import Settings, read_settings
from pipeline.snapshots import Shelf
from pipeline.stores import make_store
from tests.faults.history import History
from tests.support.stage import Stage

Identity = tuple[int, int]


@dataclass
class Found:
    """What the judge has found about one role; zeros and no remarks are what is wanted."""

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
class Court:
    """The stage as the judge sees it: settings, cluster, stores."""

    stage: Stage
    settings: Settings
    cluster: Cluster
    history: History

    @staticmethod
    def of(stage: Stage, history: History | None = None) -> Court:
        given = {name: str(value) for name, value in stage.chosen().items()}
        given |= {"kafka.bootstrap_servers": stage.broker.bootstrap, "kafka.prefix": stage.prefix}
        settings = read_settings({}, stage.folder / "dtgol.toml", given)
        topics = ("features", "labels", "journal", "predictions", "scores")
        cluster = look(stage.broker.config, settings, topics)
        return Court(stage, settings, cluster, history or History())

    def shelves(self, role: str, *topics: str) -> Iterator[tuple[int, Shelf]]:
        """The shelf of every partition, in the role's own store."""
        store = make_store(self.settings, self.stage.broker.config, role)
        for number in range(self.stage.partitions):
            yield number, Shelf(store, number, self.cluster.identity(*topics))

    def place(self, partition: int) -> Place:
        names = [self.stage.topic(name) for name in ("journal", "features", "labels")]
        return Place(self.cluster.topic_ids["journal"], names[0], partition, names[1], names[2])

    def read(self, name: str) -> dict[int, list[Message]]:
        """A topic, partition by partition, with what a fault has trimmed of it."""
        found: dict[int, list[Message]] = {n: [] for n in range(self.stage.partitions)}
        for message in self.history.with_earlier(name, self.stage.read(name)):
            found[message.partition() or 0].append(message)
        return found


@dataclass
class Refolded:
    """One partition of the journal, folded here."""

    fold: Fold
    said: dict[int, Output] = field(default_factory=dict)
    letters: list[Output] = field(default_factory=list)
    applied: Counter[tuple[str, int]] = field(default_factory=Counter)
    learnt: Counter[str] = field(default_factory=Counter)
    digests: dict[int, str] = field(default_factory=dict)
    former: Refolded | None = None
    """The life before an accepted gap: what it said may be there, and its state is forgotten."""

    def answer(self, offset: int) -> Output | None:
        """The one answer that a journal offset may have."""
        former = self.former.said if self.former is not None else {}
        return self.said.get(offset) or former.get(offset)

    def was_forgotten(self, source: tuple[str, int]) -> bool:
        """Whether a source record was heard in a gap."""
        return self.former is not None and self.former.applied[source] > 0


def refold_over(
    place: Place, journal: Sequence[Message], offsets: set[int], gap: range
) -> Refolded:
    """The same where a gap was accepted: folded without it, and once more as it was before."""

    def part(start: int, stop: int) -> list[Message]:
        return [each for each in journal if start <= (each.offset() or 0) < stop]

    early = {offset for offset in offsets if offset <= gap.start}
    done = refold(place, part(0, gap.start), early)
    done.former = refold(place, part(0, gap.stop), set())
    done.fold.jump(gap.stop)
    return refold(place, part(gap.stop, sys.maxsize), offsets - early, done)


def refold(
    place: Place, journal: Sequence[Message], offsets: set[int], done: Refolded | None = None
) -> Refolded:
    """Fold a partition; the state's digest at each of `offsets`."""
    done = done or Refolded(Fold(place))
    fold = done.fold
    with _learning(done.learnt):
        for message in journal:
            record = journal_record(message)
            for offset in [each for each in offsets if fold.next_offset <= each <= record.offset]:
                done.digests.setdefault(offset, _digest_at(fold, offset))
            before = dict(fold.marks)
            for output in fold.apply(record):
                if output.topic == "predictions":
                    done.said[record.offset] = output
                else:
                    done.letters.append(output)
            for (topic, id), mark in fold.marks.items():
                if before.get((topic, id)) != mark:
                    done.applied[topic, mark] += 1
    for offset in offsets - done.digests.keys():
        done.digests[offset] = _digest_at(fold, offset)
    return done


def _digest_at(fold: Fold, offset: int) -> str:
    """The digest of a fold that stands at `offset`: a marker between is no record."""
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


def manifests(shelf: Shelf, build: Any) -> Iterator[tuple[int, Any]]:
    """Every whole snapshot of a shelf, newest first: its offset and its state."""
    found: list[tuple[int, Any]] = []

    def keep(state: dict[str, Any], streams: dict[str, Snapshot]) -> Any:
        made = build(state, streams)
        found.append((sum(_offsets(state)), made))
        raise SnapshotError("looked at; the next one, please")

    logger = logging.getLogger("pipeline.snapshots")
    logger.disabled = True  # it would warn of every one that was looked at
    assert shelf.load(keep) is None
    logger.disabled = False
    yield from found


def _offsets(state: Mapping[str, Any]) -> list[int]:
    return [state["next_offset"]] if "next_offset" in state else [*state["next_offsets"].values()]


def judge_worker(court: Court) -> tuple[Found, dict[int, Refolded]]:
    """Inputs, predictions and snapshots of the workers against the journal."""
    found = Found()
    journal, predictions = court.read("journal"), court.read("predictions")
    sources = {name: court.read(name) for name in ("features", "labels")}
    folded: dict[int, Refolded] = {}
    for number, shelf in court.shelves("worker", "features", "labels", "journal"):
        place = court.place(number)
        kept = list(manifests(shelf, partial(Fold.restore, place)))
        offsets = {offset for offset, _ in kept}
        gap = court.history.jumps.get(number)
        done = folded[number] = (
            refold(place, journal[number], offsets)
            if gap is None
            else refold_over(place, journal[number], offsets, gap)
        )
        _judge_inputs(court, found, done, {name: each[number] for name, each in sources.items()})
        _judge_predictions(found, done, predictions[number])
        for label, times in done.learnt.items():
            if times > 1:
                found.twice += 1
                found.remarks.append(f"partition {number}: label {label} learnt {times} times")
        if not kept:
            found.differs(f"partition {number}: no whole snapshot")
        elif kept[0][0] != done.fold.next_offset:
            found.differs(f"partition {number}: the newest snapshot is not at the end")
        for offset, fold in kept:
            found.snapshots += 1
            if fold.digest() != done.digests[offset]:
                found.differs(f"partition {number}: the snapshot at {offset} differs")
    _judge_letters(court, found, folded.values())
    return found, folded


def _judge_inputs(
    court: Court, found: Found, done: Refolded, sources: Mapping[str, Sequence[Message]]
) -> None:
    """Every source record was applied, exactly once."""
    for name, messages in sources.items():
        topic = court.stage.topic(name)
        found.inputs += len(messages)
        for message in messages:
            at = (topic, message.offset() or 0)
            times = done.applied[at]
            gone = done.was_forgotten(at) or not court.history.was_read(name, message)
            if times != 1 and not (gone and not times):
                found.lost += not times
                found.twice += times > 1
                found.remarks.append(
                    f"{name}[{message.partition()}] {message.offset()}: applied {times} times"
                )


def _judge_predictions(found: Found, done: Refolded, messages: Sequence[Message]) -> None:
    """Every answer is there, with the bytes that the journal gives, however often."""
    times: Counter[int] = Counter()
    for message in messages:
        offset = orjson.loads(message.value() or b"")["at"]["offset"]
        times[offset] += 1
        wanted = done.answer(offset)
        if wanted is None or message.value() != wanted.value or message.key() != wanted.key:
            found.differing += 1
            found.remarks.append(f"predictions[{message.partition()}] of {offset}: other bytes")
    for offset in done.said.keys() - times.keys():
        found.lost += 1
        found.remarks.append(f"journal offset {offset} was never answered")
    found.duplicates += sum(each - 1 for each in times.values())


def _judge_letters(court: Court, found: Found, folded: Iterable[Refolded]) -> None:
    """Every dead letter is there, and none that the journal does not give."""
    lives = list(folded)
    wanted, allowed = _letters(lives), _letters([each.former for each in lives if each.former])
    there = [
        _letter(message.key(), message.value(), message.headers() or [])
        for message in court.stage.read("dead-letters")
    ]
    lost, differing = wanted - set(there), set(there) - wanted - allowed
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


def state_hash(state: Mapping[str, Any], blobs: Mapping[str, Snapshot]) -> str:
    """A hash of all bits of an evaluator's state."""
    whole = [dict(state), {name: state_digest(each) for name, each in blobs.items()}]
    return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()


def append_times(messages: Mapping[int, Sequence[Message]]) -> dict[int, list[float]]:
    """When the records of each partition were appended, in seconds, in order."""
    times: dict[int, list[float]] = defaultdict(list)
    for number, each in messages.items():
        times[number] = [message.timestamp()[1] / 1000 for message in each]
    return times
