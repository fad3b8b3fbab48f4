"""Faust's consumer made safe. Seen in faust-streaming 0.15.3, docs/decisions/0004.

- Faust reads uncommitted records unless the app itself is exactly-once, and has no setting for it.
  Here the isolation level is set on aiokafka's consumer before it starts.
- A partition that is paused, or whose buffer is full, while a batch is handed out loses the rest of
  its batch: the position has moved on, so the records never come. Here a batch is handed out whole.
- What a fetch brought of one partition is one message to Faust (`FetchedBatch`): one event, one hop
  through its queues. It carries the offset that was fetched before it, so the receiver can tell
  whether Faust has dropped a batch in front. Offsets alone do not tell: transactions leave gaps.
- A position that the broker does not have any more (retention, deleted records, a lost tail) is
  reset to the earliest record in silence. Here the app is asked before a later record goes on.
- A rebalance between a fetch and its hand-over makes the fetcher crash, and the process hangs on
  its way down. Here it does not crash, and should it ever, the process ends at once.
- A commit whose partitions a rebalance has just taken away makes the consumer crash. Here it is a
  commit that was refused, which only costs a replay.
- A commit that fails otherwise, for a right that was taken away, crashes the consumer's thread, and
  the process hangs. Here it ends at once and says why.
- What a rebalance drops is fetched again by seeking to the committed offset; where nothing is
  committed yet Faust does not seek, and it is gone. Here such a partition begins again.
- A header whose name is not UTF-8 makes aiokafka crash, now and after every restart. Here its
  record comes without headers, and says so (`tolerant`).
- A header costs a hundred times its bytes in memory, and a fetch may hold hundreds of records with
  hundreds of thousands of them. Here no more are kept of a record than show that it has too many.
- A fetch waits at the broker for at most a twentieth of a second.
- aiokafka starts no fetch at a broker while a partition there has records that nobody has taken,
  for up to a tenth of a second. Here the other partitions are fetched after a moment: not at once,
  because a fetch without a partition keeps that partition's next records waiting until it ends.
- Waiting for every message with four tasks is a large cost; where nothing can make the hand-over
  wait, it is simply done. So it is with a sleep for no time, and with asking the consumer's thread
  for what was fetched.
- Faust remembers the offsets between two messages until it commits by itself, which it never does
  here, and sorts all of them at each new one: with a batch as one message, at every fetch. Seen: at
  100 records per second the worker took half of a core within a minute, and more every minute.
  Here they are not remembered.
- At an even pace every turn of the fetcher brings one record, and a turn costs as much as a record.
  Here a turn that brought few is followed by a moment in which more can come.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from aiokafka.errors import GroupAuthorizationFailedError, TopicAuthorizationFailedError
from aiokafka.structs import TopicPartition
from faust.transport.drivers import aiokafka as driver
from faust.types import TP
from mode.utils.futures import maybe_set_exception, maybe_set_result

from pipeline.faust_ext.tolerant import tolerate_header_names

FETCH_WAIT_MS = 50
"""How long a fetch may wait at the broker. aiokafka has one fetch per broker under way, and a
partition whose records are being handed out is not in it: its next records wait for that fetch to
end. With Faust's 1500 ms that is the latency; measured in docs/decisions/0004."""
GATHER_S = 0.003
"""The least time between two turns of the fetcher while they bring few records. It adds to the
latency of a record that comes right after another, and to no other's."""
FEW = 64
"""Records of one turn below which the next one waits: above, the work itself is long enough."""
UNTAKEN_S = 0.005
"""How long what was fetched may wait to be taken before the other partitions are fetched alone."""
NOTHING = -1
NO_RIGHTS = (TopicAuthorizationFailedError, GroupAuthorizationFailedError)
"""What aiokafka raises when a right was taken from us."""


class FetchedBatch(NamedTuple):
    """What one fetch brought of one partition: aiokafka's records, at least one."""

    records: list[Any]
    before: int
    """The offset that was fetched right before; -1 after a seek."""


