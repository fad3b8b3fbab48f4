"""What `benchmarks.throughput` measures: processes on topics of their own, fed and read from.

A pair is one record of features and one label, that of features some time ago; each record has a
header that says which it is and when it was due, and the answers carry it back.
"""

import contextlib
import json
import os
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from confluent_kafka import Consumer, TopicPartition

from benchmarks.step import stream
from pipeline.client.producers import SETTINGS
from pipeline.kafka.writer import CheckedProducer
from pipeline.sandbox.brokers import Broker
from pipeline.sandbox.brokers.process import SupervisedProcess, free_ports
from pipeline.sandbox.demo.services import PARTITIONS, Service, topics_on
from topics.codec import write_features, write_label
from topics.features import Features
from topics.labels import Label

COLUMNS = 16
LATE = 200 * PARTITIONS
"""Pairs between features and their label: 200 in each partition, a full window."""
WARM = 2 * LATE
QUIET_S = 30.0
"""Nothing new for so long: what is missing will not come."""
JOIN_S = 60.0
HEADER = "bench"
ROWS, LABELS = stream(COLUMNS, 4096)


CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def keep_first_core() -> None:
    """Broker and sender, which are started from here, leave the other cores to what is measured."""
    if len(CORES) > 1:
        os.sched_setaffinity(0, CORES[:1])


@contextlib.contextmanager
def on_core(number: int) -> Iterator[None]:
    """Processes started meanwhile run on the measured core of that number; any if there is none.

    A child takes over the cores of the thread that starts it.
    """
    before = os.sched_getaffinity(0) if CORES else set()
    if len(CORES) > 1:
        os.sched_setaffinity(0, CORES[number + 1 : number + 2] or CORES)
    try:
        yield
    finally:
        if CORES:
            os.sched_setaffinity(0, before)


@dataclass
class Subject:
    """Topics, the processes at work on them, what went in and which answers came out."""

    broker: Broker
    prefix: str
    home: Path
    answers_per_pair: int
    services: list[Service] = field(default_factory=list)
    pairs: int = 0
    seen: set[bytes] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.sender = CheckedProducer({**SETTINGS, **self.broker.config})
        group = {"group.id": f"{self.prefix}bench", "enable.auto.commit": False, "log_level": 0}
        self.consumer = Consumer({**self.broker.config, **group})
        places = [TopicPartition(f"{self.prefix}predictions", n, 0) for n in range(PARTITIONS)]
        self.consumer.assign(places)

    def start(self, role: str, *command: str) -> Service:
        """A process on a core of its own, if there are enough for all and one more."""
        (port,) = free_ports(1)
        log_path = self.home / f"{self.prefix}{role}-{len(self.services)}.log"
        given = ["env", f"TMPDIR={self.home}", f"DTGOL_WEB_PORT={port}"]
        with on_core(len(self.services)):
            process = SupervisedProcess([*given, *command], log_path)
        service = Service(role, process, port, log_path)
        self.services.append(service)
        return service

    def send(self, due: int = 0) -> None:
        """One pair: new features, and the label of those some time ago (made up for the first)."""
        new, old = self.pairs, max(self.pairs - LATE, 0)
        now_ms = time.time_ns() // 1_000_000
        features = Features("bench", f"i{new}", ROWS[new % len(ROWS)], now_ms)
        label = Label("bench", f"i{old}", LABELS[old % len(ROWS)], now_ms)
        for name, number, value in (
            ("features", new, write_features(features)),
            ("labels", old, write_label(label)),
        ):
            headers = [(HEADER, f"{name}{new} {due}".encode())]
            self.sender.send(self.prefix + name, f"i{number}".encode(), value, headers)
        self.pairs += 1

    def take(self, timeout_s: float, most: int = 1000) -> list[tuple[bytes, int]]:
        """Answers that have come, those that were seen before left out: which, and when due."""
        fresh = []
        for message in self.consumer.consume(most, timeout_s):
            headers = dict(message.headers() or [])
            if message.error() is None and isinstance(mark := headers.get(HEADER), bytes):
                name, due = mark.split()
                if name not in self.seen:
                    self.seen.add(name)
                    fresh.append((name, int(due)))
        return fresh

    def drain(self) -> tuple[float, int]:
        """Until every answer has come: when the last one did, and how many never will."""
        last = time.perf_counter()
        while missing := self.pairs * self.answers_per_pair - len(self.seen):
            if self.take(0.05):
                last = time.perf_counter()
            elif time.perf_counter() > last + QUIET_S:
                return last, missing
            for service in self.services:
                service.check()
        return last, 0

    def warm_up(self) -> None:
        for _ in range(WARM):
            self.send()
        self.sender.flush()
        _, missing = self.drain()
        if missing:
            raise SystemExit(f"{missing} answers of the warm-up are missing: {self.services}")

    def signal(self, number: int) -> None:
        for service in self.services:
            service.process.signal(number)

    def cpu_s(self) -> float:
        """Processor time that the processes have used so far."""
        ticks = 0
        for service in self.services:
            stat = Path(f"/proc/{service.process.pid}/stat").read_text()
            user, system = stat.rpartition(")")[2].split()[11:13]
            ticks += int(user) + int(system)
        return ticks / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def subject(broker: Broker, home: Path, answers_per_pair: int) -> Iterator[Subject]:
    """Fresh topics; processes and topics are gone at the end."""
    prefix = f"bench-{uuid4().hex[:8]}-"
    with topics_on(broker, prefix):
        found = Subject(broker, prefix, home, answers_per_pair)
        try:
            yield found
        finally:
            for service in found.services:
                service.process.stop()
            found.consumer.close()


def await_shares(services: list[Service]) -> None:
    """Until the workers have the partitions in equal parts, all of them ready."""
    until, wanted = time.monotonic() + JOIN_S, PARTITIONS // len(services)
    while time.monotonic() < until:
        found = []
        for service in services:
            service.await_ready(lambda _: None)
            with urllib.request.urlopen(f"{service.url}/status", timeout=10) as answer:
                found.append(len(json.load(answer)["partitions"]))
        if found == [wanted] * len(services):
            return
        time.sleep(0.2)
    raise SystemExit(f"the workers did not share the partitions within {JOIN_S:g} s")
