"""The evaluator: predictions and labels of one partition -> scores, and its snapshots.

At least once; of one identity the score of the newest label counts. Durable in this order: scores,
blob, manifest, offsets of both topics. Restored as the learner is: snapshot, then a reader in no
group up to what is committed; since the state does not depend on the order, any order will do. A
state that was overtaken, because another evaluator had the partition in between, is restored again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pipeline.cluster import offsets_of_group
from pipeline.engine.faustapp import Valve, committed, end, fetched_before, milliseconds
from pipeline.evaluation import Bounds, Cut, Evaluation
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
Sent = tuple[bytes | None, bytes]
"""A score under its key."""


class Received(NamedTuple):
    """A record of either topic, by plain name."""

    topic: str
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    linked: bool = True
    """Whether the record in front of it was received too; not so for the first after a seek."""


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
        self._needed: dict[str, int] = {}
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
        before = fetched_before(self._app, message)
        if message.offset <= received:
            return
        if received < before:
            end(
                1,
                f"{message.topic} partition {self.partition}: Faust lost records in front of "
                f"{message.offset}; they will be read again from the committed offset",
            )
        self._received[name] = message.offset
        time_ms, linked = milliseconds(message), before == received
        self._queue.append(
            Received(name, message.offset, time_ms, message.key, message.value, linked)
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
            while True:
                scores: list[Sent] = []
                evaluation = self.evaluation = await asyncio.to_thread(self._restore, scores)
                self._emit(scores)
                self.ready.set()
                await self._follow(evaluation, commit)
                self.ready.clear()
                self.evaluation = None
        except AbandonedError:
            return

    async def _follow(self, evaluation: Evaluation, commit: Commit) -> None:
        """Take in what comes, until others turn out to have been further than this state."""
        while not self._overtaken(evaluation):
            await self._outbox.room()
            if not self._burst(evaluation):
                self._wake.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), IDLE_S)
            await asyncio.sleep(0)
            self._save_if_due(evaluation, commit)
        if self._saving is not None:
            await self._saving

    def _overtaken(self, evaluation: Evaluation) -> bool:
        """Whether the next record follows some that this state does not have.

        So it is when the group had thrown us out, another evaluator went on, and the partition came
        back: Faust starts where the other one has committed.
        """
        if not self._gap(evaluation):
            return False
        first = self._queue[0]
        # What this state has taken from the queue will not come again: the next one must read it.
        self._needed = {**evaluation.next_offsets, first.topic: first.offset}
        self._queue[0] = first._replace(linked=True)
        log.warning("partition %d: overtaken, restored again", self.partition)
        return True

    def _gap(self, evaluation: Evaluation) -> bool:
        """Whether it is not known that nothing lies between the state and the next record."""
        if not self._queue or self._queue[0].linked:
            return False
        first = self._queue[0]
        return first.offset > evaluation.next_offsets[first.topic]

    def _burst(self, evaluation: Evaluation) -> bool:
        until = time.monotonic() + BURST_S
        worked = False
        while self._queue and time.monotonic() < until and not self._gap(evaluation):
            worked = True
            self._taken += 1
            self._emit(self._take(evaluation, self._queue.popleft()))
        self._outbox.poll()
        if len(self._queue) < QUEUE_MAX // 2:
            for valve in self._valves.values():
                valve.open()
        return worked

    def _take(self, evaluation: Evaluation, record: Received) -> list[Sent]:
        """Take one record in, unless it is known by its offset; the scores it gives."""
        if record.offset < evaluation.next_offsets[record.topic]:
            return []
        evaluation.next_offsets[record.topic] = record.offset + 1
        self._fresh += 1
        if record.topic == "predictions":
            prediction = read_prediction(record.value)
            if isinstance(prediction, Rejection):
                evaluation.counts["predictions/refused"] += 1
                return []
            scores = evaluation.predict(prediction)
        else:
            limits = self._bench.limits
            label = read_label(record.value, record.key, record.timestamp_ms, limits)
            if isinstance(label, Rejection):
                evaluation.counts["labels/refused"] += 1
                return []
            scores = evaluation.label(label, record.offset)
        return [(record.key, write_score(score)) for score in scores]

    def _emit(self, scores: Sequence[Sent]) -> None:
        for key, value in scores:
            self._scores.send(key, value, [])

    def _restore(self, scores: list[Sent]) -> Evaluation:
        """In a thread: snapshot, then both topics up to what the group has committed.

        What is committed was scored. But a snapshot may be ahead of it in one topic and behind in
        the other, if a process kept it that the group had thrown out: then nobody may have seen
        both halves of a pair yet, and the `scores` of this reading are to be sent.
        """
        bench, partition = self._bench, self.partition
        known = bench.journal_id, partition, bench.bounds
        found = self._shelf.load(lambda state, blobs: Evaluation.restore(*known, state, blobs))
        evaluation = found or Evaluation(*known)
        told = {
            name: offsets_of_group(bench.client, bench.group, full, [partition])[partition] or 0
            for name, full in bench.names.items()
        }
        ahead = any(evaluation.next_offsets[name] > offset for name, offset in told.items())
        for name, full in bench.names.items():
            end = max(told[name], self._needed.get(name, 0))
            start = self._start(evaluation, name, full, found is not None)
            for message in read_range(
                bench.client, full, partition, start, end, lambda: self._abandoned
            ):
                value, key = message.value(), message.key()
                assert not isinstance(value, str)
                assert not isinstance(key, str)
                offset = message.offset() or 0
                record = Received(name, offset, message.timestamp()[1], key, value)
                given = self._take(evaluation, record)
                if ahead or offset >= told[name]:
                    scores += given
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
