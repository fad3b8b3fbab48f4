"""The thread of the safe consumer: what it fetches, notes and answers; without a broker."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import weakref
from collections.abc import Awaitable, Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.consumer.fetcher import (
    READ_UNCOMMITTED,
    FetchError,
    FetchResult,
    PartitionRecords,
)
from aiokafka.consumer.subscription_state import Assignment
from aiokafka.errors import GroupAuthorizationFailedError, TopicAuthorizationFailedError
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.structs import TopicPartition
from faust.transport.drivers import aiokafka as driver
from faust.types import TP

from pipeline.faust_ext import fetching
from pipeline.faust_ext.consumer import Fetched
from pipeline.faust_ext.fetching import (
    FETCH_WAIT_MS,
    FEW,
    GATHER_BYTES,
    GATHER_MS,
    SafeConsumerThread,
    bound_headers,
)

AT, OTHER = TP("features", 0), TP("features", 1)
NO_REQUEST = SimpleNamespace(topics=[])
LONG_S = 60.0
"""What is waited for so long comes at once, or the test fails by its own limit."""


class Fetcher:
    """In place of aiokafka's: what is fetched is what `Setup.bring` brings."""

    def __init__(self) -> None:
        self._fetch_max_wait_ms, self._fetch_min_bytes, self._closed = FETCH_WAIT_MS, 1, False
        self._subscriptions = SimpleNamespace(fetch_context=contextlib.nullcontext)
        self._records: dict[TP, list[int]] = {}
        self.error: Exception | None = None
        self._fetch_task: asyncio.Future[None] | None = None
        self.takes: list[tuple[Any, ...]] = []

    async def _proc_fetch_request(self, assignment: Any, node_id: int, request: Any) -> bool:
        brought = request.brought
        self._records |= brought
        return bool(brought)

    async def fetched_records(
        self, partitions: set[TP], timeout: float, max_records: int
    ) -> dict[TP, list[int]]:
        """As aiokafka: no partitions are all."""
        self.takes.append((timeout, max_records, threading.current_thread().name))
        if self.error is not None:
            raise self.error
        taken = [tp for tp in self._records if not partitions or tp in partitions]
        return {tp: self._records.pop(tp) for tp in taken}


class Setup:
    """A consumer's thread whose loop runs, and a main thread that asks it."""

    def __init__(self) -> None:
        self.fetcher = Fetcher()
        self.resets: dict[TP, int] = {}
        self.consumer = SimpleNamespace(
            batches=dict,
            flow_active=True,
            _active_partitions={AT, OTHER},
            note_fetch=None,
            note_reset=self.resets.__setitem__,
        )
        made: Any = object.__new__(SafeConsumerThread)
        made.consumer = self.consumer
        made._consumer = SimpleNamespace(
            _fetcher=self.fetcher,
            _max_poll_records=7,
            _closed=False,
            _subscription=SimpleNamespace(reassignment_in_progress=False),
        )
        made._ensure_consumer = lambda: made._consumer
        made.thread_loop = asyncio.new_event_loop()
        made.wrap_fetch(self.fetcher)
        self.thread = made

    def in_thread(self, work: Callable[[], Awaitable[Any]]) -> Any:
        async def run() -> Any:
            return await work()

        return asyncio.run_coroutine_threadsafe(run(), self.thread.thread_loop).result(10)

    def bring(
        self, *places: TP, records: int = 2, assignment: Any = None, request: Any = NO_REQUEST
    ) -> bool:
        """A fetch that brings so many records of each of these partitions."""
        brought = dict.fromkeys(places, [1] * records)
        given = SimpleNamespace(topics=request.topics, brought=brought)
        fetch = self.fetcher._proc_fetch_request
        return bool(self.in_thread(lambda: fetch(assignment, 0, given)))

    def ask(self, timeout: float = LONG_S, *, then: Callable[[], object] | None = None) -> Any:
        """What the main thread gets that asks, and does something else while it waits."""

        async def work() -> Any:
            self.thread.parent_loop = asyncio.get_running_loop()
            asked = asyncio.ensure_future(self.thread.getmany(None, timeout))
            while self.thread._asked is None and not asked.done():
                await asyncio.sleep(0)
            if then is not None:
                assert not asked.done()
                await asyncio.to_thread(then)
            return await asyncio.wait_for(asked, 10)

        return asyncio.run(work())


@pytest.fixture
def setup() -> Iterator[Setup]:
    made = Setup()
    loop = made.thread.thread_loop
    runner = threading.Thread(target=loop.run_forever, name="of the consumer")
    runner.start()
    yield made
    loop.call_soon_threadsafe(loop.stop)
    runner.join()
    loop.close()


