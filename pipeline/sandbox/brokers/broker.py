"""What every kind of broker gives: one frozen `Broker` that states its limits.

Also the one test of readiness (metadata answers) and the one failure, `NoBrokerError`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

ClientConfig = dict[str, str | int | float | bool]  # what confluent-kafka's clients take
BrokerKind = Literal["given", "docker", "local", "embedded"]

LOG_LINES_SHOWN = 40
ASK_S = 1.0


@dataclass(frozen=True)
class BrokerLimits:
    """What a caller must know before using the broker; the defaults are those of real Kafka."""

    partitions_max: int | None = None
    partition_bytes_max: int | None = None  # older records vanish silently beyond it
    creates_topics: bool = True  # CreateTopics, with settings; otherwise the first record creates
    compacts: bool = True
    topic_ids: bool = True
    transactions: bool = True
    concurrent_joins: bool = True  # otherwise start the members of a group one after the other
    survives_restart: bool = True

    @property
    def snapshot_store(self) -> Literal["topic", "directory"]:
        """Where snapshots belong: a topic that does not compact loses them or grows."""
        return "topic" if self.compacts else "directory"


@dataclass(frozen=True)
class Broker:
    """An answering broker. `client` may hold secrets and stays out of `repr`."""

    bootstrap: str
    kind: BrokerKind
    version: str  # "" where the broker does not say
    limits: BrokerLimits = BrokerLimits()
    log_path: Path | None = None
    client: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def config(self) -> ClientConfig:
        """Settings for any confluent-kafka client: where, how to get in, and no lines on stderr."""
        return {"log_level": 0, **self.client, "bootstrap.servers": self.bootstrap}


def await_metadata(
    config: Mapping[str, str | int | float | bool],
    limit_s: float,
    *,
    nodes: int = 1,
    alive: Callable[[], bool] = lambda: True,
) -> Any | None:
    """Ask until `nodes` brokers are known; None after the limit or once nothing is alive.

    Never raises for a refused connection: that is what waiting is for.
    """
    until = time.monotonic() + limit_s
    admin = AdminClient({**config, "log_level": "0", "reconnect.backoff.max.ms": "200"})
    while time.monotonic() < until and alive():
        try:
            metadata = admin.list_topics(timeout=ASK_S)
        except KafkaException:
            continue
        if len(metadata.brokers) >= nodes:
            return metadata
    return None


def tail(log_path: Path, lines: int = LOG_LINES_SHOWN) -> str:
    """The end of a log, for an error message."""
    if not log_path.exists():
        return "(no log)"
    return "\n".join(log_path.read_text(errors="replace").splitlines()[-lines:])
