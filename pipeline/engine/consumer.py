"""Faust's consumer with its leaks stopped. Seen in faust-streaming 0.15.3, docs/decisions/0004.

- A partition that is paused, or whose buffer is full, while a batch is handed out loses the rest of
  its batch: the position has moved on, so the records never come. Here a batch is handed out whole.
- Gaps in what was fetched are written down (`before`), so who receives a record can tell whether
  Faust has dropped one in front of it. Offsets alone do not tell: transactions leave gaps too.
- A position that the broker does not have any more (retention, deleted records, a lost tail) is
  reset to the earliest record in silence. Here the app is told before a later record goes on.
- A rebalance between a fetch and its hand-over makes the fetcher fall over, and the process hangs
  on its way down. Here it does not fall, and should it ever, the app is told.
- A commit whose partitions a rebalance has just taken away makes the consumer crash. Here it is a
  commit that was refused, which only costs a replay.
- What a rebalance drops is fetched again by seeking to the committed offset; where nothing is
  committed yet Faust does not seek, and it is gone. Here such a partition begins again.
- A header whose name is not UTF-8 makes aiokafka fall over, now and after every restart. Here it is
  a refusal that says where.
- A fetch waits at the broker for at most a twentieth of a second.
- Waiting for every single message with four tasks is Faust's largest cost; where nothing can make
  the hand-over wait, it is simply done.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from aiokafka.errors import GroupAuthorizationFailedError, TopicAuthorizationFailedError
from aiokafka.structs import TopicPartition
from faust.types import TP

from pipeline.engine.isolation import CommittedConsumer, CommittedThread, CommittedTransport
from pipeline.snapshots import RefusalError

App = TypeVar("App")

FETCH_WAIT_MS = 50
"""How long a fetch may wait at the broker. aiokafka has one fetch per broker under way, and a
partition whose records are being handed out is not in it: its next records wait for that fetch to
end. With Faust's 1500 ms that is the latency; measured in docs/decisions/0004."""


NOTHING = -1
NO_RIGHTS = (TopicAuthorizationFailedError, GroupAuthorizationFailedError)
"""How aiokafka says that a right was taken from us."""


class SteadyThread(CommittedThread):
    """The thread of aiokafka's consumer: fetches that tell of resets, seeks that miss nothing."""

    async def on_start(self) -> None:
        """Start; no partition is assigned yet, so no reset is missed."""
        await super().on_start()
        consumer: Any = self.consumer
        driver: Any = self._consumer
        watch_resets(driver._fetcher, consumer.out_of_range.__setitem__)

    def _create_worker_consumer(self, transport: Any) -> Any:
        consumer = super()._create_worker_consumer(transport)
        assert hasattr(consumer, "_fetch_max_wait_ms"), "aiokafka has moved its fetch wait"
        consumer._fetch_max_wait_ms = FETCH_WAIT_MS
        return consumer

    async def _commit(self, offsets: Any) -> bool:
        """Commit; Faust falls over a commit of which a rebalance has just left nothing."""
        if not any(tp in self.assignment() for tp in offsets):
            return False
        return bool(await super()._commit(offsets))

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


def unreadable(fetcher: Any) -> str:
    """The sentence about a record that aiokafka fell over: where its iterator has ended."""
    for place, result in fetcher._records.items():
        records = getattr(result, "_partition_records", None)
        if records is not None and getattr(records._records_iterator, "gi_frame", result) is None:
            return (
                f"{place.topic} partition {place.partition}: a header of the record at offset "
                f"{records.next_fetch_offset} has a name that is not UTF-8, which no client of "
                f"ours can read: mend its producer; to go on without it, delete the records up to "
                f"it (kafka-delete-records) and start once with --accept-gap"
            )
    return "a record has a header whose name is not UTF-8: no client of ours can read it"


class SteadyConsumer(CommittedConsumer):
    """Committed records only, none dropped on the way, and told apart from gaps."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.out_of_range: dict[TP, int] = {}
        self._last_fetched: dict[TP, int] = {}
        self._before: dict[TP, dict[int, int]] = {}

    def _new_consumer_thread(self) -> SteadyThread:
        return SteadyThread(self, loop=self.loop, beacon=self.beacon)

    async def _getmany(self, active_partitions: Any, timeout: float) -> Any:
        app: Any = self.app
        try:
            records = await super()._getmany(active_partitions, timeout)
        except NO_RIGHTS as error:
            app.on_refused(error)
            raise
        except UnicodeDecodeError:
            driver: Any = self._thread
            raise RefusalError(unreadable(driver._consumer._fetcher)) from None
        while self.out_of_range:
            await app.on_out_of_range(*self.out_of_range.popitem())
        for tp, batch in (records or {}).items():
            ours = TP(tp.topic, tp.partition)
            gaps = self._before.setdefault(ours, {})
            last = self._last_fetched.get(ours, NOTHING)
            for record in batch:
                if last != record.offset - 1:
                    gaps[record.offset] = last
                last = record.offset
            self._last_fetched[ours] = last
        return records

    async def _wait_next_records(self, timeout: float) -> Any:
        records, _ = await super()._wait_next_records(timeout)
        return records, None  # no filter: what was fetched is handed out

    async def perform_seek(self) -> None:
        """After a seek the next record follows nothing."""
        await super().perform_seek()
        self._last_fetched.clear()
        self._before.clear()

    def last_fetched(self, tp: TP) -> int:
        """The newest record that was fetched since the last seek; -1 for none."""
        return self._last_fetched.get(tp, NOTHING)

    def before(self, tp: TP, offset: int) -> int:
        """The offset fetched right before this one; -1 for the first after a seek. Ask once."""
        return self._before.get(tp, {}).pop(offset, offset - 1)

    def highwater(self, tp: TP) -> int:
        """The end of a partition; 0 if a rebalance has just taken it away.

        aiokafka runs in a thread of its own: between a fetch and this question the assignment may
        change. Faust's fetcher would fall over; as it is, the records are of an old generation.
        """
        try:
            return int(super().highwater(tp) or 0)
        except AssertionError:
            return 0

    async def _drain_messages(self, fetcher: Any) -> None:
        """Hand messages out; if that ends by an error, the app is told: nothing comes any more."""
        try:
            await super()._drain_messages(fetcher)
        except Exception as error:
            app: Any = self.app
            app.on_fallen(error)
            raise

    async def wait_first(self, *coros: Any, timeout: Any = None) -> Any:
        """Hand a message over; only if that may have to wait, beside the wish to stop."""
        if len(coros) == 2 and timeout is None and self._flows():
            handover, stop = coros
            stop.close()
            await handover
            return None
        return await super().wait_first(*coros, timeout=timeout)

    def _flows(self) -> bool:
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


class SteadyTransport(CommittedTransport):
    """Kafka through the steady consumer."""

    Consumer = SteadyConsumer


async def _gone(place: TP, offset: int) -> None:
    """What an app does about a lost position until it is told otherwise."""
    raise RuntimeError(f"{place.topic}[{place.partition}] has no offset {offset} any more")


def _unheard(error: Exception) -> None:
    """What an app does about an error of its consumer, until it is told otherwise."""


def steady(app: App) -> App:
    """Give `app` the steady consumer; once, right after the app is made.

    Who runs the app sets its `on_out_of_range`, `on_refused` and `on_fallen`.
    """
    faust_app: Any = app
    faust_app.on_out_of_range = _gone
    faust_app.on_refused = faust_app.on_fallen = _unheard
    faust_app.transport = SteadyTransport(faust_app.conf.broker_consumer, faust_app)
    return app
