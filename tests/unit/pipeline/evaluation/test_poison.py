"""A record on which the evaluator fails: tried three times, then left out, and the rest is scored.

Before, an exception ended the process at every start, for ever, and so did a death without one.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from pipeline.evaluation.pairing import Evaluation
from pipeline.evaluation.poison import DEATHS_MAX, SUFFIX, FailureFiles, Place
from tests.support.buggy import SECRET
from tests.unit.pipeline.evaluation.test_partition import (
    LABELS,
    NAMES,
    PREDICTIONS,
    Setup,
    Story,
    work_off,
)
from topics.labels import Label

fork = multiprocessing.get_context("fork")
POISON = "i13"
STORY = Story(pairs=50, delay=5, correction=20)


def poison(monkeypatch: pytest.MonkeyPatch, die: Any) -> None:
    """From now on a label of this id is fatal, after half of the work."""
    label = Evaluation.label

    def fatal(self: Evaluation, seen: Label, offset: int) -> Any:
        scores = label(self, seen, offset)
        if seen.id == POISON:
            die()
        return scores

    monkeypatch.setattr(Evaluation, "label", fatal)


def fail() -> None:
    raise ZeroDivisionError(SECRET)


def test_a_record_that_raises_is_left_out_and_all_others_are_scored(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    poison(monkeypatch, fail)
    setup = Setup()
    found = work_off(setup, STORY, (10, 10))
    assert found.counts["labels/failed"] == 1
    assert found.counts["predictions/scored"] == len(STORY.labelled()) - 1
    assert found.next_offsets == {name: len(STORY.topics()[full]) for name, full in NAMES.items()}
    assert "ZeroDivisionError" in caplog.text
    assert f"{LABELS} offset" in caplog.text
    assert SECRET not in caplog.text
    assert caplog.text.count("failure ") == 3


def test_a_record_that_raises_in_a_restore_is_left_out_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    poison(monkeypatch, fail)
    setup = Setup()
    setup.kafka.topics = STORY.topics()
    setup.kafka.commits = {topic: len(log) for topic, log in STORY.topics().items()}
    setup.run(setup.evaluator.ready.is_set)
    assert setup.evaluator.state is not None
    assert setup.evaluator.state.counts["predictions/scored"] == len(STORY.labelled()) - 1


def test_a_passing_cause_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter(range(9))

    def once() -> None:
        if next(times) == 0:
            raise MemoryError

    poison(monkeypatch, once)
    found = work_off(Setup(), STORY, (10, 10))
    assert found.counts["labels/failed"] == 0
    assert found.counts["predictions/scored"] == len(STORY.labelled())


def evaluate(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one process does: all records, or death at one of them."""
    faulthandler.disable()  # what abort prints is no news
    poison(monkeypatch, os.abort)
    setup = Setup()
    setup.evaluator._failures = FailureFiles(folder, "evaluator.a/b", list(NAMES), 1)
    found = work_off(setup, STORY, (10, 10))
    assert found.counts["labels/failed"] == 1
    assert found.counts["predictions/scored"] == len(STORY.labelled()) - 1
    os._exit(0)


def test_a_record_ends_a_process_three_times_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes = []
    for _ in range(4):
        child = fork.Process(target=evaluate, args=(tmp_path, monkeypatch))
        child.start()
        child.join(60)
        codes.append(child.exitcode)
    assert codes == [-signal.SIGABRT] * 3 + [0]


def die_between(folder: Path) -> None:
    files = FailureFiles(folder, "evaluator", list(NAMES), 2)
    with files.position(Place("labels", 1, 5)):
        pass
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_healthy_process_that_is_killed_counts_for_nothing(tmp_path: Path) -> None:
    for _ in range(4):
        child = fork.Process(target=die_between, args=(tmp_path,))
        child.start()
        child.join(30)
    files = FailureFiles(tmp_path, "evaluator", list(NAMES), 2)
    assert not files.gives_up(Place("labels", 1, 5))
    assert not list(tmp_path.glob(f"*{SUFFIX}"))


def test_files_of_deaths_are_bounded_and_of_their_own_topics(tmp_path: Path) -> None:
    for number in range(DEATHS_MAX + 9):
        (tmp_path / f"evaluator.1.{number}.x{SUFFIX}").touch()
    for number in range(3):
        (tmp_path / f"other.0.7.{number}{SUFFIX}").touch()
    files = FailureFiles(tmp_path, "evaluator", list(NAMES), 1)
    assert len(list(tmp_path.glob(f"evaluator*{SUFFIX}"))) == DEATHS_MAX
    assert not files.gives_up(Place("predictions", 0, 7))
    assert FailureFiles(tmp_path, "other", list(NAMES), 1).gives_up(Place("predictions", 0, 7))
    assert PREDICTIONS != "predictions"  # places go by plain names
