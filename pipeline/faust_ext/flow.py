"""The records of one topic partition on their way from Faust: what is new, how far it has read."""

from __future__ import annotations

from typing import Any, NamedTuple

from aiokafka.structs import TopicPartition
from faust.types import TP

from pipeline.errors import FAILED, exit_now
from pipeline.faust_ext.consumer import FetchedBatch
from pipeline.kafka.record import Record


class Delivery(NamedTuple):
    """A record, and whether it follows the one delivered before it; the first does not."""

    record: Record
    linked: bool


class PartitionFlow:
    """The flow of one topic partition. A rebalance resumes it by itself.

    `received` is the last record that came, or the one before the offset from which Faust reads.
    """

    def __init__(self, app: Any, topic: str, partition: int) -> None:
        self._app = app
        self._tp = TP(topic, partition)
        self._received: int | None = None
        self._paused = False

    @property
    def received(self) -> int:
        """The offset of the last record that came."""
        return self.sought - 1 if self._received is None else self._received

    @property
    def sought(self) -> int:
        """From where this generation reads: what was committed when it began; 0 for nothing."""
        return int(self._app.consumer.sought.get(self._tp, 0))

    def accept(self, batch: FetchedBatch) -> list[Delivery]:
        """Take what a fetch brought; records that came before are left out.

        Ends the process if Faust has lost records in front of it: they are read again then.
        """
        received, before = self.received, batch.before
        if before > received and before >= self.sought:  # not sought: nobody has taken these
            exit_now(
                FAILED,
                f"{self._tp.topic} partition {self._tp.partition}: Faust lost records in front of "
                f"{batch.records[0].offset}; they will be read again from the committed offset",
            )
        deliveries = []
        for record in batch.records:
            if record.offset > received:
                linked = before == self._received
                deliveries.append(Delivery(Record.from_aiokafka(record), linked))
                self._received = received = record.offset
            before = record.offset
        return deliveries

    def pause(self) -> None:
        """Fetch no more for now."""
        if not self._paused:
            self._paused = True
            self._app.consumer.pause_partitions({self._tp})

    def resume(self) -> None:
        """Fetch again."""
        if self._paused:
            self._paused = False
            if self._tp in self._app.consumer.assignment():
                self._app.consumer.resume_partitions({self._tp})

    def rejoined(self) -> None:
        """After a rebalance that left us the partition: Faust has resumed it."""
        self._paused = False

    @property
    def position(self) -> int | None:
        """How far the consumer has fetched; None if it has no position."""
        state = self._state
        return None if state is None else state._position

    @property
    def position_and_end(self) -> tuple[int, int] | None:
        """How far the consumer has fetched, and the end of committed records as it last knew it.

        None while it knows nothing. What is fetched may still be on its way to the agent.
        """
        state = self._state
        if state is None or state.lso is None or state._position is None:
            return None
        return int(state._position), int(state.lso)

    @property
    def last_fetch_ms(self) -> int:
        """When the broker last answered a fetch of this partition, wall clock; 0 for never."""
        state = self._state
        return 0 if state is None or state.timestamp is None else int(state.timestamp)

    def has_backlog(self, received: int, end: int | None = None) -> bool:
        """Whether there are records beyond `received`: on their way to the agent, or at the broker.

        `end` is what the broker itself answered, if it was asked: a consumer that has gone silent
        knows nothing new. A position at the end is no backlog even if fewer records were received:
        the rest are markers of transactions.
        """
        position, known_end = self.position_and_end or (received + 1, received + 1)
        fetched = self._app.consumer.fetched.get(self._tp)
        if fetched is not None and max(received, self.sought - 1) < fetched.last < position:
            return True
        return max(known_end, end or 0) > max(position, received + 1)

    @property
    def _state(self) -> Any:
        """What aiokafka knows of the partition; None while it is not assigned."""
        consumer = self._app.consumer._thread._consumer
        subscription = consumer._subscription.subscription if consumer is not None else None
        assignment = subscription.assignment if subscription is not None else None
        if assignment is None:
            return None
        key = TopicPartition(*self._tp)
        return assignment.state_value(key) if key in assignment.tps else None
