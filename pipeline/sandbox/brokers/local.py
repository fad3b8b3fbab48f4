"""The `local` kind: real Apache Kafka (KRaft) as child processes, for a demo, a test or a fault.

`LocalCluster` starts one node or several (each controller and broker), on ports that the system
gave, with a data directory of its own that is removed at the end. Nodes can be stopped, killed,
paused, and started again with other server properties on the same port and data. Every node ends
with its owner, whatever happens to the owner. Loopback only; it is no way to run production.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from pipeline.errors import NoBrokerError
from pipeline.sandbox.brokers.broker import Broker, await_metadata, tail
from pipeline.sandbox.brokers.jars import LOGGING, find_java, kafka_jars, kafka_version
from pipeline.sandbox.brokers.process import SupervisedProcess, free_ports
from pipeline.sandbox.brokers.server_properties import (
    PLAINTEXT,
    Listener,
    NodePorts,
    new_cluster_id,
    server_properties,
)

READY_S = 120  # 4 s for one node on a quiet machine; three on two busy cores took 40.
FORMAT_S = 60
START_TRIES = 3  # A free port can be taken between asking for it and binding it.

# Kafka's own flags (bin/kafka-run-class.sh); the heap is the configuration's.
SERVER_FLAGS = (
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
TOOL_FLAGS = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


@dataclass(frozen=True)
class ClusterConfig:
    """How many nodes, and how they differ from plain ones.

    `format_args` go to Kafka's storage tool (`--add-scram …`). `heap_mb` is what each node's Java
    may take; half of it at once.
    """

    nodes: int = 1
    heap_mb: int = 512
    properties: Mapping[str, str] | None = None
    listeners: Sequence[Listener] = (PLAINTEXT,)
    format_args: Sequence[str] = ()


class LocalCluster:
    """A cluster of child processes, a context manager; nodes are numbered from 1."""

    def __init__(self, config: ClusterConfig | None = None) -> None:
        self.config = config or ClusterConfig()
        self.version = kafka_version()
        self._java = find_java()
        self._jars = kafka_jars()
        self._running: dict[int, SupervisedProcess] = {}
        self.home = Path(tempfile.gettempdir()) / f"dtgol-kafka-{uuid.uuid4().hex[:12]}"

    def __enter__(self) -> Self:
        for tries_left in reversed(range(START_TRIES)):
            try:
                self._create()
                return self
            except NoBrokerError as failure:
                self.close()
                if tries_left == 0 or "Address already in use" not in str(failure):
                    raise
            except BaseException:
                self.close()
                raise
        raise AssertionError("unreachable")

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End every node and remove the data; safe to call again."""
        self._end_nodes()
        shutil.rmtree(self.home, ignore_errors=True)

    def bootstrap(self, listener: str = PLAINTEXT.name) -> str:
        """The advertised addresses of one listener on every node, running or not."""
        (found,) = (each for each in self.config.listeners if each.name == listener)
        ports = {
            node: found.advertised_port(node, self.port(node, listener)) for node in self._ports
        }
        return ",".join(f"127.0.0.1:{port}" for port in ports.values())

    def port(self, node: int, listener: str = PLAINTEXT.name) -> int:
        """The port that a node itself listens on; behind what it advertises, if that is another."""
        return self._ports[node].of[listener]

    def log_path(self, node: int = 1) -> Path:
        """The node's own log; a restart appends."""
        return self.home / f"node-{node}.log"

    @property
    def broker(self) -> Broker:
        """The cluster as one broker (its first listener)."""
        address = self.bootstrap(self.config.listeners[0].name)
        return Broker(address, "local", self.version, log_path=self.log_path())

    def start(self, node: int, properties: Mapping[str, str] | None = None) -> None:
        """Start one node again, with other properties on top if any, and wait for it."""
        self._launch(node, properties)
        self._await([node])

    def stop(self, node: int) -> None:
        """End one node in good order."""
        self._running.pop(node).stop()

    def kill(self, node: int) -> None:
        """End one node as a power cut would."""
        self._running.pop(node).kill()

    def signal(self, node: int, number: int) -> None:
        """Send one signal to the node's process (SIGSTOP, SIGCONT)."""
        self._running[node].signal(number)

    def _create(self) -> None:
        self.home.mkdir(mode=0o700)
        numbers = range(1, self.config.nodes + 1)
        names = [each.name for each in self.config.listeners]
        free = iter(free_ports(self.config.nodes * (1 + len(names))))
        self._ports = {
            number: NodePorts(next(free), {name: next(free) for name in names})
            for number in numbers
        }
        cluster_id = new_cluster_id()
        for number in numbers:
            self._write_properties(number, None)
            self._format(number, cluster_id)
        for number in numbers:
            self._launch(number, None)
        self._await(list(numbers))

    def _write_properties(self, node: int, overrides: Mapping[str, str] | None) -> Path:
        path = self.home / f"node-{node}.properties"
        chosen = server_properties(
            node, self._ports, self.config.listeners, self.home / f"data-{node}"
        )
        chosen |= dict(self.config.properties or {}) | dict(overrides or {})
        path.write_text("".join(f"{name}={value}\n" for name, value in chosen.items()))
        return path

    def _java_command(self, flags: Sequence[str], main: str) -> list[str]:
        logging = f"-Dlog4j2.configurationFile={LOGGING}"
        return [self._java, *flags, logging, "-cp", f"{self._jars}{os.sep}*", main]

    def _format(self, node: int, cluster_id: str) -> None:
        command = self._java_command(TOOL_FLAGS, "kafka.tools.StorageTool")
        command += ["format", "-t", cluster_id, "-c", str(self.home / f"node-{node}.properties")]
        command += self.config.format_args
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=FORMAT_S, check=False
        )
        if done.returncode != 0:
            output = (done.stdout + done.stderr)[-1500:]
            raise NoBrokerError(f"Kafka could not format its storage:\n{output}")

    def _launch(self, node: int, overrides: Mapping[str, str] | None) -> None:
        assert node not in self._running, f"node {node} is running"
        properties = self._write_properties(node, overrides)
        heap_mb = self.config.heap_mb
        flags = [f"-Xms{heap_mb // 2}m", f"-Xmx{heap_mb}m", *SERVER_FLAGS]
        command = [*self._java_command(flags, "kafka.Kafka"), str(properties)]
        self._running[node] = SupervisedProcess(command, self.log_path(node), remove=[self.home])

    def _await(self, nodes: Sequence[int]) -> None:
        """Every one of `nodes` answers by itself, and all running nodes are known."""
        probe = next((each for each in self.config.listeners if each.plain), None)
        if probe is None:
            raise AssertionError("keep one PLAINTEXT listener: readiness is asked there")
        for node in nodes:
            address = f"127.0.0.1:{self._ports[node].of[probe.name]}"
            process = self._running[node]
            known = await_metadata(
                {"bootstrap.servers": address},
                READY_S,
                nodes=len(self._running),
                alive=lambda process=process: process.running,  # type: ignore[misc]
            )
            if known is None:
                how = "gave no answer" if process.running else "ended"
                log = tail(self.log_path(node))
                raise NoBrokerError(f"the local Kafka {how} while starting; its log:\n{log}")

    def _end_nodes(self) -> None:
        while self._running:
            self._running.popitem()[1].kill()


@contextlib.contextmanager
def open_local(config: ClusterConfig | None = None) -> Iterator[Broker]:
    """The `local` kind of broker."""
    with LocalCluster(config) as cluster:
        yield cluster.broker
