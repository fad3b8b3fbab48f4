"""The thread of Faust's consumer: what is fetched, when, and how it comes to the main thread.

Seen in faust-streaming 0.15.3 with aiokafka 0.14, docs/decisions/0004.

- Faust reads uncommitted records unless the app itself is exactly-once, and has no setting for it.
  Here the isolation level is set on aiokafka's consumer before it starts.
- A position that the broker does not have any more (retention, deleted records, a lost tail) is
  reset to the earliest record in silence. Here it is noted where it happens, and the app is asked
  before a later record goes on.
- A commit whose partitions a rebalance has just taken away makes the consumer crash. Here it is a
  commit that was refused, which only costs a replay.
- A commit that fails otherwise, for a right that was taken away, crashes the consumer's thread, and
  the process hangs. Here it ends at once and says why.
- aiokafka gives up the group on an error it does not know, or for a right that was taken away, and
  tells only who waits for records by its own means. Here that is looked for every second: without
  its group a worker would go on for ever beside the one that has taken over.
- What a rebalance drops is fetched again by seeking to the committed offset; where nothing is
  committed yet Faust does not seek, and it is gone. Here such a partition begins again.
- A header whose name is not UTF-8 makes aiokafka crash, now and after every restart. Here its
  record comes without headers, and says so (`tolerant`).
- A header costs a hundred times its bytes in memory, and a fetch may hold hundreds of records with
  hundreds of thousands of them. Here no more are kept of a record than show that it has too many.
- A fetch waits at the broker for at most a twentieth of a second, where Faust has 1.5 s.
- aiokafka starts no fetch at a broker while a partition there has records that nobody has taken,
  for up to a tenth of a second. Here what a fetch brings is taken before aiokafka looks what to
  fetch next, if the main thread has asked; else the other partitions are fetched after a moment.
  Faust asks through a queue and aiokafka answers through a task, a waiter and a second look at all
  partitions: half of what a fetch costs.
- A partition that was paused with records fetched, and goes on, waited for the next fetch of
  another one, up to a second. Here it is looked at again at once.
- At an even pace every fetch brings one record, and costs as much as three. Here the broker gathers
  for a moment before it answers the fetch that follows one with few.
"""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from aiokafka.consumer.fetcher import FetchResult, PartitionRecords
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
GATHER_MS = 10
"""How long a fetch waits at the broker for `GATHER_BYTES` if the one before brought few records.

The longer the fewer turns of the fetcher, each of which costs as much as several records."""
GATHER_BYTES = 1 << 13
"""How much is waited for: records of some pairs.

The more the later at a fast pace, where it comes before the time is over. Figures of both in
docs/decisions/0004."""
FEW = 64
"""Records of one fetch below which the next one gathers: above, the work itself is long enough."""
CHECK_S = 1.0
"""Between two looks whether aiokafka has given up the group or its fetches."""
UNTAKEN_S = 0.005
"""How long what was fetched may wait to be taken before the other partitions are fetched alone."""
NO_RIGHTS = (TopicAuthorizationFailedError, GroupAuthorizationFailedError)
"""What aiokafka raises when a right was taken from us."""


class Asked(NamedTuple):
    """The main thread's question for what was fetched."""

    answer: asyncio.Future[Any]
    limit: asyncio.TimerHandle
    """Answers with nothing."""


