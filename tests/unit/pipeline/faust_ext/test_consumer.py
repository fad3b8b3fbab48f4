"""The safe consumer: its batches, its seeks, and how they come to agents; without a broker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import TopicAuthorizationFailedError
from faust.transport.consumer import Consumer
from faust.transport.drivers import aiokafka as driver
from faust.types import TP
from mode.utils.locks import Event

from pipeline.faust_ext.consumer import TURN_S, FetchedBatch, SafeConsumer
from pipeline.faust_ext.fetching import FEW

AT = TP("features", 0)


@pytest.fixture
def consumer(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A consumer whose fetches are a list; nothing else of it is used."""
    made: Any = object.__new__(SafeConsumer)
    made.fetched, made._before, made.out_of_range, made._next_turn = {}, {}, {}, 0.0
    made.app = SimpleNamespace(owner=SimpleNamespace(), consumer_generation_id=1)
    batches: list[list[int]] = []

    async def fetch(*_: Any) -> Any:
        records = [SimpleNamespace(offset=offset) for offset in batches.pop(0)]
        known = made.fetched.get(AT)
        start = known.position if known else records[0].offset
        made.note_fetch(AT, start, records[-1].offset + 1, records)
        return made.batches({AT: records})

    monkeypatch.setattr(driver.Consumer, "_getmany", fetch)

    def play(*offsets: int) -> Any:
        batches.append(list(offsets))
        return asyncio.run(made._getmany(None, 1.0))[AT][0]

    made.play = play
    return made


def test_the_owner_of_the_app_learns_that_it_may_not_read_any_more(
    consumer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: Any) -> None:
        raise TopicAuthorizationFailedError("features")

    lost: list[Exception] = []
    consumer.app.owner.rights_lost = lost.append
    monkeypatch.setattr(driver.Consumer, "_getmany", refuse)
    with pytest.raises(TopicAuthorizationFailedError):
        asyncio.run(consumer._getmany(None, 1.0))
    assert [str(each) for each in lost] == [str(TopicAuthorizationFailedError("features"))]


def taken(start: int, *offsets: int) -> tuple[TP, int, int, list[Any]]:
    """A fetch of one partition, as `note_fetch` is told of it."""
    end = offsets[-1] + 1 if offsets else start + 1
    return AT, start, end, [SimpleNamespace(offset=offset) for offset in offsets]


def before(consumer: Any, start: int, *offsets: int) -> int:
    """What a batch that was fetched from `start` is said to follow."""
    consumer.note_fetch(*taken(start, *offsets))
    batch = consumer.batches({AT: [SimpleNamespace(offset=offset) for offset in offsets]})[AT]
    return int(batch.before)


def test_a_batch_follows_the_record_that_was_fetched_before_it(consumer: Any) -> None:
    assert before(consumer, 4, 4, 5) == -1
    assert before(consumer, 6, 8, 9) == 5  # 6 and 7: a transaction's markers
    consumer.note_fetch(*taken(10))  # a marker alone
    assert before(consumer, 11, 11) == 9
    assert consumer.fetched[AT] == (12, 11)


@pytest.mark.parametrize("sought", [3, 20])
def test_after_a_seek_a_batch_follows_what_is_in_front_of_it(consumer: Any, sought: int) -> None:
    before(consumer, 4, 4, 5)
    assert before(consumer, sought, sought + 1) == sought - 1


def test_after_a_reset_a_batch_follows_nothing(consumer: Any) -> None:
    before(consumer, 4, 4, 5)
    consumer.note_reset(AT, 6)
    assert before(consumer, 30, 30) == -1
    assert consumer.out_of_range == {AT: 6}


@pytest.mark.parametrize("active", [True, False])
def test_nothing_is_handed_out_during_a_seek(
    consumer: Any, monkeypatch: pytest.MonkeyPatch, active: bool
) -> None:
    """Faust may have resumed the flow for a rebalance before, and empties its queues at the end."""
    steps: list[str] = []
    consumer.flow_active = active
    consumer.app.conf = SimpleNamespace(broker_request_timeout=60.0)

    def stop() -> None:
        steps.append("stop")

    async def seek(_: Any) -> None:
        steps.append("seek")

    monkeypatch.setattr(driver.Consumer, "stop_flow", lambda _: stop())
    monkeypatch.setattr(driver.Consumer, "perform_seek", seek)
    consumer._committed_offset = {AT: 7, FEATURES: None}
    asyncio.run(consumer.perform_seek())
    assert steps == (["stop", "seek"] if active else ["seek"])
    consumer._committed_offset[AT] = 3  # by a worker that was away, while others went on
    assert consumer.sought == {AT: 7, FEATURES: 0}


