"""Parked partitions seen from outside: where they stand, and deciding about them.

Only the journal is asked, from what the worker's group has committed on: no snapshot store, no
running worker. A decision is a record in the journal, in the open; it is refused where the
partition is not parked, since there it would count for nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from pipeline.cluster import offsets_of_group
from pipeline.decisions import CRASHES_MAX, Ahead, read_ahead
from pipeline.reader import bounds, open_reader
from pipeline.snapshots import RefusalError
from topics.journal import Retry, Skip, write_control

DURABLE_S = 60.0


@dataclass(frozen=True, slots=True)
class Parked:
    """A partition that waits for a decision about one record."""

    partition: int
    offset: int
    crashes: int
    error: str
    place: str


@dataclass(frozen=True)
class JournalPartition:
    """One partition of a journal, and the group that folds it; `client` may hold secrets."""

    client: Mapping[str, Any]
    journal: str
    group: str
    partition: int

    def look(self, newest: int | None = None) -> tuple[int, Ahead]:
        """What is decided behind the last snapshot, and where that is.

        With `newest` at most so many records are looked at: a parked partition is never long, since
        the sequencer waits for its learner.
        """
        consumer = open_reader(self.client)
        try:
            low, high = bounds(consumer, self.journal, self.partition)
        finally:
            consumer.close()
        told = offsets_of_group(self.client, self.group, self.journal, [self.partition])
        start = max(low, told[self.partition] or 0)
        if newest is not None:
            start = max(start, high - newest)
        ahead = Ahead(start)
        read_ahead(ahead, self.client, self.journal, self.partition, high)
        return start, ahead

    def parked(self, newest: int | None = None) -> Parked | None:
        """Where it is parked; None if it is not."""
        return self._parked(*self.look(newest))

    def _parked(self, start: int, ahead: Ahead) -> Parked | None:
        offset = ahead.parked(start)
        crash = ahead.last_crash(offset) if offset is not None else None
        if offset is None or crash is None:
            return None
        return Parked(self.partition, offset, ahead.crashes(offset), crash.error, crash.place)

    def decide(self, decision: Skip | Retry) -> Parked:
        """Append a decision about the record at which the partition is parked; durable on return.

        Raises `RefusalError` if it is not parked there.
        """
        start, ahead = self.look()
        found = self._parked(start, ahead)
        if found is None or found.offset != decision.offset:
            raise RefusalError(self._why_not(start, ahead, found, decision.offset))
        self._append(decision)
        return found

    def _why_not(self, start: int, ahead: Ahead, found: Parked | None, offset: int) -> str:
        said = f"partition {self.partition} is not parked at {offset}"
        if found is not None:
            return f"{said}: it is parked at {found.offset}"
        if offset in ahead.skips:
            return f"{said}: that record is already left out"
        if offset < start:
            return f"{said}: the worker has passed it and stands at {start}"
        noted = ahead.crashes(offset)
        times = "1 crash is" if noted == 1 else f"{noted} crashes are"
        return f"{said}: {times} noted there, and {CRASHES_MAX} park it"

    def _append(self, decision: Skip | Retry) -> None:
        failures: list[str] = []

        def report(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failures.append(error.str())

        value, headers = write_control(decision)
        settings = {"enable.idempotence": True, "message.timeout.ms": int(DURABLE_S * 1000)}
        try:
            producer = Producer({**self.client, **settings, "log_level": 0})
            producer.produce(
                self.journal,
                value=value,
                partition=self.partition,
                headers=headers,  # type: ignore[arg-type]
                on_delivery=report,
            )
            left = producer.flush(DURABLE_S + 5)
        except KafkaException as error:
            failures.append(error.args[0].str())
            left = 0
        if left or failures:
            why = failures[0] if failures else f"not acknowledged within {DURABLE_S:g} s"
            raise RefusalError(f"{self.journal} did not take the decision: {why}; run it again")
