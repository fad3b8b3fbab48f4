"""A bug at one record: noted, parked at the third crash, skipped or retried; nothing is lost."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, not re-exported
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from pipeline.kafka.cluster import OUTPUTS
from pipeline.sandbox.brokers import Broker
from tests.broker.test_commands import dtgol
from tests.support.buggy import SECRET
from tests.support.stage import Process, Stage
from tests.support.waiting import wait_until
from topics.catalog import HEADROOM_BYTES
from topics.partitioner import partition_for
from topics.reasons import DEFAULT_LIMITS

POISON = "poison"
BUGGY = ("tests.support.buggy", POISON)


def keys_of_both(stage: Stage) -> tuple[str, str]:
    """A key for partition 0 and one for partition 1."""
    found = {partition_for(f"k{n}".encode(), stage.partitions): f"k{n}" for n in range(50)}
    return found[0], found[1]


def crash(stage: Stage, times: int, entry: Sequence[str] = BUGGY) -> None:
    """Start the buggy worker so often; each time it ends with exit code 1."""
    for _ in range(times):
        with stage.worker(entry=entry) as worker:
            assert worker.child.wait(90) == 1
        text = worker.log_path.read_text()
        assert "ZeroDivisionError at support/buggy.py" in text
        assert SECRET not in text


def parked_at(worker: Process) -> dict[str, Any]:
    """Until a partition is parked; what `/status` shows of it."""

    def look() -> dict[str, Any]:
        if worker.get("/status")[0] != 200:
            return {}
        found = [each["parked"] for each in worker.status()["partitions"].values()]
        return next((each for each in found if each is not None), {})

    return wait_until(look, "a parked partition", 90, worker.alive)


def test_the_third_crash_parks_and_a_skip_goes_on_without_a_restart(
    real_broker: Broker, prefix: str, tmp_path: Path
) -> None:
    stage = Stage(real_broker, prefix, tmp_path)
    poisoned, healthy = keys_of_both(stage)
    with stage.worker() as worker:
        worker.await_ready(2)
        for number in range(30):
            stage.features(f"a{number}", {"v": number % 7}, poisoned, stream="a")
            stage.features(f"b{number}", {"v": number % 5}, healthy, stream="b")
        stage.flush()
        stage.await_answers({f"{s}{n}" for s in "ab" for n in range(30)}, worker)
    stage.features(POISON, {"v": 3}, poisoned, stream="a")
    stage.features("behind", {"v": 4}, poisoned, stream="a")
    stage.label("a1", 1, poisoned, stream="a")
    stage.flush()
    crash(stage, 2)
    with stage.worker(entry=BUGGY) as worker:
        parked = parked_at(worker)
        assert (parked["crashes"], parked["error"]) == (3, "ZeroDivisionError")
        offset = parked["offset"]
        code, body = worker.get("/readyz")
        assert code == 503
        assert f"dtgol journal skip --partition 0 --offset {offset}" in body
        assert 'dtgol_learner_parked{partition="0"} 1.0' in worker.get("/metrics")[1]
        stage.features("elsewhere", {"v": 1}, healthy, stream="b")
        stage.flush()
        stage.await_answers({"elsewhere"}, worker)
        refused = refusal(stage, "--partition=1", "--offset=3")
        assert "partition 1 is not parked at 3" in refused
        doctor = dtgol(real_broker, prefix, "doctor", "--json")
        advice = [each["advice"] for each in json.loads(doctor.stdout)["findings"]]
        assert f"run: dtgol journal skip --partition 0 --offset {offset} --note WHY" in advice
    with stage.worker(entry=BUGGY) as worker:  # a restart: parked at once, without another crash
        assert parked_at(worker) == parked
        assert "behind" not in {each["id"] for each in stage.predictions()}
        wait_until(lambda: _partition(worker, 0)["snapshot_offset"] == offset, "a snapshot", 60)
        done = decide(stage, "skip", offset)
        assert done["decided"] == "skip"
        stage.await_answers({"behind"}, worker)
        worker.await_ready(2)
        assert "is not parked at" in refusal(stage, "--partition=0", f"--offset={offset}")
        wait_until(lambda: _partition(worker, 0)["snapshot_offset"] > offset, "a snapshot", 60)
    assert POISON not in {each["id"] for each in stage.predictions()}
    ((letter, record),) = stage.letters()
    assert (letter.reason, letter.topic, letter.partition) == (
        "skipped",
        stage.topic("features"),
        0,
    )
    assert json.loads(record.value or b"")["id"] == POISON
    folds = stage.verify()
    assert folds[0].counts["records/crash"] == 3
    assert folds[0].counts["records/skipped"] == 1
    with stage.worker() as worker:  # the bug is fixed: not parked, and the record may come again
        worker.await_ready(2)
        assert _partition(worker, 0)["counts"]["records/skipped"] == 1
        sent = dtgol(real_broker, prefix, "dead-letters", "redrive", "--reason=skipped", "--json")
        assert json.loads(sent.stdout)["sent"] == 1, sent.stderr
        stage.await_answers({POISON}, worker)
    stage.verify()
    replayed = dtgol(real_broker, prefix, "journal", "replay", "--json")
    assert json.loads(replayed.stdout)["equal"] is True


def test_with_the_bug_mended_a_retry_lets_the_record_through(
    real_broker: Broker, prefix: str, tmp_path: Path
) -> None:
    stage = Stage(real_broker, prefix, tmp_path, partitions=1)
    stage.features("before", {"v": 1})
    stage.features(POISON, {"v": 2})
    stage.features("behind", {"v": 3})
    stage.flush()
    crash(stage, 2)
    with stage.worker(entry=BUGGY) as worker:
        offset = parked_at(worker)["offset"]
        stage.await_answers({"before"}, worker)
    with stage.worker() as first:  # the new version: still parked, nobody has decided
        assert parked_at(first)["offset"] == offset
        with stage.worker() as second:  # and so it stays when it moves
            first.child.terminate()
            assert parked_at(second)["offset"] == offset
            decide(stage, "retry", offset)
            stage.await_answers({"before", POISON, "behind"}, second)
            second.await_ready(1)
            assert "is not parked" in refusal(stage, "--partition=0", f"--offset={offset}")
    assert not stage.letters()
    (fold,) = stage.verify()
    assert fold.counts["records/retry"] == 1


def test_crashes_at_different_records_do_not_add_up(
    real_broker: Broker, prefix: str, tmp_path: Path
) -> None:
    stage = Stage(real_broker, prefix, tmp_path, partitions=1)
    for number in range(6):
        stage.features(f"r{number}", {"v": number})
    stage.flush()
    for poison in ("r1", "r2", "r3", "r4"):
        crash(stage, 1, ("tests.support.buggy", poison))
    with stage.worker() as worker:
        stage.await_answers({f"r{number}" for number in range(6)}, worker)
        worker.await_ready(1)
    (fold,) = stage.verify()
    assert fold.counts["records/crash"] == 4


def _partition(worker: Process, number: int) -> dict[str, Any]:
    found: dict[str, Any] = worker.status()["partitions"][str(number)]
    return found


def decide(stage: Stage, verb: str, offset: int) -> dict[str, Any]:
    done = dtgol(
        stage.broker,
        stage.prefix,
        *("journal", verb, "--partition", "0", "--offset", str(offset)),
        *("--note", "incident 12", "--json"),
    )
    assert done.returncode == 0, done.stderr
    decided: dict[str, Any] = json.loads(done.stdout)
    return decided


def refusal(stage: Stage, *where: str) -> str:
    """The sentence about a skip that is refused."""
    done = dtgol(stage.broker, stage.prefix, "journal", "skip", *where, "--note=x")
    assert done.returncode == 2, done.stdout
    assert len(done.stderr.strip().splitlines()) == 1
    return done.stderr


@pytest.mark.parametrize("how", ["abort", "kill", "memory", "hang"])
def test_a_record_ends_a_process_three_times_at_most_however_it_does(
    real_broker: Broker, prefix: str, tmp_path: Path, how: str
) -> None:
    """A death without an exception left no note, and came again at every start."""
    settings: dict[str, object] = {"worker.state_directory": tmp_path / "places"}
    if how == "hang":
        limits = {"stuck_ms": 1_000, "give_up_ms": 5_000, "merge_wait_ms": 500}
        settings |= {f"worker.{name}": limit for name, limit in limits.items()}
    stage = Stage(real_broker, prefix, tmp_path, partitions=1, settings=settings)
    for id in ("before", POISON, "behind"):
        stage.features(id, {"v": 1})
    stage.flush()
    entry = ("tests.support.deadly", how, POISON)
    deaths = 0
    while deaths < 3:
        with stage.worker(entry=entry) as worker:
            assert worker.child.wait(90) != 0
        assert how != "hang" or "ended, to be started again" in worker.log_path.read_text()
        deaths += 1
        if how == "memory" and deaths == 2:
            break  # an exception after all: the third parks without another death
    with stage.worker(entry=entry) as worker:
        parked = parked_at(worker)
        offset = parked["offset"]  # behind the version, the configuration and the record before
        assert (parked["crashes"], offset) == (3, 3)
        decide(stage, "skip", offset)
        stage.await_answers({"behind"}, worker)
        worker.await_ready(1)
    stage.verify()


def test_a_healthy_worker_that_is_killed_parks_nothing(
    real_broker: Broker, prefix: str, tmp_path: Path
) -> None:
    settings = {"worker.state_directory": tmp_path / "places", "snapshots.every_records": 10_000}
    stage = Stage(real_broker, prefix, tmp_path, partitions=1, settings=settings)
    ids: set[str] = set()
    for times in range(5):
        with stage.worker() as worker:
            worker.await_ready(1)
            for number in range(20):
                ids.add(f"{times}-{number}")
                stage.features(f"{times}-{number}", {"v": number})
            stage.flush()
            stage.await_answers(ids, worker)
            worker.child.kill()
            worker.child.wait(30)
    with stage.worker() as worker:
        worker.await_ready(1)
        assert "records/crash" not in worker.status()["partitions"]["0"]["counts"]
    stage.verify()


def await_folded(worker: Process, offset: int) -> None:
    """Until a partition has folded its journal beyond an offset."""

    def beyond() -> bool:
        if worker.get("/status")[0] != 200:
            return False
        partitions = worker.status()["partitions"].values()
        return any(each["next_offset"] > offset for each in partitions)

    wait_until(beyond, f"offset {offset}", 60, worker.alive)


def test_a_worker_that_is_killed_at_work_parks_nothing(
    real_broker: Broker, prefix: str, tmp_path: Path
) -> None:
    """A kill in the middle of a record leaves its place, and each time it is another record."""
    settings = {"worker.state_directory": tmp_path / "places", "snapshots.every_records": 500}
    stage = Stage(real_broker, prefix, tmp_path, partitions=1, settings=settings)
    ids = {f"r{number}" for number in range(4_000)}
    for number in range(4_000):
        stage.features(f"r{number}", {f"f{n}": (number * n) % 7 for n in range(12)})
    stage.flush()
    for times in range(5):
        with stage.worker() as worker:
            await_folded(worker, 200 * times)
            worker.child.kill()
            worker.child.wait(30)
    with stage.worker() as worker:
        stage.await_answers(ids, worker)
        worker.await_ready(1)
        assert worker.status()["partitions"]["0"]["parked"] is None
    (fold,) = stage.verify()
    assert fold.counts["features/answered"] == 4_000
    assert fold.counts["records/skipped"] == 0


def test_a_topic_that_takes_smaller_records_only_is_refused_at_the_start(
    real_broker: Broker, prefix: str, tmp_path: Path
) -> None:
    """The worker ended with exit code 1 at the first record that did not fit."""
    stage = Stage(real_broker, prefix, tmp_path, partitions=1)
    take_at_most(stage, 1_000, "journal")
    with stage.worker() as worker:
        assert worker.child.wait(90) == 2
        assert "journal takes records of 1000 bytes" in worker.log_path.read_text()
    assert dtgol(real_broker, prefix, "topics", "apply").returncode == 0
    with stage.worker() as worker:
        worker.await_ready(1)


def take_at_most(stage: Stage, bytes_max: int, *names: str) -> None:
    """Set the largest batch that topics take; the broker takes larger ones a few more milliseconds.

    Seen: in 3 of 40 times it took one that was sent after it had confirmed the new limit.
    """
    entry = ConfigEntry(
        "max.message.bytes", str(bytes_max), incremental_operation=AlterConfigOpType.SET
    )
    resources = [
        ConfigResource(ResourceType.TOPIC, stage.topic(name), incremental_configs=[entry])
        for name in names
    ]
    admin = AdminClient(stage.broker.config)
    for done in admin.incremental_alter_configs(resources).values():
        done.result(30)


def test_topics_that_take_just_what_is_needed_take_everything(
    real_broker: Broker, prefix: str, tmp_path: Path
) -> None:
    """Batches of small records, and dead letters, were larger than what is checked at the start."""
    stage = Stage(real_broker, prefix, tmp_path, partitions=1, settings={"worker.why": 5})
    limit = DEFAULT_LIMITS.record_bytes_max
    take_at_most(stage, limit + HEADROOM_BYTES, *OUTPUTS)
    ids = set()
    for number in range(300):
        id = f"r{number}"
        ids.add(id)
        padded = orjson.dumps({"id": id, "x": {"v": number}, "padding": "x" * 20_000})
        stage.send("features", padded, headers=[("h", b"x" * 3_000)])
    largest = orjson.dumps({"id": "largest", "x": {"v": 1}})
    stage.send("features", largest, headers=[("h", b"x" * (limit - len(largest) - 10))])
    for key, headers in ((60_000, 60_000), (70_000, 10), (10, 70_000), (65_536, 65_536)):
        own = [("h", b"x" * headers)]
        stage.send("features", b"x" * 300_000, b"k" * key, headers=own)
    stage.features("behind", {"v": 1})
    stage.flush()
    with stage.worker() as worker:
        stage.await_answers({*ids, "largest", "behind"}, worker)
        worker.await_ready(1)
    stage.verify()
    assert [letter.reason for letter, _ in stage.letters()] == ["too-large"] * 4


def test_a_topic_that_takes_less_while_a_worker_runs_ends_it_once_and_then_refuses_it(
    real_broker: Broker, prefix: str, tmp_path: Path
) -> None:
    stage = Stage(real_broker, prefix, tmp_path, partitions=1)
    with stage.worker() as worker:
        stage.features("before", {"v": 1})
        stage.flush()
        stage.await_answers({"before"}, worker)
        take_at_most(stage, 3_000, "predictions")
        ids = {"before"}

        def refused() -> bool:
            id = f"large {len(ids)}"
            ids.add(id)
            own = [("h", b"x" * 5_000)]
            stage.send("features", orjson.dumps({"id": id, "x": {"v": 1}}), headers=own)
            stage.flush()
            with contextlib.suppress(subprocess.TimeoutExpired):
                return bool(worker.child.wait(5) == 1)
            return False

        wait_until(refused, "the worker to end with code 1", 90, worker.alive)
        last = worker.log_path.read_text().splitlines()[-1]
        assert "predictions[0]" in last
        assert "dtgol topics check" in last
    for _ in range(2):
        with stage.worker() as worker:
            assert worker.child.wait(90) == 2
            assert "predictions takes records of 3000 bytes" in worker.log_path.read_text()
    assert dtgol(real_broker, prefix, "topics", "apply").returncode == 0
    with stage.worker() as worker:
        stage.await_answers(ids, worker)
    stage.verify()


@pytest.mark.parametrize(
    ("entry", "deaths"),
    [(("tests.support.deadly", "abort", "17"), 3), (("tests.support.buggy", "17"), 0)],
    ids=["abort", "exception"],
)
def test_a_record_never_stops_the_evaluator_for_good(
    real_broker: Broker, prefix: str, tmp_path: Path, entry: tuple[str, ...], deaths: int
) -> None:
    """It ended at every start: a label on which the scoring fails."""
    settings = {"worker.state_directory": tmp_path / "positions"}
    stage = Stage(real_broker, prefix, tmp_path, partitions=1, settings=settings)
    with stage.worker() as worker:
        for id in ("16", "17", "18"):
            stage.features(id, {"v": 1})
        stage.flush()
        stage.await_answers({"16", "17", "18"}, worker)
        for id in ("16", "17", "18"):
            stage.label(id, 1)
        stage.flush()
        for _ in range(deaths):
            with stage.process("evaluator", entry=entry) as evaluator:
                assert evaluator.child.wait(90) != 0
        with stage.process("evaluator", entry=entry) as evaluator:
            wait_until(
                lambda: {score["id"] for score in stage.scores()} == {"16", "18"},
                "the scores of all but one",
                90,
                evaluator.alive,
            )
            counts = evaluator.status()["partitions"]["0"]["counts"]
            assert counts["labels/failed"] == 1
