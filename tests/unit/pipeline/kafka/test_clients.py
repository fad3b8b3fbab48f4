"""The clients: which errors are final, how long the cluster is waited for, and the sentences."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from pipeline.errors import ClusterError, RequestError, UnansweredError
from pipeline.kafka import clients
from pipeline.kafka.clients import (
    ErrorListener,
    MonitoredAdmin,
    MonitoredConsumer,
    MonitoredProducer,
    describe,
    fetch_metadata,
    is_auth_error,
    request,
)

LOST = "sasl_ssl://b:1: SASL SCRAM mechanism handshake failed: Local: Broker transport failure"


def error(code: int, text: str) -> KafkaError:
    return KafkaError(code, text)


@pytest.mark.parametrize(
    ("code", "text", "final"),
    [
        (KafkaError._AUTHENTICATION, "SASL authentication error: invalid credentials", True),
        (KafkaError._AUTHENTICATION, LOST, False),
        (KafkaError._SSL, "SSL handshake failed: certificate verify failed", True),
        (KafkaError._SSL, "SSL handshake failed: unexpected eof", False),
        (KafkaError._TRANSPORT, "ssl/tls alert bad certificate: SSL alert number 42", True),
        (KafkaError._TRANSPORT, "Connect to ipv4#127.0.0.1:1 failed: Connection refused", False),
        (KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down", False),
    ],
)
def test_only_a_rejection_is_final(code: int, text: str, final: bool) -> None:
    assert is_auth_error(error(code, text)) is final


class Silent:
    """A client whose cluster never answers; librdkafka reports what the test gives."""

    def __init__(self, *reported: KafkaError) -> None:
        self.listener = ErrorListener()
        self.reported = list(reported)
        self.asked: list[float] = []

    def list_topics(self, timeout: float) -> Any:
        self.asked.append(timeout)
        raise KafkaException(error(KafkaError._TRANSPORT, "no answer"))

    def poll(self, _: float) -> None:
        if self.reported:
            self.listener(self.reported.pop(0))


def test_a_rejection_ends_the_waiting_at_once() -> None:
    client = Silent(error(KafkaError._AUTHENTICATION, "SASL authentication error: no"))
    with pytest.raises(ClusterError, match=r"does not let us in .SASL authentication error: no."):
        fetch_metadata(client, 1e9)
    assert client.asked == [clients.FIRST_TRY_S]


def test_silence_ends_with_the_last_error_when_the_time_is_up() -> None:
    client = Silent(error(KafkaError._TRANSPORT, "Connection refused"))
    with pytest.raises(UnansweredError, match=r"not answer within 0 s .Connection refused."):
        fetch_metadata(client, 0)


def test_nobody_there_comes_with_what_librdkafka_reports() -> None:
    with pytest.raises(UnansweredError, match=r"Connection refused|does not answer"):
        fetch_metadata(MonitoredAdmin({"bootstrap.servers": "127.0.0.1:1"}), 1)


@pytest.mark.parametrize("client", [MonitoredAdmin, MonitoredConsumer, MonitoredProducer])
def test_settings_that_cannot_be_used_are_a_cluster_error(client: Any) -> None:
    with pytest.raises(ClusterError, match=r"these settings cannot be used: .*no\.such\.setting"):
        client({"bootstrap.servers": "x", "group.id": "g", "no.such.setting": 1})


def test_an_error_of_librdkafka_becomes_a_sentence() -> None:
    failed = error(KafkaError.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed")
    with pytest.raises(RequestError) as raised, request("features cannot be read"):
        raise KafkaException(failed)
    assert str(raised.value).startswith("features cannot be read: Topic authorization failed; ")
    assert isinstance(raised.value, ClusterError), "what users of the Python client catch"


def test_a_missing_right_comes_with_what_to_do() -> None:
    failed = error(KafkaError.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed")
    assert describe(failed).endswith("grant this user what docs/security.md lists for its role")
    assert describe(error(KafkaError._TIMED_OUT, "late")) == "late"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("Fatal error: Broker: Cluster authorization failed: no PID", 31),
        ("Fatal error: Local: whatever", KafkaError._FATAL),
    ],
)
def test_a_producer_that_was_given_up_raises_the_reason_in_every_call(text: str, code: int) -> None:
    producer = MonitoredProducer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    producer.poll(0)
    producer.listener.log(50, "%s [%s] %s", "FATAL", "rdkafka#producer-1", text)
    for call in (producer.poll, producer.flush):
        with pytest.raises(KafkaException) as raised:
            call(0)
        assert (raised.value.args[0].code(), raised.value.args[0].str()) == (code, text)


def test_other_lines_of_librdkafka_go_to_the_log(caplog: pytest.LogCaptureFixture) -> None:
    ErrorListener().log(40, "%s [%s] %s", "FAIL", "rdkafka#producer-1", "Connection refused")
    assert "librdkafka: Connection refused" in caplog.text
