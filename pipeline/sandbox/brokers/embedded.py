"""The `embedded` kind: librdkafka's in-memory cluster inside this process. pip alone.

It listens on a loopback port, so other processes reach it; it ends with this process or with the
`with` block, and nothing in it survives. It is a stand-in, never proof: `EMBEDDED_LIMITS` says
what it cannot do (measured; docs/decisions/0010-kafka-version.md).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import confluent_kafka
from confluent_kafka import KafkaException, Producer

from pipeline.errors import NoBrokerError
from pipeline.sandbox.brokers.broker import Broker, BrokerLimits

EMBEDDED_LIMITS = BrokerLimits(
    partitions_max=4,
    partition_bytes_max=5_000_000,
    creates_topics=False,
    compacts=False,
    topic_ids=False,
    transactions=False,
    concurrent_joins=False,
    survives_restart=False,
)
ANSWER_S = 10


@contextlib.contextmanager
def open_embedded() -> Iterator[Broker]:
    """An empty in-memory cluster with one broker; a topic appears with its first record."""
    host = Producer({"bootstrap.servers": "none", "test.mock.num.brokers": 1, "log_level": 2})
    try:
        (node,) = host.list_topics(timeout=ANSWER_S).brokers.values()
    except KafkaException as failure:
        raise NoBrokerError(f"the embedded cluster does not answer: {failure}") from None
    try:
        version = f"librdkafka {confluent_kafka.libversion()[0]} mock"
        yield Broker(f"{node.host}:{node.port}", "embedded", version, EMBEDDED_LIMITS)
    finally:
        del host  # The last reference: the cluster's thread and socket go with it.
