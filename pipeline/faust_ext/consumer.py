"""Faust's consumer made safe. Seen in faust-streaming 0.15.3, docs/decisions/0004.

- A partition that is paused, or whose buffer is full, while a batch is handed out loses the rest of
  its batch: the position has moved on, so the records never come. Here a batch is handed out whole.
- Every record is a message to Faust, one event and a hop through its queues; waiting for a message
  to be taken makes four tasks. Here what a fetch brought for an agent is one message (`Batches`),
  and where nothing can make the hand-over wait it is simply done.
- A batch carries the offset in front of it, noted where aiokafka's position moves, so the receiver
  can tell whether Faust has dropped a batch in between. Offsets alone do not tell: transactions
  leave gaps.
- Where one rebalance follows another, or the assignment was empty, Faust seeks while records flow;
  what comes after the seek is dropped with what came before, and nothing fetches it again. Here the
  flow stands still from an assignment to the end of its seek.
- A seek that takes longer than a request may is the end of Faust's recovery, without a word: no
  later rebalance resumes the flow. Here the process ends before that.
- Faust compares generations when a batch is handed out, so a batch that was fetched before the
  rebalance may pass, or one that was fetched after the seek be dropped for good. Here a batch has
  the generation in which it was taken.
- An error in the loop that hands out ends that loop alone, and the process hangs on its way down.
  Here the process ends at once.
- Faust remembers the offsets between two messages until it commits by itself, which it never does
  here, and sorts all of them at each new one: with a batch as one message, at every fetch. Seen: at
  100 records per second the worker took half of a core within a minute, and more every minute.
  Here they are not remembered.

What is fetched, and when, is in `fetching`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from faust.transport.drivers import aiokafka as driver
from faust.types import TP

from pipeline.faust_ext.fetching import FEW, NO_RIGHTS, SafeConsumerThread

TURN_S = 0.002
"""The least time between two turns of the fetcher while they bring few records: with several
brokers their answers come at different moments."""
WAIT_S = 1.0
"""How long a turn of the fetcher may wait for records; then it looks whether it is to end."""
SEEK_SHARE = 0.9
"""Of Faust's limit for a seek, which is that of a request."""
NOTHING = -1
"""No record was fetched yet."""


class FetchedBatch(NamedTuple):
    """What one fetch brought of one partition: aiokafka's records, at least one."""

    records: list[Any]
    before: int
    """The record fetched right before, or the offset in front of the one that was sought; -1 if
    the partition was never fetched, or has just begun again at its earliest record."""
    generation: int
    """Of the group, when it was taken: what was taken for an older one is fetched again."""


Batches: TypeAlias = list[tuple[TP, FetchedBatch]]
"""What was fetched of the partitions of one agent: the value of one message."""


class Fetched(NamedTuple):
    """How far a partition was fetched."""

    position: int
    """Where aiokafka goes on, unless it was told to seek."""
    last: int
    """The newest record, or the offset in front of the one that was sought; -1 for neither."""