class SafeConsumerThread(driver.AIOKafkaConsumerThread):
    """The thread of aiokafka's consumer: committed records, resets noted, nothing missed."""

    async def on_start(self) -> None:
        """Start; no partition is assigned yet, so no reset is missed."""
        await super().on_start()
        driver_consumer: Any = self._consumer
        consumer: Any = self.consumer
        fetcher = driver_consumer._fetcher
        assert hasattr(fetcher, "_prefetch_backoff"), "aiokafka has moved its backoff"
        fetcher._prefetch_backoff = UNTAKEN_S
        watch_resets(fetcher, consumer.out_of_range.__setitem__)
        bound_headers(fetcher, consumer.headers_max)

    def _create_worker_consumer(self, transport: Any) -> Any:
        consumer = super()._create_worker_consumer(transport)
        assert hasattr(consumer, "_isolation_level"), "aiokafka has moved its isolation level"
        assert hasattr(consumer, "_fetch_max_wait_ms"), "aiokafka has moved its fetch wait"
        consumer._isolation_level = "read_committed"
        consumer._fetch_max_wait_ms = FETCH_WAIT_MS
        tolerate_header_names()
        return consumer

    async def getmany(self, active_partitions: Any, timeout: float) -> Any:
        """What was fetched, asked for in the consumer's thread.

        Not through the queue of calls to that thread, which makes three tasks for each: this one
        is asked for at every turn of the fetcher, and needs no order among the others.
        """
        consumer: Any = self._ensure_consumer()
        answer = self.parent_loop.create_future()
        most = consumer._max_poll_records
        fetch = partial(self._fetch_records, consumer, active_partitions, timeout, most)
        self.thread_loop.call_soon_threadsafe(self._start_fetch, fetch, answer)
        return await answer

    def _start_fetch(self, fetch: Any, answer: asyncio.Future[Any]) -> None:
        """In the consumer's thread; the reference keeps the task from being collected."""
        if not answer.cancelled():
            self._fetch_under_way = self.thread_loop.create_task(self._fetch(fetch, answer))

    async def _fetch(self, fetch: Any, answer: asyncio.Future[Any]) -> None:
        back = self.parent_loop.call_soon_threadsafe
        try:
            records = await fetch()
        except BaseException as error:
            back(maybe_set_exception, answer, error)
        else:
            back(maybe_set_result, answer, records)

    async def _commit(self, offsets: Any) -> bool:
        """Commit; Faust crashes on a commit all of whose partitions were just revoked."""
        if not any(tp in self.assignment() for tp in offsets):
            return False
        return bool(await super()._commit(offsets))

    async def crash(self, reason: BaseException) -> None:
        """End the process: Faust would stop fetching and wait for its own end for ever."""
        app: Any = self.consumer.app
        owner = app.owner
        if isinstance(reason, NO_RIGHTS):
            owner.rights_lost(reason)
        owner.consumer_crashed(reason)

    async def seek_to_committed(self) -> Any:
        """Seek every partition; one of which nothing is committed goes back to its start."""
        found = await super().seek_to_committed()
        unread = [tp for tp, offset in found.items() if not offset]
        if unread:
            await self.call_thread(_begin_again, self._ensure_consumer(), unread)
        return found


async def _begin_again(consumer: Any, partitions: Any) -> None:
    """In the consumer's thread: a rebalance may have taken some of them away meanwhile."""
    ours = set(partitions) & consumer.assignment()
    if ours:
        await consumer.seek_to_beginning(*ours)


def watch_resets(fetcher: Any, note: Callable[[TP, int], None]) -> None:
    """Note the place and the offset of every fetch that the broker had nothing for any more.

    A fetch is made only where there is a position, so if one is to be looked up anew right after
    it, the offset was out of range; a group without offsets never comes this way.
    """
    fetch = fetcher._proc_fetch_request

    async def watched(assignment: Any, node_id: Any, request: Any) -> Any:
        result = await fetch(assignment, node_id, request)
        for topic, partitions in request.topics:
            for partition, offset, *_ in partitions:
                place = TopicPartition(topic, partition)
                if place in assignment.tps and assignment.state_value(place).awaiting_reset:
                    note(TP(topic, partition), offset)
        return result

    fetcher._proc_fetch_request = watched


def bound_headers(fetcher: Any, headers_max: int) -> None:
    """Keep one header more than allowed of a record that has too many, and drop the others.

    aiokafka makes a record of its bytes one at a time, when it is asked for: so the rest of its
    headers is gone before the next record is made.
    """
    fetch = fetcher._proc_fetch_request

    async def bounded(*request: Any) -> Any:
        result = await fetch(*request)
        for fetched in fetcher._records.values():
            records = getattr(fetched, "_partition_records", None)
            if records is not None and not hasattr(records, "headers_max"):
                records.headers_max = headers_max
                records._consumer_record = partial(_with_few_headers, records)
        return result

    fetcher._proc_fetch_request = bounded


