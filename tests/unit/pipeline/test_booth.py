"""The evaluator's booth and what Faust may do to it, without a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from faust.types import TP

from pipeline.agents import evaluator
from pipeline.agents.evaluator import Bench, Booth
from pipeline.evaluation import Bounds, Evaluation
from topics.codec import read_prediction, write_prediction
from topics.generate import FOLDER
from topics.labels import Label
from topics.predictions import Identity, Prediction
from topics.refusals import Limits

TOPIC = TP("p-predictions", 0)
FIRST_AFTER_A_SEEK = -1


class Consumer:
    """What the booth asks Faust's consumer: the committed offset, and what came before a record."""

    def __init__(self) -> None:
        self._committed_offset = {TOPIC: 100}
        self.gaps: dict[int, int] = {}

    def before(self, _: TP, offset: int) -> int:
        return self.gaps.get(offset, offset - 1)


async def nothing() -> None:
    return None


@pytest.fixture
def restores() -> list[Evaluation]:
    """What the next restores will find."""
    return []


@pytest.fixture
def booth(monkeypatch: pytest.MonkeyPatch, restores: list[Evaluation]) -> Booth:
    names = {"predictions": "p-predictions", "labels": "p-labels"}
    bench = Bench({}, "group", "journal", names, Bounds(), Limits(), 10**6, 10**6)
    outbox: Any = SimpleNamespace(room=nothing, poll=lambda: None)
    app: Any = SimpleNamespace(consumer=Consumer())
    shelf: Any = None
    scores: Any = None
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
    put(booth, 120, before=FIRST_AFTER_A_SEEK)
    run(booth, lambda: offset_of(booth) == 121)
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


def message(offset: int, value: bytes) -> Any:
    return SimpleNamespace(
        offset=lambda: offset, value=lambda: value, key=lambda: b"k", timestamp=lambda: (0, 5)
    )


@pytest.mark.parametrize(("label_read", "sent"), [(7, 1), (5, 0)], ids=["ahead", "as committed"])
def test_a_pair_that_only_a_restore_has_seen_is_scored(
    booth: Booth, monkeypatch: pytest.MonkeyPatch, label_read: int, sent: int
) -> None:
    """A zombie kept its state with a label that the owner had not read, without its prediction."""
    monkeypatch.undo()
    example = read_prediction((FOLDER / "examples" / "predictions.json").read_bytes())
    assert isinstance(example, Prediction)
    said = replace(example, at=Identity("journal", 0, 60))
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
