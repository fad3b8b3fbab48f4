"""The one way to write to Kafka: an idempotent producer whose every delivery is checked.

`CheckedProducer` hands records over and raises `DeliveryError` for any that did not arrive: the
Python client, `dtgol produce`, the snapshot topic and operators' commands use it as it is.

`Outbox` is the one of a worker or evaluator. It belongs to one event loop and never drops a record
(``message.timeout.ms = 0``: a record timed out in the middle would leave a hole). A failure is
final: the process must stop, commit nothing and be started again. A `PartitionWriter` is one topic
partition of an outbox: records are delivered in the order in which they were sent, and reports come
in that order too, so a count is enough to know which records are durable.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message

from pipeline.errors import DeliveryError
from pipeline.kafka.clients import (
    NO_RIGHT,
    SEE_LOGIN,
    SEE_RIGHTS,
    ClientSettings,
    MonitoredProducer,
)
from topics.headers import Header, record_bytes

DELIVERY_S = 60.0
REPORT_S = 5.0
"""librdkafka gives up each record after the delivery limit; its reports come a moment later."""
WAIT_S = 0.5
"""How long one wait for space in a full send buffer takes; deliveries are served meanwhile."""
PUMP_S = 0.005
IDLE_PUMP_S = 0.02
"""Between two looks for reports while nobody waits for one; who sends looks too."""
WAITING_MAX = 20_000
WAITING_BYTES_MAX = 64 << 20
"""What may wait in librdkafka's queue before senders do; it holds four times as much and more."""
SETTINGS: ClientSettings = {
    "enable.idempotence": True,
    "acks": "all",
    # On the way of an answer three times: from a client, to the journal, to the predictions. What
    # is sent at once goes together all the same.
    "linger.ms": 1,
    "log_level": 0,  # errors come as exceptions
}
_ADVICE = dict.fromkeys(NO_RIGHT, SEE_RIGHTS) | {
    KafkaError._AUTHENTICATION: SEE_LOGIN,
    KafkaError._MSG_TIMED_OUT: "the cluster took too long; see that it is up",
    KafkaError._UNKNOWN_TOPIC: "the topic is gone; run: dtgol topics apply",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "the topic is gone; run: dtgol topics apply",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: (
        "this user may not write; grant it Write on the topic (before Kafka 2.8 also "
        "IdempotentWrite on the cluster)"
    ),
    KafkaError.MSG_SIZE_TOO_LARGE: "the topic takes smaller records only; run: dtgol topics check",
    KafkaError.NOT_ENOUGH_REPLICAS: "too few copies are in sync; repair the cluster",
}
OnDelivery = Callable[[KafkaError | None, Message], None]


