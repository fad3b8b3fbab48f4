"""`produce`, `watch` and `doctor` as a user runs them, against a broker."""

import json
import os
import signal
import subprocess
import sys
from contextlib import closing
from operator import itemgetter
from pathlib import Path
from typing import Any

import orjson
import pytest
from confluent_kafka import Producer

from pipeline.kafka.clients import MonitoredAdmin
from pipeline.kafka.reader import Reader, Tail
from pipeline.kafka.topic_admin import apply
from pipeline.sandbox.brokers import Broker
from tests.broker.conftest import MakeTopics
from tests.support.commands import ROOT
from tests.support.forkserver import run
from tests.support.stage import Stage
from tests.support.waiting import wait_until
from topics.catalog import desired_topics

LIMIT_S = 60.0
ROWS = 12


def dtgol(broker: Broker, prefix: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap,
        "DTGOL_KAFKA_PREFIX": prefix,
    }
    return run("pipeline", *arguments, environ=environment, timeout=LIMIT_S)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "stream.csv"
    lines = [f"{row},{row * 0.5},w{row % 3},{row % 2}" for row in range(ROWS)]
    path.write_text("\n".join(["a,b,ward,label", *lines]) + "\n")
    return path


def everything(broker: Broker, prefix: str) -> dict[str, list[dict[str, Any]]]:
    names = {prefix + name: name for name in ("features", "labels")}
    read: dict[str, list[dict[str, Any]]] = {"features": [], "labels": []}
    with closing(Tail(broker.config, list(names))) as tail:
        for record in tail.catch_up(LIMIT_S):
            value = orjson.loads(record.value or b"")
            more = {"key": record.key, "stamp": record.timestamp_ms}
            read[names[record.topic]].append(value | more)
    return read


