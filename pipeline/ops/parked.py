"""Parked partitions from outside the worker: where they are parked, and deciding about them.

Only the journal is read, from the committed offset of the worker's group on: no snapshot store and
no running worker are needed. A decision is a record in the journal; it is refused where the
partition is not parked, since there it would have no effect.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pipeline.errors import DeliveryError, RefusalError
from pipeline.kafka.clients import ClientSettings
from pipeline.kafka.reader import committed_offsets, read_range, watermarks
from pipeline.kafka.writer import CheckedProducer
from pipeline.learning.poison import CRASHES_MAX, CrashLog
from topics.journal import Control, Retry, Skip, write_control


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

    client: ClientSettings
    journal: str
    group: str
    partition: int

    def crash_log(self, newest: int | None = None) -> tuple[int, CrashLog]:
        """What is decided behind the last snapshot, and where that is.

        With `newest` at most so many records are read: a parked partition is never long, since the
        sequencer waits for its learner.
        """
        low, high = watermarks(self.client, self.journal, self.partition)
        committed = committed_offsets(self.client, self.group, self.journal, [self.partition])
        start = max(low, committed[self.partition] or 0)
        if newest is not None:
            start = max(start, high - newest)
        log = CrashLog(start)
        if start < high:
            log.read(read_range(self.client, self.journal, self.partition, start, high))
        return start, log

    def parked(self, newest: int | None = None) -> Parked | None:
        """Where it is parked; None if it is not."""
        return self._parked(*self.crash_log(newest))

    def _parked(self, start: int, log: CrashLog) -> Parked | None:
        offset = log.parked_at(start)
        crash = log.last_crash(offset) if offset is not None else None
        if offset is None or crash is None:
            return None
        return Parked(self.partition, offset, log.crashes(offset), crash.error, crash.place)

    def decide(self, decision: Skip | Retry) -> Parked:
        """Append a decision about the record at which the partition is parked; durable on return.

        Raises `RefusalError` if it is not parked there.
        """
        start, log = self.crash_log()
        found = self._parked(start, log)
        if found is None or found.offset != decision.offset:
            raise RefusalError(self._why_not(start, log, found, decision.offset))
        append_control(self.client, self.journal, [self.partition], decision)
        return found

    def _why_not(self, start: int, log: CrashLog, found: Parked | None, offset: int) -> str:
        text = f"partition {self.partition} is not parked at {offset}"
        if found is not None:
            return f"{text}: it is parked at {found.offset}"
        if offset in log.skips:
            return f"{text}: that record is already skipped"
        if offset < start:
            return f"{text}: the worker has passed it and is at {start}"
        noted = log.crashes(offset)
        times = "1 crash is" if noted == 1 else f"{noted} crashes are"
        return f"{text}: {times} recorded there, and {CRASHES_MAX} park it"


def append_control(
    client: ClientSettings, journal: str, partitions: Iterable[int], decision: Control
) -> None:
    """Append a decision to partitions of the journal; durable on return."""
    value, headers = write_control(decision)
    producer = CheckedProducer(client, advice="run it again")
    try:
        for partition in partitions:
            producer.send(journal, None, value, headers, partition)
        producer.flush()
    except DeliveryError as error:
        raise DeliveryError(f"the decision was not written: {error}") from None
