"""The whole path on the embedded broker, with a kill: pip alone is needed, no Java, no Docker."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.sandbox.brokers import Broker, open_broker
from tests.support.queries import expressions, selectors
from tests.support.scrape import Series, declared, scraped
from tests.support.stage import Process, Stage
from tests.support.waiting import wait_until

RECORDS, DELAY, STREAMS = 240, 20, 3


@pytest.fixture
def broker() -> Iterator[Broker]:
    with open_broker("embedded") as opened:
        yield opened


def send(stage: Stage, numbers: range) -> None:
    """Features, and the label of the record some while before."""
    for number in numbers:
        stream = f"s{number % STREAMS}"
        x = {"v": number % 11, "w": "abc"[number % 3], "gone": None}
        stage.features(f"i{number}", x, key=stream, stream=stream)
        if number >= DELAY:
            old = number - DELAY
            stream = f"s{old % STREAMS}"
            stage.label(f"i{old}", int(old % 11 > 5), key=stream, stream=stream)
    stage.flush()


def ids(numbers: range) -> set[str]:
    return {f"i{number}" for number in numbers}


def learnt(worker: Process) -> int:
    partitions = worker.status()["partitions"].values()
    return sum(each.get("counts", {}).get("labels/queued", 0) for each in partitions)


def await_series(process: Process, wanted: Series) -> None:
    """Until a scrape shows every declared series; it must show none besides."""

    def look() -> Series:
        return scraped(process.get("/metrics")[1])

    with contextlib.suppress(AssertionError):
        wait_until(lambda: wanted.keys() <= look().keys(), "series", 30, process.alive)
    assert look() == wanted


def test_a_killed_worker_comes_back_to_the_same_bytes(broker: Broker, tmp_path: Path) -> None:
    """Features and labels in; predictions and scores out; a `kill -9` in the middle."""
    stage = Stage(broker, "embedded-", tmp_path)
    half = RECORDS // 2
    with stage.worker() as worker:
        worker.await_ready()
        send(stage, range(half))
        stage.await_answers(ids(range(half)), worker)
        worker.child.kill()
        worker.child.wait()
    send(stage, range(half, RECORDS))
    with stage.worker() as worker, stage.evaluator() as evaluator:
        stage.await_answers(ids(range(RECORDS)), worker)
        wait_until(lambda: learnt(worker) == RECORDS - DELAY, "labels", 60, worker.alive)
        scored = ids(range(RECORDS - DELAY))
        wait_until(
            lambda: {score["id"] for score in stage.scores()} == scored,
            "scores",
            60,
            evaluator.alive,
        )
        for role, process in (("worker", worker), ("evaluator", evaluator)):
            await_series(process, declared(role))
        live = {*scraped(worker.get("/metrics")[1]), *scraped(evaluator.get("/metrics")[1])}
        asked = {each.name for query in expressions() for each in selectors(query)}
        assert asked
        assert asked <= live
        assert worker.child.poll() is None
    written = [path.read_bytes() for path in sorted(stage.folder.glob("*.log"))]
    assert len(written) == 3
    assert not any(b"\x1b" in text or b"\b" in text for text in written)  # seen: Faust's spinner
    folds = stage.verify()  # every prediction has the bytes that the journal gives, none is missing
    assert sum(fold.counts["features/answered"] for fold in folds) == RECORDS
    assert sum(fold.counts["labels/queued"] for fold in folds) == RECORDS - DELAY