class CheckedProducer:
    """Hands records to librdkafka and checks that they arrive. For one thread at a time.

    Parameters
    ----------
    delivery_s
        How long one record may take before it counts as not delivered; 0 for ever.
    advice
        What to do once the cause of a failure is repaired; its sentence ends with it.
    settings
        Of librdkafka, on top of those that every writer has.
    """

    def __init__(
        self,
        client: ClientSettings,
        *,
        delivery_s: float = DELIVERY_S,
        advice: str = "",
        **settings: Any,
    ) -> None:
        self._delivery_s = delivery_s
        self._advice = advice
        self._failures: list[tuple[str, KafkaError]] = []
        self._outstanding = 0
        timeout = {"message.timeout.ms": round(delivery_s * 1000)}
        self._producer = MonitoredProducer({**SETTINGS, **client, **timeout, **settings})

    def share(self) -> CheckedProducer:
        """A second account of deliveries over the same connections, for another thread."""
        other = copy(self)
        other._failures, other._outstanding = [], 0
        return other

    @property
    def client(self) -> MonitoredProducer:
        """librdkafka's producer, for questions about the cluster."""
        return self._producer

    @property
    def waiting(self) -> int:
        """Records handed over and not yet reported on."""
        return len(self._producer)

    @property
    def shut_out(self) -> bool:
        """Whether librdkafka has given the producer up: it can never send anything again."""
        return self._producer.listener.fatal is not None

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header] = (),
        partition: int = -1,
        timestamp_ms: int = 0,
    ) -> None:
        """Hand over one record; waits while the send buffer is full.

        Raises `DeliveryError` as soon as an earlier record is known to have failed.
        """
        until = time.monotonic() + self._delivery_s + REPORT_S
        while True:
            try:
                self.produce(topic, key, value, headers, partition, timestamp_ms)
                self.poll()
                return
            except BufferError:
                if time.monotonic() > until:
                    raise DeliveryError(self._undelivered(self.waiting)) from None
                self.poll(WAIT_S)

    def produce(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header] = (),
        partition: int = -1,
        timestamp_ms: int = 0,
        on_delivery: OnDelivery | None = None,
    ) -> None:
        """Hand over one record and return at once; `BufferError` if the send buffer is full."""
        try:
            self._producer.produce(
                topic,
                value,
                key,
                partition,
                on_delivery or self.report,
                timestamp=timestamp_ms,
                headers=headers if type(headers) is list else list(headers),
            )
        except KafkaException as error:
            if self.shut_out:
                raise self._fatal(error) from None
            why = self._explain(error.args[0])
            raise DeliveryError(
                f"a record cannot be sent to {_place(topic, partition)} {why}"
            ) from None
        self._outstanding += on_delivery is None

    def report(self, error: KafkaError | None, message: Message) -> None:
        """librdkafka's report about one record; a failure is raised by the next call."""
        self._outstanding -= 1
        if error is not None:
            self._failures.append((_place(message.topic() or "?", message.partition()), error))

    def poll(self, timeout_s: float = 0) -> None:
        """Serve the reports that have come; raises if any is a failure."""
        try:
            self._producer.poll(timeout_s)
        except KafkaException as error:
            raise self._fatal(error) from None
        self.check()

    def flush(self) -> None:
        """Wait until everything is stored; `DeliveryError` if something is not."""
        try:
            self._producer.flush(self._delivery_s + REPORT_S)
        except KafkaException as error:
            raise self._fatal(error) from None
        self.check()
        if self._outstanding:
            raise DeliveryError(self._undelivered(self._outstanding))

    def discard(self) -> None:
        """Take back what is not delivered, after a failure; what is on its way may still arrive."""
        with contextlib.suppress(KafkaException):
            self._producer.purge()
            self._producer.flush(REPORT_S)
        self._failures.clear()

    def check(self) -> None:
        """Raise if a record has failed since the last time."""
        if not self._failures:
            return
        (place, error), count = self._failures[0], len(self._failures)
        self._failures.clear()
        what = "1 record was not delivered"
        if count > 1:
            what = f"{count} records were not delivered, the first of them"
        raise DeliveryError(f"{what} to {place} {self._explain(error)}")

    def _fatal(self, error: KafkaException) -> DeliveryError:
        return DeliveryError(f"the producer was shut out {self._explain(error.args[0])}")

    def _explain(self, error: KafkaError) -> str:
        """Its text in brackets, and what to do: about a login that failed, or about the error."""
        repair = self._producer.listener.rejection or _ADVICE.get(error.code(), "")
        advice = self._with_advice(repair)
        return f"({error.str()})" + (f": {advice}" if advice else "")

    def _undelivered(self, left: int) -> str:
        last = self._producer.listener.last_error
        why = f" ({last})" if last else ""
        return (
            f"{left} records are not known to be delivered after {self._delivery_s:g} s{why}: "
            f"{self._with_advice('see that the cluster is up')}"
        )

    def _with_advice(self, repair: str) -> str:
        return f"{repair or 'repair that'}, then {self._advice}" if self._advice else repair


def _place(topic: str, partition: int | None) -> str:
    """A partition is negative while librdkafka has not chosen one."""
    return topic if partition is None or partition < 0 else f"{topic}[{partition}]"


