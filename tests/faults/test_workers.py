"""Workers that are killed, ended, frozen, joined by others: nothing lost, the same bits."""

from __future__ import annotations

import shutil

import pytest

from tests.faults.conftest import Trials
from tests.faults.load import Flow
from tests.faults.processes import Member
from tests.faults.trial import Plan, Trial, kill_at
from tests.support.waiting import wait_until

KILLS = {"steady": 4, "snapshot": 2 * 6, "restore": 2 * 3, "twice": 2 * 2}
"""`kill -9` per fault in the CI run; every trial asserts its own."""
POINTS = ("blob", "manifest", "commit")
"""Of a snapshot: half an object is written; the manifest is not; the offset is not committed."""


def test_there_are_enough_kills_in_the_plan() -> None:
    assert sum(KILLS.values()) >= 20


def test_a_worker_is_killed_in_steady_flow(trials: Trials) -> None:
    kills = trials.rounds(KILLS["steady"], 20)
    with trials.open(Plan("kill -9 in steady flow")) as trial:
        for _ in range(kills):
            trial.moment()
            trial.kill(trial.anyone())
            trial.processes.start("worker")
            trial.await_whole()
    assert trial.faults == kills


@pytest.mark.stores("topic", "directory")
def test_a_worker_is_killed_while_it_keeps_its_state(trials: Trials, store: str) -> None:
    """At every point of a snapshot, while another one works on, and is killed at a point too."""
    points = [*POINTS] * trials.rounds(2, 6)
    trials.chance.shuffle(points)
    with trials.open(Plan("kill -9 in a snapshot", workers=0, store=store)) as trial:
        kill_at(trial, "worker", points)
        trial.processes.start()
    assert trial.faults == len(points)
    assert len(points) >= KILLS["snapshot"] / 2
    assert not list(trial.stage.folder.rglob("*.unfinished")), "half an object was left behind"


