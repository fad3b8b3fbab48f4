"""The learner of one partition: gaps, restores, readiness and checkpoints, without a broker."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from dtgol_core.config import Config
from pipeline.errors import FoldBugError, OvertakenError, RefusalError
from pipeline.faust_ext.consumer import FetchedBatch
from pipeline.kafka.record import Record
from pipeline.learning.fold import Fold
from pipeline.learning.fold_config import FOLD_VERSION, FoldConfig
from pipeline.learning.partition import LearnerConfig, Outputs, PartitionLearner, RefusalLog
from pipeline.runtime.checkpoint import Checkpointer
from pipeline.snapshots.repository import SnapshotRepository
from tests.support.fake_kafka import FakeKafka, FakeOutbox, FakeWriter, MemoryStore
from tests.support.journal import REF, Journal
from topics.dead_letters import DeadLetter
from topics.events import EventKind
from topics.headers import write_headers
from topics.journal import ConfigChange, Crash, Skip, Version

JOURNAL = REF.journal


class Setup:
    """A learner, its journal, its store and what it writes."""

    def __init__(self, records: int = 40, **config: Any) -> None:
        self.events: list[tuple[EventKind, int, int, str]] = []
        self.journal = Journal()
        for number in range(records):
            self.journal.features(f"i{number}", {"v": number % 7})
        self.kafka = FakeKafka({JOURNAL: self.journal.records})
        self.store = MemoryStore()
        self.config = LearnerConfig(config.pop("fold", FoldConfig()), **config)
        self.predictions, self.dead_letters, self.scores = FakeWriter(), FakeWriter(), FakeWriter()
        self.appended = FakeWriter(on_send=self.journal.append)
        self.learner = self.make()

    def make(self) -> PartitionLearner:
        """A learner that finds what the one before has left."""
        self.kafka.flows.clear()
        outbox: Any = FakeOutbox()
        writers: Any = [self.predictions, self.dead_letters, self.appended, self.scores]
        checkpoints = Checkpointer(
            0, SnapshotRepository(self.store, 0, {}), writers[:2], self.kafka.commit, 10**9, 10**9
        )
        learner = PartitionLearner(
            REF, self.config, self.kafka, outbox, Outputs(*writers), checkpoints
        )
        learner.queue_max = 10
        learner.poison.recheck_s = 0.01
        learner.send_event = lambda *event: self.events.append(event)
        self.learner = learner
        return learner

    def put(self, *offsets: int) -> None:
        records = [self.journal.records[offset] for offset in offsets]
        self.learner.put(records[0].topic, FetchedBatch(records, -1, 1))

    def run(self, until: Callable[[], bool], finish: bool = False) -> None:
        async def work() -> None:
            task = asyncio.create_task(self.learner.run())
            async with asyncio.timeout(20):
                while not until():
                    if task.done():
                        task.result()
                    await asyncio.sleep(0.001)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            if finish:
                await self.learner.finish()

        asyncio.run(work())

    def run_to(self, offset: int, finish: bool = False) -> None:
        self.run(lambda: self.learner.next_offset == offset, finish)

    def answered(self) -> list[str]:
        return [orjson.loads(value or b"")["id"] for _, value, _ in self.predictions.sent]

    def gaps_read(self) -> list[tuple[int, int | None]]:
        """What was read of the journal since the restore, decisions left out."""
        return [(start, end) for _, start, end in self.kafka.reads if end is not None]


def test_what_faust_delivers_is_answered() -> None:
    setup = Setup(records=5)
    setup.put(0, 1, 2, 3, 4)
    setup.run(setup.learner.ready.is_set)
    assert setup.answered() == ["i0", "i1", "i2", "i3", "i4"]


def test_a_short_gap_is_read_from_the_journal() -> None:
    setup = Setup()
    setup.put(0, 1, 8)
    setup.run_to(9)
    assert setup.answered() == [f"i{number}" for number in range(9)]
    assert setup.gaps_read()[-1] == (2, 8)


def test_a_learner_that_was_overtaken_by_far_restores_again() -> None:
    """Another worker had the partition, saved and committed; its snapshot is nearer."""
    setup = Setup()
    setup.put(0, 1)
    setup.run_to(2, finish=True)
    other = Setup()
    other.put(*range(30))
    other.run_to(30, finish=True)

    def overtaken() -> bool:
        if setup.learner.next_offset == 2 and setup.learner.waiting == 0:
            setup.store.objects = other.store.objects
            setup.kafka.commits[JOURNAL] = 30
            setup.put(30)
        return setup.learner.next_offset == 31

    setup.make()
    setup.run(overtaken)
    assert setup.answered() == ["i0", "i1", "i30"]


def test_a_long_gap_that_a_restore_does_not_fill_is_read() -> None:
    setup = Setup()
    setup.put(0, 30)
    setup.run_to(31)
    assert setup.answered() == ["i0", *(f"i{number}" for number in range(31))]
    assert setup.predictions.sent[0] == setup.predictions.sent[1]


def test_decisions_about_a_gap_are_read_with_it() -> None:
    setup = Setup(records=12)
    for _ in range(3):
        setup.journal.control(Crash(5))
    setup.journal.control(Skip(5, "why"))
    setup.put(0)
    setup.run_to(1)
    setup.put(9)
    setup.run_to(10)
    assert "i5" not in setup.answered()
    assert len(setup.dead_letters.sent) == 1


def test_a_learner_that_finds_itself_parked_in_a_gap_stops_there() -> None:
    setup = Setup(records=12)
    setup.put(0)
    setup.run_to(1)
    for _ in range(3):
        setup.journal.control(Crash(5))
    setup.put(9)
    setup.run_to(5)
    assert setup.learner.waiting == 1
    assert setup.learner.poison.parked_at == 5
    assert "parked at journal offset 5" in setup.learner.unready()[0]
    assert list(setup.learner.probes({})) == []
    setup.journal.control(Skip(5, "why"))
    setup.run_to(10)
    assert setup.learner.poison.parked_at is None


class BuggyFold(Fold):
    """Fails on one record."""

    def apply(self, record: Record) -> Any:
        if record.offset == 3:
            raise ZeroDivisionError("secret")
        return super().apply(record)


def test_the_third_crash_at_a_record_parks_and_the_first_two_end_the_process() -> None:
    setup = Setup(records=6)

    def crash() -> None:
        learner = setup.make()
        learner.restore = _with_bug(learner)  # type: ignore[method-assign]
        setup.put(0, 1, 2, 3, 4, 5)
        setup.run(lambda: learner.poison.parked_at is not None)

    for _ in range(2):
        with pytest.raises(FoldBugError, match="ZeroDivisionError at"):
            crash()
    crash()
    assert setup.learner.poison.parked_at == 3
    assert setup.answered()[-3:] == ["i0", "i1", "i2"]
    assert "secret" not in setup.learner.poison.sentence


def _with_bug(learner: PartitionLearner) -> Callable[[], Fold]:
    restore = learner.restore

    def restored() -> Fold:
        fold = restore()
        fold.__class__ = BuggyFold
        return fold

    return restored


def test_a_checkpoint_is_taken_up_by_the_next_learner() -> None:
    setup = Setup()
    setup.put(*range(12))
    setup.run_to(12, finish=True)
    assert setup.kafka.commits == {JOURNAL: 12}
    setup.make()
    setup.put(12)
    setup.run_to(13)
    assert setup.answered() == [f"i{number}" for number in range(13)]
    assert asyncio.run(setup.learner.status())["snapshot_offset"] == 12


def test_what_is_committed_is_not_sent_again_and_what_is_not_is() -> None:
    """Without its snapshot the journal is folded anew; predictions up to the commit are out."""
    setup = Setup(records=10)
    setup.kafka.commits[JOURNAL] = 6
    setup.put(6, 7)
    setup.run_to(8)
    assert setup.answered() == ["i6", "i7"]
    assert setup.learner.restored_records == 6


def test_it_is_ready_when_the_journal_is_folded_up_to_its_end_at_the_start() -> None:
    setup = Setup(records=4)
    setup.put(0, 1, 2)
    setup.run_to(3)
    assert not setup.learner.ready.is_set()
    assert setup.learner.unready() == ["restoring"]
    setup.put(3)
    setup.run(setup.learner.ready.is_set)


def test_a_configuration_that_is_not_in_force_is_appended_once_ready() -> None:
    setup = Setup(records=1, fold=FoldConfig(why=3))
    setup.put(0)
    setup.run(setup.learner.ready.is_set)
    sent = [(key, headers) for key, _, headers in setup.appended.sent]
    assert sent == [(None, [("dtgol-kind", kind)]) for kind in (b"version", b"config")]


@pytest.mark.parametrize("found", [True, False], ids=["a snapshot", "no snapshot"])
def test_a_journal_that_begins_behind_the_state_is_refused_unless_accepted(found: bool) -> None:
    setup = Setup()
    if found:
        setup.put(0, 1)
        setup.run_to(2, finish=True)
    setup.kafka.low[JOURNAL] = 10
    del setup.journal.records[:10]
    setup.make()
    what = "the snapshot is at 2" if found else "there is no snapshot"
    with pytest.raises(RefusalError, match=f"begins at 10 and {what}.*--accept-gap"):
        setup.run(lambda: False)
    setup.config = LearnerConfig(FoldConfig(), accept_gap=True)
    setup.make()
    setup.put(0)
    setup.run_to(11)
    assert setup.learner.state is not None
    assert setup.learner.state.counts["records/gone"] == (8 if found else 10)


def test_a_snapshot_beyond_the_end_of_the_journal_is_refused() -> None:
    setup = Setup(records=12)
    setup.put(*range(12))
    setup.run_to(12, finish=True)
    del setup.journal.records[5:]
    setup.make()
    with pytest.raises(RefusalError, match="is at 12 and the journal ends at 5"):
        setup.run(lambda: False)


def test_a_partition_that_is_taken_away_in_a_restore_ends_quietly() -> None:
    setup = Setup()
    setup.kafka.commits[JOURNAL] = 30
    setup.learner.abandon()

    async def work() -> None:
        await asyncio.wait_for(setup.learner.run(), 10)

    asyncio.run(work())
    assert setup.learner.state is None


def test_a_partition_that_was_taken_away_takes_no_memory() -> None:
    """It is out of the garbage collector's sight since it was ready; found in a review."""
    setup = Setup(records=2)
    setup.put(0, 1)
    setup.run(setup.learner.ready.is_set)
    setup.journal.features("waits", {"v": 1})
    setup.put(2)
    assert setup.learner.waiting == 1
    fold = weakref.ref(setup.learner.state)
    assert fold() is not None
    setup.learner.abandon()
    assert fold() is None
    assert setup.learner.waiting == 0
    assert [queue.occupied for queue in setup.learner.inbox.values()] == [0]


