"""The client's own decisions, with a producer that only remembers; Kafka is in tests/broker."""

from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import orjson
import pytest
from confluent_kafka import KafkaError, KafkaException

from pipeline.access.door import Ear
from pipeline.client import (
    ClusterError,
    DeliveryError,
    FeatureProducer,
    LabelProducer,
    RefusedError,
    sending,
)
from topics.refusals import Limits, Reason


class FakeMessage(SimpleNamespace):
    def topic(self) -> str:
        return str(self.name)


class FakeProducer:
    """librdkafka's verbs; fails, fills up or is silent as told."""

    counts: ClassVar = {"features": 4, "labels": 4}
    error: ClassVar[KafkaError | None] = None
    unanswered: ClassVar = 0
    full: ClassVar = 0
    made: ClassVar[list["FakeProducer"]] = []

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.ear = Ear()
        self.sent: list[tuple[Any, ...]] = []
        self.reports: list[Any] = []
        self.made.append(self)

    def list_topics(self, timeout: float) -> Any:
        topics = {
            name: SimpleNamespace(partitions=dict.fromkeys(range(count)))
            for name, count in self.counts.items()
        }
        return SimpleNamespace(topics=topics)

    def produce(
        self, topic: str, value: bytes, key: bytes, on_delivery: Any, timestamp: int, headers: Any
    ) -> None:
        if type(self).full:
            type(self).full -= 1
            raise BufferError
        self.sent.append((topic, key, orjson.loads(value), timestamp, headers))
        self.reports.append(lambda: on_delivery(self.error, FakeMessage(name=topic)))

    def poll(self, timeout: float) -> int:
        reports, self.reports = self.reports, []
        for report in reports:
            report()
        return len(reports)

    def flush(self, timeout: float) -> int:
        self.poll(0)
        return self.unanswered

    def __len__(self) -> int:
        return self.unanswered


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> type[FakeProducer]:
    class Fresh(FakeProducer):
        made: ClassVar[list["FakeProducer"]] = []

    monkeypatch.setattr(sending, "ListeningProducer", Fresh)
    return Fresh


def only(fake: type[FakeProducer]) -> FakeProducer:
    (producer,) = fake.made
    return producer


def test_features_carry_the_streams_name_as_key_unless_told_otherwise(
    fake: type[FakeProducer],
) -> None:
    with FeatureProducer({"bootstrap.servers": "x"}) as features:
        features.send(7, {"a": 1, "gone": None}, stream="ward", ts_ms=5, timestamp_ms=9)
        features.send("b", {}, key="patient-1", ts_ms=5, timestamp_ms=9, headers=[("h", b"1")])
    first, second = only(fake).sent
    assert first == (
        "features",
        b"ward",
        {"stream": "ward", "id": "7", "x": {"a": 1}, "ts": 5},
        9,
        None,
    )
    assert second[1] == b"patient-1"
    assert second[4] == [("h", b"1")]


def test_labels_go_where_their_features_go(fake: type[FakeProducer]) -> None:
    with LabelProducer({"bootstrap.servers": "x"}) as labels:
        labels.send(7, True, stream="ward", ts_ms=5, timestamp_ms=9)
    assert only(fake).sent == [
        ("labels", b"ward", {"stream": "ward", "id": "7", "y": 1, "ts": 5}, 9, None)
    ]


def test_producers_use_javas_partitioner_and_are_idempotent(fake: type[FakeProducer]) -> None:
    FeatureProducer({"bootstrap.servers": "x", "linger.ms": 1})
    settings = only(fake).settings
    assert settings["partitioner"] == "murmur2_random"
    assert settings["enable.idempotence"] is True
    assert settings["acks"] == "all"
    assert settings["linger.ms"] == 1


def test_numpy_scalars_are_values(fake: type[FakeProducer]) -> None:
    with FeatureProducer({"bootstrap.servers": "x"}) as features:
        features.send(1, {"f": np.float64(0.5), "i": np.int64(3), "b": np.bool_(True)})
    assert only(fake).sent[0][2]["x"] == {"f": 0.5, "i": 3, "b": True}


