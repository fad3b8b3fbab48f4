"""The Connect sinks of deploy/connect, run by Kafka Connect itself (docs/guide-connect.md).

The converter, its schema and the transforms are those of the recipe; only the sink is another one:
Connect's own file sink in place of a JDBC sink, which is not on Maven Central.
"""

import json
import re
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pipeline.sandbox.brokers import Broker
from pipeline.sandbox.brokers.jars import LOGGING, find_java, kafka_jars, kafka_version
from pipeline.sandbox.brokers.process import SupervisedProcess, free_ports
from tests.support.stage import Stage
from tests.support.waiting import wait_until
from tests.unit.test_guide_clients import block

ROOT = Path(__file__).parents[2]
RECIPES = ROOT / "deploy" / "connect"
POM = Path(__file__).with_name("connect-pom.xml")
TOPICS = ("predictions", "scores")
TYPES = {"string": "string", "int32": "integer", "int64": "integer", "double": "number"}
LEFT_OUT = {
    "predictions": {
        *("experts", "guard", "why", "missing"),
        *("labels_offset", "defaulted", "default"),
    },
    "scores": set[str](),
}
"""Fields of the contract that are not in the tables: mappings, lists of texts, and what only the
evaluator needs."""
TRACE = ("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
EVENT = ("dtgol-event", b"stream-evicted")


def recipe(topic: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((RECIPES / f"{topic}.json").read_text())
    return read


def test_the_java_of_the_client_guide_tells_copies_apart(tmp_path: Path) -> None:
    """docs/guide-clients.md, "One answer, several copies", in a class around it."""
    checks = [("a", 0, 5), ("a", 0, 5), ("a", 0, 7), ("a", 0, 6), ("a", 1, 5), ("b", 0, 0)]
    calls = "".join(f'System.out.println(isCopy("{j}", {p}, {o}));' for j, p, o in checks)
    program = tmp_path / "Copies.java"
    program.write_text(
        "import java.util.*;\npublic class Copies {\n"
        f"{block('java')}\npublic static void main(String[] args) {{ {calls} }}\n}}\n"
    )
    done = subprocess.run(
        [find_java(), str(program)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["false", "true", "false", "true", "false", "false"]


def test_connect_is_the_version_of_the_broker() -> None:
    assert kafka_version(POM) == kafka_version()


@pytest.mark.parametrize("topic", TOPICS)
def test_the_schema_of_a_sink_is_that_of_the_contract(topic: str) -> None:
    contract = json.loads((ROOT / "topics" / "schemas" / f"{topic}.json").read_text())
    content = json.loads(recipe(topic)["config"]["value.converter.schema.content"])
    _compare(content["fields"], contract["properties"])
    named = {each["field"] for each in content["fields"]}
    assert named | LEFT_OUT[topic] == contract["properties"].keys()
    assert not named & LEFT_OUT[topic]


def _compare(fields: list[dict[str, Any]], properties: dict[str, Any]) -> None:
    for each in fields:
        in_contract = properties[each["field"]]
        if each["type"] == "struct":
            _compare(each["fields"], in_contract["properties"])
        else:
            kind, kinds = TYPES.get(each["type"], each["type"]), in_contract["type"]
            assert kind == kinds or (each["optional"] and kinds == [kind, "null"]), each


@contextmanager
def connect(broker: Broker, folder: Path, *connectors: Path) -> Iterator[SupervisedProcess]:
    """A standalone Connect worker with these connectors, for the length of the block."""
    (port,) = free_ports(1)
    worker = folder / "connect.properties"
    worker.write_text(
        f"bootstrap.servers={broker.bootstrap}\n"
        f"listeners=http://127.0.0.1:{port}\n"
        f"offset.storage.file.filename={folder / 'offsets'}\n"
        "offset.flush.interval.ms=1000\n"
        "key.converter=org.apache.kafka.connect.storage.StringConverter\n"
        "value.converter=org.apache.kafka.connect.storage.StringConverter\n"
    )
    command = [find_java(), "-Xmx256m", f"-Dlog4j2.configurationFile={LOGGING}"]
    command += ["-cp", f"{kafka_jars(POM)}/*", "org.apache.kafka.connect.cli.ConnectStandalone"]
    command += [str(worker), *map(str, connectors)]
    with SupervisedProcess(command, folder / "connect.log") as process:
        yield process


def remembered(evaluator: Any) -> int:
    """How many predictions of its one partition wait for their label."""
    (partition,) = evaluator.status()["partitions"].values()
    return int(partition["remembered"])


def rows(path: Path) -> list[dict[str, str]]:
    """The records that the file sink wrote: Struct{name=value,…}, one on a line."""
    lines = path.read_text().splitlines() if path.exists() else []
    inner = [line.removeprefix("Struct{").removesuffix("}") for line in lines]
    pairs = (re.split(r",(?=\w+=)", line) for line in inner)  # a list has commas too
    return [dict(pair.split("=", 1) for pair in each) for each in pairs]


def test_predictions_and_scores_reach_their_tables_once(
    real_broker: Broker, prefix: str, tmp_path: Path
) -> None:
    # With a deadline: the file sink leaves out what is null.
    deadline = "[learner.delay]\nexpire_ms = 86400000\n"
    stage = Stage(real_broker, prefix, tmp_path, partitions=1, config=deadline)
    with stage.worker() as worker, stage.evaluator() as evaluator:
        worker.await_ready(1)
        evaluator.await_ready(1)
        stage.features("17", {"pulse": 92}, stream="ward")
        stage.features("18", {"pulse": 70}, stream="ward")
        stage.flush()
        stage.await_answers({"17", "18"}, worker)
        # The evaluator has the predictions too: the label completes the pair.
        wait_until(lambda: remembered(evaluator) == 2, "predictions", 60, evaluator.alive)
        stage.send("labels", b'{"stream":"ward","id":"17","y":1}', b"key", [TRACE, ("own", b"1")])
        stage.flush()
        wait_until(lambda: len(stage.scores()) == 1, "a score", 60, evaluator.alive)
    (score,) = stage.read("scores")
    assert score.headers == [TRACE]  # of the label; its other headers stay there
    event = (ROOT / "topics" / "examples" / "scores-event.json").read_bytes()
    stage.send("scores", event, None, [EVENT])
    # What a worker does that was killed between an answer and its commit: the same bytes again.
    first = stage.read("predictions")[0]
    stage.send("predictions", first.value, first.key)
    stage.flush()

    files, connectors = {}, []
    for topic in TOPICS:
        sink = recipe(topic)
        sink["name"] = prefix + sink["name"]
        files[topic] = tmp_path / f"{topic}.txt"
        sink["config"] |= {
            "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
            "topics": prefix + topic,
            "file": str(files[topic]),
        }
        connectors.append(tmp_path / f"{topic}-sink.json")
        connectors[-1].write_text(json.dumps(sink))
    with connect(real_broker, tmp_path, *connectors) as process:
        wait_until(
            lambda: (len(rows(files["predictions"])), len(rows(files["scores"]))) == (3, 1),
            "three predictions and one score in the files",
            90,
            lambda: process.running,
        )

    database = sqlite3.connect(":memory:")
    database.executescript((RECIPES / "tables.sql").read_text())
    for topic in TOPICS:
        for row in rows(files[topic]):
            columns = {each[1] for each in database.execute(f"PRAGMA table_info({topic})")}
            assert row.keys() == columns
            marks = ",".join("?" * len(row))
            upsert = f"INSERT OR REPLACE INTO {topic} ({','.join(row)}) VALUES ({marks})"
            database.execute(upsert, list(row.values()))
    assert database.execute("SELECT id, p FROM predictions ORDER BY at_offset").fetchall() == [
        (each["id"], each["p"]) for each in stage.predictions()[:2]
    ]
    found = database.execute("SELECT id, y, open_set, covered FROM latest_scores").fetchall()
    assert found == [("17", 1, "[0, 1]", "true")]  # the first answers of a stream leave both open
    sets = database.execute("SELECT threshold, open_set FROM predictions").fetchall()
    assert sets == [(0.5, "[0, 1]")] * 2
    database.close()
