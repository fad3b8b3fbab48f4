"""`snapshot`, `journal replay` and `dead-letters` as an operator runs them, on real Kafka."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import orjson
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from pipeline.errors import FencedError
from pipeline.kafka.record import Record
from pipeline.learning.fold_config import FOLD_VERSION
from pipeline.ops.dead_letters import DeadLetterTopic, Redrive, read_dead_letters
from pipeline.sandbox.brokers import Broker
from tests.broker.test_commands import dtgol
from tests.support.stage import Process, Stage
from tests.support.waiting import wait_until

DESCRIBED = """
[streams.ward.features.age]
kind = "continuous"
low = 0
high = 130
[streams.ward.features.unit]
kind = "nominal"
levels = ["icu", "er"]
"""


def run(stage: Stage, *arguments: str) -> subprocess.CompletedProcess[str]:
    return dtgol(stage.broker, stage.prefix, *arguments)


def as_json(stage: Stage, *arguments: str, code: int = 0) -> dict[str, Any]:
    """The JSON of a command."""
    done = run(stage, *arguments, "--json")
    assert done.returncode == code, done.stderr + done.stdout
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def send(stage: Stage, start: int, count: int) -> set[str]:
    for number in range(start, start + count):
        x = {"age": 20 + number * 0.5, "unit": ["icu", "er", "secret ward"][number % 3], "ok": True}
        stage.features(f"a{number}", x, stream="ward")
        if number >= 5:
            stage.label(f"a{number - 5}", number % 2, stream="ward")
    stage.flush()
    return {f"a{number}" for number in range(start, start + count)}


def settled(stage: Stage, worker: Process) -> None:
    """Until all that was sent is folded, and stored in snapshots."""

    def look() -> bool:
        found = list(worker.status()["partitions"].values())
        folded = sum(each.get("counts", {}).get("records/copy", 0) for each in found)
        stored = all(each["snapshot_offset"] == each["next_offset"] for each in found)
        return folded == stage.sent and stored

    wait_until(look, "snapshots of everything", 90, worker.alive)


@pytest.mark.parametrize("store", ["topic", "directory"])
def test_a_learner_is_inspected_and_nothing_of_its_records_is_shown(
    real_broker: Broker, prefix: str, tmp_path: Path, store: str
) -> None:
    stage = Stage(real_broker, prefix, tmp_path, partitions=1, config=DESCRIBED)
    stored = [f"--set=snapshots.store={store}", f"--set=snapshots.directory={tmp_path / 'stored'}"]
    nothing = run(stage, "snapshot", "inspect", *stored)
    assert nothing.returncode == 2
    assert "no whole snapshot" in nothing.stderr
    with stage.worker(*stored) as worker:
        stage.await_answers(send(stage, 0, 35), worker)
        settled(stage, worker)
        stage.await_answers(send(stage, 35, 5), worker)
        settled(stage, worker)
        status = worker.status()
    (newest, *_) = listed = as_json(stage, "snapshot", "list", *stored)["snapshots"]
    assert {each["whole"] for each in listed} == {True}
    assert [each["next_offset"] for each in listed] == sorted(
        (each["next_offset"] for each in listed), reverse=True
    )
    assert newest["fingerprint"] == status["fingerprint"]
    assert 0 <= newest["age_s"] < 600
    assert newest["size"] > 1000
    (partition,) = as_json(stage, "snapshot", "inspect", *stored)["partitions"]
    assert partition["next_offset"] == newest["next_offset"]
    assert partition["config"] == status["config"]
    (ward,) = partition["streams"]
    ((fold,), _) = stage.offline()
    learner = fold.streams["ward"].learner
    assert (ward["stream"], ward["step"]) == ("ward", learner.step) == ("ward", 40)
    assert ward["labels_learnt"] == learner.labels_learnt >= 30
    assert (ward["pending"], ward["held_labels"]) == (learner.pending, 0)
    assert list(ward["experts"]) == list(learner.experts)
    assert ward["experts"]["naive"]["numbers"] == learner.experts["naive"].inspect().numbers
    assert ward["correlation"] == learner.copula.correlation.tolist()
    features = {each["feature"]: each for each in ward["features"]}
    assert features["age"]["bounds"] == [0, 130]
    assert (features["unit"]["levels"], features["unit"]["levels_known"]) == (["er", "icu"], 3)
    columns = ["age", "unit=icu", "unit=er", "unit=#3", "ok"]
    assert sorted(ward["columns"]) == sorted(columns)
    for weights in ward["experts"]["paper"]["weights"].values():
        assert set(weights) == {"(bias)", *columns}
    assert len(ward["correlation"]) == len(ward["correlation"][0]) == len(columns)
    plain = run(stage, "snapshot", "inspect", "--stream", "ward", *stored)
    assert "strongest correlations" in plain.stdout
    assert "secret ward" not in plain.stdout + json.dumps(partition)
    assert "secret ward" in run(stage, "snapshot", "inspect", "--levels", *stored).stdout
    assert run(stage, "snapshot", "inspect", "--stream", "nobody", *stored).returncode == 2
    assert run(stage, "snapshot", "list", "--partition", "7", *stored).returncode == 2


def test_a_damaged_snapshot_is_listed_as_one(
    real_broker: Broker, prefix: str, tmp_path: Path
) -> None:
    stage = Stage(real_broker, prefix, tmp_path, partitions=1)
    stored = ["--set=snapshots.store=directory", f"--set=snapshots.directory={tmp_path / 'stored'}"]
    with stage.worker(*stored) as worker:
        stage.await_answers(send(stage, 0, 20), worker)
        settled(stage, worker)
        stage.await_answers(send(stage, 20, 20), worker)
        settled(stage, worker)
        with stage.process("evaluator", *stored) as evaluator:
            evaluator.await_ready(1)
            wait_until(lambda: len(stage.scores()) == 35, "scores", 60, evaluator.alive)
    folder = tmp_path / "stored" / prefix / "worker" / "0"
    newest = max(path for path in folder.iterdir() if path.name.startswith("manifest."))
    (blob,) = json.loads(newest.read_bytes())["blobs"]["ward"]["objects"]
    (folder / blob).write_bytes(b"rust")
    listed = as_json(stage, "snapshot", "list", *stored, code=1)["snapshots"]
    assert [each["whole"] for each in listed][:2] == [False, True]
    assert "damaged: its checksum" in listed[0]["damage"]
    (partition,) = as_json(stage, "snapshot", "inspect", *stored)["partitions"]
    assert partition["next_offset"] == listed[1]["next_offset"]
    scored = as_json(stage, "snapshot", "list", "--role", "evaluator", *stored)["snapshots"]
    assert scored
    assert {each["whole"] for each in scored} == {True}


def test_a_replay_of_what_was_said_is_all_equal_also_from_a_snapshot(
    real_broker: Broker, prefix: str, tmp_path: Path
) -> None:
    stage = Stage(real_broker, prefix, tmp_path, partitions=2)
    with stage.worker() as worker:
        worker.await_ready(2)
        stage.await_answers(send(stage, 0, 60), worker)
        partition = str(stage.predictions()[0]["at"]["partition"])
        settled(stage, worker)
        stage.await_answers(send(stage, 60, 60), worker)
        settled(stage, worker)
    whole = as_json(stage, "journal", "replay")
    assert whole["equal"] is True
    counted = [each["classes"] for each in whole["partitions"]]
    assert sum(each.get("equal", 0) for each in counted) == 120
    assert not [kind for each in counted for kind in each if kind != "equal"]
    part = as_json(stage, "journal", "replay", "--from", "snapshot", "--partition", partition)
    (only,) = part["partitions"]
    assert only["start"] > 0
    assert "all equal" in run(stage, "journal", "replay").stdout
    assert run(stage, "journal", "replay", "--partition", "9").returncode == 2


def test_a_replay_finds_what_differs_and_what_is_missing(
    real_broker: Broker, prefix: str, tmp_path: Path
) -> None:
    stage = Stage(real_broker, prefix, tmp_path, partitions=1)
    with stage.worker() as worker:
        stage.await_answers(send(stage, 0, 30), worker)
        settled(stage, worker)
    truth = stage.read("predictions")
    trim(stage, "predictions", len(truth))
    producer = Producer(real_broker.config)

    def publish(record: Record, **changed: Any) -> None:
        value = orjson.dumps({**orjson.loads(record.value or b""), **changed})
        untouched = record.value if not changed else value
        producer.produce(stage.topic("predictions"), untouched, record.key)

    other = f"{FOLD_VERSION}-other"
    changes: dict[int, dict[str, Any]] = {15: {"p": 0.123}, 18: {"model": other}}
    for number, record in enumerate(truth[10:], start=10):
        if number != 12:
            publish(record, **changes.get(number, {}))
    identity = orjson.loads(truth[3].value or b"")["at"]
    publish(truth[3], at={**identity, "journal": "another"})
    first_label = next(
        record.offset
        for record in stage.read("journal")
        if (record.value or b"").startswith(b'{"id":"a0","y"')
    )
    publish(truth[3], at={**identity, "offset": first_label})
    assert producer.flush(30) == 0
    (report,) = as_json(stage, "journal", "replay", code=1)["partitions"]
    assert report["classes"] == {
        "trimmed": 10,
        "equal": 17,
        "missing": 1,
        "different": 1,
        "other_model": 1,
        "unexpected": 1,
    }
    assert report["other_journal"] == 1
    missing = orjson.loads(truth[12].value or b"")["at"]["offset"]
    assert report["examples"]["missing"] == [missing]


def test_records_that_the_worker_has_not_come_to_are_no_fault(
    real_broker: Broker, prefix: str, tmp_path: Path
) -> None:
    stage = Stage(real_broker, prefix, tmp_path, partitions=1)
    with stage.worker() as worker:
        stage.await_answers(send(stage, 0, 20), worker)
        settled(stage, worker)
    truth = len(stage.read("predictions"))
    with stage.worker("--set=snapshots.every_ms=600000", "--set=snapshots.every_records=9999") as w:
        stage.await_answers(send(stage, 20, 20), w)
        w.child.kill()
        w.child.wait()
    trim(stage, "predictions", truth + 20)
    assert stage.read("predictions") == []
    report = as_json(stage, "journal", "replay")["partitions"][0]
    assert report["classes"] == {"trimmed": 20, "behind": 20}


def trim(stage: Stage, name: str, offset: int) -> None:
    """Delete what is before an offset, as retention would."""
    admin = AdminClient(stage.broker.config)
    for done in admin.delete_records([TopicPartition(stage.topic(name), 0, offset)]).values():
        done.result(30)


def test_a_trimmed_journal_is_replayed_from_a_snapshot(
    real_broker: Broker, prefix: str, tmp_path: Path
) -> None:
    stage = Stage(real_broker, prefix, tmp_path, partitions=1)
    with stage.worker() as worker:
        stage.await_answers(send(stage, 0, 30), worker)
        settled(stage, worker)
        stage.await_answers(send(stage, 30, 30), worker)
        settled(stage, worker)
    trim(stage, "journal", 5)
    refused = run(stage, "journal", "replay")
    assert refused.returncode == 2
    assert "--from snapshot" in refused.stderr
    assert len(refused.stderr.strip().splitlines()) == 1
    assert as_json(stage, "journal", "replay", "--from", "snapshot")["equal"] is True


def test_a_retype_reaches_every_partition_and_the_running_learner(
    real_broker: Broker, prefix: str, tmp_path: Path
) -> None:
    stage = Stage(real_broker, prefix, tmp_path, partitions=2)
    stored = [f"--set={name}={value}" for name, value in stage.chosen().items()]

    def pulse() -> dict[str, Any]:
        (partition,) = as_json(stage, "snapshot", "inspect", "--stream=ward", *stored)["partitions"]
        (ward,) = partition["streams"]
        (found,) = ward["features"]
        return {**found, "step": ward["step"]}

    asked = ("--stream=ward", "--feature=pulse", "--kind=continuous")
    with stage.worker() as worker:
        ids = {f"t{number}" for number in range(25)}
        for number in range(25):
            stage.features(f"t{number}", {"pulse": "broken"}, stream="ward")
        stage.await_answers(ids, worker)
        settled(stage, worker)
        assert pulse()["kind"] == "nominal"
        assert run(stage, "journal", "retype", *asked).returncode == 2, "why is not said"
        decided = as_json(stage, "journal", "retype", *asked, "--note=a new sensor")
        assert (decided["decided"], decided["partitions"]) == ("retype", 2)
        for number in range(30):
            stage.features(f"n{number}", {"pulse": 60.5 + number}, stream="ward")
        stage.await_answers(ids | {f"n{number}" for number in range(30)}, worker)
        settled(stage, worker)
        found = pulse()
    assert (found["kind"], found["kind_conflicts"], found["step"]) == ("continuous", 0, 55)
    notes = [
        (record.partition, orjson.loads(record.value or b"")["note"])
        for record in stage.read("journal")
        if ("dtgol-kind", b"retype") in record.headers
    ]
    assert sorted(notes) == [(0, "a new sensor"), (1, "a new sensor")]
    assert as_json(stage, "journal", "replay")["equal"] is True


BAD = b'{"stream":"ward","id":"bad","x":{"age":{"years":9}}}'


def test_letters_are_listed_by_reason_and_time_and_sent_back_once(
    real_broker: Broker, prefix: str, tmp_path: Path
) -> None:
    settings = {"worker.connect_headers": "true"}
    stage = Stage(real_broker, prefix, tmp_path, partitions=2, settings=settings)
    big = b'{"id":"big","x":{"v":"' + b"z" * 300_000 + b'"}}'
    with stage.worker() as worker:
        worker.await_ready(2)
        stage.await_answers(send(stage, 0, 10), worker)
        stage.send("features", BAD, b"key", [("trace", b"7")])
        stage.send("features", b"{oops", b"key", partition=0)
        stage.send("features", b"{oops", b"key", partition=1)
        stage.send("labels", None, b"key")
        stage.send("features", big, b"key")
        stage.flush()
        wait_until(lambda: len(stage.letters()) == 5, "letters", 60, worker.alive)
        for letter, record in stage.letters():  # of the sequencer's too-large one as well
            connect = dict(record.headers)
            assert connect["__connect.errors.topic"] == letter.topic.encode()
            assert connect["__connect.errors.offset"] == str(letter.offset).encode()
            assert connect["__connect.errors.exception.class.name"] == letter.reason.encode()
        found = as_json(stage, "dead-letters", "list")
        assert found["matched"] == 5
        assert {each["reason"] for each in found["letters"]} == {
            *("nested-value", "not-json", "empty-value", "too-large")
        }
        assert not any(each["redriven"] for each in found["letters"])
        assert "oops" not in json.dumps(found)
        one = as_json(stage, "dead-letters", "list", "--reason=not-json", "--limit=1")
        assert (one["matched"], len(one["letters"])) == (2, 1)
        assert as_json(stage, "dead-letters", "list", "--until=1h")["matched"] == 0
        assert as_json(stage, "dead-letters", "list", "--since=1h")["matched"] == 5
        assert run(stage, "dead-letters", "list", "--reason=nonsense").returncode == 2
        assert run(stage, "dead-letters", "list", "--since=yesterday").returncode == 2

        dry = as_json(stage, "dead-letters", "redrive", "--dry-run", code=1)
        assert (dry["sent"], len(dry["would_send"]), len(dry["left"])) == (0, 4, 1)
        assert "was truncated" in dry["left"][0]["why"]
        before = {number: ends(stage, "features")[number] for number in range(2)}
        done = as_json(stage, "dead-letters", "redrive", "--reason=not-json")
        assert (done["sent"], done["sent_before"]) == (2, 0)
        seen = ("dead-letters", "list", "--reason=not-json")
        wait_until(lambda: as_json(stage, *seen)["matched"] == 4, "again", 60, worker.alive)
        again = as_json(stage, "dead-letters", "redrive", "--reason=not-json", code=1)
        # Both were refused again for the same reason, as new letters: nothing would change.
        assert (again["sent"], again["sent_before"]) == (0, 2)
        assert ["--again" in each["why"] for each in again["left"]] == [True, True]
        after = ends(stage, "features")
        assert all(after[number] > before[number] for number in range(2))
        rest = as_json(stage, "dead-letters", "redrive", "--reason=nested-value")
        assert rest["sent"] == 1
        wait_until(
            lambda: sum(record.value == BAD for _, record in stage.letters()) == 2,
            "again",
            60,
            worker.alive,
        )
        final = as_json(stage, "dead-letters", "list", "--reason=nested-value")["letters"]
        assert [each["redriven"] for each in final] == [True, False]
        assert final[0]["source"]["partition"] == final[1]["source"]["partition"]
        watch = as_json(stage, "watch", "--once")
        assert "unreadable" not in watch["dead_letters"]
        assert watch["dead_letters"]["nested-value"] == 2
    (first, second) = (record for record in stage.read("features") if record.value == BAD)
    assert (second.key, second.partition) == (first.key, first.partition)
    place = final[0]["letter"]
    assert second.headers == [
        ("trace", b"7"),
        ("dtgol-redriven", b"%d/%d" % (place["partition"], place["offset"])),
    ]
    stage.verify()


def ends(stage: Stage, name: str) -> dict[int, int]:
    """How many records of each partition a consumer of committed ones sees."""
    found = dict.fromkeys(range(stage.partitions), 0)
    for record in stage.read(name):
        found[record.partition] += 1
    return found


def test_of_two_who_redrive_one_is_shut_out_and_nothing_is_sent_twice(
    real_broker: Broker, prefix: str, tmp_path: Path
) -> None:
    stage = Stage(real_broker, prefix, tmp_path, partitions=1)
    with stage.worker() as worker:
        worker.await_ready(1)
        stage.send("features", b"{oops", b"key")
        stage.flush()
        wait_until(lambda: len(stage.letters()) == 1, "letters", 60, worker.alive)
    topic = DeadLetterTopic(real_broker.config, stage.topic("dead-letters"), prefix)
    slow = Redrive(topic)
    (letter,) = read_dead_letters(topic)
    assert Redrive(topic).send(read_dead_letters(topic), lambda _: None) == 1
    with pytest.raises(FencedError, match="fenced"):
        slow.send([letter], lambda _: None)
    assert [each.redriven for each in read_dead_letters(topic)] == [True]
    assert len(stage.read("features")) == 2


def test_a_redriver_that_dies_in_its_transaction_has_sent_nothing(
    real_broker: Broker, prefix: str, tmp_path: Path
) -> None:
    stage = Stage(real_broker, prefix, tmp_path, partitions=1)
    with stage.worker() as worker:
        worker.await_ready(1)
        stage.send("features", b"{oops", b"key")
        stage.flush()
        wait_until(lambda: len(stage.letters()) == 1, "letters", 60, worker.alive)
    topic = DeadLetterTopic(real_broker.config, stage.topic("dead-letters"), prefix)
    (letter,) = read_dead_letters(topic)
    dying = Redrive(topic)
    (record,) = stage.read("dead-letters")
    dying._producer.begin_transaction()
    dying._put(letter, record)
    assert dying._producer.flush(30) == 0
    assert as_json(stage, "dead-letters", "redrive")["sent"] == 1
    assert len(stage.read("features")) == 2
    assert as_json(stage, "dead-letters", "redrive")["sent_before"] == 1
