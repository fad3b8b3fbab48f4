"""Load: a backlog before the start, reports that stop, a broker that stops, a slow reader.

One run for all tests here, since folding is what takes the time: a backlog lies on the topics when
the worker starts; its outbox gets no acknowledgement for a while; it catches up; then records come
live while a consumer reads predictions slowly and the broker is stopped for some seconds. Each test
looks at one thing. Figures are printed and never asserted.
"""

from __future__ import annotations

import random
import signal
import threading
import time
import uuid
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pytest
from confluent_kafka import Consumer

from pipeline.faust_ext.app import BUFFER_TURNS, POLL_RECORDS
from pipeline.kafka.reader import Reader
from pipeline.kafka.writer import WAITING_MAX
from pipeline.learning.fold import Fold
from pipeline.runtime.partition import Partition
from pipeline.sandbox.brokers.local import LocalCluster
from pipeline.settings import WorkerSettings
from tests.faults.checks import Found, Observed, Refolded, check_worker, refold
from tests.faults.conftest import FIGURES
from tests.faults.history import History
from tests.support.stage import Process, Stage
from tests.support.waiting import wait_until

PARTITIONS = 2
LATE = 40
"""A label comes so many records behind its features; one of 25 never."""
START_MS = int(time.time() * 1000) - 3_600_000
"""The backlog's own time: an hour old, so that retention leaves it alone."""
LIMIT_S = 3_000
IN_FLIGHT = 1_500
CONFIG = """
[learner.delay]
expire_steps = 300
settled_max = 300
[learner.copula]
window = 200
"""
HANDED_OUT = (BUFFER_TURNS + 2) * POLL_RECORDS
"""What Faust has already fetched comes even when the topic is paused."""


@dataclass(frozen=True)
class Size:
    """How many pairs of features and label lie there before, and how many there are in all."""

    backlog: int
    pairs: int


@dataclass
class Seen:
    """The largest of each figure that `/status` ever showed, and the reasons of `/readyz`."""

    waiting: int = 0
    merging: int = 0
    outbox: int = 0
    rss_mb: int = 0
    red: list[str] = field(default_factory=list)

    def look(self, worker: Process) -> dict[str, Any]:
        status = worker.status()
        for about in status["partitions"].values():
            self.waiting = max(self.waiting, about["waiting"])
            self.merging = max(self.merging, about["held_for_merge"])
        self.outbox = max(self.outbox, status["outbox"]["waiting"])
        self.rss_mb = max(self.rss_mb, _rss_mb(worker.child.pid))
        self.red += status["unready"]
        return status


@dataclass
class Run:
    """What was seen and what was found."""

    stage: Stage
    size: Size
    blocked: Seen
    catching_up: Seen
    live: Seen
    read_slowly: int
    rates: dict[str, float]
    found: Found
    folded: dict[int, Refolded]
    early: Fold


def _rss_mb(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) // 1024
    return 0


def _answered(status: dict[str, Any]) -> int:
    counts = [about.get("counts", {}) for about in status["partitions"].values()]
    return sum(each.get("features/answered", 0) for each in counts)