def test_what_is_fetched_already_is_answered_at_once(setup: Setup) -> None:
    setup.bring(AT)
    assert setup.ask() == {AT: [1, 1]}
    assert setup.fetcher.takes == [(0, 7, "of the consumer")]


def test_a_fetch_answers_who_has_asked_before_the_next_one_is_planned(setup: Setup) -> None:
    assert setup.ask(then=lambda: setup.bring(AT, OTHER)) == {AT: [1, 1], OTHER: [1, 1]}
    assert setup.fetcher._records == {}


def test_what_nobody_has_asked_for_stays(setup: Setup) -> None:
    setup.bring(AT)
    assert setup.fetcher._records == {AT: [1, 1]}
    assert setup.fetcher.takes == []


def test_without_records_the_answer_is_nothing_in_the_end(setup: Setup) -> None:
    assert setup.ask(0.01) == {}
    assert setup.thread._asked is None


def test_of_a_partition_that_is_paused_nothing_is_taken_until_it_goes_on(setup: Setup) -> None:
    setup.consumer._active_partitions = {AT}
    setup.bring(OTHER)

    def resume() -> None:
        setup.consumer._active_partitions.add(OTHER)
        setup.thread.look_again()

    assert setup.ask(then=resume) == {OTHER: [1, 1]}


@pytest.mark.parametrize("active", [set(), None])
def test_without_active_partitions_nothing_is_taken(setup: Setup, active: set[TP] | None) -> None:
    """To aiokafka no partitions are all."""
    setup.consumer._active_partitions = active
    setup.bring(AT)
    assert setup.ask(0.01) == {}
    assert setup.fetcher._records == {AT: [1, 1]}


@pytest.mark.parametrize("why", ["flow", "reassignment"])
def test_in_a_rebalance_nothing_is_taken(setup: Setup, why: str) -> None:
    setup.consumer.flow_active = why != "flow"
    setup.thread._consumer._subscription.reassignment_in_progress = why == "reassignment"
    setup.bring(AT)
    assert setup.ask(0.01) == {}
    assert setup.fetcher._records == {AT: [1, 1]}


def test_nothing_is_taken_for_who_does_not_wait_any_more(setup: Setup) -> None:
    async def ask_and_leave() -> None:
        setup.thread.parent_loop = asyncio.get_running_loop()
        asked = asyncio.ensure_future(setup.thread.getmany(None, LONG_S))
        while setup.thread._asked is None:
            await asyncio.sleep(0)
        asked.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asked

    asyncio.run(ask_and_leave())
    setup.bring(AT)
    assert setup.fetcher._records == {AT: [1, 1]}
    assert setup.ask() == {AT: [1, 1]}, "the next one gets it"


def test_a_consumer_that_has_ended_is_not_looked_at() -> None:
    thread: Any = object.__new__(SafeConsumerThread)
    thread.thread_loop, thread._consumer = asyncio.new_event_loop(), None
    thread._look()
    thread.thread_loop.close()
    thread.look_again()


def test_an_error_of_a_fetch_comes_to_who_asked(setup: Setup) -> None:
    setup.fetcher.error = TopicAuthorizationFailedError("features")
    with pytest.raises(TopicAuthorizationFailedError):
        setup.ask(then=lambda: setup.bring(AT))


@pytest.mark.parametrize(
    ("records", "pace"),
    [(FEW - 1, (GATHER_MS, GATHER_BYTES)), (FEW, (FETCH_WAIT_MS, 1))],
)
def test_after_a_fetch_with_few_records_the_broker_gathers_until_one_brings_nothing(
    setup: Setup, records: int, pace: tuple[int, int]
) -> None:
    def waits() -> tuple[int, int]:
        return setup.fetcher._fetch_max_wait_ms, setup.fetcher._fetch_min_bytes

    setup.ask(then=lambda: setup.bring(AT, records=records))
    assert waits() == pace
    assert setup.bring() is False
    assert waits() == (FETCH_WAIT_MS, 1)


@pytest.mark.parametrize("given_up", ["group", "fetches", "nothing"])
def test_a_group_or_fetches_that_aiokafka_has_given_up_end_the_process(
    setup: Setup, monkeypatch: pytest.MonkeyPatch, given_up: str
) -> None:
    """aiokafka tells only who waits by its own means; on Kafka: tests/broker/test_security.py."""
    monkeypatch.setattr(fetching, "CHECK_S", 0.01)
    looks, crashes, enough = [], [], threading.Event()
    error = GroupAuthorizationFailedError("dtgol-worker")

    def check_errors() -> None:
        looks.append(1)
        if len(looks) == 3:
            enough.set()
            if given_up == "group":
                raise error

    async def crash(reason: BaseException) -> None:
        crashes.append(reason)

    async def start() -> None:
        fetches = asyncio.get_running_loop().create_future()
        setup.fetcher._fetch_task = fetches
        setup.thread._consumer._coordinator = SimpleNamespace(check_errors=check_errors)
        setup.thread.crash = crash
        setup.thread._check()
        if given_up == "fetches":
            fetches.set_exception(error)

    setup.in_thread(start)
    if given_up != "fetches":
        assert enough.wait(10)
    setup.in_thread(lambda: asyncio.sleep(0.05))
    assert crashes == ([] if given_up == "nothing" else [error])
    setup.thread._consumer._closed = True  # it looks no more
    setup.in_thread(lambda: asyncio.sleep(0.05))
    seen = len(looks)
    setup.in_thread(lambda: asyncio.sleep(0.05))
    assert len(looks) == seen


