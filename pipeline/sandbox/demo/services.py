"""What the demo runs on: topics under a random prefix, worker and evaluator processes.

All of it is gone at the end, however the demo ends: processes are supervised and end with this one,
topics on a broker that outlives us are deleted, files live in one temporary folder.
"""

import contextlib
import os
import socket
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from pipeline.errors import DemoError
from pipeline.kafka.clients import MonitoredAdmin
from pipeline.kafka.topic_admin import apply
from pipeline.sandbox.brokers import Broker
from pipeline.sandbox.brokers.broker import tail
from pipeline.sandbox.brokers.process import SupervisedProcess, free_ports
from topics.catalog import CATALOG, desired_topics

PARTITIONS = 4
READY_S = 90.0
"""A worker is ready in some 5 s; two busy cores and a cold disk need more."""
LOOK_EVERY_S = 0.2
ANSWER_S = 10.0
LOG_LINES = 15
_KEPT = ("DTGOL_CACHE_DIR",)

Say = Callable[[str], None]


@dataclass(frozen=True)
class Service:
    """A running process of ours and where it can be looked at."""

    role: str
    process: SupervisedProcess
    port: int
    log_path: Path

    @property
    def url(self) -> str:
        """Its web address."""
        return f"http://127.0.0.1:{self.port}"

    def check(self) -> None:
        """Raise if it has ended."""
        if not self.process.running:
            end = tail(self.log_path, LOG_LINES)
            raise DemoError(f"the {self.role} has ended; the end of its log:\n{end}")

    def await_ready(self, still: Say) -> None:
        """Wait for /readyz; ``still`` is called meanwhile with what it is waiting for."""
        until = time.monotonic() + READY_S
        while time.monotonic() < until:
            self.check()
            why = self._unready()
            if why is None:
                return
            still(why)
            time.sleep(LOOK_EVERY_S)
        end = tail(self.log_path, LOG_LINES)
        raise DemoError(f"the {self.role} is not ready after {READY_S:g} s:\n{end}")

    def _unready(self) -> str | None:
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=ANSWER_S):
                return None
        except urllib.error.HTTPError as answer:
            return answer.read().decode(errors="replace").partition("\n")[0]
        except OSError:
            return "starting"


def new_prefix() -> str:
    """A prefix that nobody else has."""
    return f"demo-{uuid4().hex[:8]}-"


@contextlib.contextmanager
def topics_on(broker: Broker, prefix: str) -> Iterator[None]:
    """The topics, made by whatever means the broker has; deleted if the broker outlives us."""
    names = [prefix + topic.name for topic in CATALOG]
    if not broker.limits.creates_topics:
        producer = Producer(broker.config)
        for name in names:  # The embedded cluster creates a topic for a producer that asks for it.
            producer.list_topics(name, timeout=ANSWER_S)
        yield
        return
    apply(MonitoredAdmin(broker.config), desired_topics(prefix, PARTITIONS, 1))
    try:
        yield
    finally:
        if broker.kind == "given":
            _remove(broker, names, [f"{prefix}dtgol-worker", f"{prefix}dtgol-evaluator"])


def _remove(broker: Broker, topics: Sequence[str], groups: Sequence[str]) -> None:
    admin = AdminClient(broker.config)
    gone = admin.delete_topics(list(topics)) | admin.delete_consumer_groups(list(groups))
    for done in gone.values():
        with contextlib.suppress(KafkaException):  # A group that was never used is not there.
            done.result(ANSWER_S)


def hold_port() -> socket.socket:
    """A socket that keeps a free loopback port until it is closed."""
    held = socket.socket()
    held.bind(("127.0.0.1", 0))
    return held


@contextlib.contextmanager
def services_on(
    broker: Broker,
    prefix: str,
    home: Path,
    page: socket.socket,
    started: Callable[[Service], None],
) -> Iterator[list[Service]]:
    """Worker, then evaluator, each ready before the next: the embedded broker dislikes crowds.

    `page` holds the port of the evaluator, whose address is shown long before it listens there.
    """
    with contextlib.ExitStack() as held:
        running = []
        ports = *free_ports(1), int(page.getsockname()[1])
        for role, port in zip(("worker", "evaluator"), ports, strict=True):
            if role == "evaluator":
                page.close()
            log_path = home / f"{role}.log"
            process = SupervisedProcess(
                _command(role, broker, prefix, home, port), log_path, remove=[home]
            )
            held.callback(process.stop)
            running.append(Service(role, process, port, log_path))
            started(running[-1])
        yield running


def _command(role: str, broker: Broker, prefix: str, home: Path, port: int) -> list[str]:
    """The process as an operator would start it, in an environment free of other settings."""
    given = broker.kind == "given"
    foreign = [
        name
        for name in os.environ
        if name.startswith(("DTGOL_", "KAFKA_")) and name not in _KEPT and not given
    ]
    settings = {
        "kafka.bootstrap_servers": broker.bootstrap,
        "kafka.prefix": prefix,
        "snapshots.store": broker.limits.snapshot_store,
        "snapshots.directory": str(home / f"{role}-snapshots"),
        "snapshots.every_ms": "10000",
        "web.port": str(port),
        "worker.why": "5",
    }
    command = ["env", *(part for name in foreign for part in ("-u", name)), f"TMPDIR={home}"]
    command += [sys.executable, "-m", "pipeline", role]
    for name, value in settings.items():
        command += ["--set", f"{name}={value}"]
    return command