class SafeConsumerThread(driver.AIOKafkaConsumerThread):
    """The thread of aiokafka's consumer: committed records, resets noted, nothing missed.

    `consumer` is the `SafeConsumer`, which notes what is fetched (`note_fetch`, `note_reset`) and
    makes `batches` of it.
    """

    consumer: Any
    _asked: Asked | None = None
    _at_work: asyncio.Task[None] | None = None
    """The reference keeps the task from being collected."""

    async def on_start(self) -> None:
        """Start; no partition is assigned yet, so no reset is missed."""
        await super().on_start()
        driver_consumer: Any = self._consumer
        fetcher = driver_consumer._fetcher
        assert hasattr(fetcher, "_prefetch_backoff"), "aiokafka has moved its backoff"
        fetcher._prefetch_backoff = UNTAKEN_S
        bound_headers(fetcher, self.consumer.headers_max)
        self.wrap_fetch(fetcher)
        self._check()

    def _create_worker_consumer(self, transport: Any) -> Any:
        consumer = super()._create_worker_consumer(transport)
        assert hasattr(consumer, "_isolation_level"), "aiokafka has moved its isolation level"
        assert hasattr(consumer, "_fetch_max_wait_ms"), "aiokafka has moved its fetch wait"
        consumer._isolation_level = "read_committed"
        consumer._fetch_max_wait_ms = FETCH_WAIT_MS
        tolerate_header_names()
        return consumer

    # --- what is fetched -------------------------------------------------------------------------

    def wrap_fetch(self, fetcher: Any) -> None:
        """After each fetch: note resets and what is taken, and answer the main thread."""
        fetch, consumer = fetcher._proc_fetch_request, self.consumer

        async def wrapped(assignment: Any, node_id: Any, request: Any) -> Any:
            brought = await fetch(assignment, node_id, request)
            note_resets(assignment, request, consumer.note_reset)
            if not brought:
                gather(fetcher, more=False)
                return brought
            for fetched in fetcher._records.values():
                if type(fetched) is FetchResult and "getall" not in vars(fetched):
                    # aiokafka goes by the class, so it has a function of its own, and that a weak
                    # reference: in a cycle the bytes of a fetch would wait for the collector.
                    own = partial(_get_all, consumer.note_fetch, weakref.ref(fetched))
                    fetched.getall = own
            await self._answer()
            return brought

        fetcher._proc_fetch_request = wrapped

    async def getmany(self, active_partitions: Any, timeout: float) -> Any:
        """What was fetched, as soon as there is something; nothing after `timeout` seconds.

        Of the partitions that are active when it comes: they may have changed since the question.
        """
        self._ensure_consumer()
        answer = self.parent_loop.create_future()
        self.thread_loop.call_soon_threadsafe(self._ask, timeout, answer)
        return await answer

    def look_again(self) -> None:
        """From the main thread: more partitions are active."""
        with contextlib.suppress(RuntimeError):  # closed: the process is about to end
            self.thread_loop.call_soon_threadsafe(self._look)

    def _ask(self, timeout: float, answer: asyncio.Future[Any]) -> None:
        if self._asked is not None:  # by a task that was cancelled
            self._asked.limit.cancel()
        limit = self.thread_loop.call_later(timeout, self._look, True)
        self._asked = Asked(answer, limit)
        self._look()

    def _look(self, at_last: bool = False) -> None:
        driver_consumer: Any = self._consumer
        if at_last or (driver_consumer is not None and driver_consumer._fetcher._records):
            self._at_work = self.thread_loop.create_task(self._answer(at_last))

    async def _answer(self, at_last: bool = False) -> None:
        """Hand what was fetched to the main thread, if it has asked; nothing only `at_last`.

        Never waits between taking and handing over, so nothing can be lost in between.
        """
        asked = self._asked
        if asked is None or asked.answer.done():
            return
        try:
            batches = await self._take()
            if not batches and not at_last:
                return
            answer = partial(maybe_set_result, asked.answer, batches)
        except BaseException as error:
            answer = partial(maybe_set_exception, asked.answer, error)
        asked.limit.cancel()
        self._asked = None
        self.parent_loop.call_soon_threadsafe(answer)

    async def _take(self) -> Any:
        """What was fetched of the active partitions, and is not taken yet."""
        driver_consumer, consumer = self._ensure_consumer(), self.consumer
        active = set(consumer._active_partitions or ())  # the main thread may change it meanwhile
        # No partitions are all to aiokafka; and in a reassignment it would wait for its end.
        if not active or driver_consumer._subscription.reassignment_in_progress:
            return {}
        most = driver_consumer._max_poll_records
        records = await self._fetch_records(driver_consumer, active, 0, most)
        if records:
            gather(driver_consumer._fetcher, sum(map(len, records.values())) < FEW)
        return consumer.batches(records)

    # --- the group -------------------------------------------------------------------------------

    def _check(self) -> None:
        """Every second: end the process if aiokafka has given up the group or its fetches."""
        driver_consumer: Any = self._consumer
        if driver_consumer is None or driver_consumer._closed:
            return
        try:
            driver_consumer._coordinator.check_errors()
            fetches = driver_consumer._fetcher._fetch_task
            if fetches.done():
                fetches.result()
        except BaseException as error:
            self._at_work = self.thread_loop.create_task(self.crash(error))
            return
        self.thread_loop.call_later(CHECK_S, self._check)

    async def _commit(self, offsets: Any) -> bool:
        """Commit; Faust crashes on a commit all of whose partitions were just revoked."""
        if not any(tp in self.assignment() for tp in offsets):
            return False
        return bool(await super()._commit(offsets))

    async def crash(self, reason: BaseException) -> None:
        """End the process: Faust would stop fetching and wait for its own end for ever."""
        owner = self.consumer.app.owner
        if isinstance(reason, NO_RIGHTS):
            owner.rights_lost(reason)
        owner.consumer_crashed(reason)

    async def seek_to_committed(self) -> Any:
        """Seek every partition; one of which nothing is committed goes back to its start."""
        return await self.call_thread(self._seek_to_committed, self._ensure_consumer())

    async def _seek_to_committed(self, driver_consumer: Any) -> Any:
        """In the consumer's thread: the next rebalance may have taken partitions away meanwhile."""
        if not driver_consumer.assignment():
            return {}
        found = await driver_consumer.seek_to_committed()
        ours = {tp for tp, offset in found.items() if not offset} & driver_consumer.assignment()
        for tp in ours:
            self.consumer.fetched.pop(TP(*tp), None)
        if ours:
            await driver_consumer.seek_to_beginning(*ours)
        return found