class PartitionWriter:
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
        self.more_headers: Callable[[Sequence[Header]], list[Header]] | None = None
        """Made from the headers of a record and sent behind them."""

    def send(self, key: bytes | None, value: bytes | None, headers: Sequence[Header] = ()) -> None:
        """Hand over one record. Ordered; durable once `delivered` has passed it."""
        if self.more_headers is not None:
            headers = [*headers, *self.more_headers(headers)]
        size = record_bytes(key, value, headers)
        self._sizes.append(size)
        self._outbox.waiting_bytes += size
        self.sent += 1
        self._outbox.send(self, key, value, headers)

    def report(self, error: KafkaError | None, message: Message) -> None:
        """librdkafka's report about the next record of this partition."""
        self._outbox.waiting_bytes -= self._sizes.popleft()
        if error is not None:
            self._outbox.failed(error, message)
            return
        offset = message.offset()
        if offset is not None and offset >= 0:
            if offset <= self.last_offset:
                self._outbox.tail_lost(self, offset)
                return
            self.last_offset = offset
        self.delivered += 1
        self._outbox.delivered += 1
        if self.on_delivered is not None:
            self.on_delivered()

    async def settled(self) -> None:
        """Wait until all that was sent before this call is durable."""
        wanted = self.sent
        while self.delivered < wanted:
            await self._outbox.tick()


class Outbox:
    """The producer of one process; poll, send and check from one event loop."""

    def __init__(self, client: ClientSettings, **settings: Any) -> None:
        self._failure: DeliveryError | None = None
        self.delivered = 0
        self.waiting_bytes = 0
        self._producer = CheckedProducer(
            client,
            delivery_s=0,
            **{
                "message.max.bytes": 1_048_576,
                "queue.buffering.max.messages": 100_000,
                "queue.buffering.max.kbytes": 262_144,
                "log_level": 3,
                **settings,
            },
        )

    def partition(self, topic: str, partition: int) -> PartitionWriter:
        """A writer to one topic partition."""
        return PartitionWriter(self, topic, partition)

    def send(
        self,
        writer: PartitionWriter,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header],
    ) -> None:
        """Put one record into librdkafka's queue; called by its writer."""
        self.check()
        try:
            self._producer.produce(
                writer.topic, key, value, headers, writer.partition, on_delivery=writer.report
            )
        except DeliveryError as error:
            raise self._fail(error) from None
        except (BufferError, TypeError, ValueError) as error:
            why = f"a record cannot be sent to {_place(writer.topic, writer.partition)}: {error}"
            raise self._fail(DeliveryError(why)) from None

    def failed(self, error: KafkaError, message: Message) -> None:
        """A record of a writer was not delivered."""
        self._producer.report(error, message)

    def tail_lost(self, writer: PartitionWriter, offset: int) -> None:
        """The offsets of a partition go back: what it had acknowledged is gone."""
        self._fail(
            DeliveryError(
                f"{_place(writer.topic, writer.partition)} gave offset {offset} after "
                f"{writer.last_offset}: it has lost its tail; start again to have it repaired"
            )
        )

    def poll(self) -> None:
        """Serve the reports that have come; raises `DeliveryError`, then and ever after.

        A rejected login counts too: librdkafka would retry for ever, and the next process reads
        the secrets anew.
        """
        self.check()
        try:
            self._producer.poll()
        except DeliveryError as error:
            raise self._fail(error) from None
        rejection = self._producer.client.listener.rejection
        if rejection:
            raise self._fail(DeliveryError(rejection))

    def check(self) -> None:
        """Raise the failure there has been, if any: after it anything sent would leave a hole."""
        if self._failure is not None:
            raise self._failure

    def _fail(self, error: DeliveryError) -> DeliveryError:
        self._failure = error
        return error

    async def tick(self) -> None:
        """One short wait, with reports served on both sides of it."""
        self.poll()
        await asyncio.sleep(PUMP_S)
        self.poll()

    async def wait_for_space(self) -> None:
        """Wait until librdkafka's queue has space: back-pressure for all senders."""
        while self.full:
            await self.tick()

    @property
    def full(self) -> bool:
        """Whether so much waits for delivery that senders must wait."""
        return self.waiting > WAITING_MAX or self.waiting_bytes > WAITING_BYTES_MAX

    @property
    def waiting(self) -> int:
        """Records not yet delivered."""
        return self._producer.waiting

    async def pump(self) -> None:
        """Serve reports for ever; run it as a task beside the agents."""
        while True:
            self.poll()
            await asyncio.sleep(IDLE_PUMP_S)