def _with_few_headers(records: Any, place: Any, record: Any) -> Any:
    made = type(records)._consumer_record(records, place, record)
    if len(made.headers) <= records.headers_max:
        return made
    return replace(made, headers=made.headers[: records.headers_max + 1])


class SafeConsumer(driver.Consumer):
    """Committed records only, none dropped on the way, and lost ones distinguished from gaps.

    `app.owner` is the `FaustApp`; it decides about lost positions, lost rights and a crash.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.headers_max = self._owner.headers_max
        self.out_of_range: dict[TP, int] = {}
        self._last_fetched: dict[TP, int] = {}
        self._next_turn = 0.0

    @property
    def _owner(self) -> Any:
        app: Any = self.app
        return app.owner

    def _new_consumer_thread(self) -> SafeConsumerThread:
        return SafeConsumerThread(self, loop=self.loop, beacon=self.beacon)

    async def _getmany(self, active_partitions: Any, timeout: float) -> Any:
        try:
            records = await super()._getmany(active_partitions, timeout)
        except NO_RIGHTS as error:
            self._owner.rights_lost(error)
            raise
        while self.out_of_range:
            await self._owner.on_out_of_range(*self.out_of_range.popitem())
        few = sum(map(len, (records or {}).values())) < FEW
        self._next_turn = time.monotonic() + GATHER_S if few else 0.0
        return {tp: [self._batch(tp, fetched)] for tp, fetched in (records or {}).items()}

    def _batch(self, tp: Any, records: list[Any]) -> FetchedBatch:
        place = TP(tp.topic, tp.partition)
        before = self._last_fetched.get(place, NOTHING)
        self._last_fetched[place] = records[-1].offset
        return FetchedBatch(records, before)

    def _to_message(self, tp: TP, record: Any) -> Any:
        """The batch as the value of one message, whose offset is that of its last record."""
        message = super()._to_message(tp, record.records[-1])
        message.key, message.headers, message.value = None, None, record
        return message

    async def _wait_next_records(self, timeout: float) -> Any:
        pause_s = self._next_turn - time.monotonic()
        if pause_s > 0:
            await asyncio.sleep(pause_s)
        records, _ = await super()._wait_next_records(timeout)
        return records, None  # no filter: what was fetched is handed out

    async def sleep(self, n: Any) -> None:
        """Sleep, or until the consumer is stopped; for no time it only lets others run."""
        if n:
            await super().sleep(n)
        else:
            await asyncio.sleep(0)

    async def _add_gap(self, tp: TP, offset_from: int, offset_to: int) -> None:
        """Nothing: offsets between two messages are remembered for Faust's own commits alone."""

    async def perform_seek(self) -> None:
        """After a seek the next record follows nothing."""
        await super().perform_seek()
        self._last_fetched.clear()

    def last_fetched(self, tp: TP) -> int:
        """The newest record that was fetched since the last seek; -1 for none."""
        return self._last_fetched.get(tp, NOTHING)

    def highwater(self, tp: TP) -> int:
        """The end of a partition; 0 if a rebalance has just taken it away.

        aiokafka runs in a thread of its own: between a fetch and this question the assignment may
        change. Faust's fetcher would crash; as it is, the records are of an old generation.
        """
        try:
            return int(super().highwater(tp) or 0)
        except AssertionError:
            return 0

    async def _drain_messages(self, fetcher: Any) -> None:
        """Hand messages out; an error ends the process: nothing would come any more."""
        try:
            await super()._drain_messages(fetcher)
        except Exception as error:
            self._owner.consumer_crashed(error)
            raise

    async def wait_first(self, *coros: Any, timeout: Any = None) -> Any:
        """Hand a message over; only if that may have to wait, also for the end of the process."""
        if len(coros) == 2 and timeout is None and self._can_hand_over():
            handover, stop = coros
            stop.close()
            await handover
            return None
        return await super().wait_first(*coros, timeout=timeout)

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


class SafeTransport(driver.Transport):
    """Kafka through the safe consumer."""

    Consumer = SafeConsumer
