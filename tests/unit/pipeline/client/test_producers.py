"""What the producers of the client send, check and raise; Kafka itself is in tests/broker."""

from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import orjson
import pytest
from confluent_kafka import KafkaError, KafkaException

from pipeline.client import (
    ClusterError,
    DeliveryError,
    FeatureProducer,
    LabelProducer,
    RefusedError,
)
from pipeline.kafka import clients, writer
from pipeline.kafka.clients import SEE_RIGHTS, ErrorListener
from topics.reasons import Limits, Reason


class FakeMessage(SimpleNamespace):
    def topic(self) -> str:
        return str(self.name)

    def partition(self) -> int:
        return 3


class FakeProducer:
    """librdkafka's producer; fails, fills up or does not answer, as the test wants."""

    counts: ClassVar = {"features": 4, "labels": 4}
    error: ClassVar[KafkaError | None] = None
    unanswered: ClassVar = 0
    held_back: ClassVar = False
    """Whether no report comes before a flush."""
    full: ClassVar = 0
    made: ClassVar[list["FakeProducer"]] = []

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.listener = ErrorListener()
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
        self,
        topic: str,
        value: bytes,
        key: bytes,
        partition: int,
        on_delivery: Any,
        *,
        timestamp: int,
        headers: Any,
    ) -> None:
        assert partition == -1, "the partitioner chooses"
        if type(self).full:
            type(self).full -= 1
            raise BufferError
        self.sent.append((topic, key, orjson.loads(value), timestamp, headers))
        self.reports.append(lambda: on_delivery(self.error, FakeMessage(name=topic)))

    def poll(self, timeout: float) -> int:
        """Every record is reported on, but for the last ones that are `unanswered`."""
        if self.held_back:
            return 0
        ready = max(0, len(self.reports) - self.unanswered)
        reports, self.reports = self.reports[:ready], self.reports[ready:]
        for report in reports:
            report()
        return len(reports)

    def flush(self, timeout: float) -> int:
        type(self).held_back = False
        self.poll(0)
        return len(self.reports)

    def __len__(self) -> int:
        return len(self.reports)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> type[FakeProducer]:
    class Fresh(FakeProducer):
        made: ClassVar[list["FakeProducer"]] = []

    monkeypatch.setattr(writer, "MonitoredProducer", Fresh)
    return Fresh


def only(fake: type[FakeProducer]) -> FakeProducer:
    (producer,) = fake.made
    return producer


def test_features_carry_the_streams_name_as_key_unless_another_is_given(
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
        [],
    )
    assert second[1] == b"patient-1"
    assert second[4] == [("h", b"1")]


def test_labels_go_where_their_features_go(fake: type[FakeProducer]) -> None:
    with LabelProducer({"bootstrap.servers": "x"}) as labels:
        labels.send(7, True, stream="ward", ts_ms=5, timestamp_ms=9)
    assert only(fake).sent == [
        ("labels", b"ward", {"stream": "ward", "id": "7", "y": 1, "ts": 5}, 9, [])
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


class NAType:
    """As pandas' NA."""


def test_nan_and_na_are_missing(fake: type[FakeProducer]) -> None:
    with FeatureProducer({"bootstrap.servers": "x"}) as features:
        features.send(1, {"f": float("nan"), "g": np.float32("nan"), "h": NAType(), "i": 3})
    assert only(fake).sent[0][2]["x"] == {"i": 3}


@pytest.mark.parametrize(
    ("x", "reason"),
    [
        ({"a": float("inf")}, Reason.NOT_JSON),
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
    with pytest.raises(RefusedError, match="header-name"):
        labels.send("a", 1, headers=[("gr\udcf6", b"1")])  # librdkafka's client would crash
    with pytest.raises(RefusedError, match="too-large"):
        labels.send("a", 1, headers=[("h", b"x" * 100)])


AGAIN = "send the records since the last flush again: a repeated id is recognised"


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (KafkaError._MSG_TIMED_OUT, "the cluster took too long; see that it is up"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, SEE_RIGHTS),
        (KafkaError._UNKNOWN_TOPIC, "the topic is gone; run: dtgol topics apply"),
        (KafkaError.INVALID_RECORD, "repair that"),
    ],
)
def test_a_failed_delivery_is_raised_with_where_why_and_what_to_do(
    fake: type[FakeProducer], code: int, advice: str
) -> None:
    fake.error, fake.held_back = KafkaError(code), True
    features = FeatureProducer({"bootstrap.servers": "x"})
    features.send("a", {})
    with pytest.raises(DeliveryError) as raised:
        features.flush()
    text = fake.error.str()
    assert str(raised.value) == (
        f"1 record was not delivered to features[3] ({text}): {advice}, then {AGAIN}"
    )
    features.flush()  # a failure is raised once


def test_many_failed_deliveries_are_one_sentence(fake: type[FakeProducer]) -> None:
    fake.error, fake.held_back = KafkaError(KafkaError._MSG_TIMED_OUT), True
    features = FeatureProducer({"bootstrap.servers": "x"})
    for number in range(3):
        features.send(number, {})
    sentence = r"^3 records were not delivered, the first of them to features\[3\] .*: the cluster"
    with pytest.raises(DeliveryError, match=sentence):
        features.flush()


def test_a_failed_delivery_is_raised_by_the_next_send_too(fake: type[FakeProducer]) -> None:
    fake.error, fake.held_back = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), True
    features = FeatureProducer({"bootstrap.servers": "x"})
    features.send("a", {})
    fake.held_back = False
    with pytest.raises(DeliveryError, match="grant this user what"):
        features.send("b", {})


def test_a_login_that_failed_is_named_before_the_timeout_that_it_caused(
    fake: type[FakeProducer],
) -> None:
    fake.error, fake.held_back = KafkaError(KafkaError._MSG_TIMED_OUT), True
    labels = LabelProducer({"bootstrap.servers": "x"})
    labels.send("a", 1)
    only(fake).listener(KafkaError(KafkaError._AUTHENTICATION, "SASL: invalid credentials"))
    with pytest.raises(DeliveryError, match=r"labels.* does not let us in .*password.*, then send"):
        labels.flush()


def test_records_without_an_answer_are_raised_at_the_end_of_the_block(
    fake: type[FakeProducer],
) -> None:
    def send() -> None:
        with FeatureProducer({"bootstrap.servers": "x"}) as features:
            for number in range(5):
                features.send(number, {})

    fake.unanswered = 3
    sentence = f"^3 records are not known to be delivered after 60 s.* is up, then {AGAIN}$"
    with pytest.raises(DeliveryError, match=sentence):
        send()


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


def test_a_cluster_that_does_not_answer_is_a_cluster_error(
    fake: type[FakeProducer], monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(self: FakeProducer, timeout: float) -> Any:
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    monkeypatch.setattr(fake, "list_topics", silent)
    monkeypatch.setattr(clients.fetch_metadata, "__defaults__", (0,))
    with pytest.raises(ClusterError, match="does not answer within 0 s"):
        FeatureProducer({"bootstrap.servers": "x"})


def test_settings_that_cannot_be_used_are_a_cluster_error() -> None:
    with pytest.raises(ClusterError, match="cannot be used"):
        FeatureProducer({"bootstrap.servers": "x", "no.such.setting": 1})