class SafeConsumer(driver.Consumer):
    """Committed records only, none dropped on the way, and lost ones distinguished from gaps.

    `app.owner` is the `FaustApp`; it knows the agent of each topic, and decides about lost
    positions, lost rights and a crash.
    """

    _thread: SafeConsumerThread

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.headers_max = self._owner.headers_max
        self.out_of_range: dict[TP, int] = {}
        self.fetched: dict[TP, Fetched] = {}
        self.sought: dict[TP, int] = {}
        """What was committed at the last seek, and so where each partition goes on from. Faust's
        own note moves with every commit, and a worker that was away commits less than others have:
        what they had read would look like records lost."""
        self._before: dict[TP, int] = {}
        self._next_turn = 0.0

    @property
    def _owner(self) -> Any:
        app: Any = self.app
        return app.owner

    def _new_consumer_thread(self) -> SafeConsumerThread:
        return SafeConsumerThread(self, loop=self.loop, beacon=self.beacon)

    # --- in the consumer's thread ----------------------------------------------------------------

    def note_fetch(self, tp: TP, start: int, position: int, records: list[Any]) -> None:
        """A fetch took a partition from `start` to `position`; it may have brought no records."""
        known = self.fetched.get(tp, Fetched(start, NOTHING))
        before = known.last if known.position == start else start - 1
        if records:
            self._before[tp] = before
        self.fetched[tp] = Fetched(position, records[-1].offset if records else before)

    def note_reset(self, tp: TP, offset: int) -> None:
        """The broker had nothing at this offset any more: the partition begins again."""
        self.out_of_range[tp] = offset
        self.fetched.pop(tp, None)

    def batches(self, fetched: Mapping[Any, list[Any]]) -> dict[TP, FetchedBatch]:
        """What one fetch has just brought, by partition.

        aiokafka's listener sets the generation in this thread, so it is that of the fetch.
        """
        generation: int = self.app.consumer_generation_id
        return {
            (tp := TP(*place)): FetchedBatch(records, self._before[tp], generation)
            for place, records in fetched.items()
        }

    # --- in the main thread ----------------------------------------------------------------------

    async def _drain_messages(self, fetcher: Any) -> None:
        """Faust's fetcher: hand out what is fetched, for as long as it runs.

        In place of Faust's own, which does it record by record.
        """
        app: Any = self.transport.app
        try:
            while not (self.should_stop or fetcher.should_stop):
                await asyncio.sleep(max(0.0, self._next_turn - time.monotonic()))
                if not self.flow_active:
                    await self.wait(self.can_resume_flow)  # type: ignore[arg-type]  # Faust does it
                batches = await self._getmany(self._active_partitions, WAIT_S)
                if batches and not self.should_stop:
                    await self._hand_out(batches)
        except asyncio.CancelledError:
            if not app.should_stop:
                raise
        except Exception as error:
            if isinstance(error, self.consumer_stopped_errors) and app.should_stop:
                return
            self._owner.consumer_crashed(error)
            raise

    async def _getmany(self, active_partitions: Any, timeout: float) -> Any:
        try:
            batches: Any = await super()._getmany(active_partitions, timeout)
        except NO_RIGHTS as error:
            self._owner.rights_lost(error)
            raise
        while self.out_of_range:
            await self._owner.on_out_of_range(*self.out_of_range.popitem())
        few = sum(len(batch.records) for batch in batches.values()) < FEW
        self._next_turn = time.monotonic() + TURN_S if few else 0.0
        return batches

    async def _hand_out(self, batches: Mapping[TP, FetchedBatch]) -> None:
        """One message for each agent in whose topics something was fetched.

        What is left when a generation ends or the flow is stopped is dropped: a seek follows, and
        it is fetched again.
        """
        by_agent: dict[str, Batches] = {}
        for tp, batch in batches.items():
            by_agent.setdefault(self._owner.agents[tp.topic], []).append((tp, batch))
        for each in by_agent.values():
            message = self._message(each)
            if not self.flow_active or self.app.consumer_generation_id != message.generation_id:
                return
            handover = self.callback(message)
            if self._can_hand_over():
                await handover
            else:
                await self.wait_first(handover, self.suspend_flow.wait())

    def _message(self, batches: Batches) -> Any:
        """Batches as the value of one message, which to Faust is the last record of the first."""
        tp, batch = batches[0]
        message: Any = self._to_message(tp, batch.records[-1])
        message.key, message.headers, message.value = None, None, batches
        message.generation_id = batch.generation
        return message

    def _can_hand_over(self) -> bool:
        """Whether nothing can suspend a hand-over now: then no rebalance can come between.

        Faust's producer, which it would wait for too, is never used here.
        """
        app: Any = self.app
        return (
            app.flow_control.is_active()
            and not self.suspend_flow.is_set()
            and not app.topics._tp_to_callback_lock.locked()
            and not any(channel.queue.full() for channel in app.topics._topics)
        )

    def resume_partitions(self, tps: Any) -> None:
        """Go on with partitions, also with what was fetched of them before they were paused."""
        super().resume_partitions(tps)
        self._thread.look_again()

    async def on_partitions_assigned(self, assigned: Any, generation_id: int = 0) -> None:
        """Hand out nothing before the seek of this assignment, whose end resumes the flow."""
        self.stop_flow()
        await super().on_partitions_assigned(assigned, generation_id)

    async def perform_seek(self) -> None:
        """Seek while nothing is handed out; the caller resumes the flow.

        Ends the process if the cluster does not answer in time. Faust has the same limit, and takes
        it for its own end: it would never seek again and never resume the flow.
        """
        if self.flow_active:
            self.stop_flow()
        limit_s = SEEK_SHARE * self.app.conf.broker_request_timeout
        try:
            await asyncio.wait_for(super().perform_seek(), limit_s)
        except TimeoutError as error:
            self._owner.no_position(limit_s)
            raise error
        self.sought = {tp: offset or 0 for tp, offset in self._committed_offset.items()}

    def resume_flow(self) -> None:
        """Go on, also with a question that has waited since before the flow was stopped."""
        super().resume_flow()
        self._thread.look_again()


class SafeTransport(driver.Transport):
    """Kafka through the safe consumer."""

    Consumer = SafeConsumer
