"""Standing still, seen from outside, and ended; gaps in front of a process; a lost tail."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import orjson
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, not re-exported
    AdminClient,
    NewPartitions,
)

from pipeline.sandbox.brokers import Broker
from tests.broker.test_worker import refused
from tests.support.latin_header import Latin, send_batch
from tests.support.stage import Process, Stage
from tests.support.waiting import wait_until
from topics.catalog import COPARTITIONED

SHORT_LIMITS = {
    "worker.merge_wait_ms": 500,
    "worker.stuck_ms": 1_000,
}
SOON = ("--set=worker.give_up_ms=4000",)
GONE_S = 90
ANSWERED_S = 2.0


@pytest.fixture
def stage(real_broker: Broker, prefix: str, tmp_path: Path) -> Stage:
    return Stage(real_broker, prefix, tmp_path, partitions=1, settings=SHORT_LIMITS)


def feed(stage: Stage, numbers: range, labels: bool = True) -> set[str]:
    """Features, and a label for each; their ids."""
    for number in numbers:
        stage.features(number, {"v": number % 7})
        if labels:
            stage.label(number, number % 2)
    stage.flush()
    return {str(number) for number in numbers}


def trim(stage: Stage, name: str, offset: int) -> None:
    """Remove what is before an offset, as retention would."""
    admin = AdminClient(stage.broker.config)
    for done in admin.delete_records([TopicPartition(stage.topic(name), 0, offset)]).values():
        done.result(30)


def commit(stage: Stage, name: str, offset: int) -> None:
    """Move the workers' group, as if so much had been copied."""
    group = f"{stage.prefix}dtgol-worker"
    wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(stage.topic(name), 0, offset)])
    admin = AdminClient(stage.broker.config)

    def moved() -> bool:
        (done,) = admin.alter_consumer_group_offsets([wanted]).values()
        return done.exception(30) is None

    wait_until(moved, "the group to be empty", 60)


def paused(stage: Stage, point: str, times: int = 1) -> list[str]:
    """The real program, pausing at a point of tests/support/pause_points.py."""
    return ["tests.support.pause_points", point, str(times), str(stage.folder)]


def scores_of(stage: Stage, ids: set[str]) -> bool:
    return {score["id"] for score in stage.scores()} == ids


def await_unready(process: Process, why: str) -> None:
    def unready() -> bool:
        code, body = process.get("/readyz")
        return code == 503 and why in body

    wait_until(unready, f"/readyz to show: {why}", 60, process.alive)


def await_end(process: Process, code: int, *reasons: str) -> None:
    """Until it ends by itself, and its log gives the reasons."""
    assert process.child.wait(GONE_S) == code
    log = process.log_path.read_text()
    for text in reasons:
        assert text in log, log[-3000:]
    assert "Traceback" not in log


def test_a_worker_is_red_while_it_restores_and_green_after(stage: Stage) -> None:
    ids = feed(stage, range(20))
    with stage.worker() as worker:
        stage.await_answers(ids, worker)
    with stage.worker(entry=paused(stage, "load")) as worker:
        reached = (stage.folder / "reached").exists
        wait_until(reached, "the restore to pause", 60, worker.alive)
        await_unready(worker, "partition 0: restoring")
        await_unready(worker, "partition 0: the restore does not move for")
        assert worker.get("/livez")[0] == 200
        (stage.folder / "release").touch()
        worker.await_ready(1)
        stage.await_answers(feed(stage, range(20, 25)), worker)
    stage.verify()


@pytest.mark.parametrize("role", ["worker", "evaluator"])
def test_a_restore_that_never_ends_ends_the_process(stage: Stage, role: str) -> None:
    with stage.process(role, *SOON, entry=paused(stage, "load")) as process:
        await_end(process, 1, "partition 0: the restore does not move for 4 s", "started again")


def test_a_worker_is_red_while_nothing_is_acknowledged_and_green_after(stage: Stage) -> None:
    with stage.worker(entry=paused(stage, "report")) as worker:
        ids = feed(stage, range(30))
        await_unready(worker, "records were sent and none is acknowledged")
        assert worker.status()["outbox"]["waiting"] > 0
        (stage.folder / "release").touch()
        stage.await_answers(ids, worker)
        worker.await_ready(1)
    stage.verify()


