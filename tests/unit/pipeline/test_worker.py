"""Which partitions a worker process holds on to, and what is done when its journal is trimmed."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from faust.types import TP

from pipeline.errors import FAILED, REFUSED
from pipeline.kafka.reader import Watermarks
from pipeline.runtime.process import Process, Role
from pipeline.worker import Worker

TOPICS = ("features", "journal")


class FakePart:
    """Notes what is asked of it; runs until it is cancelled."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    async def run(self) -> None:
        await asyncio.Event().wait()

    def rejoined(self) -> None:
        self.calls.append("rejoined")

    def abandon(self) -> None:
        self.calls.append("abandon")


@pytest.fixture
def worker() -> Any:
    """A worker whose parts are fakes."""
    made: Any = object.__new__(Worker)
    made.learners, made.sequencers, made.names = {}, {}, {"journal": "journal"}
    made._learner = lambda *_: FakePart()
    made._sequencer = lambda *_: FakePart()
    return made


@pytest.fixture
def process(worker: Any) -> Any:
    """A process without an app."""
    made: Any = object.__new__(Process)
    made.role = Role("worker", "fold", TOPICS, worker.open, worker.close)
    made.partitions, made.closing, made.in_group = {}, False, False
    made.accept_gap, made.cluster = False, SimpleNamespace(partitions=9)
    return made


def places(*partitions: int) -> set[TP]:
    return {TP(topic, number) for topic in TOPICS for number in partitions}


def test_a_partition_that_went_elsewhere_is_let_go_of(worker: Any, process: Any) -> None:
    """Its state may be large, and it may never come back."""

    async def play() -> None:
        await process.assigned(places(0, 1))
        await asyncio.sleep(0)  # the parts begin
        assert set(worker.learners) == set(worker.sequencers) == {0, 1}
        gone, kept = process.partitions[0], process.partitions[1]
        await process.assigned(places(1, 2))
        await asyncio.sleep(0)
        assert set(process.partitions) == set(worker.learners) == set(worker.sequencers) == {1, 2}
        assert [part.calls for part in gone.parts] == [["abandon"]] * 2
        assert [part.calls for part in kept.parts] == [["rejoined"]] * 2
        await asyncio.gather(*gone.tasks, return_exceptions=True)
        assert all(task.cancelled() for task in gone.tasks)
        assert not any(task.done() for task in kept.tasks)
        await process.assigned(set())
        assert worker.learners == worker.sequencers == {}
        assert process.in_group

    asyncio.run(play())


def test_an_assignment_that_comes_while_the_process_ends_is_not_taken_up(
    worker: Any, process: Any
) -> None:
    process.closing = True
    asyncio.run(process.assigned(places(0)))
    assert (process.partitions, worker.learners) == ({}, {})


@pytest.mark.parametrize(
    ("topic", "offset", "next_offset", "accept_gap", "outcome"),
    [
        ("features", 3, 0, False, False),  # the process decides
        ("journal", 3, None, False, True),  # nothing is restored yet: the restore will see
        ("journal", 3, 5, False, True),  # the state is past the gap
        ("journal", 3, 4, False, REFUSED),
        ("journal", 3, 4, True, FAILED),  # the next start goes on without them
        ("journal", 12, 4, False, FAILED),  # beyond the end: not the journal that was folded
    ],
)
def test_a_journal_that_is_trimmed_in_front_of_its_learner(
    worker: Any,
    process: Any,
    monkeypatch: pytest.MonkeyPatch,
    topic: str,
    offset: int,
    next_offset: int | None,
    accept_gap: bool,
    outcome: bool | int,
) -> None:
    class EndedError(BaseException):
        pass

    codes: list[int] = []

    def exit_now(code: int, why: str) -> None:
        codes.append(code)
        raise EndedError

    monkeypatch.setattr("pipeline.worker.exit_now", exit_now)
    state = None if next_offset is None else object()
    worker.learners[0] = SimpleNamespace(state=state, next_offset=next_offset or 0)
    process.accept_gap = accept_gap
    gap = worker.on_gap, process, TP(topic, 0), offset, Watermarks(5, 9), "records are gone"
    if isinstance(outcome, bool):
        assert gap[0](*gap[1:]) is outcome
    else:
        with pytest.raises(EndedError):
            gap[0](*gap[1:])
        assert codes == [outcome]