def test_while_it_restores_again_the_state_before_is_gone() -> None:
    setup = Setup(records=2)
    alive: list[list[bool]] = []
    restore = setup.learner.restore
    states: list[weakref.ref[Any]] = []

    def noted() -> Any:
        alive.append([state() is not None for state in states])
        state = restore()
        states.append(weakref.ref(state))
        return state

    setup.learner.restore = noted  # type: ignore[method-assign]
    setup.put(0, 1)
    process = setup.learner.process
    failed: list[int] = []

    async def overtaken_once(*given: Any) -> bool:
        if not failed:
            failed.append(1)
            raise OvertakenError
        return await process(*given)

    setup.learner.process = overtaken_once  # type: ignore[assignment, method-assign]
    setup.run(lambda: setup.learner.ready.is_set() and setup.learner.waiting == 0)
    assert alive == [[], [False]]


def test_a_restore_waits_for_the_kernels_and_ends_with_their_error() -> None:
    setup, seen = Setup(records=2), []
    setup.learner.await_start = lambda: seen.append(setup.learner.restoring)
    setup.put(0, 1)
    setup.run(setup.learner.ready.is_set)
    assert seen == [False]

    def broken() -> None:
        raise OSError("no kernels")

    setup.make().await_start = broken
    with pytest.raises(OSError, match="no kernels"):
        setup.run(setup.learner.ready.is_set)