@pytest.mark.parametrize("role", ["worker", "evaluator"])
def test_a_process_whose_records_are_never_acknowledged_ends(stage: Stage, role: str) -> None:
    ids = feed(stage, range(5))
    if role == "evaluator":
        with stage.worker() as worker:
            stage.await_answers(ids, worker)
    with stage.process(role, *SOON, entry=paused(stage, "report")) as process:
        await_end(process, 1, "records were sent and none is acknowledged for 4 s")
    with stage.process(role) as process:  # the next one brings it to an end
        if role == "worker":
            stage.await_answers(ids, process)
        else:
            scored = partial(scores_of, stage, ids)
            wait_until(scored, "all scores", 60, process.alive)


@pytest.mark.parametrize("role", ["worker", "evaluator"])
def test_a_consumer_that_has_gone_silent_ends_the_process(stage: Stage, role: str) -> None:
    """Faust #523, #532, #629: the group is fine, the broker is fine, and no record comes."""
    ids = feed(stage, range(5))
    if role == "evaluator":
        with stage.worker() as worker:
            stage.await_answers(ids, worker)
    with stage.process(role, *SOON, entry=paused(stage, "fetch")) as process:
        reached = stage.folder / "reached"  # before that, a fetch could bring what is fed here too
        wait_until(reached.exists, "the silence", 60, process.alive)
        feed(stage, range(5, 10))
        await_end(process, 1, "partition 0: ", " wait and none is ")


def test_an_event_loop_that_hangs_ends_the_process(stage: Stage) -> None:
    feed(stage, range(5))
    with stage.worker(*SOON, entry=paused(stage, "fold", 3)) as worker:
        await_end(worker, 1, "partition 0: ")
    with stage.worker() as worker:
        stage.await_answers({str(number) for number in range(5)}, worker)


def test_an_idle_process_goes_on_for_ever(stage: Stage) -> None:
    """So many looks take three times its limit; none of them finds it anything but ready."""
    ids = feed(stage, range(5))
    with stage.worker("--set=worker.give_up_ms=2000", "--set=worker.stuck_ms=1000") as worker:
        stage.await_answers(ids, worker)
        worker.await_ready(1)
        looks = iter(range(120))
        wait_until(lambda: _still_ready(worker) and next(looks) == 119, "time to pass", 60)
        stage.await_answers(feed(stage, range(5, 8)), worker)


def test_a_parked_partition_is_no_reason_to_end(stage: Stage) -> None:
    entry = ("tests.support.buggy", "poison")
    feed(stage, range(3))
    stage.features("poison", {"v": 1})
    stage.flush()
    for _ in range(2):
        with stage.worker(entry=entry) as worker:
            assert worker.child.wait(GONE_S) == 1
    with stage.worker("--set=worker.give_up_ms=2000", entry=entry) as worker:
        await_unready(worker, "dtgol journal skip")
        looks = iter(range(120))
        wait_until(lambda: next(looks) == 119, "time to pass", 60, worker.alive)
        code, body = worker.get("/readyz")
        assert code == 503
        assert "does not move" not in body
        assert "wait and none" not in body


def _still_ready(process: Process) -> bool:
    assert process.alive()
    assert process.get("/readyz") == (200, "ready\n")
    return True


def frozen(process: Process, damage: Callable[[], None]) -> None:
    """Do something while a process is stopped: it was behind, and does not know.

    A fetch may be under way; the broker answers it within a twentieth of a second, and what comes
    later the process has not seen.
    """
    process.child.send_signal(signal.SIGSTOP)
    time.sleep(ANSWERED_S)
    damage()
    process.child.send_signal(signal.SIGCONT)


@pytest.mark.parametrize("name", ["features", "labels"])
def test_what_is_trimmed_in_front_of_a_running_worker_is_a_refusal(stage: Stage, name: str) -> None:
    labels = name == "labels"
    with stage.worker() as worker:
        stage.await_answers(feed(stage, range(10)), worker)

        def damage() -> None:
            feed(stage, range(10, 40), labels)
            trim(stage, name, 35)

        frozen(worker, damage)
        topic = stage.topic(name)
        await_end(
            worker,
            2,
            f"{topic} partition 0: records ",
            "to 34 are gone and were never read; --accept-gap goes on without them",
        )
    assert "to 34 are gone" in refused(stage)
    with stage.worker("--accept-gap") as worker:
        stage.await_answers({str(number) for number in range(0 if labels else 35, 40)}, worker)
    stage.verify()


def test_a_gap_that_was_accepted_beforehand_does_not_end_a_running_worker(stage: Stage) -> None:
    with stage.worker("--accept-gap") as worker:
        stage.await_answers(feed(stage, range(10)), worker)

        def damage() -> None:
            feed(stage, range(10, 40), labels=False)
            trim(stage, "features", 35)

        frozen(worker, damage)
        stage.await_answers({str(number) for number in range(35, 40)}, worker)
        assert "to 34 are gone and were never read" in worker.log_path.read_text()
    stage.verify()


