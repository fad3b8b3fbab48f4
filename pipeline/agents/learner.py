"""The learner: the journal of one partition -> predictions and dead letters, and its snapshots.

The state is the fold's. It is restored outside Faust: from the newest whole snapshot, then by a
reader in no group up to where the group has committed; what Faust delivers continues it, records
already folded are skipped, and a gap is read the same way; after a long one, which others have
filled meanwhile, the state is restored again. At least once, ordered by the journal.

Durable in this order: predictions, blobs, manifest, offset. A snapshot that fails is tried again
with the next; nothing is committed without one. A bug is noted in the journal and ends the process;
the third at one record parks the partition in front of it (`parking`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.agents.parking import LOOK_S, Parking
from pipeline.cluster import offsets_of_group
from pipeline.decisions import BugError, applied, journal_record
from pipeline.engine.faustapp import Valve, headers_of, milliseconds
from pipeline.fold import Fold, FoldSnapshot, JournalRecord, Output, Place
from pipeline.outbox import Lane, Outbox
from pipeline.reader import AbandonedError, look_at, read_range
from pipeline.rules import Rules
from pipeline.snapshots import RefusalError, Saved, Shelf, StoreError
from topics.journal import ConfigChange, Reset, write_control

log = logging.getLogger(__name__)

BURST_S = 0.02
"""How long one partition may keep the event loop: others, timers and the web wait as long."""
IDLE_S = 0.5
QUEUE_MAX = 2_000


@dataclass(frozen=True)
class Lanes:
    """Where a partition writes."""

    predictions: Lane
    dead: Lane
    journal: Lane


@dataclass(frozen=True)
class Desk:
    """What a seat is told: rules, places, patience."""

    client: Mapping[str, Any]
    group: str
    rules: Rules
    snapshot_records: int
    snapshot_s: float
    accept_gap: bool = False
    reset_changed: bool = False


class OvertakenError(Exception):
    """Others have gone on while we were away: their snapshot is nearer than our state."""


class Seat:
    """The learner's place at one partition."""

    def __init__(
        self,
        place: Place,
        desk: Desk,
        outbox: Outbox,
        lanes: Lanes,
        shelf: Shelf,
        valve: Valve,
    ) -> None:
        self.place = place
        self._desk = desk
        self._outbox = outbox
        self._lanes = lanes
        self._shelf = shelf
        self._valve = valve
        self.parking = Parking(place, desk.client, lanes.journal)
        self._queue: deque[JournalRecord] = deque()
        self._wake = asyncio.Event()
        self._abandoned = False
        self._filling = False
        self._emit_from = 0
        self._end = 0
        self._saving: asyncio.Task[None] | None = None
        self._saved_at = time.monotonic()
        self.fold: Fold | None = None
        self.ready = asyncio.Event()
        self.restoring = False
        self._restored_for = 0
        self.saved: Saved | None = None
        self.saved_offset = 0
        self.save_failure: str | None = None
        self.busy_s = 0.0
        self.restored_records = 0

    @property
    def next_offset(self) -> int:
        """The first journal offset that is not folded."""
        return self.fold.next_offset if self.fold is not None else 0

    @property
    def waiting(self) -> int:
        """Journal records received and not folded."""
        return len(self._queue)

    def behind(self, ends: Mapping[tuple[str, int], int]) -> bool:
        """Whether there is anything to fold: here, on its way, or at the broker by `ends`."""
        at = self.place.journal, self.place.partition
        return bool(self._queue) or self._valve.unread(self.next_offset - 1, ends.get(at))

    @property
    def moved(self) -> tuple[Any, ...]:
        """Something that changes with every step forward."""
        return self.next_offset, self._valve.fetched

    def put(self, message: Any) -> None:
        """Take in one message of the journal from Faust."""
        if message.offset >= self.next_offset:
            self._queue.append(
                JournalRecord(
                    message.offset,
                    milliseconds(message),
                    message.key,
                    message.value,
                    headers_of(message),
                )
            )
            self._wake.set()
        if len(self._queue) >= QUEUE_MAX:
            self._valve.close()

    def rejoin(self) -> None:
        """After a rebalance that left us the partition: Faust has opened the valve."""
        self._valve.closed = False

    async def run(self, commit: Callable[[int], Awaitable[bool]]) -> None:
        """Restore, then fold what comes, for as long as the partition is ours."""
        while True:
            try:
                fold = self.fold = await asyncio.to_thread(self._restore)
                await self._serve(fold, commit)
            except AbandonedError:
                return
            except OvertakenError:
                await self._begin_again()
            except BugError as bug:
                await self._crashed(bug)

    async def _serve(self, fold: Fold, commit: Callable[[int], Awaitable[bool]]) -> None:
        """Fold what comes, for ever.

        Ready, and the rules said, when the journal is folded up to where it ended at the start:
        what is in force is known only there.
        """
        if self.parking.offset is not None:
            log.critical("%s", self.parking.sentence)
        while True:
            if not self.ready.is_set() and fold.next_offset >= self._end:
                self._announce(fold)
                self.ready.set()
            await self._outbox.room()
            if self.parking.offset is not None:
                await self._wait(fold)
            elif not await self._burst(fold):
                await self._rest(IDLE_S)
            await asyncio.sleep(0)
            self._save_if_due(fold, commit)

    async def _rest(self, limit_s: float) -> None:
        self._wake.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), limit_s)

    async def _wait(self, fold: Fold) -> None:
        """In front of a record on which the fold fails, until somebody has decided about it."""
        assert self.parking.offset is not None
        if fold.next_offset < self.parking.offset:
            await self._fill(fold, self.parking.offset)
            return
        await asyncio.sleep(LOOK_S)
        await asyncio.to_thread(self.parking.look_again, lambda: self._abandoned)
        fold.skips = self.parking.skips

    async def _crashed(self, bug: BugError) -> None:
        """Note it; the process ends unless the partition is parked by it."""
        await self._begin_again()  # what it is like now, nobody knows
        log.critical("partition %d: %s", self.place.partition, bug.report)
        if not await self.parking.note(bug):
            raise bug

    async def _begin_again(self) -> None:
        """Let go of the state; the next is restored. Not being ready is not being stuck."""
        self.fold, self._filling = None, False
        if self._saving is not None:
            await self._saving
            self._saving = None
        self.restoring = False
        self.ready.clear()

    async def _burst(self, fold: Fold) -> bool:
        """Fold what is at hand, for a short while; whether there was anything."""
        start = time.monotonic()
        worked = False
        while self._queue and time.monotonic() < start + BURST_S:
            record = self._queue.popleft()
            if record.offset < fold.next_offset:
                continue
            if record.offset > fold.next_offset and not await self._caught_up(fold, record):
                return True
            self._emit(applied(fold, record))
            worked = True
        self._outbox.poll()
        if len(self._queue) < QUEUE_MAX // 2:
            self._valve.open()
        if worked:
            self.busy_s += time.monotonic() - start
        return worked

    async def _caught_up(self, fold: Fold, record: JournalRecord) -> bool:
        """Read what lies before a record, decisions about it included; False if parked by them.

        A long way is left to a restore, which is cheaper; once, in case it does not help.
        """
        self._queue.appendleft(record)
        if record.offset - fold.next_offset > QUEUE_MAX and self._restored_for != record.offset:
            self._restored_for = record.offset
            log.warning("journal partition %d: overtaken, restored again", self.place.partition)
            raise OvertakenError
        await asyncio.to_thread(self.parking.look, fold.next_offset, None, lambda: self._abandoned)
        fold.skips = self.parking.skips
        if self.parking.offset is not None:
            return False
        await self._fill(fold, record.offset)
        self._queue.popleft()
        return True

    async def _fill(self, fold: Fold, end: int) -> None:
        """Read what Faust has not delivered: nothing, where the journal has no such offsets."""
        outputs: list[Output] = []
        self._filling = True  # and so it stays if this is cancelled: the thread may go on folding
        count = await asyncio.to_thread(self._read, fold, end, outputs)
        self._filling = False
        if count:
            log.warning("journal partition %d: %d records read again", self.place.partition, count)
        self._emit(outputs)

    def _emit(self, outputs: list[Output]) -> None:
        for topic, key, value, headers in outputs:
            lane = self._lanes.predictions if topic == "predictions" else self._lanes.dead
            lane.send(key, value, headers)

    def _restore(self) -> Fold:
        """In a thread: snapshot, then the journal up to what the group has committed."""
        self.restoring = True
        place, desk = self.place, self._desk
        fold = self._shelf.load(lambda state, streams: Fold.restore(place, state, streams))
        found = fold is not None
        fold = fold or Fold(place)
        low, high = look_at(desk.client, place.journal, place.partition)
        self.saved_offset, self._end = fold.next_offset, high
        self._refuse(fold, found, low, high)
        self.parking.look(fold.next_offset, high, lambda: self._abandoned)
        fold.skips, parked = self.parking.skips, self.parking.offset
        committed = offsets_of_group(desk.client, desk.group, place.journal, [place.partition])
        self._emit_from = max(committed[place.partition] or 0, fold.next_offset)
        end = min(self._emit_from, high)
        self._read(fold, end if parked is None else min(end, parked), [])
        return fold

    def _refuse(self, fold: Fold, found: bool, low: int, high: int) -> None:
        place, accept = self.place, self._desk.accept_gap
        where = f"partition {place.partition} of {place.journal}"
        if fold.next_offset > high:
            raise RefusalError(
                f"the snapshot of {where} is at {fold.next_offset} and the journal ends at {high}: "
                f"it is not the journal that was folded; restore it, or use another prefix"
            )
        if fold.next_offset < low:
            held = f"the snapshot is at {fold.next_offset}" if found else "there is no snapshot"
            if not accept:
                raise RefusalError(
                    f"{where} begins at {low} and {held}: records between are gone; "
                    f"restore an older state, or go on without them with --accept-gap"
                )
            log.warning("%s: skipped %d to %d, accepted", where, fold.next_offset, low - 1)
            fold.jump(low)

    def _read(self, fold: Fold, end: int, outputs: list[Output]) -> int:
        """Fold the journal up to `end` outside Faust; outputs known to be out are left out."""
        count, place = 0, self.place
        if fold.next_offset >= end:
            return 0
        for message in read_range(
            self._desk.client,
            place.journal,
            place.partition,
            fold.next_offset,
            end,
            lambda: self._abandoned,
        ):
            record = journal_record(message)
            said = applied(fold, record)
            if record.offset >= self._emit_from:
                outputs += said
            count += 1
            if self.fold is None:
                self.restored_records = count
        fold.next_offset = max(fold.next_offset, end)
        return count

    def _announce(self, fold: Fold) -> None:
        """Append our rules to the journal if others are in force; they hold from there on."""
        rules = self._desk.rules
        if fold.rules_digest == rules.digest():
            return
        for name, stream in fold.streams.items():
            differ = rules.shape_differs(name, stream.learner.config)
            if not differ:
                continue
            if not self._desk.reset_changed:
                raise RefusalError(
                    f"stream {name} of partition {self.place.partition} was learnt with another "
                    f"{', '.join(differ)}, which cannot change in flight: set it as it was, or "
                    f"start with --reset-changed, which forgets all that such streams have learnt "
                    f"and who waits for a label, and cannot be undone"
                )
            self._append(Reset(name, f"changed: {', '.join(differ)}"))
        self._append(ConfigChange(rules.digest(), rules.as_mapping()))

    def _append(self, control: ConfigChange | Reset) -> None:
        value, headers = write_control(control)
        self._lanes.journal.send(None, value, headers)

    def _save_if_due(self, fold: Fold, commit: Callable[[int], Awaitable[bool]]) -> None:
        """Start a snapshot beside the work, one at a time; a failed one waits for its time."""
        if self._saving is not None:
            if not self._saving.done():
                return
            self._saving.result()
            self._saving = None
        fresh = fold.next_offset - self.saved_offset
        many = fresh >= self._desk.snapshot_records and self.save_failure is None
        late = time.monotonic() - self._saved_at >= self._desk.snapshot_s
        if many or (fresh > 0 and late):
            self._saving = asyncio.create_task(self._save(self._cut(fold), commit))

    def _cut(self, fold: Fold) -> FoldSnapshot:
        """The state between two records, as copies: the fold goes on while they are written."""
        return fold.snapshot(self._shelf.stored)

    async def _save(self, taken: FoldSnapshot, commit: Callable[[int], Awaitable[bool]]) -> None:
        await self._lanes.predictions.settled()  # 1. what was said before the cut is durable
        await self._lanes.dead.settled()
        try:  # 2. and 3. blobs, then the manifest
            saved = await asyncio.to_thread(
                self._shelf.save, taken.next_offset, taken.state, taken.streams
            )
        except StoreError as error:
            self.save_failure = str(error)
            log.error("partition %d: no snapshot: %s", self.place.partition, error)
        else:
            self.saved, self.saved_offset, self.save_failure = saved, saved.next_offset, None
            await commit(saved.next_offset)  # 4. only now the group's offset moves
        self._saved_at = time.monotonic()

    async def finish(self, commit: Callable[[int], Awaitable[bool]]) -> None:
        """A last snapshot before an orderly end; the run has been cancelled before."""
        if self._saving is not None:
            await self._saving
        fold = self.fold
        if fold is not None and not self._filling and fold.next_offset > self.saved_offset:
            await self._save(self._cut(fold), commit)

    def stop_reading(self) -> None:
        """Let a restore that is under way end soon, without a result."""
        self._abandoned = True

    def abandon(self) -> None:
        """The partition is not ours any more: stop reading and saving."""
        self.stop_reading()
        if self._saving is not None:
            self._saving.cancel()
