"""The server properties of one combined KRaft node, as plain text pairs.

In: node number, everybody's ports, listeners, data directory. Out: a dictionary. The defaults suit
a small machine and a short life; whatever a test wants otherwise it puts on top.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

CONTROLLER = "CONTROLLER"


@dataclass(frozen=True)
class Listener:
    """A listener and its protocol: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.

    `advertised` are ports that clients get in place of the listener's own, one per node: something
    stands in front of it (a proxy that a fault test can cut).
    """

    name: str
    protocol: str
    advertised: Sequence[int] = ()

    @property
    def plain(self) -> bool:
        return self.protocol == "PLAINTEXT"

    def advertised_port(self, node: int, own: int) -> int:
        """The port that clients of a node get; the node's own unless another is advertised."""
        return self.advertised[node - 1] if self.advertised else own


PLAINTEXT = Listener("PLAINTEXT", "PLAINTEXT")


@dataclass(frozen=True)
class NodePorts:
    """The ports of one node: its controller's, and one per listener name."""

    controller: int
    of: Mapping[str, int]


def new_cluster_id() -> str:
    """A random id in Kafka's spelling; never a dash first, which would look like an option."""
    while True:
        spelt = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not spelt.startswith("-"):
            return spelt


def server_properties(
    node: int,
    ports: Mapping[int, NodePorts],
    listeners: Sequence[Listener],
    data: Path,
    host: str = "127.0.0.1",
) -> dict[str, str]:
    """Combined controller and broker; internal topics are replicated as far as nodes allow."""
    own = ports[node]
    bound = ",".join(f"{each.name}://{host}:{own.of[each.name]}" for each in listeners)
    advertised = ",".join(
        f"{each.name}://{host}:{each.advertised_port(node, own.of[each.name])}"
        for each in listeners
    )
    copies = str(min(3, len(ports)))
    in_sync = str(min(2, len(ports)))
    protocols = [*listeners, Listener(CONTROLLER, "PLAINTEXT")]
    return {
        "process.roles": "broker,controller",
        "node.id": str(node),
        "controller.quorum.voters": ",".join(
            f"{number}@{host}:{each.controller}" for number, each in ports.items()
        ),
        "controller.listener.names": CONTROLLER,
        "listeners": f"{bound},{CONTROLLER}://{host}:{own.controller}",
        "advertised.listeners": advertised,
        "listener.security.protocol.map": ",".join(
            f"{each.name}:{each.protocol}" for each in protocols
        ),
        "inter.broker.listener.name": listeners[0].name,
        "log.dirs": str(data),
        "default.replication.factor": copies,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": in_sync,
        # Fifty partitions each, created on first use, would cost seconds and file handles.
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.num.partitions": "1",
        # A group of one member starts at once; 3 s otherwise.
        "group.initial.rebalance.delay.ms": "0",
        # The default creates a mistyped topic with the wrong number of partitions, silently.
        "auto.create.topics.enable": "false",
    }