def test_a_journal_that_is_trimmed_in_front_of_a_running_learner_is_a_refusal(
    stage: Stage,
) -> None:
    with stage.worker() as worker:
        stage.await_answers(feed(stage, range(5)), worker)

        def damage() -> None:
            for _ in range(40):  # nobody else writes there; the learner would refuse each
                stage.send("journal", b"{}", partition=0)
                stage.flush()
            trim(stage, "journal", 45)

        frozen(worker, damage)
        await_end(worker, 2, f"{stage.topic('journal')} partition 0: records ", "--accept-gap")


def test_predictions_that_are_trimmed_in_front_of_a_running_evaluator_are_a_refusal(
    stage: Stage,
) -> None:
    with stage.worker() as worker, stage.evaluator() as evaluator:
        ids = feed(stage, range(5))
        wait_until(partial(scores_of, stage, ids), "scores", 60, worker.alive)

        def damage() -> None:
            stage.await_answers(feed(stage, range(5, 40)), worker)
            trim(stage, "predictions", 38)

        frozen(evaluator, damage)
        await_end(evaluator, 2, "to 37 are gone and were never read; --accept-gap")


def test_a_lost_tail_of_the_journal_is_copied_again(stage: Stage) -> None:
    """The group has committed what the journal does not have: its tail was lost."""
    with stage.worker() as worker:
        stage.await_answers(feed(stage, range(10)), worker)
    lost = feed(stage, range(10, 20))
    commit(stage, "features", 20)
    commit(stage, "labels", 20)
    with stage.worker() as worker:
        stage.await_answers(lost, worker)
        assert "records 10 to 19: the journal has lost them" in worker.log_path.read_text()
        stage.await_answers(feed(stage, range(20, 25)), worker)
        worker.await_ready(1)

        def labels() -> bool:
            counts = worker.status()["partitions"]["0"]["counts"]
            return bool(counts.get("labels/queued", 0) + counts.get("labels/early", 0) == 25)

        wait_until(labels, "every label", 60, worker.alive)
    (fold,) = stage.verify()
    assert fold.counts["records/broken"] == 0
    assert fold.counts["features/answered"] == 25
    assert fold.counts["labels/queued"] + fold.counts["labels/early"] == 25


def test_what_was_refused_is_refused_again_in_a_repair(stage: Stage) -> None:
    """Seen: librdkafka shows a record with 150,000 headers as one without any."""
    with stage.worker() as worker:
        stage.await_answers(feed(stage, range(10)), worker)
    bad = [
        (b"key", b'{"id":"many","x":{"v":1}}', [("", b"")] * 150_000),
        (b"key", b'{"id":"latin","x":{"v":1}}', [(Latin("größe"), b"")]),
        (b"key", b'{"id":"good","x":{"v":1}}', [("a", b"1")]),
    ]
    asyncio.run(send_batch(stage.broker.bootstrap, stage.topic("features"), bad))
    commit(stage, "features", 13)
    with stage.worker() as worker:
        stage.await_answers({"good"}, worker)
        assert "records 10 to 12: the journal has lost them" in worker.log_path.read_text()
        worker.await_ready(1)
    (fold,) = stage.verify()
    assert fold.counts["records/stub"] == 2
    assert {letter.reason for letter, _ in stage.letters()} == {"too-large", "header-name"}
    assert not {"many", "latin"} & {each["id"] for each in stage.predictions()}


def test_a_lost_tail_that_the_source_has_lost_too_is_a_refusal(stage: Stage) -> None:
    with stage.worker() as worker:
        stage.await_answers(feed(stage, range(10)), worker)
    feed(stage, range(10, 20))
    commit(stage, "features", 20)
    trim(stage, "features", 15)
    with stage.worker() as worker:
        await_end(worker, 2, "has lost records 10 to 19", "begins at 15", "--accept-gap")
    with stage.worker("--accept-gap") as worker:
        stage.await_answers({str(number) for number in range(15, 20)}, worker)
        stage.await_answers(feed(stage, range(20, 25)), worker)
    stage.verify()


