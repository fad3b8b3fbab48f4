"""The evaluator: predictions and labels of one partition -> scores, and its snapshots.

At least once; of one identity the newest score counts. Durable in this order: scores, blob,
manifest, offsets of both topics. Restored as the learner is: snapshot, then a reader in no group up
to what is committed; since the state does not depend on the order, any order will do.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from pipeline.cluster import offsets_of_group
from pipeline.evaluation import Bounds, Cut, Evaluation
from pipeline.faustapp import Valve, committed, end, lost_before, milliseconds
from pipeline.outbox import Lane, Outbox
from pipeline.reader import AbandonedError, look_at, read_range
from pipeline.snapshots import RefusalError, Saved, Shelf, StoreError
from topics.codec import read_label, read_prediction, write_score
from topics.refusals import Limits, Rejection

log = logging.getLogger(__name__)

BURST_S = 0.02
IDLE_S = 0.5
QUEUE_MAX = 2_000
Commit = Callable[[Mapping[str, int]], Awaitable[bool]]


class Received(NamedTuple):
    """A record of either topic, by plain name."""

    topic: str
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True)
class Bench:
    """What a booth is told."""

    client: Mapping[str, Any]
    group: str
    journal_id: str
    names: Mapping[str, str]
    bounds: Bounds
    limits: Limits
    snapshot_records: int
    snapshot_s: float
    accept_gap: bool = False


class Booth:
    """The evaluator's place at one partition."""

    def __init__(
        self, partition: int, bench: Bench, outbox: Outbox, scores: Lane, shelf: Shelf, app: Any
    ) -> None:
        self.partition = partition
        self._bench = bench
        self._outbox = outbox
        self._scores = scores
        self._shelf = shelf
        self._app = app
        self._valves = {name: Valve(app, full, partition) for name, full in bench.names.items()}
        self._plain = {full: name for name, full in bench.names.items()}
        self._queue: deque[Received] = deque()
        self._received: dict[str, int] = {}
        self._wake = asyncio.Event()
        self._abandoned = False
        self._saving: asyncio.Task[None] | None = None
        self._saved_at = time.monotonic()
        self._fresh = 0
        self._taken = 0
        self.evaluation: Evaluation | None = None
        self.ready = asyncio.Event()
        self.saved: Saved | None = None
        self.save_failure: str | None = None
        self.restored_records = 0

    @property
    def waiting(self) -> int:
        """Records received and not taken in."""
        return len(self._queue)

    def behind(self, ends: Mapping[tuple[str, int], int]) -> bool:
        """Whether there is anything to take in: here, on its way, or at the broker by `ends`."""
        return bool(self._queue) or any(
            valve.unread(self._last_received(name), ends.get((full, self.partition)))
            for (name, full), valve in zip(
                self._bench.names.items(), self._valves.values(), strict=True
            )
        )

    @property
    def moved(self) -> tuple[Any, ...]:
        """Something that changes with every step forward."""
        return self._taken, *(valve.fetched for valve in self._valves.values())

    def _last_received(self, name: str) -> int:
        """The last record that came, or the one before the offset from which Faust reads."""
        received = self._received.get(name)
        if received is not None:
            return received
        return committed(self._app, self._bench.names[name], self.partition) - 1

    def put(self, message: Any) -> None:
        """Take in one message from Faust."""
        name = self._plain[message.topic]
        received = self._last_received(name)
        lost = lost_before(self._app, message, received)
        if message.offset <= received:
            return
        if lost:
            end(
                1,
                f"{message.topic} partition {self.partition}: Faust lost records in front of "
                f"{message.offset}; they will be read again from the committed offset",
            )
        self._received[name] = message.offset
        self._queue.append(
            Received(name, message.offset, milliseconds(message), message.key, message.value)
        )
        self._wake.set()
        if len(self._queue) >= QUEUE_MAX:
            for valve in self._valves.values():
                valve.close()

    def rejoin(self) -> None:
        """After a rebalance that left us the partition: Faust has opened all valves."""
        for valve in self._valves.values():
            valve.closed = False

    async def run(self, commit: Commit) -> None:
        """Restore, then take in what comes, for as long as the partition is ours."""
        try:
            evaluation = self.evaluation = await asyncio.to_thread(self._restore)
        except AbandonedError:
            return
        self.ready.set()
        while True:
            await self._outbox.room()
            if not self._burst(evaluation):
                self._wake.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), IDLE_S)
            await asyncio.sleep(0)
            self._save_if_due(evaluation, commit)

    def _burst(self, evaluation: Evaluation) -> bool:
        until = time.monotonic() + BURST_S
        worked = False
        while self._queue and time.monotonic() < until:
            worked = True
            self._taken += 1
            self._take(evaluation, self._queue.popleft(), True)
        self._outbox.poll()
        if len(self._queue) < QUEUE_MAX // 2:
            for valve in self._valves.values():
                valve.open()
        return worked

    def _take(self, evaluation: Evaluation, record: Received, emit: bool) -> None:
        """Take one record in, unless it is known by its offset; hand its scores over."""
        if record.offset < evaluation.next_offsets[record.topic]:
            return
        evaluation.next_offsets[record.topic] = record.offset + 1
        self._fresh += 1
        if record.topic == "predictions":
            prediction = read_prediction(record.value)
            if isinstance(prediction, Rejection):
                evaluation.counts["predictions/refused"] += 1
                return
            scores = evaluation.predict(prediction)
        else:
            limits = self._bench.limits
            label = read_label(record.value, record.key, record.timestamp_ms, limits)
            if isinstance(label, Rejection):
                evaluation.counts["labels/refused"] += 1
                return
            scores = evaluation.label(label, record.offset)
        if emit:
            for score in scores:
                self._scores.send(record.key, write_score(score), [])

    def _restore(self) -> Evaluation:
        """In a thread: snapshot, then both topics up to what the group has committed."""
        bench, partition = self._bench, self.partition
        known = bench.journal_id, partition, bench.bounds
        found = self._shelf.load(lambda state, blobs: Evaluation.restore(*known, state, blobs))
        evaluation = found or Evaluation(*known)
        for name, full in bench.names.items():
            told = offsets_of_group(bench.client, bench.group, full, [partition])[partition]
            start = self._start(evaluation, name, full, found is not None)
            for message in read_range(
                bench.client, full, partition, start, told or 0, lambda: self._abandoned
            ):
                value, key = message.value(), message.key()
                assert not isinstance(value, str)
                assert not isinstance(key, str)
                offset = message.offset() or 0
                record = Received(name, offset, message.timestamp()[1], key, value)
                self._take(evaluation, record, False)
                self.restored_records += 1
        return evaluation

    def _start(self, evaluation: Evaluation, name: str, full: str, found: bool) -> int:
        low, high = look_at(self._bench.client, full, self.partition)
        start = evaluation.next_offsets[name]
        if start > high:
            raise RefusalError(
                f"the evaluator's snapshot of {full} partition {self.partition} is at {start} and "
                f"the topic ends at {high}: it is not the topic that was read"
            )
        if found and start < low and not self._bench.accept_gap:
            raise RefusalError(
                f"{full} partition {self.partition} begins at {low} and the evaluator is at "
                f"{start}: records between are gone; --accept-gap goes on without them"
            )
        return max(start, low)

    def _save_if_due(self, evaluation: Evaluation, commit: Commit) -> None:
        if self._saving is not None:
            if not self._saving.done():
                return
            self._saving.result()
            self._saving = None
        many = self._fresh >= self._bench.snapshot_records and self.save_failure is None
        late = time.monotonic() - self._saved_at >= self._bench.snapshot_s
        if many or (self._fresh and late):
            self._saving = asyncio.create_task(self._save(evaluation.cut(), commit))
            self._fresh = 0

    def _write(self, taken: Cut) -> Saved:
        """In a thread: blob, then manifest."""
        state, blobs = taken.snapshot()
        return self._shelf.save(sum(state["next_offsets"].values()), state, blobs)

    async def _save(self, taken: Cut, commit: Commit) -> None:
        offsets = dict(taken.state["next_offsets"])
        await self._scores.settled()  # 1. scores given before the cut are durable
        try:  # 2. and 3. blob, then manifest
            self.saved = await asyncio.to_thread(self._write, taken)
            self.save_failure = None
        except StoreError as error:
            self.save_failure = str(error)
            self._fresh += 1
            log.error("partition %d: no snapshot: %s", self.partition, error)
        else:
            await commit(offsets)  # 4. only now the group's offsets move
        self._saved_at = time.monotonic()

    async def finish(self, commit: Commit) -> None:
        """A last snapshot before an orderly end; the run has been cancelled before."""
        if self._saving is not None:
            await self._saving
        if self.evaluation is not None and self._fresh:
            await self._save(self.evaluation.cut(), commit)

    def stop_reading(self) -> None:
        """Let a restore that is under way end soon, without a result."""
        self._abandoned = True

    def abandon(self) -> None:
        """The partition is not ours any more: stop reading and saving."""
        self.stop_reading()
        if self._saving is not None:
            self._saving.cancel()
