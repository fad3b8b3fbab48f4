"""Where state is stored: full, damaged, trimmed, compacted. Nothing is lost without a word.

A gap that was accepted is taken into account: see tests/faults/history.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, not re-exported
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from pipeline.errors import REFUSED
from pipeline.sandbox.brokers import LocalCluster
from tests.faults.conftest import Trials
from tests.faults.processes import Member
from tests.faults.stored_snapshots import StoredSnapshots, offset_of
from tests.faults.trial import Plan, Trial
from tests.support.volume import Volume, small_volume
from tests.support.waiting import wait_until

NO_ROOM = "No space left on device"
END_S = 90
ROLES = ("worker", "evaluator")
RARELY: dict[str, object] = {"snapshots.every_records": 1_000_000, "snapshots.every_ms": 3_600_000}
"""No snapshot by itself; one when the worker ends in good order."""


def plan(fault: str, **more: object) -> Plan:
    return Plan(fault, workers=1, partitions=2, **more)  # type: ignore[arg-type]


def replace(trial: Trial, role: str = "worker", *more: str) -> Member:
    """Another process after one that is gone, at work."""
    member = trial.processes.start(role, *more)
    trial.await_whole(role)
    return member


def await_answer(trial: Trial) -> None:
    """Until a record is answered that has not been sent yet."""
    number = trial.load.sent
    trial.load.more(1)
    trial.stage.await_answers({f"r{number}"})


# --- full ---------------------------------------------------------------------------------------


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Volume]:
    with small_volume(tmp_path / "volume", 4) as mounted:
        yield mounted


def test_the_snapshot_directory_is_full(trials: Trials, volume: Volume) -> None:
    settings = {"snapshots.directory": volume.path}
    full = plan("snapshot directory full", evaluators=1, store="directory", settings=settings)
    with trials.open(full) as trial:
        for _ in range(trials.rounds(1, 3)):
            trial.moment()
            wait_until(lambda: all(newest(trial).values()), "first snapshots")
            for role in ROLES:
                await_red(trial, volume, role)
            trial.count()
            stored = newest(trial)
            await_answer(trial)
            trial.kill(trial.anyone())
            trial.processes.start("worker")  # restores, and answers, though it cannot be ready
            await_red(trial, volume, "worker")
            await_answer(trial)
            assert newest(trial) == stored, "a snapshot on a full volume"
            assert trial.committed("worker", "journal") == stored
            volume.free_space()
            for role in ROLES:
                await_green(trial, role)


def newest(trial: Trial) -> dict[int, int]:
    """The offset of the newest snapshot of every partition of the worker; 0 for none."""
    found = {}
    for number in range(trial.stage.partitions):
        names = StoredSnapshots(trial.stage, "worker", number).manifests()
        found[number] = offset_of(names[0]) if names else 0
    return found


def await_red(trial: Trial, volume: Volume, role: str) -> None:
    """Until every partition's last snapshot has failed, and `/readyz` gives the reason."""

    def red() -> bool:
        volume.fill()
        (member,) = trial.processes.of(role)
        code, body = member.process.get("/readyz")
        return code == 503 and body.count(NO_ROOM) == trial.stage.partitions

    wait_until(red, f"/readyz of the {role} to be red", 90)


def await_green(trial: Trial, role: str) -> None:
    (member,) = trial.processes.of(role)
    wait_until(lambda: member.process.get("/readyz")[0] == 200, f"the {role} to be ready", 90)


# --- damaged ------------------------------------------------------------------------------------


@pytest.mark.parametrize("store", ["directory", "topic"])
def test_snapshots_are_damaged(trials: Trials, store: str) -> None:
    with trials.open(
        plan("newest, then all snapshots damaged", evaluators=1, store=store)
    ) as trial:
        for _ in range(trials.rounds(1, 3)):
            damage_the_newest(trial)
            damage_all(trial)


def stop_all(trial: Trial) -> None:
    """Everybody gone, by force, once there are two snapshots of each partition."""
    trial.moment()
    stored = [
        StoredSnapshots(trial.stage, role, n)
        for role in ROLES
        for n in range(trial.stage.partitions)
    ]
    wait_until(
        lambda: all(len(each.manifests()) > 1 for each in stored), "two snapshots of everything"
    )
    for role in ROLES:
        trial.kill(trial.anyone(role))