def test_a_seek_without_an_answer_ends_the_process_before_faust_gives_up(
    consumer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Faust's recovery takes its own time-out for the end of the service, and says nothing."""
    gone: list[float] = []
    consumer.flow_active = False
    consumer.app.conf = SimpleNamespace(broker_request_timeout=0.1)
    consumer.app.owner.no_position = gone.append

    async def seek(_: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(driver.Consumer, "perform_seek", seek)

    async def with_the_limit_of_faust() -> None:
        await asyncio.wait_for(consumer.perform_seek(), 10)

    with pytest.raises(TimeoutError):
        asyncio.run(with_the_limit_of_faust())
    assert gone == [pytest.approx(0.09)]


def test_a_flow_that_goes_on_looks_at_what_was_fetched(
    consumer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    monkeypatch.setattr(Consumer, "resume_flow", lambda _: steps.append("resume"))
    consumer._thread = SimpleNamespace(look_again=lambda: steps.append("look"))
    consumer.resume_flow()
    assert steps == ["resume", "look"]


def test_nothing_is_handed_out_between_an_assignment_and_its_seek(
    consumer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Faust stops the flow when partitions are taken away; who had none is never stopped."""
    steps: list[Any] = []

    async def assigned(_: Any, partitions: set[TP], generation: int) -> None:
        steps.append((partitions, generation))

    monkeypatch.setattr(driver.Consumer, "stop_flow", lambda _: steps.append("stop"))
    monkeypatch.setattr(driver.Consumer, "on_partitions_assigned", assigned)
    asyncio.run(consumer.on_partitions_assigned({AT}, 4))
    assert steps == ["stop", ({AT}, 4)]


def test_a_reset_is_reported_before_the_records_behind_it_go_on(consumer: Any) -> None:
    reported: list[Any] = []

    async def note(place: TP, offset: int) -> None:
        reported.append((place, offset))

    consumer.app.owner.on_out_of_range = note
    consumer.play(4, 5)
    consumer.out_of_range[AT] = 6
    consumer.play(30, 31)
    assert reported == [(AT, 6)]
    assert not consumer.out_of_range


def test_after_few_records_the_next_turn_waits_a_moment(
    consumer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 100.0)
    consumer.play(*range(FEW - 1))
    assert consumer._next_turn == pytest.approx(100.0 + TURN_S)
    consumer.play(*range(FEW))
    assert consumer._next_turn == 0.0


# --- handing out ----------------------------------------------------------------------------------

FEATURES, LABELS, JOURNAL = TP("features", 1), TP("labels", 1), TP("journal", 3)


class Faust:
    """What `_drain_messages` needs of Faust, and what it was given; it ends with its turns."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.messages: list[Any] = []
        self.turns: list[Any] = []
        self.crashes: list[str] = []
        self.waits_for: asyncio.Event | None = None
        self.on_message: Callable[[], None] = lambda: None
        self.should_stop = False
        self.app = SimpleNamespace(
            should_stop=False,
            consumer_generation_id=3,
            flow_control=SimpleNamespace(is_active=lambda: self.waits_for is None),
            topics=SimpleNamespace(
                _tp_to_callback_lock=SimpleNamespace(locked=lambda: False), _topics=[]
            ),
            owner=SimpleNamespace(
                agents={"features": "sequencer", "labels": "sequencer", "journal": "learner"},
                consumer_crashed=lambda error: self.crashes.append(str(error)),
            ),
        )
        made: Any = object.__new__(SafeConsumer)
        made.app, made.transport = self.app, SimpleNamespace(app=self.app)
        made.flow_active, made._active_partitions, made._next_turn = True, set(), 0.0
        made.callback, made._getmany = self.callback, self.getmany
        made.wait = self.wait
        monkeypatch.setattr(SafeConsumer, "should_stop", property(lambda _: False))
        self.consumer = made

    async def getmany(self, *_: Any) -> Any:
        if not self.turns:
            self.should_stop = True
            return {}
        turn = self.turns.pop(0)
        if isinstance(turn, BaseException):
            raise turn
        return turn() if callable(turn) else turn

    async def callback(self, message: Any) -> None:
        if self.waits_for is not None:
            await self.waits_for.wait()
        self.messages.append(message)
        self.on_message()

    async def wait(self, event: asyncio.Event) -> None:
        await event.wait()

    def run(self, *turns: Any) -> list[Any]:
        """Play the turns; the messages that were handed out, as topics and offsets of batches."""
        self.turns = list(turns)

        async def work() -> None:
            self.consumer.can_resume_flow = asyncio.Event()
            self.consumer.suspend_flow = asyncio.Event()
            await asyncio.wait_for(self.consumer._drain_messages(self), 10)

        asyncio.run(work())
        return [
            [(tp, [record.offset for record in batch.records]) for tp, batch in message.value]
            for message in self.messages
        ]


@pytest.fixture
def faust(monkeypatch: pytest.MonkeyPatch) -> Faust:
    return Faust(monkeypatch)


def fetched(tp: TP, *offsets: int, generation: int) -> FetchedBatch:
    fields = ("timestamp", "timestamp_type", "headers", "key", "value", "checksum")
    sizes = ("serialized_key_size", "serialized_value_size")
    blank = dict.fromkeys((*fields, *sizes)) | {"topic": tp.topic, "partition": tp.partition}
    records = [SimpleNamespace(offset=offset, **blank) for offset in offsets]
    return FetchedBatch(records, -1, generation)


def turn(*places: TP, generation: int = 3) -> dict[TP, FetchedBatch]:
    return {tp: fetched(tp, 4, 5, generation=generation) for tp in places}


def test_what_a_fetch_brought_is_one_message_to_each_agent(faust: Faust) -> None:
    sequencer = [(FEATURES, [4, 5]), (LABELS, [4, 5])]
    assert faust.run(turn(FEATURES, JOURNAL, LABELS), {}) == [sequencer, [(JOURNAL, [4, 5])]]
    first = faust.messages[0]
    assert (first.tp, first.offset, first.key, first.generation_id) == (FEATURES, 5, None, 3)


def test_a_new_generation_drops_what_is_left_of_a_turn(faust: Faust) -> None:
    def rebalance() -> None:
        faust.app.consumer_generation_id += 1

    def in_a_rebalance() -> Any:
        rebalance()
        return turn(LABELS, generation=4)

    faust.on_message = rebalance
    assert faust.run(turn(JOURNAL, LABELS)) == [[(JOURNAL, [4, 5])]]
    assert faust.run(in_a_rebalance) == [[(JOURNAL, [4, 5])]], "taken for the one before"


def test_what_was_asked_for_before_a_rebalance_and_taken_after_it_is_handed_out(
    faust: Faust,
) -> None:
    """Nothing would fetch it again; seen on Kafka: a worker that is never ready, or lost records.

    Faust's fetcher asks, waits for records, and a whole rebalance with its seek may come between.
    """

    def after_a_rebalance() -> Any:
        faust.app.consumer_generation_id += 1
        return turn(JOURNAL, generation=4)

    assert faust.run(after_a_rebalance) == [[(JOURNAL, [4, 5])]]
    assert faust.messages[0].generation_id == 4


def test_a_batch_has_the_generation_in_which_it_was_taken(consumer: Any) -> None:
    consumer.note_fetch(*taken(4, 4))
    consumer.app.consumer_generation_id = 7
    assert consumer.batches({AT: [SimpleNamespace(offset=4)]})[AT].generation == 7


def test_a_flow_that_is_stopped_drops_what_is_left_of_a_turn(faust: Faust) -> None:
    def stop() -> None:
        faust.consumer.flow_active = False
        faust.consumer.can_resume_flow.set()

    faust.on_message = stop
    assert faust.run(turn(JOURNAL, LABELS)) == [[(JOURNAL, [4, 5])]]


def test_what_was_fetched_for_a_stopped_flow_is_dropped(faust: Faust) -> None:
    def stopped() -> Any:
        faust.consumer.flow_active = False
        return turn(JOURNAL)

    async def resumed(_: asyncio.Event) -> None:
        faust.consumer.flow_active = True

    faust.consumer.wait = resumed
    assert faust.run(stopped, turn(LABELS)) == [[(LABELS, [4, 5])]]


def test_nothing_is_asked_for_while_the_flow_is_stopped(faust: Faust) -> None:
    asked: list[bool] = []

    async def getmany(*_: Any) -> Any:
        asked.append(faust.consumer.flow_active)
        faust.should_stop = True
        return {}

    async def resumed(event: asyncio.Event) -> None:
        assert event is faust.consumer.can_resume_flow
        faust.consumer.flow_active = True

    faust.consumer._getmany, faust.consumer.wait = getmany, resumed
    faust.consumer.flow_active = False
    faust.run()
    assert asked == [True]


class Blocked:
    """Each of the things that may suspend a hand-over; none of them at first."""

    def __init__(self, faust: Faust) -> None:
        self.app, self.queue = faust.app, SimpleNamespace(full=lambda: False)
        self.consumer = faust.consumer
        self.consumer.suspend_flow = asyncio.Event()
        self.app.topics._topics = [SimpleNamespace(queue=self.queue)]

    def block(self, by: str) -> None:
        if by == "flow control":
            self.app.flow_control.is_active = lambda: False
        elif by == "flow":
            self.consumer.suspend_flow.set()
        elif by == "lock":
            self.app.topics._tp_to_callback_lock.locked = lambda: True
        elif by == "queue":
            self.queue.full = lambda: True


@pytest.mark.parametrize("by", ["flow control", "flow", "lock", "queue"])
def test_what_may_suspend_a_hand_over(faust: Faust, by: str) -> None:
    blocked = Blocked(faust)
    assert faust.consumer._can_hand_over()
    blocked.block(by)
    assert not faust.consumer._can_hand_over()


def test_a_message_that_cannot_be_handed_over_waits_until_the_flow_is_stopped(
    faust: Faust,
) -> None:
    """With Faust's own wait: what is not taken then is dropped, and sought again."""

    async def work() -> None:
        consumer = faust.consumer
        consumer._stopped, consumer._crashed, consumer.suspend_flow = Event(), Event(), Event()
        consumer.loop = asyncio.get_running_loop()
        faust.waits_for = asyncio.Event()
        for taken in (True, False):
            handing = asyncio.ensure_future(consumer._hand_out(turn(JOURNAL)))
            for _ in range(10):
                await asyncio.sleep(0)
            assert not handing.done()
            (faust.waits_for if taken else consumer.suspend_flow).set()
            await asyncio.wait_for(handing, 10)
            faust.waits_for = asyncio.Event()

    asyncio.run(work())
    assert len(faust.messages) == 1


def test_the_owner_of_the_app_learns_that_nothing_comes_any_more(faust: Faust) -> None:
    with pytest.raises(RuntimeError, match="of Faust's own"):
        faust.run(RuntimeError("of Faust's own"))
    assert faust.crashes == ["of Faust's own"]


def test_an_end_in_order_is_no_crash(faust: Faust) -> None:
    (stopped, *_) = SafeConsumer.consumer_stopped_errors
    faust.app.should_stop = True
    for error in (stopped(), asyncio.CancelledError()):
        assert faust.run(error) == []
    assert faust.crashes == []


@pytest.mark.parametrize("error", [*SafeConsumer.consumer_stopped_errors])
def test_a_consumer_that_stops_in_the_middle_is_a_crash(
    faust: Faust, error: type[Exception]
) -> None:
    with pytest.raises(error):
        faust.run(error("stopped"))
    assert len(faust.crashes) == 1


def test_a_partition_that_goes_on_is_looked_at_again(
    consumer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was fetched of it before it was paused waited up to a second for another fetch."""
    steps: list[Any] = []
    monkeypatch.setattr(Consumer, "resume_partitions", lambda _, tps: steps.append(tps))
    consumer._thread = SimpleNamespace(look_again=lambda: steps.append("look"))
    consumer.resume_partitions({AT})
    assert steps == [{AT}, "look"]
