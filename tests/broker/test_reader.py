"""Reading outside Faust, on a real broker: what the embedded one does differently."""

from __future__ import annotations

import threading
import time

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, not re-exported
    AdminClient,
    NewTopic,
)

from pipeline.kafka.reader import read_range
from pipeline.kafka.writer import CheckedProducer
from pipeline.sandbox.brokers import Broker

LIMIT_S = 20.0


def test_a_read_to_the_end_ends_although_records_keep_coming(
    real_broker: Broker, prefix: str
) -> None:
    """Regression: a learner with a gap to fill read for ever, and its partition stood still.

    Seen in the fault suite, with a woken worker.
    """
    topic = f"{prefix}busy"
    admin = AdminClient(real_broker.config)
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    producer, enough = CheckedProducer(real_broker.config), threading.Event()

    def send_on() -> None:
        while not enough.wait(0.02):
            producer.send(topic, b"k", b"v", partition=0)
            producer.flush()

    for _ in range(20):
        producer.send(topic, b"k", b"v", partition=0)
    producer.flush()
    sender = threading.Thread(target=send_on)
    sender.start()
    try:
        until = time.monotonic() + LIMIT_S
        found = list(
            read_range(real_broker.config, topic, 0, 5, None, lambda: time.monotonic() > until)
        )
    finally:
        enough.set()
        sender.join()
    assert found[0].offset == 5
    assert found[-1].offset >= 19