def damage_the_newest(trial: Trial) -> None:
    """Of one partition the manifest, of the other a blob: the one before is used, and named."""
    stop_all(trial)
    before = {}
    for role in ROLES:
        by_manifest, by_blob = (StoredSnapshots(trial.stage, role, number) for number in range(2))
        names = {each.partition: each.manifests() for each in (by_manifest, by_blob)}
        by_manifest.damage(names[0][0])
        by_blob.damage(trial.chance.choice(by_blob.blobs(names[1][0])), cut=True)
        before[role] = {number: offset_of(each[1]) for number, each in names.items()}
        trial.count()
    committed = trial.committed("worker", "journal")
    for role in ROLES:
        log = replace(trial, role).process.log_path.read_text()
        assert log.count("is damaged: its checksum does not match") == 2, log
    restored = {n: each["restored_records"] for n, each in trial.anyone().partitions.items()}
    assert restored == {n: (committed[n] or 0) - before["worker"][n] for n in range(2)}


def damage_all(trial: Trial) -> None:
    """Every manifest: the whole journal is replayed from its start."""
    stop_all(trial)
    for role in ROLES:
        for number in range(trial.stage.partitions):
            stored = StoredSnapshots(trial.stage, role, number)
            for name in stored.manifests():
                stored.damage(name, cut=trial.chance.random() < 0.5)
        trial.count()
    committed = trial.committed("worker", "journal")
    for role in ROLES:
        replace(trial, role)
    restored = {n: each["restored_records"] for n, each in trial.anyone().partitions.items()}
    assert restored == committed


# --- trimmed ------------------------------------------------------------------------------------


def test_topics_are_trimmed_below_what_is_kept(trials: Trials) -> None:
    """That is what retention does every day: nobody needs those records any more.

    The worker is killed between snapshot and commit: its group stands below the trimmed journal.
    """
    with trials.open(plan("topics trimmed below the snapshot", evaluators=1)) as trial:
        for _ in range(trials.rounds(1, 3)):
            trial.moment()
            for role in ROLES:
                trial.kill(trial.anyone(role))
            paused = trial.processes.start("worker", at="commit")
            paused.await_reached()
            trial.kill(paused)
            stored, committed = newest(trial), trial.committed("worker", "journal")
            assert any(stored[number] > (committed[number] or 0) for number in stored)
            trial.history.trim(trial.stage, "journal", stored)
            for role, name in (("worker", "features"), ("evaluator", "predictions")):
                committed = trial.committed(role, name)
                trial.history.trim(trial.stage, name, {n: committed[n] or 0 for n in committed})
            trial.count()
            for role in ROLES:
                replace(trial, role)


def test_the_journal_is_trimmed_above_the_snapshot(trials: Trials) -> None:
    with trials.open(plan("journal trimmed above the snapshot", settings=RARELY)) as trial:
        trial.moment()
        assert trial.processes.end(trial.anyone()) == 0
        replace(trial)
        stored, journal = newest(trial), trial.stage.topic("journal")
        wait_until(lambda: above(trial, stored), "journal records above every snapshot")
        trial.kill(trial.anyone())
        assert newest(trial) == stored
        ends = high_ends(trial, "journal")
        trial.history.trim(trial.stage, "journal", ends)
        log = refused(trial, "worker")
        # Of a partition that had folded nothing when the worker ended there is no snapshot.
        at = {
            n: f"the snapshot is at {stored[n]}" if stored[n] else "there is no snapshot"
            for n in stored
        }
        assert any(f"{journal} begins at {ends[n]} and {at[n]}: records between" in log for n in at)
        assert "--accept-gap" in log
        trial.history.jumps = {n: range(stored[n], ends[n]) for n in stored}
        log = replace(trial, "worker", "--accept-gap").process.log_path.read_text()
        for number, gap in trial.history.jumps.items():
            skipped = f"skipped {gap.start} to {gap.stop - 1}, accepted"
            assert f"partition {number} of {journal}: {skipped}" in log
        await_answer(trial)
        assert trial.processes.end(trial.anyone()) == 0
        # The gap is behind the snapshot now: nobody has to be asked again.
        replace(trial, "worker", "--set=snapshots.every_ms=1000")


def test_features_are_trimmed_before_they_were_read(trials: Trials) -> None:
    with trials.open(plan("features trimmed before they were read")) as trial:
        trial.moment()
        await_commits(trial, "worker", "features")
        trial.kill(trial.anyone())
        trial.moment()
        gone = trim_unread(trial, "worker", "features")
        log = refused(trial, "worker")
        assert any(f"partition {n}: {sentence(gap)}" in log for n, gap in gone.items())
        assert "--accept-gap" in log
        log = replace(trial, "worker", "--accept-gap").process.log_path.read_text()
        for number, gap in gone.items():
            assert f"accepted: {trial.stage.topic('features')} partition {number}: " in log
            assert sentence(gap) in log
        await_answer(trial)
        # Until then the gap is in front of what is committed, and must be accepted again.
        wait_until(lambda: is_behind(trial, gone), "commits behind the gap of every partition")
        trial.kill(trial.anyone())
        replace(trial)


