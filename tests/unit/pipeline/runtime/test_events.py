"""Events are written on a best effort: no cluster, no topic, no right is a reason to stop."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from pipeline.runtime import events as module
from pipeline.runtime.events import EventWriter
from pipeline.settings import Settings
from topics.codec import read_process_event
from topics.events import EventKind, ProcessEvent


class FakeProducer:
    """Takes records, or fails in every way that librdkafka knows."""

    def __init__(self, _: Any, error: Exception | None = None) -> None:
        self.sent: list[Any] = []
        self.error = error

    def _fail(self) -> None:
        if self.error is not None:
            raise self.error

    def produce(self, topic: str, value: bytes, key: bytes, on_delivery: Any) -> None:
        self._fail()
        self.sent.append((topic, value, key))
        on_delivery(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), None)

    def poll(self, _: float) -> int:
        self._fail()
        return 0

    def flush(self, _: float) -> int:
        self._fail()
        return 0


def writer(monkeypatch: pytest.MonkeyPatch, error: Exception | None = None) -> EventWriter:
    monkeypatch.setattr(module, "MonitoredProducer", lambda given: FakeProducer(given, error))
    return EventWriter({}, Settings(), "worker")


def test_an_event_says_what_where_and_when_and_no_more_than_fits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    events = writer(monkeypatch)
    events.send(EventKind.CONFIG, 3, 17, "x" * 10_000)
    ((topic, value, key),) = events._producer.sent  # type: ignore[attr-defined]
    event = read_process_event(value)
    assert isinstance(event, ProcessEvent)
    assert (topic, key, event.kind, event.role) == ("events", b"3", "config", "worker")
    assert (event.partition, event.offset, len(event.detail)) == (3, 17, 500)


@pytest.mark.parametrize(
    "error", [None, BufferError("full"), KafkaException(KafkaError(KafkaError._FATAL))]
)
def test_a_failure_is_logged_once_and_raises_nothing(
    error: Exception | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    events = writer(monkeypatch, error)
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            events.send(EventKind.STARTED, 0, 0)
        if not isinstance(error, BufferError):
            asyncio.run(events.finish())
    assert caplog.text.count("an event was not written to events") == 1


def test_without_a_cluster_nothing_waits() -> None:
    events = EventWriter({"bootstrap.servers": "127.0.0.1:1"}, Settings(), "evaluator")
    events.send(EventKind.STARTED, 0, 0)
