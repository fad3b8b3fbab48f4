"""The Python client against a broker: what is sent can be read, once, and only when committed."""

from contextlib import closing
from pathlib import Path

import orjson
import pytest
from confluent_kafka import Producer

from pipeline.client import (
    ClusterError,
    FeatureProducer,
    LabelProducer,
    PredictionConsumer,
    RefusedError,
)
from pipeline.kafka.reader import Tail
from pipeline.sandbox.brokers import Broker
from tests.broker.conftest import MakeTopics
from topics.partitioner import partition_for
from topics.predictions import Prediction

EXAMPLE = Path(__file__).parents[2] / "topics" / "examples" / "predictions.json"
LIMIT_S = 30.0


def answer(offset: int, partition: int = 0) -> bytes:
    example = orjson.loads(EXAMPLE.read_bytes())
    at = example["at"] | {"offset": offset, "partition": partition}
    return orjson.dumps(example | {"id": f"i{offset}", "at": at})


def write_answers(broker: Broker, prefix: str, offsets: list[int]) -> None:
    producer = Producer(broker.config)
    for offset in offsets:
        producer.produce(f"{prefix}predictions", answer(offset), b"k")
    assert producer.flush(LIMIT_S) == 0


def take(consumer: PredictionConsumer, count: int) -> list[Prediction]:
    taken: list[Prediction] = []
    while len(taken) < count:
        prediction = consumer.poll(LIMIT_S)
        assert prediction is not None, f"only {len(taken)} of {count} came"
        taken.append(prediction)
    return taken


def test_features_and_labels_of_one_key_meet_in_javas_partition(
    broker: Broker, prefix: str, make_topics: MakeTopics
) -> None:
    names = make_topics({"features": 4, "labels": 4})
    keys = [f"patient-{n}" for n in range(12)]
    with (
        FeatureProducer(broker.config, prefix=prefix) as features,
        LabelProducer(broker.config, prefix=prefix) as labels,
    ):
        for key in keys:
            features.send(key, {"a": 1, "gone": None}, key=key)
            labels.send(key, True, key=key)
    with closing(Tail(broker.config, names)) as tail:
        records = list(tail.catch_up(LIMIT_S))
    assert len(records) == 24
    for record in records:
        assert record.key is not None
        assert record.partition == partition_for(record.key, 4)


def test_a_refused_record_never_reaches_the_topic(
    broker: Broker, prefix: str, make_topics: MakeTopics
) -> None:
    names = make_topics({"features": 4, "labels": 4})
    with FeatureProducer(broker.config, prefix=prefix) as features:
        with pytest.raises(RefusedError, match="nested-value"):
            features.send("a", {"a": {}})
        features.send("b", {})
    with closing(Tail(broker.config, names)) as tail:
        (record,) = tail.catch_up(LIMIT_S)
    assert orjson.loads(record.value or b"")["id"] == "b"


def test_a_missing_topic_is_not_created(broker: Broker, prefix: str) -> None:
    for _ in range(2):
        with pytest.raises(ClusterError, match="run: dtgol topics apply"):
            FeatureProducer(broker.config, prefix=prefix)
        with pytest.raises(ClusterError, match="run: dtgol topics apply"):
            PredictionConsumer(broker.config, prefix=prefix)


def test_predictions_without_a_group_each_once(
    broker: Broker, prefix: str, make_topics: MakeTopics
) -> None:
    make_topics({"predictions": 4})
    write_answers(broker, prefix, [0, 1, 2, 1, 2, 3])
    with PredictionConsumer(broker.config, prefix=prefix, from_beginning=True) as consumer:
        assert [each.id for each in take(consumer, 4)] == ["i0", "i1", "i2", "i3"]
        assert consumer.poll(0.5) is None
        assert consumer.unreadable == 0


