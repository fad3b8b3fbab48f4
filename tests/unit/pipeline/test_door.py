"""The first question to a cluster: what is a refusal, what is patience, and what is said."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from pipeline.access import door
from pipeline.access.door import (
    ClusterError,
    Ear,
    ListeningAdmin,
    ListeningProducer,
    knock,
    refuses,
    said,
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
def test_only_a_no_is_final(code: int, text: str, final: bool) -> None:
    assert refuses(error(code, text)) is final


class Silent:
    """A client whose cluster never answers; it hears what the test says."""

    def __init__(self, *heard: KafkaError) -> None:
        self.ear = Ear()
        self.heard = list(heard)
        self.asked: list[float] = []

    def list_topics(self, timeout: float) -> Any:
        self.asked.append(timeout)
        raise KafkaException(error(KafkaError._TRANSPORT, "no answer"))

    def poll(self, _: float) -> None:
        if self.heard:
            self.ear(self.heard.pop(0))


def test_a_refusal_ends_the_waiting_at_once() -> None:
    client = Silent(error(KafkaError._AUTHENTICATION, "SASL authentication error: no"))
    with pytest.raises(ClusterError, match=r"does not let us in .SASL authentication error: no."):
        knock(client, 1e9)
    assert client.asked == [door.FIRST_TRY_S]


def test_silence_ends_with_the_last_trouble_when_the_time_is_up() -> None:
    client = Silent(error(KafkaError._TRANSPORT, "Connection refused"))
    with pytest.raises(ClusterError, match=r"not answer within 0 s .Connection refused."):
        knock(client, 0)


def test_nobody_there_is_said_with_what_librdkafka_heard() -> None:
    with pytest.raises(ClusterError, match=r"Connection refused|does not answer"):
        knock(ListeningAdmin({"bootstrap.servers": "127.0.0.1:1"}), 1)


def test_a_missing_right_comes_with_what_to_do() -> None:
    failed = error(KafkaError.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed")
    assert said(failed).endswith("grant this user what docs/security.md lists for its role")
    assert said(error(KafkaError._TIMED_OUT, "late")) == "late"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("Fatal error: Broker: Cluster authorization failed: no PID", 31),
        ("Fatal error: Local: whatever", KafkaError._FATAL),
    ],
)
def test_a_producer_that_was_given_up_says_why_in_every_call(text: str, code: int) -> None:
    producer = ListeningProducer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    producer.poll(0)
    producer.ear.log(50, "%s [%s] %s", "FATAL", "rdkafka#producer-1", text)
    for call in (producer.poll, producer.flush):
        with pytest.raises(KafkaException) as raised:
            call(0)
        assert (raised.value.args[0].code(), raised.value.args[0].str()) == (code, text)


def test_other_lines_of_librdkafka_go_to_the_log(caplog: pytest.LogCaptureFixture) -> None:
    Ear().log(40, "%s [%s] %s", "FAIL", "rdkafka#producer-1", "Connection refused")
    assert "librdkafka: Connection refused" in caplog.text
