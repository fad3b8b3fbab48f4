"""The memory of the past on real Kafka: archived journal, audit horizon, erasure."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from pipeline.sandbox.brokers import Broker
from tests.broker.test_operator_commands import as_json, run, send, settled
from tests.support.stage import Stage
from tests.support.waiting import wait_until


def test_what_is_archived_is_computed_again_after_the_journal_was_trimmed(
    real_broker: Broker, prefix: str, tmp_path: Path
) -> None:
    stage = Stage(real_broker, prefix, tmp_path, partitions=1)
    files = str(tmp_path / "files")
    with stage.worker() as worker:
        stage.await_answers(send(stage, 0, 30), worker)
        settled(stage, worker)
        first = as_json(stage, "journal", "archive", "--to", files)["records"]["0"]
        stage.await_answers(send(stage, 30, 20), worker)
        settled(stage, worker)
    second = as_json(stage, "journal", "archive", "--to", files)["records"]["0"]
    assert first > 30
    assert second > 20
    trimmed = TopicPartition(stage.topic("journal"), 0, 40)
    admin = AdminClient(real_broker.config)
    admin.delete_records([trimmed])[trimmed].result(30)
    stored = [f"--set={name}={value}" for name, value in stage.chosen().items()]
    shown = run(stage, "doctor", *stored).stdout
    assert "audit horizon: partition 0: predictions from journal offset" in shown
    # Seen: a second line promised all days of the journal, from whatever snapshot.
    assert shown.count("audit horizon") == 1
    gone = run(stage, "journal", "replay")
    assert (gone.returncode, "begins at 40" in gone.stderr) == (2, True)
    (report,) = as_json(stage, "journal", "replay", "--archive", files)["partitions"]
    assert (report["start"], report["classes"]) == (0, {"equal": 50})


def test_an_erased_instance_is_in_no_new_snapshot_and_its_records_are_listed(
    real_broker: Broker, prefix: str, tmp_path: Path
) -> None:
    stage = Stage(real_broker, prefix, tmp_path, partitions=2)
    stored = ["--set=snapshots.store=directory", f"--set=snapshots.directory={tmp_path / 's'}"]
    with stage.worker(*stored) as worker, stage.process("evaluator", *stored) as evaluator:
        stage.features("unforgettable-7", {"age": 3.0}, stream="ward")
        big = b'{"id":"unforgettable-7","x":{"v":"' + b"z" * 300_000 + b'"}}'
        stage.send("features", big, b"key")
        stage.sent -= 1  # its place in the journal is a stub, no copy
        stage.send("labels", b'{"id":"unforgettable-7', b"key")
        stage.send("labels", b"{oops", b"key")
        stage.await_answers({"unforgettable-7"} | send(stage, 0, 20), worker)
        wait_until(lambda: len(stage.letters()) == 3, "letters", 60, worker.alive)
        settled(stage, worker)
        held = as_json(stage, "erase", "--stream", "ward", "--id", "unforgettable-7")
        stage.sent += held["requests"]
        for start in (20, 40, 60):
            stage.await_answers(send(stage, start, 20), worker)
            settled(stage, worker)
        evaluator.await_ready()
    assert held["requests"] == 2
    found = {each["topic"]: each for each in held["topics"]}
    assert (found["features"]["records"], found["predictions"]["records"]) == (1, 1)
    # Seen: dead letters that cannot be read, one truncated, were not listed.
    letters = found["dead-letters"]
    assert (letters["records"], letters["maybe"]) == (0, 2)
    assert letters["gone_ms"] == letters["newest_ms"] + 30 * 86_400_000
    assert found["journal"]["records"] == 1
    assert found["journal"]["gone_ms"] == found["journal"]["newest_ms"] + 30 * 86_400_000
    workers = (tmp_path / "s").rglob("*/worker/**/*")
    blobs = [path.read_bytes() for path in workers if path.is_file()]
    assert blobs
    assert not any(b"unforgettable" in blob for blob in blobs)
    again = as_json(stage, "erase", "--stream", "ward", "--id", "unforgettable-7", "--dry-run")
    assert again["requests"] == 0
    assert {each["topic"]: each["records"] for each in again["topics"]}["labels"] == 0
