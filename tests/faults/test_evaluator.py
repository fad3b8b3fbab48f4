"""The evaluator under the same faults: scored once, the totals of an offline count, the same bits.

The workers are left alone here; tests/faults/test_workers.py sees to them.
"""

from __future__ import annotations

import pytest

from tests.faults.conftest import Trials
from tests.faults.trial import Plan

EVALUATOR = "evaluator"


@pytest.mark.parametrize("store", ["topic", "directory"])
def test_an_evaluator_is_killed_in_steady_flow(trials: Trials, store: str) -> None:
    kills = trials.rounds(3, 12)
    plan = Plan("evaluator: kill -9 in steady flow", workers=1, evaluators=1, store=store)
    with trials.open(plan) as trial:
        for _ in range(kills):
            trial.moment()
            trial.kill(trial.anyone(EVALUATOR))
            trial.crew.start(EVALUATOR)
            trial.await_whole(EVALUATOR)
    assert trial.faults == kills


def test_an_evaluator_is_killed_while_it_keeps_its_state(trials: Trials) -> None:
    points = ["blob", "manifest", "commit"] * trials.rounds(1, 4)
    trials.chance.shuffle(points)
    plan = Plan("evaluator: kill -9 in a snapshot", workers=1, evaluators=1)
    with trials.open(plan) as trial:
        trial.kill(trial.anyone(EVALUATOR))
        for point in points:
            held = trial.crew.start(EVALUATOR, at=point, times=trial.chance.randint(2, 6))
            held.await_reached()
            trial.moment(1, 20)
            trial.kill(held)
        trial.crew.start(EVALUATOR)
    assert trial.faults == 1 + len(points)


def test_an_evaluator_ends_in_good_order_and_starts_again(trials: Trials) -> None:
    rounds = trials.rounds(2, 8)
    plan = Plan("evaluator: SIGTERM and restart", workers=1, evaluators=1)
    with trials.open(plan) as trial:
        for _ in range(rounds):
            trial.moment()
            assert trial.crew.end(trial.anyone(EVALUATOR)) == 0
            trial.count()
            trial.moment(1, 60)
            trial.crew.start(EVALUATOR)
            trial.await_whole(EVALUATOR)
    assert trial.faults == rounds


@pytest.mark.parametrize("store", ["topic", "directory"])
def test_a_frozen_evaluator_wakes_as_a_zombie(trials: Trials, store: str) -> None:
    """Others have scored on meanwhile; when it is given its partitions back, it must not skip."""
    rounds = trials.rounds(2, 8)
    plan = Plan("evaluator: SIGSTOP, expelled, SIGCONT", workers=1, evaluators=2, store=store)
    with trials.open(plan) as trial:
        for _ in range(rounds):
            trial.moment()
            zombie = trial.anyone(EVALUATOR)
            trial.crew.freeze(zombie)
            trial.count()
            trial.await_whole(EVALUATOR)
            trial.moment(120, 240)
            trial.crew.thaw(zombie)
            trial.await_whole(EVALUATOR)
            trial.moment()
    assert trial.faults == rounds


def test_evaluators_join_and_leave(trials: Trials) -> None:
    plan = Plan("evaluator: 1 to 3 to 2", workers=1, evaluators=1)
    with trials.open(plan) as trial:
        for _ in range(trials.rounds(1, 4)):
            trial.moment()
            trial.crew.start(EVALUATOR)
            trial.crew.start(EVALUATOR)
            trial.await_whole(EVALUATOR)
            trial.moment()
            trial.crew.end(trial.anyone(EVALUATOR))
            trial.await_whole(EVALUATOR)
            trial.count(3)
            if trials.long:
                trial.crew.end(trial.anyone(EVALUATOR))
                trial.await_whole(EVALUATOR)
