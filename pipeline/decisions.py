"""What a journal says about its own records, read ahead of the fold: crashes, skips, retries.

A worker that fails on a record appends a `crash`; three of them park the partition there. A `skip`
then leaves the record out for ever, a `retry` lets it be tried again. A skip counts only where the
journal shows the partition parked, so it can never undo what was applied; and since all of this
stands behind the record it is about, whoever folds from at or before that record finds the same
decisions. Worker, restore, replay and tests look them up here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from traceback import extract_tb
from typing import Any

from confluent_kafka import Message

from pipeline.answers import JournalRecord, Output
from pipeline.fold import Fold
from pipeline.reader import never, read_range
from topics.journal import Crash, Retry, Skip, read_control

CRASHES_MAX = 3
"""One may be chance and two a bad moment; a fold that fails three times will fail a fourth."""


class BugError(Exception):
    """The fold failed on one record: our bug. The fold it happened in must not be used again."""

    def __init__(self, offset: int, error: Exception) -> None:
        frames = extract_tb(error.__traceback__)
        place = f"{'/'.join(Path(frames[-1].filename).parts[-2:])}:{frames[-1].lineno}"
        self.offset = offset
        self.crash = Crash(offset, type(error).__name__, place)
        super().__init__(f"{self.crash.error} at {place} on the record at journal offset {offset}")
        self.report = f"{self}\n{''.join(frames.format())}"
        """With the way there. The exception's own text is left out: it may hold a value."""


def applied(fold: Fold, record: JournalRecord) -> list[Output]:
    """Fold one record in; whatever it raises is a `BugError` that says where."""
    try:
        return fold.apply(record)
    except Exception as error:
        raise BugError(record.offset, error) from None


class Ahead:
    """The decisions in a journal partition from `start` on, as far as it has been read."""

    def __init__(self, start: int = 0) -> None:
        self.next_offset = start
        self._crashes: dict[int, list[Crash]] = {}
        self._skips: set[int] = set()

    def take(self, record: JournalRecord) -> None:
        """Look at the next record."""
        self.next_offset = record.offset + 1
        if record.key is not None or len(record.headers) != 1:
            return
        control = read_control(record.value, record.headers)
        if not isinstance(control, Crash | Skip | Retry) or control.offset >= record.offset:
            return
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

    def parked(self, start: int) -> int | None:
        """The first offset, from `start` on, where a fold must stop and wait; None for none."""
        waiting = (
            offset
            for offset in self._crashes
            if offset >= start and offset not in self._skips and self.crashes(offset) >= CRASHES_MAX
        )
        return min(waiting, default=None)


def decisions(records: Iterable[JournalRecord]) -> Ahead:
    """The decisions in journal records that are at hand."""
    ahead = Ahead()
    for record in records:
        ahead.take(record)
    return ahead


def read_ahead(
    ahead: Ahead,
    client: Mapping[str, Any],
    journal: str,
    partition: int,
    end: int | None = None,
    abandoned: Callable[[], bool] = never,
) -> None:
    """Read on to before `end`, or to the end of the partition as it is then. Blocks."""
    start = ahead.next_offset
    if end is None or start < end:
        for message in read_range(client, journal, partition, start, end, abandoned):
            ahead.take(journal_record(message))


def journal_record(message: Message) -> JournalRecord:
    """A record as the reader delivers it."""
    offset = message.offset()
    assert offset is not None
    headers: Any = message.headers() or []
    key, value = message.key(), message.value()
    assert not isinstance(key, str)
    assert not isinstance(value, str)
    return JournalRecord(offset, message.timestamp()[1], key, value, headers)
