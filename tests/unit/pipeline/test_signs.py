"""What counts as standing still in a restore, and what an ending process still takes up."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from faust.types import TP

from pipeline.evaluator import Evaluator
from pipeline.signs import booth_signs, post_signs
from pipeline.watchdog import Sign
from pipeline.worker import Worker


def restoring(begun: bool, looked: int = 0, read: int = 0) -> Sign:
    """The first sign of a worker's partition that is not ready."""
    parking = SimpleNamespace(offset=None, looked=looked)
    seat: Any = SimpleNamespace(
        parking=parking,
        ready=asyncio.Event(),
        restoring=begun,
        restored_records=read,
        next_offset=0,
        moved=(),
    )
    sequence: Any = SimpleNamespace(held_up=False, moved=())
    return next(iter(post_signs(0, seat, sequence, {})))


def test_a_restore_that_waits_for_its_thread_is_not_standing_still() -> None:
    assert not restoring(begun=False).works
    assert restoring(begun=True).works


def test_a_restore_moves_while_it_reads_ahead_and_while_it_folds() -> None:
    steps = {restoring(True).step, restoring(True, looked=1).step, restoring(True, read=1).step}
    assert len(steps) == 3


@pytest.mark.parametrize("begun", [False, True])
def test_an_evaluators_restore_counts_once_it_has_begun(begun: bool) -> None:
    booth: Any = SimpleNamespace(
        ready=asyncio.Event(), restoring=begun, restored_records=0, moved=()
    )
    assert next(iter(booth_signs(0, booth, {}))).works is begun


@pytest.mark.parametrize(("role", "held"), [(Worker, "posts"), (Evaluator, "booths")])
def test_an_assignment_that_comes_in_an_orderly_end_is_not_taken_up(role: Any, held: str) -> None:
    process = role.__new__(role)
    process.closing = True
    setattr(process, held, {})
    asyncio.run(process._assigned(None, {TP("features", 0)}))
    assert getattr(process, held) == {}