def test_from_the_end_only_what_comes_after(
    broker: Broker, prefix: str, make_topics: MakeTopics
) -> None:
    make_topics({"predictions": 4})
    write_answers(broker, prefix, [0, 1])
    with PredictionConsumer(broker.config, prefix=prefix) as consumer:
        write_answers(broker, prefix, [2])
        assert [each.id for each in take(consumer, 1)] == ["i2"]


def test_what_is_no_prediction_is_skipped_and_counted(
    broker: Broker, prefix: str, make_topics: MakeTopics
) -> None:
    make_topics({"predictions": 4})
    producer = Producer(broker.config)
    producer.produce(f"{prefix}predictions", b"{}", b"k")
    assert producer.flush(LIMIT_S) == 0
    write_answers(broker, prefix, [0])
    with PredictionConsumer(broker.config, prefix=prefix, from_beginning=True) as consumer:
        take(consumer, 1)
        assert consumer.unreadable == 1


def test_a_group_goes_on_where_it_stopped(
    real_broker: Broker, prefix: str, make_topics: MakeTopics
) -> None:
    make_topics({"predictions": 4})
    write_answers(real_broker, prefix, [0, 1, 2, 3])
    group = f"{prefix}readers"
    options = {"prefix": prefix, "group": group, "from_beginning": True}
    with PredictionConsumer(real_broker.config, **options) as consumer:  # type: ignore[arg-type]
        assert [each.id for each in take(consumer, 2)] == ["i0", "i1"]
    with PredictionConsumer(real_broker.config, **options) as consumer:  # type: ignore[arg-type]
        assert [each.id for each in take(consumer, 2)] == ["i2", "i3"]


def test_a_prediction_not_yet_handled_comes_again(
    real_broker: Broker, prefix: str, make_topics: MakeTopics
) -> None:
    make_topics({"predictions": 4})
    write_answers(real_broker, prefix, [0, 1])
    options = {"prefix": prefix, "group": f"{prefix}readers", "from_beginning": True}
    with (
        pytest.raises(ZeroDivisionError),
        PredictionConsumer(real_broker.config, **options) as consumer,  # type: ignore[arg-type]
    ):
        _ = 1 // (len(take(consumer, 2)) - 2)
    with PredictionConsumer(real_broker.config, **options) as consumer:  # type: ignore[arg-type]
        assert [each.id for each in take(consumer, 1)] == ["i1"]


def test_an_aborted_transaction_is_never_read(
    real_broker: Broker, prefix: str, make_topics: MakeTopics
) -> None:
    make_topics({"predictions": 4})
    producer = Producer({**real_broker.config, "transactional.id": f"{prefix}tx"})
    producer.init_transactions(LIMIT_S)
    for offset, end in ((0, producer.abort_transaction), (1, producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(f"{prefix}predictions", answer(offset), b"k")
        producer.flush(LIMIT_S)
        end(LIMIT_S)
    with PredictionConsumer(real_broker.config, prefix=prefix, from_beginning=True) as consumer:
        assert [each.id for each in take(consumer, 1)] == ["i1"]


def test_a_new_group_misses_nothing_on_partitions_it_never_committed(
    real_broker: Broker, prefix: str, make_topics: MakeTopics
) -> None:
    """Seen: 7 of 9 predictions lost, those of partitions without a committed offset."""
    make_topics({"predictions": 3})
    producer = Producer(real_broker.config)
    topic, group = f"{prefix}predictions", f"{prefix}g"
    for offset in range(3):
        producer.produce(topic, answer(offset), b"k", partition=0)
    assert producer.flush(LIMIT_S) == 0
    with PredictionConsumer(real_broker.config, prefix=prefix, group=group) as consumer:
        take(consumer, 2)
    for offset in range(3, 9):
        number = offset % 2 + 1
        producer.produce(topic, answer(offset, number), b"k", partition=number)
    assert producer.flush(LIMIT_S) == 0
    with PredictionConsumer(real_broker.config, prefix=prefix, group=group) as consumer:
        assert len(take(consumer, 7)) == 7
