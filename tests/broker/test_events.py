"""The topic of events on a real broker: what is told, and that nothing depends on it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import orjson
from confluent_kafka.admin import AdminClient

from pipeline.sandbox.brokers import Broker
from tests.support.stage import Stage
from tests.support.waiting import wait_until

RECORDS = 60


def told(stage: Stage) -> list[dict[str, Any]]:
    return [orjson.loads(record.value or b"") for record in stage.read("events")]


def send(stage: Stage) -> set[str]:
    for number in range(RECORDS):
        stage.features(f"i{number}", {"v": number % 7}, key=f"k{number}")
    stage.flush()
    return {f"i{number}" for number in range(RECORDS)}


def test_the_life_of_a_worker_is_told(real_broker: Broker, prefix: str, tmp_path: Path) -> None:
    stage = Stage(real_broker, prefix, tmp_path, settings={"worker.why": 2})
    with stage.worker("--set=kafka.group_instance_id=worker-a") as worker:
        worker.await_ready(2)
        stage.await_answers(send(stage), worker)
        worker.child.terminate()
        assert worker.child.wait(60) == 0
    stage.verify()
    events = told(stage)
    kinds = Counter((event["kind"], event["partition"]) for event in events)
    for number in range(2):
        assert kinds["started", number] == kinds["stopped", number] == kinds["config", number] == 1
        assert kinds["snapshot", number] >= 1
    assert {event["process"] for event in events} == {"worker-a"}
    ends = {event["partition"]: event["offset"] for event in events if event["kind"] == "stopped"}
    for number, fold in enumerate(stage.offline()[0]):
        assert ends[number] == fold.next_offset
    assert {event["detail"] for event in events if event["kind"] == "config"} == {
        "stream_idle_ms, why"
    }


def test_without_the_topic_everything_else_works(
    real_broker: Broker, prefix: str, tmp_path: Path
) -> None:
    stage = Stage(real_broker, prefix, tmp_path)
    admin = AdminClient(real_broker.config)
    events = stage.topic("events")
    admin.delete_topics([events])[events].result(30)
    wait_until(lambda: events not in admin.list_topics(timeout=10).topics, "no topic", 30)
    with stage.worker() as worker, stage.evaluator() as evaluator:
        worker.await_ready(2)
        evaluator.await_ready(2)
        stage.await_answers(send(stage), worker)

        def page() -> dict[str, Any]:
            shown: dict[str, Any] = orjson.loads(evaluator.get("/page.json")[1])
            return shown

        said = lambda: f"no topic {events}" in str(page()["notices_problem"])  # noqa: E731
        wait_until(said, "the page to say so", 30, evaluator.alive)
        assert page()["verdict"]["level"] == "healthy"
        for process in (worker, evaluator):
            process.child.terminate()
            assert process.child.wait(60) == 0
    stage.verify()
