"""One partition at work: restore, follow, checkpoint, commit; the same for learner and evaluator.

The state is restored outside Faust: from the newest whole snapshot, then by a reader in no group up
to what the group has committed. What Faust delivers continues it. If the group had expelled
us and the partition came back, another process has gone further: the state is restored again.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, ParamSpec, TypeVar

from pipeline.errors import (
    AbandonedError,
    FoldBugError,
    OvertakenError,
    RequestError,
    UnansweredError,
)
from pipeline.faust_ext.consumer import FetchedBatch
from pipeline.faust_ext.flow import Delivery
from pipeline.kafka.writer import Outbox
from pipeline.runtime.checkpoint import Checkpoint, Checkpointer
from pipeline.runtime.metrics import Sample, StageTime, lag_sample
from pipeline.runtime.port import PartitionKafka, lag_of
from pipeline.runtime.watchdog import Ends, Probe
from pipeline.snapshots.repository import SaveResult
from topics.events import EventKind

log = logging.getLogger(__name__)

BURST_S = 0.008
"""How long one partition may hold the event loop before other tasks get their turn."""
IDLE_S = 0.5
SLICE_S = 0.003
"""How long a page with many streams may hold the event loop at a time."""

State = TypeVar("State")
Result = TypeVar("Result")
Value = TypeVar("Value")
Given = ParamSpec("Given")


async def of_each(
    named: Mapping[str, Value], work: Callable[[str, Value], Result]
) -> dict[str, Result]:
    """`work` of each name and value, by name; the event loop is not held, others run in between.

    What comes or goes meanwhile is in it or not.
    """
    found: dict[str, Result] = {}
    begun = time.monotonic()
    for name, value in list(named.items()):
        found[name] = work(name, value)
        if time.monotonic() - begun > SLICE_S:
            await asyncio.sleep(0)
            begun = time.monotonic()
    return found


async def wait_for_event(event: asyncio.Event, limit_s: float) -> None:
    """Clear an event and wait until it is set; it is set after `limit_s`.

    `asyncio.wait_for` makes a task of every wait, and `asyncio.timeout` costs several times as much
    as a timer: at an even pace there is a wait for every record.
    """
    event.clear()
    timer = asyncio.get_running_loop().call_later(limit_s, event.set)
    try:
        await event.wait()
    finally:
        timer.cancel()


class Inbox(deque[Delivery]):
    """Deliveries that wait, and the memory that they take; each is measured once."""

    def __init__(self) -> None:
        super().__init__()
        self.occupied = 0
        self._sizes: deque[int] = deque()

    def append(self, delivery: Delivery) -> None:
        """Put one at the end."""
        size = delivery.record.occupied
        super().append(delivery)
        self._sizes.append(size)
        self.occupied += size

    def popleft(self) -> Delivery:
        """Take the first."""
        self.occupied -= self._sizes.popleft()
        return super().popleft()

    def clear(self) -> None:
        """Drop all."""
        super().clear()
        self._sizes.clear()
        self.occupied = 0


class Partition(ABC, Generic[State]):
    """A partition of a worker or evaluator, from its assignment until it is taken away.

    Parameters
    ----------
    topics
        Full names of the topics it follows.
    """

    stage_name: str
    """What it does with records, in the metrics."""
    queue_max = 2_000
    """Records of one topic that are received and not processed; then the topic is paused."""
    queue_bytes_max = 1 << 24
    """Memory of these records; then the topic is paused too."""
    retry_s = 2.0
    """Between two tries to restore while the cluster does not answer."""

    def __init__(
        self,
        number: int,
        topics: Sequence[str],
        kafka: PartitionKafka,
        outbox: Outbox,
        checkpoints: Checkpointer,
    ) -> None:
        self.number = number
        self.kafka = kafka
        self.outbox = outbox
        self.checkpoints = checkpoints
        self.flows = {topic: kafka.flow(topic) for topic in topics}
        self.inbox = {topic: Inbox() for topic in topics}
        self._wake = asyncio.Event()
        self._thread_at_work = False
        self.state: State | None = None
        self.ready = asyncio.Event()
        self.restoring = False
        self.restored_records = 0
        self.saved_position = 0
        """The position of the newest snapshot."""
        self.stage = StageTime(self.stage_name)
        self.await_start: Callable[[], None] = lambda: None
        """Waits, in a thread, for what a restore needs; an error ends the process."""
        self.send_event: Callable[[EventKind, int, int, str], None] = lambda *_: None
        """Tells people what happens: kind, partition, journal offset, detail."""
        self._checkpoint_offset = -1
        checkpoints.on_saved, checkpoints.on_failed = self._saved, self._not_saved

    # --- what learner and evaluator do differently -----------------------------------------------

    @abstractmethod
    def restore(self) -> State:
        """The state from snapshot and topics; in a thread. Sets `saved_position`."""

    @abstractmethod
    async def process(self, state: State, until: float) -> bool:
        """Process what is at hand, no longer than `until`; whether there was anything.

        Raises `OvertakenError` if the state must be restored again, `FoldBugError` for a bug.
        """

    @abstractmethod
    def position(self, state: State) -> int:
        """A count that grows with every record; snapshots are ordered by it."""

    def journal_offset(self, state: State) -> int:
        """The journal offset that the state has come to."""
        return self.position(state)

    @abstractmethod
    def checkpoint(self, state: State) -> Checkpoint:
        """The state between two records, as copies: the work goes on while they are written."""

    def caught_up(self, state: State) -> bool:
        """Whether the partition may be called ready."""
        return True

    async def crashed(self, bug: FoldBugError) -> None:
        """A record has failed; raise the bug again unless the partition can go on."""
        raise bug

    # --- the loop --------------------------------------------------------------------------------

    def put(self, topic: str, batch: FetchedBatch) -> None:
        """Take from Faust what a fetch brought."""
        flow, queue = self.flows[topic], self.inbox[topic]
        for delivery in flow.accept(batch):
            queue.append(delivery)
        self._wake.set()
        if len(queue) >= self.queue_max or queue.occupied >= self.queue_bytes_max:
            flow.pause()

    async def run(self) -> None:
        """Restore, then follow, for as long as the partition is assigned."""
        while True:
            try:
                # No name of its own for the state: it is to be gone before the next restore.
                self.state = await asyncio.to_thread(self._restore)
                await self._follow(self.state)
            except AbandonedError:
                return
            except OvertakenError:
                await self._begin_again()
            except (UnansweredError, RequestError) as error:
                # A broker that is away or stands still, as a rule. The watchdog ends the process if
                # it stays so: the restore counts as one that does not move.
                log.warning("partition %d: %s; trying again", self.number, error)
                await self._begin_again()
                self.restoring = True
                await asyncio.sleep(self.retry_s)
            except FoldBugError as bug:
                await self._begin_again()  # the state may be half changed
                await self.crashed(bug)

    def _restore(self) -> State:
        self.await_start()
        # Set in the thread: a restore that still waits for a thread must not count as stalled.
        self.restoring = True
        return self.restore()

    async def _follow(self, state: State) -> None:
        while True:
            if not self.ready.is_set() and self.caught_up(state):
                gc.collect()  # what is garbage now would stay for ever
                gc.freeze()  # what was restored stays; a full collection of it holds the loop
                self.ready.set()
                self._event(EventKind.STARTED, f"{self.restored_records} records read again")
            await self.outbox.wait_for_space()
            worked = await self.process(state, time.monotonic() + BURST_S)
            self.outbox.poll()
            for topic, queue in self.inbox.items():
                if len(queue) < self.queue_max // 2 and queue.occupied < self.queue_bytes_max // 2:
                    self.flows[topic].resume()
            self._checkpoint_if_due(state)
            if worked and (self.waiting or not self.ready.is_set()):
                await asyncio.sleep(0)
            else:  # all is done: at an even pace a second look would cost as much as the first
                await self._wait(IDLE_S)

    async def _wait(self, limit_s: float) -> None:
        """Wait until a record comes, at most `limit_s`."""
        await wait_for_event(self._wake, limit_s)

    async def in_thread(
        self, work: Callable[Given, Result], *args: Given.args, **kwargs: Given.kwargs
    ) -> Result:
        """Work on the state in a thread.

        If this is cancelled the thread may go on, and the state must not be saved any more.
        """
        self._thread_at_work = True
        result = await asyncio.to_thread(work, *args, **kwargs)
        self._thread_at_work = False
        return result

    async def _begin_again(self) -> None:
        """Drop the state before the next restore; the watchdog does not count the time between."""
        self.state, self._thread_at_work = None, False
        await self.checkpoints.finish()
        self.restoring = False
        self.ready.clear()

    def _checkpoint_if_due(self, state: State) -> None:
        saved = self.checkpoints.result
        if saved is not None:
            self.saved_position = max(self.saved_position, saved.next_offset)
        if self.checkpoints.due(self.position(state) - self.saved_position):
            self._checkpoint_offset = self.journal_offset(state)
            self.checkpoints.start(self.checkpoint(state))

    # --- events ----------------------------------------------------------------------------------

    def _event(self, kind: EventKind, detail: str = "") -> None:
        offset = -1 if self.state is None else self.journal_offset(self.state)
        self.send_event(kind, self.number, offset, detail)

    def _saved(self, result: SaveResult) -> None:
        written = f"{result.objects_written} objects, {result.bytes_written} bytes"
        self.send_event(EventKind.SNAPSHOT, self.number, self._checkpoint_offset, written)

    def _not_saved(self) -> None:
        self.send_event(EventKind.SNAPSHOT_FAILED, self.number, self._checkpoint_offset, "")

    # --- the end ---------------------------------------------------------------------------------

    def rejoined(self) -> None:
        """After a rebalance that left us the partition."""
        for flow in self.flows.values():
            flow.rejoined()

    def stop_reading(self) -> None:
        """Let a restore that is under way end soon, without a result."""
        self.kafka.stop_reading()

    def abandon(self) -> None:
        """The partition was revoked: stop reading and saving, and free the memory.

        This object itself is out of the garbage collector's sight since its learners are, and it is
        part of a cycle: what it refers to would stay for ever.
        """
        self.stop_reading()
        self.checkpoints.cancel()
        if self.ready.is_set():
            self._event(EventKind.STOPPED, "the partition was given to another process")
        self.state = None
        for queue in self.inbox.values():
            queue.clear()

    async def finish(self) -> None:
        """A last checkpoint before an orderly end; the run has been cancelled before."""
        await self.checkpoints.finish()
        state = self.state
        if state is None or self._thread_at_work:
            return
        saved = self.checkpoints.result
        if self.position(state) > max(self.saved_position, saved.next_offset if saved else 0):
            self._checkpoint_offset = self.journal_offset(state)
            await self.checkpoints.write(self.checkpoint(state))
        self._event(EventKind.STOPPED)

    # --- what can be seen from outside -----------------------------------------------------------

    @property
    def waiting(self) -> int:
        """Records received and not processed."""
        return sum(map(len, self.inbox.values()))

    def has_backlog(self, ends: Ends) -> bool:
        """Whether there is anything to process: here, on its way, or at the broker by `ends`."""
        return self.waiting > 0 or any(
            flow.has_backlog(self.processed(topic), ends.get((topic, self.number)))
            for topic, flow in self.flows.items()
        )

    def processed(self, topic: str) -> int:
        """The last record of a topic that needs not be read again."""
        return self.flows[topic].received

    @property
    def progress(self) -> tuple[Any, ...]:
        """A value that changes with every step forward."""
        position = None if self.state is None else self.position(self.state)
        return position, *(flow.position for flow in self.flows.values())

    @property
    def restore_progress(self) -> tuple[Any, ...]:
        """A value that changes with every step of a restore."""
        return (self.restored_records,)

    def probes(self, ends: Ends) -> Iterator[Probe]:
        """What the watchdog watches; called from another thread, so it only reads."""
        at, ready = f"partition {self.number}: ", self.ready.is_set()
        restoring = self.restoring and not ready
        yield Probe(at + "the restore does not move", restoring, self.restore_progress)
        topics = " or ".join(self.flows)
        works = ready and self.has_backlog(ends)
        yield Probe(f"{at}records of {topics} wait and none is processed", works, self.progress)

    def unready(self) -> list[str]:
        """Why the partition is not ready; empty when it is."""
        if not self.ready.is_set():
            return ["restoring"]
        return [self.checkpoints.failure] if self.checkpoints.failure is not None else []

    @property
    def lag(self) -> int | None:
        """Records of its topics that are not processed, as far as the consumer knows their ends."""
        behind = lag_of(self.flows.values())
        return None if behind is None else behind + self.waiting

    def health(self) -> dict[str, Any]:
        """What `/status` and the live page show of it; cheap."""
        saved = self.checkpoints.result
        return {
            "ready": self.ready.is_set(),
            "restored_records": self.restored_records,
            "waiting": self.waiting,
            "lag": self.lag,
            "snapshot": saved.name if saved else None,
            "snapshot_age_s": self.checkpoints.age_s,
            "state": saved.digest if saved else None,
            "snapshot_failure": self.checkpoints.failure,
        }

    async def status(self) -> dict[str, Any]:
        """What `/status` shows of it."""
        return self.health()

    @property
    def counts(self) -> Mapping[str, int]:
        """Counters of the state; empty while there is none."""
        return {}

    def samples(self) -> Iterable[Sample]:
        """Its series besides the counters of the state."""
        yield Sample("dtgol_partition_ready", float(self.ready.is_set()))
        for topic, flow in self.flows.items():
            yield from lag_sample(topic, flow.position_and_end, len(self.inbox[topic]))
        fullest = max(queue.occupied for queue in self.inbox.values()) / self.queue_bytes_max
        yield Sample("dtgol_bound_used_ratio", fullest, (("bound", "worker.queue_bytes_max"),))
        yield from self.stage.samples()
        yield from self.checkpoints.samples()
        yield Sample("dtgol_snapshot_next_offset", self.saved_position)
        if self.state is not None:
            unsaved = self.position(self.state) - self.saved_position
            yield Sample("dtgol_snapshot_unsaved_records", max(0, unsaved))
