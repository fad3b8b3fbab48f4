"""Poison records, on which the fold fails: crashes in the journal, and the decisions about them.

A worker that fails on a record appends a `crash` to the journal and ends. One that dies on it
without an exception has left its place in a file (`pipeline.runtime.positions`), and the next start
appends the crash. The third crash at one record, of whatever kind, parks the partition: its fold
stops before the record, nothing after it is applied or committed, and the other partitions go on. A
`skip` then leaves the record out for ever, a `retry` lets it be tried again. A skip counts only
where the journal shows the partition parked, so it can never undo what was applied. Crashes and
decisions come after the record they are about, so every fold that starts at or before the record
finds the same decisions. They are read ahead of the fold, by worker, restore, replay and tests
alike.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Any

from pipeline.errors import FoldBugError, RefusalError
from pipeline.kafka.record import Record
from pipeline.kafka.writer import CheckedProducer, PartitionWriter
from pipeline.learning.fold import Fold
from pipeline.learning.fold_config import Lineage
from pipeline.learning.outputs import Output, PartitionRef
from pipeline.runtime.port import PartitionKafka
from pipeline.runtime.positions import PositionFile
from topics.journal import Crash, Retry, Skip, Version, read_control, write_control

log = logging.getLogger(__name__)

DIED = "the process died without an exception: out of memory, a signal, or stuck"
CRASHES_MAX = 3
"""One or two crashes may have a passing cause; a fold that fails three times will fail again."""


def apply_or_report(fold: Fold, record: Record) -> list[Output]:
    """Fold one record in; any exception becomes a `FoldBugError` with its place."""
    try:
        return fold.apply(record)
    except RefusalError:
        raise
    except Exception as error:
        raise FoldBugError(record.offset, error) from None


def note_deaths(positions: PositionFile, journal: str, producer: CheckedProducer) -> None:
    """Append a crash for every record at which a process on this machine died without a word.

    Noted before the file goes: a second death in between counts the first one twice, which costs
    one try. Others may have folded the record since; then the crash stands before their snapshot
    and means nothing.
    """
    for partition, offset in positions.of_dead_processes():
        value, headers = write_control(Crash(offset, DIED))
        producer.send(journal, None, value, headers, partition)
        producer.flush()
        log.error("partition %d: a process died at journal offset %d, noted", partition, offset)


class CrashLog:
    """Crashes and decisions in a journal partition from `start` on, as far as it has been read."""

    def __init__(self, start: int = 0) -> None:
        self.next_offset = start
        self._crashes: dict[int, list[Crash]] = {}
        self._skips: set[int] = set()
        self.marked: Lineage | None = None
        """The newest `version` record."""

    @staticmethod
    def of(records: Iterable[Record]) -> CrashLog:
        """The crash log of journal records that are at hand."""
        log = CrashLog()
        log.read(records)
        return log

    def read(self, records: Iterable[Record]) -> None:
        """Read on."""
        for record in records:
            self.next_offset = record.offset + 1
            if record.key is None and len(record.headers) == 1:
                control = read_control(record.value, record.headers)
                if isinstance(control, Crash | Skip | Retry) and control.offset < record.offset:
                    self._note(control)
                elif isinstance(control, Version):
                    self.marked = Lineage(control.fold, control.since)

    def _note(self, control: Crash | Skip | Retry) -> None:
        if isinstance(control, Crash):
            self._crashes.setdefault(control.offset, []).append(control)
        elif isinstance(control, Retry):
            if control.offset not in self._skips:
                self._crashes.pop(control.offset, None)
        elif self.crashes(control.offset) >= CRASHES_MAX:
            self._skips.add(control.offset)

    @property
    def skips(self) -> frozenset[int]:
        """Journal offsets that are never applied."""
        return frozenset(self._skips)

    def crashes(self, offset: int) -> int:
        """How often a worker has failed there since it was last allowed to try again."""
        return len(self._crashes.get(offset, ()))

    def last_crash(self, offset: int) -> Crash | None:
        """The newest of them."""
        noted = self._crashes.get(offset)
        return noted[-1] if noted else None

    def parked_at(self, start: int) -> int | None:
        """The first offset, from `start` on, where a fold must stop and wait; None for none."""
        waiting = (
            offset
            for offset in self._crashes
            if offset >= start and offset not in self._skips and self.crashes(offset) >= CRASHES_MAX
        )
        return min(waiting, default=None)


class PoisonGuard:
    """Keeps the fold of one partition from a record on which it fails again and again."""

    recheck_s = 3.0
    """How often a parked partition reads the journal for a decision."""
    note_s = 30.0
    """How long appending the crash may take: the worker must end, also without a cluster."""

    def __init__(
        self,
        ref: PartitionRef,
        kafka: PartitionKafka,
        journal: PartitionWriter,
        positions: PositionFile | None = None,
    ) -> None:
        self._ref = ref
        self._kafka = kafka
        self._journal = journal
        self._positions = positions
        self._log = CrashLog()
        self.parked_at: int | None = None
        """The journal offset before which the fold must wait; None if it may go on."""

    def apply(self, fold: Fold, record: Record) -> list[Output]:
        """Fold one record in, its place noted meanwhile; `FoldBugError` if the fold raises."""
        if self._positions is None:
            return apply_or_report(fold, record)
        self._positions.enter(self._ref.partition, record.offset)
        try:
            return apply_or_report(fold, record)
        finally:
            self._positions.leave(self._ref.partition)

    @property
    def next_offset(self) -> int:
        """How far the journal has been read for decisions."""
        return self._log.next_offset

    @property
    def skips(self) -> frozenset[int]:
        """Offsets that are to be left out."""
        return self._log.skips

    @property
    def marked(self) -> Lineage | None:
        """The newest `version` record that was read."""
        return self._log.marked

    def read(self, start: int, end: int | None) -> None:
        """Every decision from `start` on. Sets where the fold must stop. Blocks."""
        self._log = CrashLog(start)
        self._read(start, end)

    def read_on(self) -> None:
        """Read what was appended since, which may end the parking. Blocks."""
        assert self.parked_at is not None
        parked = self.parked_at
        self._read(parked, None)
        if self.parked_at == parked:
            return
        done = "left out" if parked in self.skips else "tried again"
        log.warning(
            "partition %d: the record at journal offset %d is %s, as was decided",
            self._ref.partition,
            parked,
            done,
        )

    def _read(self, start: int, end: int | None) -> None:
        begin = self._log.next_offset
        if end is None or begin < end:
            self._log.read(self._kafka.read(self._ref.journal, begin, end))
        self.parked_at = self._log.parked_at(start)

    async def note(self, bug: FoldBugError) -> bool:
        """Append the crash to the journal; whether the partition is now parked there.

        If the append is not durable in time, the process ends all the same and this crash is not
        counted; nothing else is lost.
        """
        offset = bug.offset
        value, headers = write_control(Crash(offset, bug.error, bug.place))
        self._journal.send(None, value, headers)
        try:
            await asyncio.wait_for(self._journal.settled(), self.note_s)
        except TimeoutError:
            log.error(
                "partition %d: the crash could not be appended to the journal", self._ref.partition
            )
            return False
        count = self._log.crashes(offset) + 1
        return count >= CRASHES_MAX and offset not in self.skips

    @property
    def sentence(self) -> str:
        """Where and why it is parked, and what to do."""
        partition, offset = self._ref.partition, self.parked_at
        assert offset is not None
        crash = self._log.last_crash(offset)
        at = f" at {crash.place}" if crash is not None and crash.place else ""
        what = f" ({crash.error}{at})" if crash is not None else ""
        return (
            f"parked at journal offset {offset}, where the worker failed "
            f"{self._log.crashes(offset)} times{what}; leave the record out with: dtgol journal "
            f"skip --partition {partition} --offset {offset} --note WHY; or, with the bug fixed, "
            f"dtgol journal retry"
        )

    def status(self) -> dict[str, Any] | None:
        """What `/status` shows; None if it is not parked."""
        if self.parked_at is None:
            return None
        crash = self._log.last_crash(self.parked_at)
        return {
            "offset": self.parked_at,
            "crashes": self._log.crashes(self.parked_at),
            "error": crash.error if crash else None,
            "place": crash.place if crash else None,
        }