def note_resets(assignment: Any, request: Any, note: Callable[[TP, int], None]) -> None:
    """Note the place and the offset of everything that a fetch asked for and the broker has lost.

    A fetch is made only where there is a position, so if one is to be looked up anew right after
    it, the offset was out of range; a group without offsets never comes this way.
    """
    for topic, partitions in request.topics:
        for partition, offset, *_ in partitions:
            place = TopicPartition(topic, partition)
            if place in assignment.tps and assignment.state_value(place).awaiting_reset:
                note(TP(topic, partition), offset)


def _get_all(
    note: Any, reference: weakref.ref[FetchResult], records_max: int | None = None
) -> list[Any]:
    """In place of aiokafka's `getall`: take records, and note them with the positions around them.

    aiokafka moves its position where it hands records out, and nothing comes between: what is noted
    there is in the true order, also among seeks, which are made in the same thread.
    """
    fetched: Any = reference()
    state = fetched._assignment.state_value(fetched._topic_partition)
    before = state._position
    records: list[Any] = FetchResult.getall(fetched, records_max)
    if state._position != before:
        note(TP(*fetched._topic_partition), before, state._position, records)
    return records


def gather(fetcher: Any, more: bool) -> None:
    """Whether the next fetches wait for more than one record."""
    fetcher._fetch_max_wait_ms = GATHER_MS if more else FETCH_WAIT_MS
    fetcher._fetch_min_bytes = GATHER_BYTES if more else 1


def bound_headers(fetcher: Any, headers_max: int) -> None:
    """Keep one header more than allowed of a record that has too many, and drop the others.

    aiokafka makes a record of its bytes one at a time, when it is asked for: so the rest of its
    headers is gone before the next record is made.
    """
    fetch = fetcher._proc_fetch_request

    async def bounded(*request: Any) -> Any:
        result = await fetch(*request)
        for fetched in fetcher._records.values():
            records: Any = getattr(fetched, "_partition_records", None)
            if type(records) is PartitionRecords:
                records.__class__ = RecordsWithFewHeaders
                records.headers_max = headers_max
        return result

    fetcher._proc_fetch_request = bounded


class RecordsWithFewHeaders(PartitionRecords):  # type: ignore[misc]  # no types
    """Records of a partition, each with at most one header more than allowed."""

    headers_max: int

    def _consumer_record(self, tp: Any, record: Any) -> Any:
        made = super()._consumer_record(tp, record)
        if len(made.headers) <= self.headers_max:
            return made
        return replace(made, headers=made.headers[: self.headers_max + 1])
