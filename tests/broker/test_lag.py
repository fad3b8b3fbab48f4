"""The lag of a group counts records, not offsets, where it is short."""

from __future__ import annotations

from confluent_kafka import Consumer, Producer, TopicPartition

from pipeline.ops.lag import COUNT_MAX, group_lag
from pipeline.sandbox.brokers import Broker
from tests.broker.conftest import MakeTopics
from tests.broker.test_faust_contract import init_transactions


def send(producer: Producer, topic: str, count: int, commit: bool) -> None:
    """One transaction; its end takes up an offset too."""
    producer.begin_transaction()
    for number in range(count):
        producer.produce(topic, b"%d" % number)
    assert producer.flush(30) == 0  # an abort would take back what is not in the log yet
    (producer.commit_transaction if commit else producer.abort_transaction)(30)


def test_aborted_records_and_markers_are_no_lag(
    real_broker: Broker, prefix: str, make_topics: MakeTopics
) -> None:
    (topic,) = make_topics({"labels": 1})
    group = f"{prefix}group"
    producer = Producer({**real_broker.config, "transactional.id": group})
    init_transactions(producer)
    send(producer, topic, 3, commit=True)
    consumer = Consumer({**real_broker.config, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    consumer.close()

    def behind() -> int | None:
        (lag,) = group_lag(real_broker.config, group, [topic])
        return lag.behind

    assert behind() == 2  # of the two records and the marker behind the committed one
    send(producer, topic, 5, commit=False)
    assert behind() == 2
    send(producer, topic, 4, commit=True)
    assert behind() == 6
    # A longer one is not read for it: offsets are counted, markers and aborted records included.
    send(producer, topic, COUNT_MAX, commit=False)
    assert behind() == 3 + 6 + 5 + COUNT_MAX + 1
