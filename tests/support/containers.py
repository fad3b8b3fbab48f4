"""The `docker` kind of the tests: the same image and environment, started by Testcontainers.

`DockerContainer` and not the vendor's Kafka class, so that any image will do. Ryuk is another image
to pull and is left out; a supervisor removes the container should the test run be killed.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer

from pipeline.sandbox.brokers import Broker, NoBrokerError
from pipeline.sandbox.brokers.broker import await_metadata
from pipeline.sandbox.brokers.container import (
    MEMORY,
    READY_S,
    container_environment,
    kafka_image,
    require_engine,
)
from pipeline.sandbox.brokers.process import SupervisedProcess, free_ports


@contextlib.contextmanager
def open_testcontainer() -> Iterator[Broker]:
    """One broker in one container on a published loopback port."""
    require_engine()
    testcontainers_config.ryuk_disabled = True
    (port,) = free_ports(1)
    environment = container_environment(port)
    container = DockerContainer(kafka_image(), env=environment, mem_limit=MEMORY)
    # Docker takes an address with the port; `with_bind_ports` would publish to the whole network.
    container.ports[f"{port}/tcp"] = cast(Any, ("127.0.0.1", port))
    with TemporaryDirectory(prefix="dtgol-kafka-") as home, container:
        remove = ["docker", "rm", "-f", "-v", container.get_container_id()]
        follow = ["docker", "logs", "--follow", remove[-1]]
        log_path = Path(home) / "container.log"
        with SupervisedProcess(follow, log_path, last=remove, remove=[Path(home)]) as supervisor:
            broker = Broker(f"127.0.0.1:{port}", "docker", kafka_image(), log_path=log_path)
            if await_metadata(broker.config, READY_S, alive=lambda: supervisor.running) is None:
                raise NoBrokerError(
                    f"the container gave no answer:\n{log_path.read_text()[-3000:]}"
                )
            yield broker