@pytest.mark.parametrize("lost", [True, False])
def test_a_crash_of_the_consumers_thread_ends_the_process(lost: bool) -> None:
    """Seen on a busy machine: a commit was refused for a lost right, and the process hung."""

    class EndedError(Exception):
        pass

    def end(reason: BaseException) -> None:
        raise EndedError(type(reason).__name__)

    owner = SimpleNamespace(**{"rights_lost" if lost else "consumer_crashed": end})
    thread: Any = object.__new__(SafeConsumerThread)
    thread.consumer = SimpleNamespace(app=SimpleNamespace(owner=owner))
    reason = GroupAuthorizationFailedError("dtgol-worker") if lost else RuntimeError("of Faust's")
    with pytest.raises(EndedError, match=type(reason).__name__):
        asyncio.run(thread.crash(reason))


class Batch:
    """In place of aiokafka's records: 7 and 9 of a batch that begins at 7 and ends at 11."""

    def __init__(self) -> None:
        self.next_fetch_offset = 7
        self.ends = iter([8, 10])

    def __iter__(self) -> Batch:
        return self

    def __next__(self) -> int:
        try:
            self.next_fetch_offset = next(self.ends)
        except StopIteration:
            self.next_fetch_offset = 12
            raise
        return self.next_fetch_offset - 1


def test_what_is_taken_of_a_fetch_is_noted_with_the_positions_around_it() -> None:
    noted: list[tuple[Any, ...]] = []
    place, other = TopicPartition(*AT), TopicPartition("labels", 0)

    async def fetch(*_: Any) -> bool:
        return True

    async def work() -> None:
        assignment: Any = Assignment({place})
        assignment.state_value(place).seek(7)

        def fetched() -> Any:
            return FetchResult(place, assignment=assignment, partition_records=Batch(), backoff=0)

        results = {place: fetched(), other: FetchError(error=RuntimeError(), backoff=0)}
        fetcher: Any = SimpleNamespace(_proc_fetch_request=fetch, _records=results)
        thread: Any = object.__new__(SafeConsumerThread)
        thread.consumer = SimpleNamespace(
            note_fetch=lambda *what: noted.append(what), note_reset=None
        )
        thread.wrap_fetch(fetcher)

        async def bring() -> None:
            assert await fetcher._proc_fetch_request(assignment, 0, NO_REQUEST) is True

        await bring()
        await bring()  # what is still there is watched once
        taken = [results[place].getall(1) for _ in range(3)]
        assert taken == [[7], [9], []]  # the end of the batch was compacted
        results[place] = fetched()
        await bring()
        assert results[place].getall() == []  # another position was sought meanwhile

    asyncio.run(work())
    assert noted == [(AT, 7, 8, [7]), (AT, 8, 10, [9]), (AT, 10, 12, [])]


@pytest.mark.parametrize("brought", [True, False])
def test_only_a_fetch_that_was_out_of_range_is_noted(setup: Setup, brought: bool) -> None:
    """aiokafka resets the position inside the fetch; the wrapper looks right behind it."""
    states = {0: SimpleNamespace(awaiting_reset=False), 1: SimpleNamespace(awaiting_reset=True)}
    places = {TopicPartition("features", 0), TopicPartition("features", 1)}
    assignment = SimpleNamespace(tps=places, state_value=lambda place: states[place.partition])
    request = SimpleNamespace(topics=[("features", [(0, 10, 1), (1, 20, 1), (2, 30, 1)])])
    assert setup.bring(*[AT] * brought, assignment=assignment, request=request) is brought
    assert setup.resets == {TP("features", 1): 20}