@pytest.mark.parametrize(
    ("x", "reason"),
    [
        ({"a": float("nan")}, Reason.NOT_JSON),
        ({"a": np.inf}, Reason.NOT_JSON),
        ({"a": object()}, Reason.NOT_JSON),
        ({"a": np.zeros(2)}, Reason.NOT_JSON),
        ({"a": [1]}, Reason.NESTED_VALUE),
        ({"a": 1e200}, Reason.OUT_OF_RANGE),
        ({"": 1}, Reason.FEATURE_NAME),
        ({"a": "x" * 300}, Reason.TEXT_TOO_LONG),
        ({f"a{i}": 1 for i in range(600)}, Reason.TOO_MANY_FEATURES),
    ],
)
def test_what_the_worker_would_refuse_is_refused_before_it_is_sent(
    fake: type[FakeProducer], x: dict[str, Any], reason: Reason
) -> None:
    with FeatureProducer({"bootstrap.servers": "x"}) as features:
        with pytest.raises(RefusedError) as refused:
            features.send("a", x)
        assert refused.value.reason is reason
    assert only(fake).sent == []


def test_ids_labels_and_sizes_are_checked(fake: type[FakeProducer]) -> None:
    labels = LabelProducer({"bootstrap.servers": "x"}, limits=Limits(record_bytes_max=100))
    with pytest.raises(RefusedError, match="label-not-binary"):
        labels.send("a", 2)
    with pytest.raises(RefusedError, match="id-empty"):
        labels.send("", 1)
    with pytest.raises(RefusedError, match="id-too-long"):
        LabelProducer({"bootstrap.servers": "x"}).send("x" * 257, 1)
    with pytest.raises(RefusedError, match="too-large"):
        labels.send("a", 1, headers=[("h", b"x" * 100)])


def test_a_failed_delivery_is_raised_with_what_to_do(fake: type[FakeProducer]) -> None:
    fake.error = KafkaError(KafkaError._MSG_TIMED_OUT)
    features = FeatureProducer({"bootstrap.servers": "x"})
    features.send("a", {})
    with pytest.raises(DeliveryError, match=r"1 records were not delivered to features .* again"):
        features.flush()


def test_a_failed_delivery_is_raised_by_the_next_send_too(fake: type[FakeProducer]) -> None:
    fake.error = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    features = FeatureProducer({"bootstrap.servers": "x"})
    features.send("a", {})
    with pytest.raises(DeliveryError, match="grant it Write"):
        features.send("b", {})


def test_records_without_an_answer_are_raised_at_the_end_of_the_block(
    fake: type[FakeProducer],
) -> None:
    fake.unanswered = 3
    with (
        pytest.raises(DeliveryError, match="3 records are not known to be delivered"),
        FeatureProducer({"bootstrap.servers": "x"}) as features,
    ):
        features.send("a", {})


def test_the_error_of_the_block_is_not_hidden(fake: type[FakeProducer]) -> None:
    fake.unanswered = 3
    with pytest.raises(ZeroDivisionError), FeatureProducer({"bootstrap.servers": "x"}):
        raise ZeroDivisionError


def test_a_full_buffer_is_waited_for(fake: type[FakeProducer]) -> None:
    fake.full = 2
    with FeatureProducer({"bootstrap.servers": "x"}) as features:
        features.send("a", {})
    assert len(only(fake).sent) == 1


def test_a_missing_topic_is_found_at_the_start(fake: type[FakeProducer]) -> None:
    fake.counts = {"labels": 4}
    with pytest.raises(ClusterError, match=r"no topic features.*run: dtgol topics apply"):
        FeatureProducer({"bootstrap.servers": "x"})


def test_partition_counts_that_differ_are_found_at_the_start(fake: type[FakeProducer]) -> None:
    fake.counts = {"features": 4, "labels": 3}
    with pytest.raises(ClusterError, match="features 4, labels 3"):
        FeatureProducer({"bootstrap.servers": "x"})


def test_a_silent_cluster_is_said_to_be_silent(
    fake: type[FakeProducer], monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(self: FakeProducer, timeout: float) -> Any:
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    monkeypatch.setattr(fake, "list_topics", silent)
    monkeypatch.setattr(sending, "CONNECT_S", 0)
    with pytest.raises(ClusterError, match="does not answer within 0 s"):
        FeatureProducer({"bootstrap.servers": "x"})


def test_settings_that_cannot_be_used_are_a_cluster_error() -> None:
    with pytest.raises(ClusterError, match="cannot be used"):
        FeatureProducer({"bootstrap.servers": "x", "no.such.setting": 1})
