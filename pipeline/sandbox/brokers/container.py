"""The `docker` kind: Apache Kafka in a container, through the `docker` command.

It counts only if an engine answers and the image is there or pulls within a minute. The image is
`DTGOL_KAFKA_IMAGE`, by default Apache's own; `deploy/kafka/image` makes one from the local broker's
jars that understands the same environment. The container is published on one loopback port and is
removed with its owner. The tests start the same thing through Testcontainers.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

from pipeline.errors import NoBrokerError
from pipeline.sandbox.brokers.broker import Broker, await_metadata, tail
from pipeline.sandbox.brokers.jars import kafka_version
from pipeline.sandbox.brokers.process import SupervisedProcess, free_ports
from pipeline.sandbox.brokers.server_properties import (
    PLAINTEXT,
    NodePorts,
    new_cluster_id,
    server_properties,
)

IMAGE = "DTGOL_KAFKA_IMAGE"
ENGINE_S = 10
PULL_S = 60
READY_S = 120
MEMORY = "1g"  # 512 MB of heap, and what a JVM needs beside it.
CONTROLLER_PORT = 9093  # Inside the container, not published.


def kafka_image() -> str:
    """The image's name: chosen by the environment, or Apache's own in the pinned version."""
    return os.environ.get(IMAGE) or f"apache/kafka:{kafka_version()}"


def container_environment(port: int) -> dict[str, str]:
    """The node's properties as the images read them, for a broker reached on `port`."""
    ports = {1: NodePorts(CONTROLLER_PORT, {PLAINTEXT.name: port})}
    properties = server_properties(1, ports, [PLAINTEXT], Path("/tmp/kafka-data"))
    properties["listeners"] = f"{PLAINTEXT.name}://:{port},CONTROLLER://:{CONTROLLER_PORT}"
    environment = {
        # The images' rule: KAFKA_, upper case, a dot becomes one underscore.
        "KAFKA_" + name.upper().replace(".", "_"): value
        for name, value in properties.items()
    }
    heap = {"KAFKA_HEAP_OPTS": "-Xms256m -Xmx512m"}
    return {**environment, **heap, "CLUSTER_ID": new_cluster_id()}


def require_engine() -> str:
    """The engine's version, and the image at hand; or the reason why not."""
    if shutil.which("docker") is None:
        raise NoBrokerError("there is no docker command")
    version = _docker(["version", "--format", "{{.Server.Version}}"], ENGINE_S)
    if version is None:
        raise NoBrokerError("no Docker engine answers")
    image = kafka_image()
    if _docker(["image", "inspect", image], ENGINE_S) is None and (
        _docker(["pull", image], PULL_S) is None
    ):
        raise NoBrokerError(
            f"the image {image} is not there and could not be pulled within {PULL_S} s"
        )
    return version


@contextlib.contextmanager
def open_container() -> Iterator[Broker]:
    """One broker in one container; removed at the end, also when this process is killed."""
    require_engine()
    image = kafka_image()
    (port,) = free_ports(1)
    name = f"dtgol-kafka-{uuid.uuid4().hex[:12]}"
    remove = ["docker", "rm", "-f", "-v", name]
    command = ["docker", "run", "--rm", "--name", name, "--memory", MEMORY]
    command += ["--publish", f"127.0.0.1:{port}:{port}"]
    for key, value in container_environment(port).items():
        command += ["--env", f"{key}={value}"]
    with tempfile.TemporaryDirectory(prefix="dtgol-kafka-", ignore_cleanup_errors=True) as home:
        log_path = Path(home) / "container.log"
        supervisor = SupervisedProcess(
            [*command, image], log_path, last=remove, remove=[Path(home)]
        )
        try:
            broker = Broker(f"127.0.0.1:{port}", "docker", image, log_path=log_path)
            if await_metadata(broker.config, READY_S, alive=lambda: supervisor.running) is None:
                raise NoBrokerError(f"the container gave no answer; its log:\n{tail(log_path)}")
            yield broker
        finally:
            # The client's death does not end the container; this does, and waits for it.
            _docker(remove[1:], PULL_S)
            supervisor.kill()


def _docker(arguments: Sequence[str], limit_s: float) -> str | None:
    """What docker wrote to stdout; None when it failed or took too long."""
    try:
        done = subprocess.run(
            ["docker", *arguments], capture_output=True, text=True, timeout=limit_s, check=False
        )
    except subprocess.TimeoutExpired:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
