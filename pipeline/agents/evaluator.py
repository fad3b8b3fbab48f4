"""The evaluator: predictions and labels of one partition -> scores, and its snapshots.

At least once; of one identity the score of the newest label counts. Durable in this order: scores,
blob, manifest, offsets of both topics. Restored as the learner is: snapshot, then a reader in no
group up to what is committed. Which topic goes first, live and restored, says `Evaluation.turn`. A
state that was overtaken, because another evaluator had the partition in between, is restored again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pipeline.cluster import offsets_of_group
from pipeline.engine.faustapp import (
    Valve,
    committed,
    end,
    fetched_before,
    milliseconds,
    progress,
)
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
"""Of each topic."""
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
        self._queues: dict[str, deque[Received]] = {name: deque() for name in bench.names}
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
        self.restoring = False
        self.restored_records = 0

    @property
    def waiting(self) -> int:
        """Records received and not taken in."""
        return sum(map(len, self._queues.values()))

    def behind(self, ends: Mapping[tuple[str, int], int]) -> bool:
        """Whether there is anything to take in: here, on its way, or at the broker by `ends`."""
        return self.waiting > 0 or any(
            self._valves[name].unread(self._last_received(name), ends.get((full, self.partition)))
            for name, full in self._bench.names.items()
        )

    def _unread(self, name: str) -> bool:
        """Whether records of a topic are on their way, or nothing is known of it yet."""
        if progress(self._app, self._bench.names[name], self.partition) is None:
            return True
        return self._valves[name].unread(self._last_received(name), None)

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
        self._queues[name].append(
            Received(name, message.offset, time_ms, message.key, message.value, linked)
        )
        self._wake.set()
        if len(self._queues[name]) >= QUEUE_MAX:
            self._valves[name].close()

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
        gaps = self._gaps(evaluation)
        if not gaps:
            return False
        # What this state has taken from the queues will not come again: the next one must read it.
        self._needed = {**evaluation.next_offsets, **{each.topic: each.offset for each in gaps}}
        for each in gaps:
            self._queues[each.topic][0] = each._replace(linked=True)
        log.warning("partition %d: overtaken, restored again", self.partition)
        return True

    def _gaps(self, evaluation: Evaluation) -> list[Received]:
        """Next records of which it is not known that nothing lies between the state and them."""
        heads = [queue[0] for queue in self._queues.values() if queue]
        offsets = evaluation.next_offsets
        return [head for head in heads if not head.linked and head.offset > offsets[head.topic]]

    def _burst(self, evaluation: Evaluation) -> bool:
        until = time.monotonic() + BURST_S
        worked = False
        while time.monotonic() < until and not self._gaps(evaluation):
            at_hand = {name: each[0].timestamp_ms for name, each in self._queues.items() if each}
            name = evaluation.turn(at_hand, self._unread)
            if name is None:
                break
            worked = True
            self._taken += 1
            self._emit(self._take(evaluation, self._queues[name].popleft()))
        self._outbox.poll()
        for name, queue in self._queues.items():
            if len(queue) < QUEUE_MAX // 2:
                self._valves[name].open()
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
        self.restoring = True
        bench, partition = self._bench, self.partition
        known = bench.journal_id, partition, bench.bounds
        found = self._shelf.load(lambda state, blobs: Evaluation.restore(*known, state, blobs))
        evaluation = found or Evaluation(*known)
        told = {
            name: offsets_of_group(bench.client, bench.group, full, [partition])[partition] or 0
            for name, full in bench.names.items()
        }
        ahead = any(evaluation.next_offsets[name] > offset for name, offset in told.items())
        readers = {
            name: self._stored(evaluation, name, told[name], found is not None)
            for name in bench.names
        }
        heads = {name: head for name, each in readers.items() if (head := next(each, None))}
        while heads:
            at_hand = {name: head.timestamp_ms for name, head in heads.items()}
            name = evaluation.turn(at_hand, heads.__contains__)
            assert name is not None
            record, following = heads.pop(name), next(readers[name], None)
            if following is not None:
                heads[name] = following
            given = self._take(evaluation, record)
            if ahead or record.offset >= told[name]:
                scores += given
            self.restored_records += 1
        return evaluation

    def _stored(
        self, evaluation: Evaluation, name: str, told: int, found: bool
    ) -> Iterator[Received]:
        """A topic from where the state is up to what is committed, or was needed before."""
        full, stop = self._bench.names[name], max(told, self._needed.get(name, 0))
        start = self._start(evaluation.next_offsets[name], full, told, found)
        place = self._bench.client, full, self.partition
        for message in read_range(*place, start, stop, lambda: self._abandoned):
            value, key = message.value(), message.key()
            assert not isinstance(value, str)
            assert not isinstance(key, str)
            yield Received(name, message.offset() or 0, message.timestamp()[1], key, value)

    def _start(self, start: int, full: str, told: int, found: bool) -> int:
        """The first record to read; refuses if records are gone that were read once."""
        low, high = look_at(self._bench.client, full, self.partition)
        where = f"{full} partition {self.partition}"
        if start > high:
            raise RefusalError(
                f"the evaluator's snapshot of {where} is at {start} and the topic ends at {high}: "
                f"it is not the topic that was read"
            )
        # Who has neither kept nor committed anything may begin where the topic does.
        if start < low and (found or told):
            if not self._bench.accept_gap:
                held = f"the evaluator is at {start}" if found else "there is no snapshot"
                raise RefusalError(
                    f"{where} begins at {low} and {held}: records between are gone; "
                    f"--accept-gap goes on without them"
                )
            log.warning("%s: skipped %d to %d, accepted", where, start, low - 1)
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
