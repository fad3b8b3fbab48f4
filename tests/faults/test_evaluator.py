"""The evaluator under the same faults: scored once, the totals of an offline count, the same bits.

The workers are left alone here; tests/faults/test_workers.py sees to them.
"""

from __future__ import annotations

import pytest

from pipeline.evaluation.pairs import PAIR_BYTES
from tests.faults.conftest import Trials
from tests.faults.load import Flow
from tests.faults.stored_snapshots import StoredSnapshots
from tests.faults.trial import Plan, kill_at

EVALUATOR = "evaluator"


@pytest.mark.stores("topic", long="directory")
def test_an_evaluator_is_killed_in_steady_flow(trials: Trials, store: str) -> None:
    kills = trials.rounds(3, 12)
    plan = Plan("evaluator: kill -9 in steady flow", workers=1, evaluators=1, store=store)
    with trials.open(plan) as trial:
        for _ in range(kills):
            trial.moment()
            trial.kill(trial.anyone(EVALUATOR))
            trial.processes.start(EVALUATOR)
            trial.await_whole(EVALUATOR)
    assert trial.faults == kills


@pytest.mark.stores("directory", long="topic")
def test_an_evaluator_is_killed_while_it_keeps_its_state(trials: Trials, store: str) -> None:
    points = ["blob", "manifest", "commit"] * trials.rounds(1, 4)
    trials.chance.shuffle(points)
    plan = Plan("evaluator: kill -9 in a snapshot", workers=1, evaluators=1, store=store)
    with trials.open(plan) as trial:
        trial.kill(trial.anyone(EVALUATOR))
        kill_at(trial, EVALUATOR, points)
        trial.processes.start(EVALUATOR)
    assert trial.faults == 1 + len(points)


def test_an_evaluator_ends_in_good_order_and_starts_again(trials: Trials) -> None:
    rounds = trials.rounds(2, 8)
    plan = Plan("evaluator: SIGTERM and restart", workers=1, evaluators=1)
    with trials.open(plan) as trial:
        for _ in range(rounds):
            trial.moment()
            assert trial.processes.end(trial.anyone(EVALUATOR)) == 0
            trial.count()
            trial.moment(1, 60)
            trial.processes.start(EVALUATOR)
            trial.await_whole(EVALUATOR)
    assert trial.faults == rounds


@pytest.mark.stores("topic", long="directory")
def test_a_frozen_evaluator_wakes_as_a_zombie(trials: Trials, store: str) -> None:
    """Others have scored on meanwhile; when it is given its partitions back, it must not skip.

    In the long run it misses more than it can read before it notices that it was thrown out.
    """
    rounds = trials.rounds(2, 4)
    away = (4_000, 5_000) if trials.long else (60, 240)
    flow = Flow(per_s=300) if trials.long else Flow()
    name = "evaluator: SIGSTOP, expelled, SIGCONT"
    plan = Plan(name, workers=1, evaluators=2, store=store, flow=flow)
    with trials.open(plan) as trial:
        for number in range(rounds):
            trial.moment()
            trial.freeze_until_replaced(EVALUATOR, alone=number % 2 == 1, away=away)
            trial.moment()
    assert trial.faults == rounds


def test_a_backlog_is_scored_whole_with_little_memory(trials: Trials) -> None:
    """Many more labels and predictions than may be held; then again, by a restore from the topics.

    The load is over and answered before: a label that comes before its prediction is there may be
    forgotten.
    """
    little = {"evaluator.pairs_bytes_max": 200 * PAIR_BYTES, "evaluator.labels_max": 50}
    flow = Flow(per_s=600, records_min=1_500)
    name = "evaluator: a backlog, little memory"
    plan = Plan(name, workers=1, evaluators=1, partitions=1, flow=flow, settings=little)
    with trials.open(plan) as trial:
        trial.kill(trial.anyone(EVALUATOR))
        trial.load.finish()
        trial.await_quiet("worker")
        trial.processes.start(EVALUATOR)
        trial.await_quiet(EVALUATOR)
        trial.kill(trial.anyone(EVALUATOR))
        stored = StoredSnapshots(trial.stage, EVALUATOR, 0)
        for manifest in stored.manifests():
            stored.damage(manifest)
        trial.count()
        trial.processes.start(EVALUATOR)
    assert trial.faults == 3


@pytest.mark.long
def test_evaluators_join_and_leave(trials: Trials) -> None:
    plan = Plan("evaluator: 1 to 3 to 2", workers=1, evaluators=1)
    with trials.open(plan) as trial:
        for _ in range(trials.rounds(1, 4)):
            trial.moment()
            trial.processes.start(EVALUATOR)
            trial.processes.start(EVALUATOR)
            trial.await_whole(EVALUATOR)
            trial.moment()
            trial.processes.end(trial.anyone(EVALUATOR))
            trial.await_whole(EVALUATOR)
            trial.count(3)
            if trials.long:
                trial.processes.end(trial.anyone(EVALUATOR))
                trial.await_whole(EVALUATOR)
