"""`produce`, `watch` and `doctor` as a user runs them, against a broker."""

import json
import os
import subprocess
import sys
from operator import itemgetter
from pathlib import Path
from typing import Any

import orjson
import pytest
from confluent_kafka import Producer

from pipeline.brokers import Broker
from pipeline.client.tail import Tail
from pipeline.operators.topics_admin import apply, connect
from tests.broker.conftest import MakeTopics
from topics.catalog import wishes

LIMIT_S = 60.0
ROWS = 12


def dtgol(broker: Broker, prefix: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap,
        "DTGOL_KAFKA_PREFIX": prefix,
    }
    return subprocess.run(
        [sys.executable, "-m", "pipeline", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "stream.csv"
    lines = [f"{row},{row * 0.5},w{row % 3},{row % 2}" for row in range(ROWS)]
    path.write_text("\n".join(["a,b,ward,label", *lines]) + "\n")
    return path


def everything(broker: Broker, prefix: str) -> dict[str, list[dict[str, Any]]]:
    names = {prefix + name: name for name in ("features", "labels")}
    read: dict[str, list[dict[str, Any]]] = {"features": [], "labels": []}
    with Tail(broker.config, list(names)) as tail:
        for message in tail.catch_up(LIMIT_S):
            value = orjson.loads(message.value() or b"")
            more = {"key": message.key(), "stamp": message.timestamp()[1]}
            read[names[message.topic() or ""]].append(value | more)
    return read


def test_a_file_becomes_features_and_labels_in_the_order_of_the_backtest(
    broker: Broker, prefix: str, make_topics: MakeTopics, table: Path
) -> None:
    make_topics({"features": 4, "labels": 4})
    done = dtgol(broker, prefix, "produce", str(table), "--delay", "3", "--stream", "s", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["features"] == json.loads(done.stdout)["labels"] == ROWS
    read = everything(broker, prefix)
    assert [each["id"] for each in read["features"]] == [str(row) for row in range(ROWS)]
    assert [each["y"] for each in read["labels"]] == [row % 2 for row in range(ROWS)]
    assert {each["key"] for records in read.values() for each in records} == {b"s"}
    stamped = [(each["stamp"], f"x{each['id']}") for each in read["features"]]
    stamped += [(each["stamp"], f"y{each['id']}") for each in read["labels"]]
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


def test_produce_says_what_is_missing(broker: Broker, prefix: str, table: Path) -> None:
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
    said = json.loads(done.stdout)
    assert [(each["predictions"], each["scored"]) for each in said["streams"]] == [(1, 1)]
    assert {each["behind"] for each in said["lag"]} == {None}
    plain = dtgol(broker, prefix, "watch", "--once")
    assert said["streams"][0]["stream"] in plain.stdout


def test_the_doctor_finds_good_topics_healthy(
    real_broker: Broker, prefix: str, make_topics: MakeTopics, table: Path
) -> None:
    apply(connect(real_broker.config), wishes(prefix, 4, 1))
    assert dtgol(real_broker, prefix, "produce", str(table), "--key", "id").returncode == 0
    done = dtgol(real_broker, prefix, "doctor", "--probe", "--json")
    said = json.loads(done.stdout)
    assert (done.returncode, said["verdict"]) == (0, "healthy: nothing to do"), done.stdout
    checks = {each["check"]: each for each in said["findings"]}
    assert checks["labels meet features"]["status"] == "ok"
    assert checks["broker version"]["status"] == "ok"
    assert checks["broker clock"]["status"] == "ok"


def test_the_doctor_finds_another_partitioner_and_strayed_labels(
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