def test_a_partition_of_which_nothing_is_committed_is_begun_again() -> None:
    """Seen in tests/faults: 96 labels fetched, dropped by a rebalance, and never fetched again."""
    offsets = {TP("labels", 0): None, TP("labels", 1): 0, TP("labels", 2): 7, TP("labels", 3): None}
    begun: list[TP] = []

    async def committed() -> Any:
        ours.discard(TP("labels", 3))  # a rebalance has taken it meanwhile
        return offsets

    async def seek_to_beginning(*partitions: TP) -> None:
        begun.extend(partitions)

    async def call_thread(work: Any, *args: Any) -> Any:
        return await work(*args)

    thread: Any = object.__new__(SafeConsumerThread)
    ours = set(offsets)
    thread._consumer = SimpleNamespace(
        assignment=lambda: ours, seek_to_committed=committed, seek_to_beginning=seek_to_beginning
    )
    thread.call_thread = call_thread
    thread.consumer = SimpleNamespace(fetched={TP("labels", 1): Fetched(30, 29)})
    assert asyncio.run(thread.seek_to_committed()) == offsets
    assert sorted(begun) == [TP("labels", 0), TP("labels", 1)]
    assert thread.consumer.fetched == {}, "it may begin anywhere"
    ours.clear()
    assert asyncio.run(thread.seek_to_committed()) == {}, "aiokafka would crash"


def test_a_commit_of_which_a_rebalance_has_left_nothing_is_refused_and_no_crash(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Seen in a trial with a woken worker: aiokafka raises ValueError, and Faust goes down."""
    asked: list[Any] = []

    async def commit(_: Any, offsets: Any) -> bool:
        asked.append(offsets)
        return True

    monkeypatch.setattr(driver.AIOKafkaConsumerThread, "_commit", commit)
    monkeypatch.setattr(SafeConsumerThread, "assignment", lambda _: {AT})
    thread: Any = object.__new__(SafeConsumerThread)
    assert asyncio.run(thread._commit({TP("features", 1): 5})) is False
    assert asked == []
    assert asyncio.run(thread._commit({AT: 5, TP("features", 1): 5})) is True


def two_records(headers: int = 0) -> bytes:
    """A batch as a broker sends it: offsets 7 and 8."""
    made = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 20)
    for offset in range(2):
        made.append(offset, 1, b"k", b"v", [(f"h{number}", b"") for number in range(headers)])
    sent = bytearray(made.build())
    sent[:8] = (7).to_bytes(8, "big")
    return bytes(sent)


def result_of(sent: bytes, assignment: Any) -> FetchResult:
    """What aiokafka makes of a fetch; checksums are for another place."""
    place = TopicPartition(*AT)
    taken: Any = MemoryRecords(sent), [], 7, None, None, False, READ_UNCOMMITTED
    return FetchResult(
        place, assignment=assignment, partition_records=PartitionRecords(place, *taken), backoff=0
    )


def wrapped(results: dict[Any, Any], headers_max: int) -> tuple[Any, list[tuple[Any, ...]]]:
    """The fetcher with both of our wraps, and what is noted; its assignment is at 7."""
    noted: list[tuple[Any, ...]] = []

    async def fetch(*_: Any) -> bool:
        return True

    fetcher: Any = SimpleNamespace(_proc_fetch_request=fetch, _records=results)
    bound_headers(fetcher, headers_max)
    thread: Any = object.__new__(SafeConsumerThread)
    thread.consumer = SimpleNamespace(note_fetch=lambda *what: noted.append(what), note_reset=None)
    thread.wrap_fetch(fetcher)
    return fetcher, noted


def at_seven() -> Any:
    assignment: Any = Assignment({TopicPartition(*AT)})
    assignment.state_value(TopicPartition(*AT)).seek(7)
    return assignment


@pytest.mark.parametrize(("headers", "kept"), [(10, 10), (300, 11)])
def test_of_a_record_with_too_many_headers_few_are_kept(headers: int, kept: int) -> None:
    """A fetch of 150 records with 300,000 headers took 6.7 GB of memory."""

    async def work() -> None:
        result = result_of(two_records(headers), at_seven())
        fetcher, _ = wrapped({TopicPartition(*AT): result}, 10)
        for _ in range(2):  # what is fetched is there for some fetches
            await fetcher._proc_fetch_request(None, 0, NO_REQUEST)
        assert [len(record.headers) for record in result.getall()] == [kept, kept]

    asyncio.run(work())


def test_the_bytes_of_a_fetch_go_with_its_records() -> None:
    """They do not wait for the garbage collector: it saw some hundred fetches of a megabyte."""

    async def work() -> None:
        results = {TopicPartition(*AT): result_of(two_records(), at_seven())}
        fetcher, noted = wrapped(results, 10)
        await fetcher._proc_fetch_request(None, 0, NO_REQUEST)
        (result,) = results.values()
        records = weakref.ref(result._partition_records)
        assert [record.offset for record in result.getall()] == [7, 8]
        assert [(start, end) for _, start, end, _ in noted] == [(7, 9)]
        del result
        results.clear()
        assert records() is None

    gc.disable()
    try:
        asyncio.run(work())
    finally:
        gc.enable()