def test_a_file_becomes_features_and_labels_in_the_order_of_the_backtest(
    broker: Broker, prefix: str, make_topics: MakeTopics, table: Path
) -> None:
    make_topics({"features": 4, "labels": 4})
    done = dtgol(broker, prefix, "produce", str(table), "--delay", "3", "--stream", "s", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["features"] == json.loads(done.stdout)["labels"] == ROWS
    read = everything(broker, prefix)
    rows = [each["id"].rpartition("-")[2] for each in read["features"]]
    assert rows == [str(row) for row in range(ROWS)]
    assert [each["y"] for each in read["labels"]] == [row % 2 for row in range(ROWS)]
    assert {each["key"] for records in read.values() for each in records} == {b"s"}
    stamped = [(each["stamp"], f"x{each['id'].rpartition('-')[2]}") for each in read["features"]]
    stamped += [(each["stamp"], f"y{each['id'].rpartition('-')[2]}") for each in read["labels"]]
    expected = []
    for row in range(ROWS + 3):
        expected += [f"y{row - 3}"] if row >= 3 else []
        expected += [f"x{row}"] if row < ROWS else []
    assert [name for _, name in sorted(stamped, key=itemgetter(0))] == expected


def test_a_column_can_be_the_key(
    broker: Broker, prefix: str, make_topics: MakeTopics, table: Path
) -> None:
    make_topics({"features": 4, "labels": 4})
    done = dtgol(
        broker, prefix, "produce", str(table), "--key", "ward", "--delay-ms", "1..20", "--id", "a"
    )
    assert done.returncode == 0, done.stderr
    read = everything(broker, prefix)
    keys = {each["id"]: each["key"] for each in read["features"]}
    assert keys == {str(row): f"w{row % 3}".encode() for row in range(ROWS)}
    assert keys == {each["id"]: each["key"] for each in read["labels"]}
    assert set(read["features"][-1]["x"]) == {"b"}


def test_produce_names_what_is_missing(broker: Broker, prefix: str, table: Path) -> None:
    done = dtgol(broker, prefix, "produce", str(table))
    assert done.returncode == 2
    assert "run: dtgol topics apply" in done.stderr


def test_watch_once_for_a_program(broker: Broker, prefix: str, make_topics: MakeTopics) -> None:
    make_topics(dict.fromkeys(("features", "labels", "predictions", "scores", "dead-letters"), 4))
    examples = Path(__file__).parents[2] / "topics" / "examples"
    producer = Producer(broker.config)
    for name in ("predictions", "scores"):
        producer.produce(prefix + name, (examples / f"{name}.json").read_bytes(), b"k")
    assert producer.flush(LIMIT_S) == 0
    done = dtgol(broker, prefix, "watch", "--once", "--json")
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert [(each["predictions"], each["scored"]) for each in shown["streams"]] == [(1, 1)]
    assert {each["behind"] for each in shown["lag"]} == {None}
    plain = dtgol(broker, prefix, "watch", "--once")
    assert shown["streams"][0]["stream"] in plain.stdout


def test_the_doctor_finds_good_topics_healthy(
    real_broker: Broker, prefix: str, make_topics: MakeTopics, table: Path
) -> None:
    apply(MonitoredAdmin(real_broker.config), desired_topics(prefix, 4, 1))
    assert dtgol(real_broker, prefix, "produce", str(table), "--key", "id").returncode == 0
    done = dtgol(real_broker, prefix, "doctor", "--probe", "--json")
    report = json.loads(done.stdout)
    problems = [each["text"] for each in report["findings"] if each["status"] == "problem"]
    # Seen: healthy, with nobody at work.
    assert problems == ["no worker is running", "no evaluator is running"], done.stdout
    assert done.returncode == 1
    checks = {each["check"]: each for each in report["findings"]}
    for name in ("cluster", "partitions", "topic settings", "labels meet features", "broker clock"):
        assert checks[name]["status"] == "ok", name


def test_the_doctor_finds_a_cluster_at_work_healthy_and_then_its_dead_letters(
    real_broker: Broker, prefix: str, tmp_path: Path
) -> None:
    stage = Stage(real_broker, prefix, tmp_path, partitions=2)
    with stage.worker() as worker, stage.evaluator() as evaluator:
        worker.await_ready(2)
        wait_until(lambda: evaluator.get("/readyz")[0] == 200, "evaluator", 60, evaluator.alive)
        web = [f"--web={each.url}" for each in (worker, evaluator)]
        done = dtgol(real_broker, prefix, "doctor", "--json", *web)
        report = json.loads(done.stdout)
        assert (done.returncode, report["verdict"]) == (0, "healthy: nothing to do"), done.stdout
        alive = [each for each in report["findings"] if each["check"].startswith("members")]
        assert [(each["status"], each["text"]) for each in alive] == [("ok", "1")] * 2
        bounds = {each["check"]: each["text"] for each in report["findings"]}
        assert "0% of evaluator.labels_max" in bounds[f"bounds of {evaluator.url}"]
        assert "0% of limits.streams_max" in bounds[f"bounds of {worker.url}"]
        for _ in range(3):
            stage.send("features", b"{oops", b"key")
        stage.flush()
        wait_until(lambda: len(stage.letters()) == 3, "letters", 60, worker.alive)
        done = dtgol(real_broker, prefix, "doctor", "--json")
        checks = {each["check"]: each for each in json.loads(done.stdout)["findings"]}
        assert checks["dead letters"]["status"] == "problem"
        assert "(unreadable) not-json 3" in checks["dead letters"]["text"]


def test_the_doctor_finds_another_partitioner_and_stray_labels(
    broker: Broker, prefix: str, make_topics: MakeTopics
) -> None:
    make_topics({"features": 4, "labels": 4})
    right = Producer({**broker.config, "partitioner": "murmur2_random"})
    wrong = Producer({**broker.config, "partitioner": "consistent"})
    for number in range(30):
        key, record = f"key-{number}".encode(), {"id": str(number)}
        right.produce(f"{prefix}features", orjson.dumps(record | {"x": {}}), key)
        wrong.produce(f"{prefix}labels", orjson.dumps(record | {"y": 1}), key)
    assert right.flush(LIMIT_S) == wrong.flush(LIMIT_S) == 0
    done = dtgol(broker, prefix, "doctor")
    assert done.returncode == 1
    assert "partitioner of labels" in done.stdout
    assert "sampled labels sit in another partition" in done.stdout
    assert "murmur2_random" in done.stdout


def test_the_doctor_cannot_reach_a_cluster_that_is_not_there(prefix: str) -> None:
    nobody = Broker("127.0.0.1:1", "given", "")
    done = dtgol(nobody, prefix, "doctor")
    assert done.returncode == 2
    assert "does not answer" in done.stderr


def test_predictions_are_shown_by_stream(
    broker: Broker, prefix: str, make_topics: MakeTopics
) -> None:
    missing = dtgol(broker, prefix, "predictions", "--once")
    assert missing.returncode == 2
    assert "run: dtgol topics apply" in missing.stderr
    make_topics({"predictions": 2})
    example = orjson.loads(
        (Path(__file__).parents[2] / "topics/examples/predictions.json").read_bytes()
    )
    producer = Producer(broker.config)
    for stream in ("one", "two"):
        value = orjson.dumps(example | {"stream": stream})
        producer.produce(f"{prefix}predictions", value, stream.encode())
    assert producer.flush(LIMIT_S) == 0
    shown = dtgol(broker, prefix, "predictions", "--once")
    assert [line.split()[0] for line in sorted(shown.stdout.splitlines())] == ["one", "two"]
    one = dtgol(broker, prefix, "predictions", "--once", "--json", "--stream", "two")
    (line,) = one.stdout.splitlines()
    assert json.loads(line) == example | {"stream": "two"}


def test_a_broker_is_started_and_its_address_printed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pipeline", "broker", "--broker", "embedded"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as child:
        assert child.stdout is not None
        address = child.stdout.readline().strip()
        with closing(Reader({"bootstrap.servers": address})) as reader:
            assert reader.metadata().brokers
        child.send_signal(signal.SIGINT)
        assert child.wait(LIMIT_S) == 0