def test_nothing_is_saved_while_a_thread_works_on_the_state() -> None:
    """Cancelled in the middle of a gap, the thread may still be folding."""
    setup = Setup()
    setup.put(0, 1)
    setup.run_to(2)
    setup.learner._thread_at_work = True
    asyncio.run(setup.learner.finish())
    assert setup.store.objects == {}


def test_a_restore_moves_while_it_reads_decisions_and_while_it_folds() -> None:
    learner = Setup().learner
    seen = [learner.restore_progress]
    learner.poison.read(0, 7)
    seen.append(learner.restore_progress)
    learner.restored_records = 1
    seen.append(learner.restore_progress)
    assert len(set(seen)) == 3


def test_refusals_are_logged_once_a_minute_with_counts(caplog: pytest.LogCaptureFixture) -> None:
    """One bad producer filled the log."""
    now = [0.0]
    refusals = RefusalLog(3, lambda: now[0])
    refusals.report()
    for reason, moment in (("not-json", 0.0), ("not-json", 1.0), ("too-large", 30.0)):
        now[0] = moment
        refusals.note(write_headers(DeadLetter("features", 0, 1, reason, "x")))
        refusals.report()
    now[0] = 61.0
    refusals.report()
    refusals.report()
    assert [record.getMessage() for record in caplog.records] == [
        "partition 3: records refused: not-json 1",
        "partition 3: records refused: not-json 1, too-large 1",
    ]