def test_a_worker_is_killed_while_it_restores(trials: Trials) -> None:
    """After the snapshot is read; while the journal is folded again, all snapshots being gone."""
    restores = trials.rounds(KILLS["restore"] // 2, 9)
    with trials.open(Plan("kill -9 in a restore", workers=1, store="directory")) as trial:
        for point, times in _restores(trial, restores):
            trial.moment()
            if point == "replay":
                _await_commits(trial)
            trial.kill(trial.anyone())
            if point == "replay":
                _lose_snapshots(trial)
            paused = trial.processes.start(at=point, times=times)
            paused.await_reached()
            trial.kill(paused)
            trial.processes.start()
            trial.await_whole()
    assert trial.faults == 2 * restores


def _restores(trial: Trial, count: int) -> list[tuple[str, int]]:
    """Where to stop a restore: at a partition's snapshot, or after so many journal records."""
    loads, replays = range(1, trial.stage.partitions + 1), range(5, 50)
    chance = trial.chance
    return [
        ("load", chance.choice(loads)) if number % 3 == 2 else ("replay", chance.choice(replays))
        for number in range(count)
    ]


def _await_commits(trial: Trial) -> None:
    """Until a restore without snapshots has something to fold again, in every partition."""

    def enough() -> bool:
        return all((offset or 0) > 50 for offset in trial.committed("worker", "journal").values())

    wait_until(enough, "50 journal records of every partition to be committed", 120)


def _lose_snapshots(trial: Trial) -> None:
    """Everything that was kept is gone; the journal is not."""
    trial.snapshots_lost = True
    shutil.rmtree(trial.stage.folder / "snapshots")


def test_a_worker_and_its_successor_are_killed_at_once(trials: Trials) -> None:
    """The second before it has done anything: while it starts, joins or restores."""
    pairs = trials.rounds(KILLS["twice"] // 2, 8)
    with trials.open(Plan("kill -9 twice in a row", workers=1)) as trial:
        for _ in range(pairs):
            trial.moment()
            trial.kill(trial.anyone())
            successor = trial.processes.start()
            trial.moment(60, 360)
            trial.kill(successor)
            trial.processes.start()
            trial.await_whole()
    assert trial.faults == 2 * pairs


@pytest.mark.stores("topic", long="directory")
def test_a_worker_ends_in_good_order_and_starts_again(trials: Trials, store: str) -> None:
    rounds = trials.rounds(2, 8)
    with trials.open(Plan("SIGTERM and restart", store=store)) as trial:
        for _ in range(rounds):
            trial.moment()
            assert trial.processes.end(trial.anyone()) == 0
            trial.count()
            trial.moment(1, 60)
            trial.processes.start()
            trial.await_whole()
    assert trial.faults == rounds


@pytest.mark.stores("topic", "directory")
def test_a_frozen_worker_wakes_as_a_zombie(trials: Trials, store: str) -> None:
    """Its partitions have an owner that is at work; what it still writes must do no harm.

    In the long run it misses more than it can read before it notices that it was thrown out.
    """
    rounds = trials.rounds(2, 4)
    away = (4_000, 5_000) if trials.long else (60, 240)
    flow = Flow(per_s=300) if trials.long else Flow()
    with trials.open(Plan("SIGSTOP, expelled, SIGCONT", store=store, flow=flow)) as trial:
        for number in range(rounds):
            trial.moment()
            trial.freeze_until_replaced(alone=number % 2 == 1, away=away)
    assert trial.faults == rounds


def test_a_worker_is_frozen_in_a_snapshot_and_wakes_as_a_zombie(trials: Trials) -> None:
    """It goes on with a snapshot, and a commit, of long ago."""
    points = ["manifest", "commit"] * trials.rounds(1, 4)
    with trials.open(Plan("SIGSTOP in a snapshot, SIGCONT", workers=1)) as trial:
        for point in points:
            paused = trial.processes.start(at=point, times=trial.chance.randint(4, 9))
            paused.await_reached()
            trial.processes.freeze(paused)
            paused.release()
            trial.count()
            trial.await_whole()
            trial.moment(60, 240)
            trial.processes.thaw(paused)
            trial.await_whole()
            assert trial.processes.end(paused) == 0
    assert trial.faults == len(points)


def test_workers_join_and_leave(trials: Trials) -> None:
    """One, three, two; every one that leaves ends in good order."""
    with trials.open(Plan("1 to 3 to 2 workers", workers=1)) as trial:
        for _ in range(trials.rounds(1, 4)):
            trial.moment()
            trial.processes.start()
            trial.processes.start()
            trial.await_whole()
            trial.moment()
            assert trial.processes.end(trial.anyone()) == 0
            trial.await_whole()
            trial.count(3)
            if trials.long:
                assert trial.processes.end(trial.anyone()) == 0
                trial.await_whole()


@pytest.mark.parametrize("stays", [True, False], ids=["it is kept", "it goes elsewhere"])
def test_the_group_rebalances_in_the_middle_of_a_restore(trials: Trials, stays: bool) -> None:
    """A partition that is being restored moves to another worker, or stays through it."""
    with trials.open(Plan("rebalance in a restore", workers=1, store="directory")) as trial:
        trial.moment()
        _await_commits(trial)
        trial.processes.kill(trial.anyone())
        _lose_snapshots(trial)
        paused = trial.processes.start(at="replay", times=trial.chance.randint(5, 50))
        paused.await_reached()
        joined = trial.processes.start()
        wait_until(
            lambda: joined.partitions, "the other to have a share", 120, lambda: joined.alive
        )
        trial.count()
        if not stays:
            _hand_over(trial, paused, joined)
        paused.release()
        trial.await_whole()
    assert trial.faults == 1


def _hand_over(trial: Trial, paused: Member, joined: Member) -> None:
    """Freeze the one that restores until the other has everything, also what was being restored."""
    trial.processes.freeze(paused)
    everything = range(trial.stage.partitions)
    wait_until(lambda: set(joined.partitions) == set(everything), "all to move", 120)
    trial.processes.thaw(paused)
