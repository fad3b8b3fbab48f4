"""Room 8, the outbox: outputs -> records on the wire, every delivery checked.

One idempotent librdkafka producer that never gives a record up (`message.timeout.ms = 0`: a record
timed out in the middle would leave a hole). A `Lane` is one topic partition: what is sent there is
delivered in the order it was sent, and reports come in that order too, so a count says which
records are durable. A failed report is the end: `check` raises, and the process must stop, commit
nothing and be started again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message

from pipeline.access.door import ListeningProducer, said
from topics.headers import Header, record_bytes

PUMP_S = 0.005
WAITING_MAX = 20_000
WAITING_BYTES_MAX = 64 << 20
"""What may wait in librdkafka's queue before senders do; it holds four times as much and more."""


class DeliveryError(RuntimeError):
    """A record could not be delivered; the process must end and begin again."""


class Lane:
    """One topic partition to write to; counts what was sent and what is durable."""

    def __init__(self, outbox: Outbox, topic: str, partition: int) -> None:
        self._outbox = outbox
        self.topic = topic
        self.partition = partition
        self.sent = 0
        self.delivered = 0
        self.last_offset = -1
        self._sizes: deque[int] = deque()
        self.on_delivered: Callable[[], None] | None = None

    def send(self, key: bytes | None, value: bytes | None, headers: list[Header]) -> None:
        """Hand one record to the producer. Ordered; durable once `delivered` has passed it."""
        self._outbox.produce(self, key, value, headers)
        size = record_bytes(key, value, headers)
        self._sizes.append(size)
        self._outbox.waiting_bytes += size
        self.sent += 1

    def report(self, error: KafkaError | None, message: Message) -> None:
        """librdkafka's answer about the next record of this lane."""
        self._outbox.waiting_bytes -= self._sizes.popleft()
        if error is not None:
            self._outbox.fail(f"{self.topic}[{self.partition}]: {said(error)}")
            return
        self.delivered += 1
        self._outbox.delivered += 1
        offset = message.offset()
        if offset is not None and offset >= 0:
            self.last_offset = offset
        if self.on_delivered is not None:
            self.on_delivered()

    async def settled(self) -> None:
        """Wait until all that was sent before this call is durable."""
        wanted = self.sent
        while self.delivered < wanted:
            await self._outbox.tick()


class Outbox:
    """The producer of one process. Not for threads: poll, send and check from one event loop."""

    def __init__(self, client: Mapping[str, Any], **overrides: Any) -> None:
        self._failure: str | None = None
        self.delivered = 0
        self.waiting_bytes = 0
        self._producer = ListeningProducer(
            {
                **client,
                "enable.idempotence": True,
                "acks": "all",
                "message.timeout.ms": 0,
                "message.max.bytes": 1_048_576,
                "linger.ms": 5,
                "queue.buffering.max.messages": 100_000,
                "queue.buffering.max.kbytes": 262_144,
                "log_level": 3,
                **overrides,
            }
        )

    def lane(self, topic: str, partition: int) -> Lane:
        """A way to one topic partition."""
        return Lane(self, topic, partition)

    def produce(
        self, lane: Lane, key: bytes | None, value: bytes | None, headers: list[Header]
    ) -> None:
        """Put one record into librdkafka's queue; called by the lane."""
        try:
            self._producer.produce(
                lane.topic,
                value=value,
                key=key,
                partition=lane.partition,
                headers=headers,
                on_delivery=lane.report,
            )
        except Exception as error:
            # Nothing that is refused here may be forgotten: the lane would have a hole.
            why = said(error.args[0]) if isinstance(error, KafkaException) else str(error)
            self.fail(f"{lane.topic}[{lane.partition}]: {why}")
            self.check()

    def poll(self) -> None:
        """Let reports that have come call their lanes; hear why brokers turn us away.

        librdkafka would knock for ever; the next process reads the secrets anew.
        """
        try:
            self._producer.poll(0)
        except KafkaException as error:
            self.fail(f"the producer was shut out: {said(error.args[0])}")
        self._failure = self._failure or self._producer.ear.refusal or None

    def fail(self, why: str) -> None:
        """Remember the first failure of a record."""
        self._failure = self._failure or f"a record could not be delivered: {why}"

    def check(self) -> None:
        """Raise if anything failed since the start."""
        if self._failure is not None:
            raise DeliveryError(self._failure)

    async def tick(self) -> None:
        """One short wait, with reports taken in on both sides of it."""
        self.poll()
        self.check()
        await asyncio.sleep(PUMP_S)
        self.poll()
        self.check()

    async def room(self) -> None:
        """Wait until librdkafka's queue has room: back-pressure for all senders."""
        while self.full:
            await self.tick()

    @property
    def full(self) -> bool:
        """Whether so much waits that nobody should send more just now."""
        return len(self._producer) > WAITING_MAX or self.waiting_bytes > WAITING_BYTES_MAX

    @property
    def waiting(self) -> int:
        """Records not yet delivered."""
        return len(self._producer)

    async def pump(self) -> None:
        """Take reports in for ever; run it as a task beside the agents."""
        while True:
            await self.tick()