def test_counters_are_hidden_until_they_are_as_high_as_they_were() -> None:
    """Seen: after a restart they went down, which Prometheus takes for a reset."""
    setup = Setup(records=5)
    shown: list[int] = []

    def until() -> bool:
        shown.append(setup.learner.counts.get("records/copy", 0))
        return setup.learner.ready.is_set()

    setup.put(0, 1, 2, 3, 4)
    setup.run(until)
    assert set(shown[:-1]) <= {0}
    assert setup.learner.counts["records/copy"] == 5


# --- versions ----------------------------------------------------------------------


def test_what_another_version_has_answered_is_not_answered_again() -> None:
    """After an upgrade 10 of 10 answers that were sent again differed under the same `at`."""
    setup = Setup(records=6)
    setup.put(*range(6))
    setup.run_to(6)
    first = [record[1] for record in setup.predictions.sent]
    old = Setup(records=6)
    old.journal.control(Version(FOLD_VERSION, 77, "another state"))
    old.journal.features("i6", {"v": 1})
    old.kafka.topics["predictions"] = [
        Record("predictions", 0, offset, 0, b"k", value, [])
        for offset, value in enumerate(first[:4])
    ]
    old.put(*range(8))
    old.run(lambda: old.learner.ready.is_set() and old.learner.next_offset == 8)
    assert old.answered() == ["i4", "i5", "i6"]
    kinds = [headers[0][1] for _, _, headers in old.appended.sent]
    assert kinds.count(b"version") == 1


def test_a_journal_of_a_newer_version_ends_the_worker_with_a_sentence() -> None:
    setup = Setup(records=2)
    setup.journal.control(Version(FOLD_VERSION + 1, 0, "9.9"))
    setup.put(0, 1, 2)
    with pytest.raises(RefusalError, match="start the newer release"):
        setup.run_to(3)
    assert [headers[0][1] for _, _, headers in setup.appended.sent] == [], "no crash is noted"


def test_a_version_is_marked_once() -> None:
    setup = Setup(records=2)
    setup.put(0, 1)
    setup.run(setup.learner.ready.is_set, finish=True)
    assert len(setup.appended.sent) == 1
    setup.make()
    setup.put(2)
    setup.run(lambda: setup.learner.ready.is_set() and setup.learner.next_offset == 3)
    assert len(setup.appended.sent) == 1


# --- a lost tail of the journal ----------------------------------------------------


def test_offsets_that_were_answered_and_lost_are_not_used_again() -> None:
    """The journal lost its tail: new records were answered under the `at` of old ones."""
    setup = Setup(records=6)
    setup.put(*range(6))
    setup.run_to(6)
    answers = [record[1] for record in setup.predictions.sent]
    again = answers[:2]  # a worker that began again at its snapshot, and died
    after = Setup(records=4)
    after.kafka.topics["predictions"] = [
        Record("predictions", 0, offset, 0, b"k", value, [])
        for offset, value in enumerate([*answers, *again, b"not ours"])
    ]
    assert after.learner.lost_offsets == 0
    after.put(*range(4))
    after.run(after.learner.ready.is_set)
    assert after.learner.lost_offsets == 2
    whole = Setup(records=6)
    whole.kafka.topics["predictions"] = after.kafka.topics["predictions"]
    whole.put(*range(6))
    whole.run(whole.learner.ready.is_set)
    assert whole.learner.lost_offsets == 0


def test_a_journal_that_has_lost_more_than_can_be_skipped_is_refused() -> None:
    setup = Setup(records=2)
    setup.put(0, 1)
    setup.run_to(2)
    value = orjson.loads(setup.predictions.sent[0][1] or b"")
    value["at"]["offset"] = 5_000_000
    after = Setup(records=2)
    after.kafka.topics["predictions"] = [
        Record("predictions", 0, 0, 0, b"k", orjson.dumps(value), [])
    ]
    with pytest.raises(RefusalError, match="ends at 2 and records up to 5000000 were answered"):
        after.run(after.learner.ready.is_set)


