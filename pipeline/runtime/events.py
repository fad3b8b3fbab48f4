"""Events of a process on their way to the topic `events`, by a producer of their own.

Best effort, unlike everything else that is written: not by the outbox, which never gives up a
record and ends the process if one is refused. What cannot be delivered is logged and forgotten.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import socket
import time

from confluent_kafka import KafkaError, KafkaException, Message

from pipeline.kafka.clients import ClientSettings, MonitoredProducer, describe
from pipeline.settings import Settings
from topics.codec import write_process_event
from topics.events import EventKind, ProcessEvent

log = logging.getLogger(__name__)

DETAIL_CHARS_MAX = 500
PUMP_S = 1.0
LAST_S = 2.0
"""How long the end of a process waits for its last events."""
REPORT_S = 600.0
"""Between two lines about events that were not delivered."""
SETTINGS: ClientSettings = {
    "message.timeout.ms": 30_000,
    "queue.buffering.max.messages": 1_000,
    "linger.ms": 5,
    "log_level": 0,
}


class EventWriter:
    """Sends the events of one process; nothing here raises or waits."""

    def __init__(self, client: ClientSettings, settings: Settings, role: str) -> None:
        self._topic = settings.topic("events")
        self._role = role
        named = settings.kafka.group_instance_id
        self._process = named or f"{socket.gethostname()}:{os.getpid()}"
        self._producer = MonitoredProducer({**client, **SETTINGS})
        self._reported = -math.inf

    def send(self, kind: EventKind, partition: int, offset: int, detail: str = "") -> None:
        """Hand over one event, from any thread."""
        event = ProcessEvent(
            str(kind),
            int(time.time() * 1000),
            self._role,
            self._process,
            partition,
            offset,
            detail[:DETAIL_CHARS_MAX],
        )
        try:
            self._producer.produce(
                self._topic,
                write_process_event(event),
                str(partition).encode(),
                on_delivery=self._delivered,
            )
        except (KafkaException, BufferError) as error:
            self._report(str(error))

    async def pump(self) -> None:
        """Serve delivery reports for ever; run it as a task."""
        while True:
            try:
                self._producer.poll(0)
            except KafkaException as error:
                self._report(str(error))
            await asyncio.sleep(PUMP_S)

    async def finish(self) -> None:
        """Wait a moment for what is on its way."""
        try:
            await asyncio.to_thread(self._producer.flush, LAST_S)
        except KafkaException as error:
            self._report(str(error))

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._report(describe(error))

    def _report(self, why: str) -> None:
        if time.monotonic() - self._reported >= REPORT_S:
            self._reported = time.monotonic()
            text = "an event was not written to %s (%s): the live page lacks its mark"
            log.warning(text, self._topic, why)