def test_offsets_that_were_answered_before_a_tail_was_lost_are_not_used_again(
    stage: Stage,
) -> None:
    """The journal ends before what was answered, as after an unclean election."""
    with stage.worker() as worker:
        stage.await_answers(feed(stage, range(10)), worker)
    answered = stage.predictions()
    last = max(answered, key=lambda each: each["at"]["offset"])
    last["at"]["offset"] += 30
    stage.send("predictions", orjson.dumps(last), partition=0)
    stage.flush()
    with stage.worker() as worker:
        stage.await_answers(feed(stage, range(10, 20)), worker)
        assert "were answered: it has lost its tail" in worker.log_path.read_text()
        worker.await_ready(1)
    with stage.worker() as worker:  # once
        stage.await_answers(feed(stage, range(20, 22)), worker)
        assert "lost its tail" not in worker.log_path.read_text()
    ids = {each["at"]["offset"]: each["id"] for each in stage.predictions()}
    assert len(ids) == 23
    assert min(at for at, id in ids.items() if int(id) >= 10) > last["at"]["offset"]


def unready(worker: Process, sentence: str) -> bool:
    code, body = worker.get("/readyz")
    return code == 503 and sentence in body


PATIENT = ("--set=worker.stuck_ms=30000", "--set=worker.give_up_ms=90000")


@pytest.mark.parametrize("grown", [["features"], ["features", "labels", "journal"], COPARTITIONED])
def test_a_topic_that_has_grown_is_seen_in_seconds_and_named(
    stage: Stage, grown: Sequence[str]
) -> None:
    """Five green minutes, records unanswered, then a sentence about rights."""
    with stage.worker(*PATIENT) as worker:
        worker.await_ready(1)
        ids = feed(stage, range(5))
        stage.await_answers(set(map(str, ids)), worker)
        admin = AdminClient(stage.broker.config)
        wanted = [NewPartitions(stage.topic(name), 2) for name in grown]
        for done in admin.create_partitions(wanted).values():
            done.result(30)
        sentence = f"{stage.topic('features')} has 2 partitions and had 1 at the start"
        wait_until(lambda: unready(worker, sentence), "red", 15, worker.alive)
        assert "grant" not in worker.get("/readyz")[1]
    with stage.worker() as worker:
        assert worker.child.wait(90) == 2
        last = worker.log_path.read_text().splitlines()[-1]
        assert "see Partition counts in docs/guide-operations.md" in last
        assert "empty snapshot store" not in last


def test_an_evaluator_sees_that_a_topic_has_grown_too(stage: Stage) -> None:
    with stage.worker() as worker, stage.evaluator(*PATIENT) as evaluator:
        stage.await_answers(feed(stage, range(5)), worker)
        wait_until(lambda: len(stage.scores()) == 5, "scores", 60, evaluator.alive)
        evaluator.await_ready(1)
        admin = AdminClient(stage.broker.config)
        wanted = [NewPartitions(stage.topic(name), 2) for name in COPARTITIONED]
        for done in admin.create_partitions(wanted).values():
            done.result(30)
        sentence = f"{stage.topic('labels')} has 2 partitions and had 1 at the start"
        wait_until(lambda: unready(evaluator, sentence), "red", 15, evaluator.alive)
    with stage.evaluator() as evaluator:
        assert evaluator.child.wait(90) == 2
        last = evaluator.log_path.read_text().splitlines()[-1]
        assert "see Partition counts in docs/guide-operations.md" in last


@pytest.mark.parametrize(
    ("role", "deleted"),
    [("worker", "dead-letters"), ("evaluator", "scores")],
)
def test_a_topic_that_was_deleted_is_named(stage: Stage, role: str, deleted: str) -> None:
    with stage.process(role, *PATIENT) as process:
        process.await_ready(1)
        admin = AdminClient(stage.broker.config)
        for done in admin.delete_topics([stage.topic(deleted)]).values():
            done.result(30)
        sentence = f"the topic {stage.topic(deleted)} is gone"
        wait_until(lambda: unready(process, sentence), "red", 15, process.alive)


@pytest.mark.parametrize(("role", "deleted"), [("worker", "features"), ("evaluator", "labels")])
def test_a_deleted_topic_that_a_process_reads_ends_it_and_is_named(
    stage: Stage, role: str, deleted: str
) -> None:
    """Its group notices within a second, and nothing could come any more."""
    with stage.process(role, *PATIENT) as process:
        process.await_ready(1)
        admin = AdminClient(stage.broker.config)
        for done in admin.delete_topics([stage.topic(deleted)]).values():
            done.result(30)
        assert process.child.wait(60) == 2
        last = process.log_path.read_text().splitlines()[-1]
        assert f"the topic {stage.topic(deleted)} is gone" in last
        assert "dtgol topics apply" in last