def test_late_labels_are_logged_with_their_setting(caplog: pytest.LogCaptureFixture) -> None:
    config = FoldConfig(learner=Config.read({"delay": {"expire_steps": 1}}))
    setup = Setup(records=0, fold=config)
    setup.journal.control(ConfigChange(config.digest(), config.as_mapping()))
    for id in "abcd":
        setup.journal.features(id, {"v": 1})
    setup.journal.label("a", 1)
    setup.put(*range(6))
    setup.run_to(6)
    assert "delay.expire_steps 1" in caplog.text


def test_its_life_is_told_as_events_at_journal_offsets() -> None:
    setup = Setup(records=4, fold=FoldConfig(why=3))
    setup.put(0, 1, 2, 3)
    setup.run(setup.learner.ready.is_set, finish=True)
    assert [(kind, offset) for kind, _, offset, _ in setup.events] == [
        (EventKind.CONFIG, 4),
        (EventKind.STARTED, 4),
        (EventKind.SNAPSHOT, 4),
        (EventKind.STOPPED, 4),
    ]
    assert setup.events[0][3] == "why"


def test_parking_and_the_decision_about_it_are_told_as_events() -> None:
    setup = Setup(records=12)
    for _ in range(3):
        setup.journal.control(Crash(5))
    setup.put(0)
    setup.run(lambda: len(setup.events) == 1)
    setup.journal.control(Skip(5, "why"))
    setup.put(9)
    setup.run(lambda: len(setup.events) > 1)
    told = [(kind, offset) for kind, _, offset, _ in setup.events]
    assert told[:2] == [(EventKind.PARKED, 5), (EventKind.SKIPPED, 5)]


def test_events_do_not_change_what_is_written() -> None:
    with_events, without = Setup(records=20), Setup(records=20)
    without.learner.send_event = lambda *_: None
    for setup in (with_events, without):
        setup.put(*range(20))
        setup.run(setup.learner.ready.is_set, finish=True)
    assert with_events.events
    assert with_events.predictions.sent == without.predictions.sent
    assert with_events.learner.health()["state"] == without.learner.health()["state"]


def test_a_stream_that_is_forgotten_is_logged_and_an_event(
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = FoldConfig(stream_idle_ms=3_000)
    setup = Setup(records=0, fold=config)
    setup.journal.control(ConfigChange(config.digest(), config.as_mapping()))
    setup.journal.features("a", {"v": 1}, stream="idle")
    for number in range(6):  # a second later each
        setup.journal.features(f"b{number}", {"v": 1}, stream="busy")
    setup.put(*range(8))
    with caplog.at_level("WARNING"):
        setup.run_to(8)
    (line,) = [each.getMessage() for each in caplog.records if "evicted" in each.getMessage()]
    assert line.startswith("partition 0: stream-evicted: stream idle: streams.idle_ms: no record")
    assert line.endswith("forgotten with 1 records and 0 labels learnt")
    ((_, value, headers),) = setup.scores.sent
    assert orjson.loads(value or b"")["stream"] == "idle"
    assert headers == [("dtgol-event", b"stream-evicted")]


def test_a_queue_is_bounded_by_the_memory_of_its_records() -> None:
    """Few large records, or many headers, fill memory as well as many small records."""
    setup = Setup(records=0)
    many = [(f"h{n}", b"") for n in range(50)]
    for number in range(6):
        value = orjson.dumps({"id": f"i{number}", "x": {"v": 1}, "padding": "x" * 10_000})
        setup.journal.copy("features", value, headers=many)
    one = setup.journal.records[0].occupied
    assert one > 10_000 + 50 * 150
    setup.learner.queue_bytes_max = sum(each.occupied for each in setup.journal.records[:3])
    inbox, flow = setup.learner.inbox[JOURNAL], setup.kafka.flow(JOURNAL)
    paused = []
    for offset in range(3):
        setup.put(offset)
        paused.append(flow.paused)
    assert paused == [False, False, True]
    assert inbox.occupied == setup.learner.queue_bytes_max
    setup.run(lambda: not flow.paused and setup.learner.next_offset == 3)
    assert (len(inbox), inbox.occupied) == (0, 0)
