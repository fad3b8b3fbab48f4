"""Workers that are killed, ended, frozen, joined by others: nothing lost, the same bits."""

from __future__ import annotations

from tests.faults.conftest import Trials
from tests.faults.trial import Plan

KILLS = {"steady": 6}
"""`kill -9` per trial in the CI run; each trial asserts its own."""


def test_a_worker_is_killed_in_steady_flow(trials: Trials) -> None:
    kills = trials.rounds(KILLS["steady"], 20)
    with trials.open(Plan("kill -9 in steady flow")) as trial:
        for _ in range(kills):
            trial.moment()
            trial.kill(trial.anyone())
            trial.crew.start("worker")
            trial.await_whole()
    assert trial.faults == kills
