"""Where one partition must stop: crashes noted in its journal, and what was decided about them.

The first crashes at a record end the process, which is started again; the third parks the
partition: its fold stands in front of the record, nothing behind it is applied or committed, and
the other partitions go on. The journal is asked now and then whether an operator has decided.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from pipeline.decisions import CRASHES_MAX, Ahead, BugError, read_ahead
from pipeline.fold import Place
from pipeline.outbox import Lane
from topics.journal import write_control

log = logging.getLogger(__name__)

LOOK_S = 3.0
"""How often a parked partition looks for a decision: nobody waits for it at night."""
NOTE_S = 30.0
"""How long the note of a crash may take; a cluster that is away must not keep a broken worker."""


class Parking:
    """The decisions about one journal partition; `offset` is where it is parked."""

    def __init__(self, place: Place, client: Mapping[str, Any], journal: Lane) -> None:
        self._place = place
        self._client = client
        self._journal = journal
        self._ahead = Ahead()
        self.offset: int | None = None

    @property
    def looked(self) -> int:
        """How far the journal has been looked through."""
        return self._ahead.next_offset

    @property
    def skips(self) -> frozenset[int]:
        """Offsets that are to be left out."""
        return self._ahead.skips

    def look(self, start: int, end: int | None, abandoned: Callable[[], bool]) -> None:
        """In a thread: every decision from `start` on. Sets where the fold must stop."""
        self._ahead = Ahead(start)
        self._read(start, end, abandoned)

    def look_again(self, abandoned: Callable[[], bool]) -> None:
        """In a thread: see whether anything that was appended since ends the parking."""
        assert self.offset is not None
        parked = self.offset
        self._read(parked, None, abandoned)
        if self.offset == parked:
            return
        done = "left out" if parked in self.skips else "tried again"
        log.warning(
            "partition %d: the record at journal offset %d is %s, as was decided",
            self._place.partition,
            parked,
            done,
        )

    def _read(self, start: int, end: int | None, abandoned: Callable[[], bool]) -> None:
        place = self._place
        read_ahead(self._ahead, self._client, place.journal, place.partition, end, abandoned)
        self.offset = self._ahead.parked(start)

    async def note(self, bug: BugError) -> bool:
        """Append the crash to the journal; whether the partition is now parked there.

        Where the note cannot be made durable, the crash is as if it were the first: the process
        ends as it would have, and nothing is lost but the count.
        """
        offset = bug.offset
        value, headers = write_control(bug.crash)
        self._journal.send(None, value, headers)
        try:
            await asyncio.wait_for(self._journal.settled(), NOTE_S)
        except TimeoutError:
            log.error("partition %d: the crash could not be noted", self._place.partition)
            return False
        count = self._ahead.crashes(offset) + 1
        return count >= CRASHES_MAX and offset not in self.skips

    @property
    def sentence(self) -> str:
        """What is the matter, and what to do."""
        partition, offset = self._place.partition, self.offset
        assert offset is not None
        crash = self._ahead.last_crash(offset)
        what = f" ({crash.error} at {crash.place})" if crash is not None else ""
        return (
            f"partition {partition}: parked at journal offset {offset}, where the worker failed "
            f"{self._ahead.crashes(offset)} times{what}; leave the record out with: dtgol journal "
            f"skip --partition {partition} --offset {offset} --note WHY; or, with the bug mended, "
            f"dtgol journal retry"
        )

    def about(self) -> dict[str, Any] | None:
        """What `/status` shows; None if it is not parked."""
        if self.offset is None:
            return None
        crash = self._ahead.last_crash(self.offset)
        return {
            "offset": self.offset,
            "crashes": self._ahead.crashes(self.offset),
            "error": crash.error if crash else None,
            "place": crash.place if crash else None,
        }