class Sender:
    """Pairs in the order of time, each partition a stream of its own."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._chance = random.Random(7)
        self.sent = 0

    def features(self, timestamp_ms: int) -> None:
        number, chance = self.sent, self._chance
        a, b = chance.gauss(0, 1), chance.gauss(0, 1)
        x = {"a": a, "b": b, "n": number % 5, "c": "XYZ"[number % 3]}
        del x[chance.choice(list(x))]
        partition = number % PARTITIONS
        value = orjson.dumps({"id": str(number), "stream": f"s{partition}", "x": x})
        self._stage.send("features", value, b"key", (), partition, timestamp_ms)
        self.sent += 1

    def label(self, number: int, timestamp_ms: int) -> None:
        if number < 0 or number % 25 == 0:
            return
        partition = number % PARTITIONS
        value = orjson.dumps({"id": str(number), "stream": f"s{partition}", "y": number // 3 % 2})
        self._stage.send("labels", value, b"key", (), partition, timestamp_ms)

    def backlog(self, pairs: int) -> None:
        """As if sent over a long time: a label between the features around it."""
        for number in range(pairs):
            self.features(START_MS + 2 * number)
            self.label(number - LATE, START_MS + 2 * number + 1)
        self._stage.flush()

    def live(self, worker: Process, seen: Seen, pairs: int, halfway: Any) -> None:
        """The rest, never far ahead of the answers."""
        middle = (self.sent + pairs) // 2
        while self.sent < pairs:
            for _ in range(min(500, pairs - self.sent)):
                self.label(self.sent - LATE, 0)
                self.features(0)
            self._stage.flush()
            if halfway is not None and self.sent >= middle:
                halfway()
                halfway = None
            ahead = self.sent - IN_FLIGHT
            wait_until(
                lambda ahead=ahead: _answered(seen.look(worker)) >= ahead,  # type: ignore[misc]
                f"{ahead} answers",
                LIMIT_S,
                worker.alive,
            )
        for number in range(pairs - LATE, pairs):
            self.label(number, 0)
        self._stage.flush()


class SlowReader:
    """A consumer of predictions that takes one record at a time, in no hurry."""

    def __init__(self, stage: Stage) -> None:
        self.read = 0
        self._over = threading.Event()
        self._consumer = Consumer(
            {
                **stage.broker.config,
                "group.id": f"{stage.prefix}slow",
                "auto.offset.reset": "earliest",
            }
        )
        self._consumer.subscribe([stage.topic("predictions")])
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(0.1):
            message = self._consumer.poll(1.0)
            self.read += message is not None and message.error() is None

    def close(self) -> None:
        self._over.set()
        self._thread.join(30)
        self._consumer.close()


@pytest.fixture(scope="module")
def size(request: pytest.FixtureRequest) -> Size:
    if request.config.getoption("--long"):
        return Size(backlog=51_200, pairs=184_000)  # 100,000 records, 360,000 in all
    return Size(backlog=12_000, pairs=18_400)  # 23,500 records, 36,000 in all


@pytest.fixture(scope="module")
def run(cluster: LocalCluster, size: Size, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The whole run, checked."""
    settings = {"snapshots.every_records": 3_000, "worker.merge_wait_ms": 60_000}
    folder = tmp_path_factory.mktemp("load")
    prefix = f"load-{uuid.uuid4().hex[:8]}-"
    stage = Stage(cluster.broker, prefix, folder, PARTITIONS, CONFIG, settings=settings)
    sender, rates = Sender(stage), {}
    sender.backlog(size.backlog)
    blocked, catching_up, live = Seen(), Seen(), Seen()
    entry = ["tests.support.pause_points", "report", "1", str(folder)]
    with stage.worker(entry=entry) as worker:
        worker.await_ready(PARTITIONS)
        wait_until(
            lambda: blocked.look(worker)["outbox"]["waiting"] >= WAITING_MAX,
            "an outbox that is full",
            LIMIT_S,
            worker.alive,
        )
        began = time.monotonic()
        already = _answered(worker.status())
        (folder / "release").touch()
        wait_until(
            lambda: _answered(catching_up.look(worker)) == size.backlog,
            "the backlog to be answered",
            LIMIT_S,
            worker.alive,
        )
        rates["catching up"] = (size.backlog - already) / (time.monotonic() - began)
        reader = SlowReader(stage)

        def stop_the_broker() -> None:
            """Until records were sent to it and are not acknowledged, for a while."""
            cluster.signal(1, signal.SIGSTOP)
            looks = iter(range(60))
            wait_until(
                lambda: live.look(worker)["outbox"]["waiting"] and next(looks) == 59,
                "records that wait for the broker",
                60,
                worker.alive,
            )
            cluster.signal(1, signal.SIGCONT)

        began = time.monotonic()
        sender.live(worker, live, size.pairs, stop_the_broker)
        with closing(Reader(stage.broker.config)) as ends:
            wait_until(
                lambda: _settled(stage, ends, live.look(worker)), "quiet", LIMIT_S, worker.alive
            )
        rates["live"] = (size.pairs - size.backlog) / (time.monotonic() - began)
        read_slowly = reader.read
        reader.close()
        worker.child.terminate()
        assert worker.child.wait(60) == 0
    observed = Observed.of(stage, History())
    found, folded = check_worker(observed)
    journal = observed.read("journal")[0]
    early = refold(observed.ref(0), journal[: len(journal) // 3], set()).fold
    return Run(stage, size, blocked, catching_up, live, read_slowly, rates, found, folded, early)


def _settled(stage: Stage, reader: Reader, status: dict[str, Any]) -> bool:
    """Whether all is folded, and a snapshot has it."""
    for number, about in status["partitions"].items():
        end = reader.watermarks(stage.topic("journal"), int(number)).high
        for name in ("features", "labels"):
            last = reader.watermarks(stage.topic(name), int(number)).high - 1
            if about["marks"].get(stage.topic(name)) != last:
                return False
        if about["snapshot_offset"] != end:
            return False
    return True


def _state_bytes(fold: Fold) -> int:
    arrays = [each.arrays.values() for each in fold.snapshot().changed.values()]
    return sum(array.nbytes for each in arrays for array in each)


def test_everything_is_answered_once_and_the_state_is_that_of_the_journal(run: Run) -> None:
    found = run.found
    assert (found.lost, found.differing, found.twice) == (0, 0, 0), found.remarks[:5]
    assert found.equal, found.remarks[:5]
    assert found.snapshots > 0
    assert found.inputs == run.stage.sent
    answered = sum(each.fold.counts["features/answered"] for each in run.folded.values())
    assert answered == run.size.pairs


def test_the_state_does_not_grow_once_its_windows_are_full(run: Run) -> None:
    early, late = run.early, run.folded[0].fold
    assert late.next_offset > 2.9 * early.next_offset
    assert _state_bytes(late) <= 2 * _state_bytes(early)


def test_queues_are_bounded_while_nothing_is_acknowledged(run: Run) -> None:
    assert run.blocked.outbox >= WAITING_MAX
    assert run.blocked.outbox <= WAITING_MAX + 2_000
    assert run.blocked.waiting <= Partition.queue_max + HANDED_OUT
    assert run.blocked.merging <= 2 * (WorkerSettings().merge_buffer_records + HANDED_OUT)


def test_queues_are_bounded_while_a_backlog_is_caught_up(run: Run) -> None:
    assert run.catching_up.waiting <= Partition.queue_max + HANDED_OUT
    assert run.catching_up.merging <= 2 * (WorkerSettings().merge_buffer_records + HANDED_OUT)
    assert run.catching_up.outbox <= WAITING_MAX + 2_000


def test_a_backlog_is_merged_in_the_order_of_its_timestamps(run: Run) -> None:
    """So a label stands as far behind its features in the journal as it was sent behind them."""
    backlog = START_MS + 2 * run.size.backlog
    for number in range(PARTITIONS):
        times = []
        for record in Observed.of(run.stage, History()).read("journal")[number]:
            headers: Any = dict(record.headers)
            if headers["dtgol-kind"] == b"copy":
                times.append(int(headers["dtgol-timestamp-ms"]))
        old = [each for each in times if each <= backlog]
        assert old == sorted(old)
        assert times[: len(old)] == old


def test_a_worker_that_catches_up_is_ready_all_the_time(run: Run) -> None:
    assert run.catching_up.red == []


def test_a_slow_reader_of_predictions_holds_nobody_up(run: Run) -> None:
    assert run.live.red == []
    assert 0 < run.read_slowly < run.size.pairs


def test_the_figures(run: Run, request: pytest.FixtureRequest) -> None:
    """What was measured, for people."""
    counts = run.folded[0].fold.counts + run.folded[1].fold.counts
    lines = [
        f"{run.found.inputs} records in, {run.size.backlog} pairs as backlog, "
        f"{run.found.duplicates} predictions twice",
        "pairs/s: " + ", ".join(f"{name} {rate:.0f}" for name, rate in run.rates.items()),
        f"state of a partition, bytes: {_state_bytes(run.early)} after a third, "
        f"{_state_bytes(run.folded[0].fold)} at the end",
        f"worker RSS, MB: {run.blocked.rss_mb} with a full outbox, "
        f"{run.catching_up.rss_mb} catching up, {run.live.rss_mb} live",
        f"most records waiting: learner {run.catching_up.waiting}, "
        f"merge {run.catching_up.merging}, outbox {run.blocked.outbox}",
        f"labels that came before their features: {counts['labels/early']}; "
        f"read slowly: {run.read_slowly} predictions",
    ]
    request.config.stash.setdefault(FIGURES, []).extend(lines)
