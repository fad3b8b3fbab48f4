"""The evaluator's booth and what Faust may do to it, without a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from faust.types import TP

from pipeline.agents import evaluator
from pipeline.agents.evaluator import Bench, Booth
from pipeline.evaluation import Bounds, Evaluation
from pipeline.snapshots import RefusalError
from topics.codec import read_prediction, write_prediction
from topics.generate import FOLDER
from topics.labels import Label
from topics.predictions import Identity, Prediction
from topics.refusals import Limits

NAMES = {"predictions": "p-predictions", "labels": "p-labels"}
TOPIC, LABELS = (TP(full, 0) for full in NAMES.values())
FIRST_AFTER_A_SEEK = -1


class Consumer:
    """What the booth asks Faust's consumer: the committed offset, and what came before a record.

    And of aiokafka, below it, how far it has fetched and how far a topic goes.
    """

    def __init__(self) -> None:
        self._committed_offset = {TOPIC: 100}
        self.gaps: dict[int, int] = {}
        self.paused: set[TP] = set()
        self.states: dict[TP, Any] = {}
        assigned = SimpleNamespace(tps=self.states, state_value=self.states.__getitem__)
        subscription = SimpleNamespace(subscription=SimpleNamespace(assignment=assigned))
        self._thread = SimpleNamespace(_consumer=SimpleNamespace(_subscription=subscription))

    def before(self, _: TP, offset: int) -> int:
        return self.gaps.get(offset, offset - 1)

    def last_fetched(self, tp: TP) -> int:
        return int(self.states[tp]._position) - 1

    def assignment(self) -> set[TP]:
        return set(self.states)

    def pause_partitions(self, tps: set[TP]) -> None:
        self.paused |= tps

    def resume_partitions(self, tps: set[TP]) -> None:
        self.paused -= tps


async def nothing() -> None:
    return None


@pytest.fixture
def restores() -> list[Evaluation]:
    """What the next restores will find."""
    return []


@pytest.fixture
def booth(monkeypatch: pytest.MonkeyPatch, restores: list[Evaluation]) -> Booth:
    bench = Bench({}, "group", "journal", NAMES, Bounds(), Limits(), 10**6, 10**6)
    outbox: Any = SimpleNamespace(room=nothing, poll=lambda: None)
    app: Any = SimpleNamespace(consumer=Consumer())
    shelf: Any = None
    scores: Any = SimpleNamespace(send=lambda *_: None)
    monkeypatch.setattr(Booth, "_restore", lambda *_: restores.pop(0))
    return Booth(0, bench, outbox, scores, shelf, app)


def at(offset: int) -> Evaluation:
    found = Evaluation("journal", 0, Bounds())
    found.next_offsets = {"predictions": offset, "labels": 0}
    return found


def put(booth: Booth, offset: int, before: int | None = None, topic: str = "p-predictions") -> None:
    app: Any = booth._app
    if before is not None:
        app.consumer.gaps[offset] = before
    booth.put(
        SimpleNamespace(
            topic=topic, partition=0, offset=offset, key=b"k", value=b"?", timestamp=1.0
        )
    )


def run(booth: Booth, until: Callable[[], bool]) -> None:
    async def work() -> None:
        task = asyncio.create_task(booth.run(lambda _: asyncio.sleep(0, True)))
        async with asyncio.timeout(10):
            while not until():
                await asyncio.sleep(0)
        task.cancel()

    asyncio.run(work())


def offset_of(booth: Booth) -> int:
    return booth.evaluation.next_offsets["predictions"] if booth.evaluation else -1


def test_a_state_that_others_have_overtaken_is_restored_again(
    booth: Booth, restores: list[Evaluation]
) -> None:
    """Another evaluator had the partition and committed 120: what lies between was never here."""
    restores += [at(100), at(120)]
    put(booth, 100, before=99)
    put(booth, 120, before=FIRST_AFTER_A_SEEK)
    put(booth, 121)
    run(booth, lambda: offset_of(booth) == 122)
    assert restores == []
    assert booth._needed == {"predictions": 120, "labels": 0}
    assert booth.evaluation is not None
    assert booth.evaluation.counts["predictions/refused"] == 2  # 120 and 121, each once


def test_what_an_overtaken_state_had_taken_in_is_read_by_the_next_one(
    booth: Booth, restores: list[Evaluation]
) -> None:
    """Seen in a trial: labels in front of the gap were gone with the state that had heard them."""
    restores += [at(100), at(120)]
    for offset in (0, 1):
        put(booth, offset, topic="p-labels")

    def restored() -> bool:
        if booth.moved[0] == 2:
            put(booth, 120, before=FIRST_AFTER_A_SEEK)
        return offset_of(booth) == 121

    run(booth, restored)
    assert booth._needed == {"predictions": 120, "labels": 2}


def test_a_gap_that_the_broker_left_is_no_reason_to_restore(
    booth: Booth, restores: list[Evaluation]
) -> None:
    restores += [at(100)]
    put(booth, 100, before=99)
    put(booth, 104, before=100)  # a transaction's markers
    run(booth, lambda: offset_of(booth) == 105)


def test_what_is_known_is_skipped_after_a_seek(booth: Booth, restores: list[Evaluation]) -> None:
    restores += [at(103)]
    put(booth, 100, before=FIRST_AFTER_A_SEEK)
    for offset in (101, 102, 103):
        put(booth, offset)
    run(booth, lambda: offset_of(booth) == 104)
    assert booth.evaluation is not None
    assert booth.evaluation.counts["predictions/refused"] == 1


def test_records_that_faust_has_lost_end_the_process(
    booth: Booth, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends: list[int] = []
    monkeypatch.setattr(evaluator, "end", lambda code, _: ends.append(code))
    put(booth, 100, before=99)
    put(booth, 103, before=102)
    assert ends == [1]


def example() -> Prediction:
    found = read_prediction((FOLDER / "examples" / "predictions.json").read_bytes())
    assert isinstance(found, Prediction)
    return found


EXAMPLE = example()


def message(offset: int, value: bytes, time_ms: int = 5) -> Any:
    return SimpleNamespace(
        offset=lambda: offset, value=lambda: value, key=lambda: b"k", timestamp=lambda: (0, time_ms)
    )


@pytest.mark.parametrize(("label_read", "sent"), [(7, 1), (5, 0)], ids=["ahead", "as committed"])
def test_a_pair_that_only_a_restore_has_seen_is_scored(
    booth: Booth, monkeypatch: pytest.MonkeyPatch, label_read: int, sent: int
) -> None:
    """A zombie kept its state with a label that the owner had not read, without its prediction."""
    monkeypatch.undo()
    said = replace(EXAMPLE, at=Identity("journal", 0, 60))
    kept = at(60)
    kept.next_offsets["labels"] = label_read
    kept.label(Label(said.stream, said.id, 1, 9), 4)
    topics = {"p-predictions": [message(60, write_prediction(said))], "p-labels": []}
    booth._shelf = SimpleNamespace(load=lambda _: kept)  # type: ignore[assignment]
    committed = {"p-predictions": 61, "p-labels": 5}
    monkeypatch.setattr(evaluator, "offsets_of_group", lambda *a: {0: committed[a[2]]})
    monkeypatch.setattr(evaluator, "read_range", lambda *a: iter(topics[a[1]]))
    monkeypatch.setattr(Booth, "_start", lambda *_: 0)
    scores: list[Any] = []
    restored = booth._restore(scores)
    assert restored.counts["predictions/scored"] == 1
    assert len(scores) == sent


@dataclass(frozen=True)
class Story:
    """What two topics hold: pairs one millisecond apart, a label some pairs after its prediction.

    Every tenth has no label and every seventh a correction. `outage`: all predictions were made
    when the labels were there already. `orphans`: labels of nothing, in front of the others.
    """

    pairs: int = 2_000
    delay: int = 40
    correction: int = 40
    outage: bool = False
    orphans: int = 0

    def labelled(self) -> list[int]:
        return [number for number in range(self.pairs) if number % 10]

    def positives(self) -> int:
        return sum(1 for number in self.labelled() if number % 7 == 0)

    def topics(self) -> dict[str, list[tuple[int, bytes]]]:
        late = 10**6 if self.outage else 0
        said = [(late + number, _said(number)) for number in range(self.pairs)]
        told = [(number + self.delay, _told(f"i{number}", 0)) for number in self.labelled()]
        told += [
            (number + self.delay + self.correction, _told(f"i{number}", 1))
            for number in self.labelled()
            if number % 7 == 0
        ]
        orphans = [(0, _told(f"orphan{number}", 0)) for number in range(self.orphans)]
        return {"p-predictions": said, "p-labels": orphans + sorted(told, key=lambda each: each[0])}


def _said(number: int) -> bytes:
    at = Identity("journal", 0, number)
    return write_prediction(replace(EXAMPLE, id=f"i{number}", at=at, step=number))


def _told(id: str, y: int) -> bytes:
    return orjson.dumps({"stream": EXAMPLE.stream, "id": id, "y": y})


async def deliver(booth: Booth, story: Story, chunks: Mapping[str, int]) -> None:
    """As aiokafka does it: of one topic what one fetch gave, then of the next, if not paused."""
    app: Any = booth._app
    consumer = app.consumer
    for full, log in story.topics().items():
        # What is not fetched yet is the log's rest.
        consumer.states[TP(full, 0)] = SimpleNamespace(_position=0, lso=len(log), log=iter(log))
    while any(state._position < state.lso for state in consumer.states.values()):
        for tp, state in consumer.states.items():
            handed = 0
            while handed < chunks[tp.topic] and tp not in consumer.paused:
                batch = list(islice(state.log, min(50, chunks[tp.topic])))
                start, handed = state._position, handed + 50
                state._position += len(batch)
                for offset, (time_ms, value) in enumerate(batch, start):
                    booth.put(
                        SimpleNamespace(
                            topic=tp.topic,
                            partition=0,
                            offset=offset,
                            key=b"k",
                            value=value,
                            timestamp=time_ms / 1000,
                        )
                    )
                await asyncio.sleep(0)
                if state._position == state.lso:
                    break
        await asyncio.sleep(0)


@pytest.fixture
def fresh(
    booth: Booth, restores: list[Evaluation], monkeypatch: pytest.MonkeyPatch
) -> Callable[[Bounds], Booth]:
    """A booth that begins, with small queues."""

    def make(bounds: Bounds) -> Booth:
        app: Any = booth._app
        app.consumer._committed_offset = {}
        monkeypatch.setattr(evaluator, "QUEUE_MAX", 100)
        restores.append(Evaluation("journal", 0, bounds))
        return booth

    return make


def work_off(booth: Booth, story: Story, chunks: tuple[int, int]) -> Evaluation:
    async def work() -> None:
        task = asyncio.create_task(booth.run(lambda _: asyncio.sleep(0, True)))
        async with asyncio.timeout(60):
            await deliver(booth, story, dict(zip(NAMES.values(), chunks, strict=True)))
            while booth.waiting:
                await asyncio.sleep(0)
        task.cancel()

    asyncio.run(work())
    assert booth.evaluation is not None
    return booth.evaluation


@pytest.mark.parametrize(
    "story",
    [
        Story(),
        Story(outage=True),
        Story(correction=300),
        Story(orphans=700),
    ],
    ids=["down", "worker down too", "corrected late", "labels of nothing"],
)
@pytest.mark.parametrize("chunks", [(130, 850), (2_000, 100), (50, 2_000)], ids=str)
def test_a_backlog_is_scored_whole_however_the_topics_take_turns(
    fresh: Callable[[Bounds], Booth], story: Story, chunks: tuple[int, int]
) -> None:
    """Seen by a reviewer: labels ran ahead of predictions, and were forgotten when these came."""
    found = work_off(fresh(Bounds(pairs_max=500, labels_max=300)), story, chunks)
    total = found.boards[EXAMPLE.stream].summary().total
    assert found.counts["predictions/scored"] == total.count == len(story.labelled())
    assert total.positives == story.positives()
    assert found.counts["labels/unmatched"] == max(0, story.orphans - 300)


def test_labels_of_nothing_are_forgotten_where_the_predictions_end(
    fresh: Callable[[Bounds], Booth],
) -> None:
    story = Story(pairs=100, orphans=3_000)
    found = work_off(fresh(Bounds(pairs_max=50, labels_max=20)), story, (50, 500))
    assert found.counts["labels/unmatched"] >= 2_980
    assert found.next_offsets == {name: len(story.topics()[full]) for name, full in NAMES.items()}


def test_labels_wait_while_nothing_is_known_of_the_predictions(booth: Booth) -> None:
    """A first fetch may bring labels alone; in front of a full memory they are not taken then."""
    app: Any = booth._app
    found = Evaluation("journal", 0, Bounds(labels_max=0))
    assert found.turn({"labels": 5}, booth._unread) is None
    app.consumer.states[TOPIC] = SimpleNamespace(_position=100, lso=101)
    assert found.turn({"labels": 5}, booth._unread) is None
    app.consumer.states[TOPIC]._position = 101
    app.consumer.last_fetched = lambda _: 99
    assert found.turn({"labels": 5}, booth._unread) == "labels"


@pytest.mark.parametrize("bounds", [(500, 300), (500, 60)], ids=str)
def test_a_restore_scores_what_was_scored_before(
    booth: Booth, monkeypatch: pytest.MonkeyPatch, bounds: tuple[int, int]
) -> None:
    """Seen by a reviewer: all predictions first, and most were forgotten before their label."""
    story = Story()
    topics = {
        full: [message(offset, value, time_ms) for offset, (time_ms, value) in enumerate(log)]
        for full, log in story.topics().items()
    }
    restored = restore(booth, monkeypatch, topics, Bounds(*bounds))
    assert restored.counts["predictions/scored"] == len(story.labelled())
    assert restored.boards[EXAMPLE.stream].summary().total.positives == story.positives()
    assert booth.restored_records == sum(map(len, topics.values()))


def restore(
    booth: Booth,
    monkeypatch: pytest.MonkeyPatch,
    topics: Mapping[str, list[Any]],
    bounds: Bounds | None = None,
    low: int = 0,
    accept_gap: bool = False,
    told: int | None = None,
) -> Evaluation:
    """Restore without a snapshot from topics that begin at `low` and were read to their end."""
    monkeypatch.undo()
    booth._bench = replace(booth._bench, bounds=bounds or Bounds(), accept_gap=accept_gap)
    booth._shelf = SimpleNamespace(load=lambda _: None)  # type: ignore[assignment]
    ends = {full: len(log) if told is None else told for full, log in topics.items()}
    monkeypatch.setattr(evaluator, "offsets_of_group", lambda *a: {0: ends[a[2]] or None})
    monkeypatch.setattr(evaluator, "look_at", lambda *a: (low, len(topics[a[1]])))
    monkeypatch.setattr(evaluator, "read_range", lambda *a: iter(topics[a[1]][a[3] : a[4]]))
    return booth._restore([])


def test_snapshots_that_are_lost_where_the_topics_are_trimmed_are_a_refusal(
    booth: Booth, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Totals would shrink in silence."""
    topics = {full: [message(offset, b"?") for offset in range(9)] for full in NAMES.values()}
    with pytest.raises(RefusalError, match="p-predictions partition 0 begins at 4 and there is no"):
        restore(booth, monkeypatch, topics, low=4)
    accepted = restore(booth, monkeypatch, topics, low=4, accept_gap=True)
    assert accepted.counts == {"predictions/refused": 5, "labels/refused": 5}


def test_a_first_start_begins_where_the_topics_do(
    booth: Booth, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = {full: [message(offset, b"?") for offset in range(9)] for full in NAMES.values()}
    assert restore(booth, monkeypatch, topics, low=4, told=0).counts == {}
