"""A process: what it opens, keeps and gives up with an assignment, and what it shows."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from faust.types import TP

from pipeline.errors import FAILED, REFUSED
from pipeline.kafka.cluster import Cluster
from pipeline.runtime import process as process_module
from pipeline.runtime.metrics import Sample
from pipeline.runtime.process import Process, Role
from pipeline.runtime.watchdog import Probe
from tests.unit.pipeline.evaluation.test_partition import Setup

TOPICS = ("p-features", "p-labels")


class Part:
    """A part of a partition that remembers what was asked of it."""

    counts: dict[str, int]

    def __init__(self, number: int) -> None:
        self.number = number
        self.calls: list[str] = []
        self.counts = {"records/copy": number}

    async def run(self) -> None:
        self.calls.append("run")
        await asyncio.Event().wait()

    def rejoined(self) -> None:
        self.calls.append("rejoined")

    def stop_reading(self) -> None:
        self.calls.append("stop_reading")

    def abandon(self) -> None:
        self.calls.append("abandon")

    async def finish(self) -> None:
        self.calls.append("finish")

    def probes(self, _: Any) -> list[Probe]:
        return [Probe(f"part of {self.number}", True, 0)]

    def unready(self) -> list[str]:
        return ["restoring"] if self.number == 1 else []

    def health(self) -> dict[str, Any]:
        return {"ready": self.number != 1}

    async def status(self) -> dict[str, Any]:
        return {"calls": self.calls}

    def samples(self) -> list[Sample]:
        return [Sample("dtgol_x", self.number, (("stream", "s"),))]


class BareProcess(Process):
    """A process without Kafka, Faust or web."""

    def __init__(self) -> None:
        self.parts: dict[int, Part] = {}
        self.settings: Any = SimpleNamespace(group=lambda role: f"dtgol-{role}")
        self.cluster = Cluster("c", 9, {}, {})
        self.role = Role("worker", "fold", TOPICS, self._make_parts)
        self.accept_gap = False
        self.partitions = {}
        self.in_group = self.closing = False
        self.outbox: Any = SimpleNamespace(waiting=0, delivered=0)
        self.watchdog: Any = SimpleNamespace(stalled=[], topic_faults=[])
        self.web: Any = SimpleNamespace(stop=lambda: asyncio.sleep(0))
        self.events: Any = SimpleNamespace(finish=lambda: asyncio.sleep(0))

    def _make_parts(self, _: Process, number: int) -> list[Part]:
        self.parts[number] = Part(number)
        return [self.parts[number]]


def assignment(*numbers: int) -> set[TP]:
    return {TP(topic, number) for topic in TOPICS for number in numbers}


def play(*steps: Any) -> BareProcess:
    """Assignments one after the other; a step that is a callable is called with the process."""
    process = BareProcess()

    async def work() -> None:
        for step in steps:
            if callable(step):
                await step(process)
            else:
                await process.assigned(step)
            await asyncio.sleep(0)

    asyncio.run(work())
    return process


def test_new_partitions_run_kept_ones_rejoin_and_lost_ones_are_abandoned() -> None:
    process = play(assignment(0, 1), assignment(1, 2))
    assert process.parts[0].calls == ["run", "abandon"]
    assert process.parts[1].calls == ["run", "rejoined"]
    assert process.parts[2].calls == ["run"]
    assert sorted(process.partitions) == [1, 2]


def test_an_orderly_end_stops_every_part_and_takes_a_last_checkpoint() -> None:
    process = play(assignment(0), lambda process: process._close())
    assert process.parts[0].calls == ["run", "stop_reading", "finish"]


def test_an_assignment_that_comes_in_an_orderly_end_is_not_taken_up() -> None:
    process = play(lambda process: process._close(), assignment(0))
    assert process.partitions == {}


def test_why_it_is_not_ready_names_the_partition() -> None:
    assert BareProcess().unready() == ["it has not joined its group yet"]
    process = play(assignment(0, 1))
    assert process.unready() == ["partition 1: restoring"]
    process.watchdog.stalled = ["the cluster does not answer for 60 s"]
    assert process.unready()[0] == "the cluster does not answer for 60 s"


def test_counts_and_samples_carry_their_partition() -> None:
    process = play(assignment(1))
    assert process._counts() == {1: {"records/copy": 1}}
    assert asyncio.run(process.status())["partitions"]["1"] == {"calls": ["run"]}
    (sample,) = [sample for sample in process._samples() if sample.name == "dtgol_x"]
    assert sample.labels == (("partition", "1"), ("stream", "s"))


def test_the_watchdog_sees_the_process_and_every_part() -> None:
    process = play(assignment(0))
    process.outbox.waiting = 3
    probes = {probe.what: probe.has_work for probe in process._probes({})}
    assert probes == {
        "the process has not joined its group": False,
        "records were sent and none is acknowledged": True,
        "part of 0": True,
    }


@pytest.mark.parametrize("begun", [False, True])
def test_a_restore_counts_once_its_thread_has_begun(begun: bool) -> None:
    """A restore that waits for its thread does not stand still."""
    evaluator = Setup().evaluator
    evaluator.restoring = begun
    assert next(iter(evaluator.probes({}))).has_work is begun


@pytest.mark.parametrize(
    ("found", "code", "sentence"),
    [
        ({"p-features": 10, "p-labels": 9}, REFUSED, "p-features has 10 partitions and had 9"),
        ({"p-labels": 9}, REFUSED, "the topic p-features is gone"),
        ({"p-features": 9, "p-labels": 9}, FAILED, "not visible, for now or for good: grant"),
    ],
)
def test_an_assignment_that_differs_ends_the_process_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, found: dict[str, int], code: int, sentence: str
) -> None:
    """A topic that had grown was called a missing right."""

    class EndedError(Exception):
        pass

    def end(*why: object) -> None:
        raise EndedError(*why)

    reader = SimpleNamespace(partition_counts=lambda: found, close=lambda: None)
    monkeypatch.setattr(process_module, "Reader", lambda _: reader)
    monkeypatch.setattr(process_module, "exit_now", end)
    process = BareProcess()
    process.client, process._topics = {}, {"p-features": 9, "p-labels": 9}
    with pytest.raises(EndedError) as ended:
        asyncio.run(process.assigned({TP(TOPICS[0], 0)}))
    assert ended.value.args[0] == code
    assert sentence in ended.value.args[1]
    with pytest.raises(EndedError):
        asyncio.run(process.assigned(assignment(9)))


def test_the_page_has_the_verdict_and_every_partition_once() -> None:
    page = asyncio.run(play(assignment(0, 1)).page(None, None))
    assert page["verdict"]["level"] == "starting"
    assert [each["partition"] for each in page["partitions"]] == [0, 1]
    assert page["counts"] == {"records/copy": 1}