def test_predictions_are_trimmed_before_they_were_scored(trials: Trials) -> None:
    with trials.open(plan("predictions trimmed before they were read", evaluators=1)) as trial:
        trial.moment()
        await_commits(trial, "evaluator", "predictions")
        trial.kill(trial.anyone("evaluator"))
        await_answer(trial)
        gone = trim_unread(trial, "evaluator", "predictions")
        log = refused(trial, "evaluator")
        assert any(f"partition {n}: {sentence(gap)}" in log for n, gap in gone.items())
        log = replace(trial, "evaluator", "--accept-gap").process.log_path.read_text()
        assert all(sentence(gap) in log for gap in gone.values())
        trial.moment()


def above(trial: Trial, stored: dict[int, int]) -> bool:
    """Whether every partition of the journal has records that no snapshot holds."""
    ends = high_ends(trial, "journal")
    return all(ends[number] > stored[number] for number in stored)


def high_ends(trial: Trial, name: str) -> dict[int, int]:
    """One past the last record of every partition."""
    ends = dict.fromkeys(range(trial.stage.partitions), 0)
    for record in trial.stage.read(name):
        ends[record.partition] = max(ends[record.partition], record.offset + 1)
    return ends


def await_commits(trial: Trial, role: str, name: str) -> None:
    """Until every partition was read: who has committed nothing simply starts where it begins."""
    wait_until(lambda: all(trial.committed(role, name).values()), f"{role} to commit {name}")


def trim_unread(trial: Trial, role: str, name: str) -> dict[int, range]:
    """Trim a topic to its end; what its reader had not committed is gone and will be missed."""
    committed, ends = trial.committed(role, name), high_ends(trial, name)
    gone = {n: range(committed[n] or 0, ends[n]) for n in ends}
    assert all(gone.values()), f"nothing unread: {gone}"
    trial.history.trim(trial.stage, name, ends)
    trial.history.unread |= {(name, number): gap for number, gap in gone.items()}
    trial.count()
    return gone


def is_behind(trial: Trial, gone: dict[int, range]) -> bool:
    """Whether the worker has committed features behind every gap."""
    committed = trial.committed("worker", "features")
    return all((committed[number] or 0) > gap.stop for number, gap in gone.items())


def sentence(gap: range) -> str:
    return f"records {gap.start} to {gap.stop - 1} are gone and were never read"


def refused(trial: Trial, role: str) -> str:
    """The log of a process that must not start; it ends with exit code 2."""
    member = trial.processes.start(role)
    code = member.process.child.wait(END_S)
    member.gone = True
    log = member.process.log_path.read_text()
    assert code == REFUSED, log
    return log


# --- compacted ----------------------------------------------------------------------------------


def test_the_snapshots_topic_is_compacted_while_workers_are_killed(
    trials: Trials, cluster: LocalCluster
) -> None:
    with trials.open(plan("snapshots topic compacted, kill -9", evaluators=1)) as trial:
        compact(trial, cluster)
        for _ in range(trials.rounds(4, 12)):
            trial.moment(30, 80)
            role = trial.chance.choice(ROLES)
            trial.kill(trial.anyone(role))
            replace(trial, role)
        wait_until(lambda: is_compacted(trial), "the cleaner to have been there", 60)


def compact(trial: Trial, cluster: LocalCluster) -> None:
    """A new segment twice a second, cleaned at once, tombstones gone soon after."""
    now = {
        "segment.ms": "500",
        "min.cleanable.dirty.ratio": "0.001",
        "min.compaction.lag.ms": "0",
        "max.compaction.lag.ms": "500",
        "delete.retention.ms": "200",
    }
    admin = AdminClient(cluster.broker.config)
    alter(admin, ResourceType.TOPIC, trial.stage.topic("snapshots"), now)
    alter(admin, ResourceType.BROKER, "1", {"log.cleaner.backoff.ms": "200"})


def alter(admin: AdminClient, kind: ResourceType, name: str, wanted: dict[str, str]) -> None:
    entries = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        for key, value in wanted.items()
    ]
    resource = ConfigResource(kind, name, incremental_configs=entries)
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(30)


def is_compacted(trial: Trial) -> bool:
    """Whether most of what was ever written is gone."""
    there = trial.stage.read("snapshots")
    written = sum(high_ends(trial, "snapshots").values())
    return written > 100 and len(there) < written / 2
