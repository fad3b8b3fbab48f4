"""The sequencer: what a label waits for, what is copied, what may be committed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline.faust_ext.consumer import FetchedBatch
from pipeline.kafka.record import Record
from pipeline.runtime.watchdog import Probe
from pipeline.sequencing.merge import FEATURES, LABELS
from pipeline.sequencing.record_age import AGE_RECORDS, REPORT_MS, SEEN_MIN, LeastAge
from pipeline.sequencing.sequencer import (
    BATCH,
    COPY_MS,
    FETCHED_MS,
    HOLD_MS,
    IDLE_S,
    Clock,
    PartitionSequencer,
    SequencerConfig,
)
from tests.support.fake_kafka import FakeKafka, FakeOutbox, FakeWriter
from topics.dead_letters import DeadLetter
from topics.headers import Header, producer_headers, read_headers, record_bytes
from topics.journal import Padding, RecordKind, Source, read_control

TOPICS = ("features", "labels")
CONFIG = SequencerConfig(0, TOPICS, ("f", "l"), 1_000, 30_000, 10, 10)


class Setup:
    """A sequencer, and a clock that the test sets; both topics are read to their end."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000.0
        self.kafka = FakeKafka()
        self.learner: Any = SimpleNamespace(
            ready=asyncio.Event(), next_offset=0, lost_offsets=0, marks=lambda _: [-1, -1]
        )
        self.journal, self.dead_letters, self.outbox = FakeWriter(), FakeWriter(), FakeOutbox()
        writers: tuple[Any, Any, Any] = self.outbox, self.journal, self.dead_letters
        clock = Clock(lambda: self.now_ms, lambda: self.now_ms)
        self.sequencer = PartitionSequencer(CONFIG, self.kafka, self.learner, *writers, clock)
        for topic in TOPICS:
            flow = self.kafka.flow(topic)
            flow.position = flow.end = 0

    def put(self, side: int, *headers: Header, value: bytes = b"v", timestamp_ms: int = 1) -> None:
        offset = self.kafka.flow(TOPICS[side]).received + 1
        record = Record(TOPICS[side], 0, offset, timestamp_ms, b"k", value, headers)
        self.sequencer.put(TOPICS[side], FetchedBatch([record], -1, 1))

    def sources(self) -> list[Source]:
        """The headers of all that is in the journal."""
        found = [read_headers(Source, headers) for _, _, headers in self.journal.sent]
        return [source for source in found if isinstance(source, Source)]


@pytest.fixture
def setup() -> Setup:
    return Setup()


def test_a_label_waits_until_features_were_asked_for_after_it_came(setup: Setup) -> None:
    setup.kafka.flow("features").last_fetch_ms = 999_990  # before the label came
    setup.put(LABELS)
    assert setup.sequencer.copy_batch() == 0
    setup.kafka.flow("features").last_fetch_ms = 1_000_020
    assert setup.sequencer.copy_batch() == 1


def test_a_partition_that_was_taken_away_holds_no_records(setup: Setup) -> None:
    setup.put(LABELS)
    assert setup.sequencer.health()["held_for_merge"] == 1
    setup.sequencer.abandon()
    assert setup.sequencer.health()["held_for_merge"] == 0


def test_a_label_does_not_wait_for_ever(setup: Setup) -> None:
    setup.put(LABELS)
    setup.now_ms += HOLD_MS - 1
    assert setup.sequencer.copy_batch() == 0
    setup.now_ms += 1
    assert setup.sequencer.copy_batch() == 1


def test_a_clock_that_was_set_back_holds_no_label_up(setup: Setup) -> None:
    setup.put(LABELS)
    setup.now_ms -= 3_600_000
    assert setup.sequencer.copy_batch() == 1


def test_features_wait_for_nobody_who_is_caught_up(setup: Setup) -> None:
    setup.put(FEATURES)
    assert setup.sequencer.copy_batch() == 1


@pytest.mark.parametrize("name", ["dtgol-length", "dtgol-sha256", "dtgol-offset"])
def test_headers_that_look_like_ours_are_left_behind(setup: Setup, name: str) -> None:
    """An unreadable one would make the copy look like no copy, and break its chain for good."""
    setup.put(FEATURES, ("own", b"1"), (name, b"\xff"))
    assert setup.sequencer.copy_batch() == 1
    ((_, _, sent),) = setup.journal.sent
    assert isinstance(read_headers(Source, sent), Source)
    assert ("own", b"1") in sent
    assert (name, b"\xff") not in sent


def test_nothing_is_copied_while_the_outbox_is_full(setup: Setup) -> None:
    setup.put(FEATURES)
    setup.outbox.full = True
    assert setup.sequencer.copy_batch() == 0
    setup.outbox.full = False
    assert setup.sequencer.copy_batch() == 1


async def start(setup: Setup) -> asyncio.Task[None]:
    """A sequencer that has copied all there was and waits for more."""
    run = asyncio.create_task(setup.sequencer.run())
    setup.learner.ready.set()
    async with asyncio.timeout(5):
        while not setup.sequencer._run_waits:
            await asyncio.sleep(0)
    return run


def test_what_comes_while_the_sequencer_waits_is_copied_at_once(setup: Setup) -> None:
    async def main() -> list[int]:
        sent = []
        setup.put(FEATURES)
        sent.append(len(setup.journal.sent))  # not before the learner is ready
        run = await start(setup)
        sent.append(len(setup.journal.sent))
        setup.put(FEATURES)
        sent.append(len(setup.journal.sent))
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)
        setup.put(FEATURES)
        sent.append(len(setup.journal.sent))  # nor once the sequencer was cancelled
        return sent

    assert asyncio.run(main()) == [0, 1, 2, 2]


def test_what_comes_to_both_sides_at_once_is_merged(setup: Setup) -> None:
    """A label that was handed over first waits for features of before that are on their way."""

    async def main() -> None:
        await start(setup)
        setup.kafka.flow("features").position = setup.kafka.flow("features").end = 1
        setup.kafka.flow("labels").position = setup.kafka.flow("labels").end = 1
        setup.put(LABELS, timestamp_ms=2)
        setup.put(FEATURES, timestamp_ms=1)
        setup.now_ms += HOLD_MS  # nothing comes any more that may have been sent before the label
        async with asyncio.timeout(5):
            while len(setup.journal.sent) < 2:
                await asyncio.sleep(IDLE_S)

    asyncio.run(main())
    assert [source.topic for source in setup.sources()] == ["features", "labels"]


def test_one_turn_of_the_event_loop_copies_one_batch(setup: Setup) -> None:
    """Seen: each further hand-over of the same turn copied another one, and held the loop."""

    async def main() -> tuple[int, int]:
        await start(setup)
        flow = setup.kafka.flow("features")
        for first in range(0, 4 * BATCH, 2 * BATCH):
            records = [
                Record("features", 0, first + n, 1, b"k", b"v", ()) for n in range(2 * BATCH)
            ]
            flow.position = flow.end = first + 2 * BATCH
            setup.sequencer.put("features", FetchedBatch(records, first - 1, 1))
        at_once = len(setup.journal.sent)
        async with asyncio.timeout(5):
            while len(setup.journal.sent) < 4 * BATCH:
                await asyncio.sleep(0)
        return at_once, len(setup.journal.sent)

    assert asyncio.run(main()) == (BATCH, 4 * BATCH)


def test_copying_does_not_hold_the_event_loop_for_long(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen: 28 ms for a fetch of 100 records with 1,000 headers each."""
    send = setup.journal.send

    def slow(*record: Any) -> None:
        send(*record)
        setup.now_ms += 1.0

    monkeypatch.setattr(setup.journal, "send", slow)

    async def main() -> int:
        await start(setup)
        records = [Record("features", 0, n, 1, b"k", b"v", ()) for n in range(10)]
        setup.kafka.flow("features").position = setup.kafka.flow("features").end = 10
        setup.sequencer.put("features", FetchedBatch(records, -1, 1))
        at_once = len(setup.journal.sent)
        async with asyncio.timeout(5):
            while len(setup.journal.sent) < 10:
                await asyncio.sleep(0)
        return at_once

    assert asyncio.run(main()) == COPY_MS


def test_a_label_that_came_with_features_is_waited_for_whatever_was_fetched_long_ago(
    setup: Setup,
) -> None:
    """A transaction's marker had left the labels at a position that nothing was received for."""
    labels = setup.kafka.flow("labels")
    labels.position = labels.end = 5
    setup.put(FEATURES, timestamp_ms=9)
    assert setup.sequencer.copy_batch() == 0
    setup.now_ms += FETCHED_MS
    assert setup.sequencer.copy_batch() == 1
    labels.position = labels.end = 6  # fetched together with what comes now
    setup.put(FEATURES, timestamp_ms=9)
    assert setup.sequencer.copy_batch() == 0


def test_a_full_outbox_holds_back_what_comes_while_the_sequencer_waits(setup: Setup) -> None:
    async def main() -> tuple[int, int]:
        await start(setup)
        setup.outbox.full = True
        setup.put(FEATURES)
        held = len(setup.journal.sent)
        setup.outbox.full = False
        async with asyncio.timeout(5):
            while not setup.journal.sent:
                await asyncio.sleep(0)
        return held, len(setup.journal.sent)

    assert asyncio.run(main()) == (0, 1)


def test_the_chain_of_each_source_is_in_the_headers(setup: Setup) -> None:
    for side in (FEATURES, FEATURES, LABELS, FEATURES):
        setup.put(side)
    setup.now_ms += HOLD_MS
    assert setup.sequencer.copy_batch() == 4
    chains = [(source.topic, source.prev, source.offset) for source in setup.sources()]
    assert sorted(chains) == [
        ("features", -1, 0), ("features", 0, 1), ("features", 1, 2), ("labels", -1, 0)
    ]  # fmt: skip


def test_an_oversized_record_leaves_a_stub_and_a_dead_letter(setup: Setup) -> None:
    setup.put(FEATURES, value=b"x" * 2_000)
    setup.put(FEATURES)
    assert setup.sequencer.copy_batch() == 2
    stub, copy = setup.sources()
    assert (stub.kind, stub.length, copy.kind, copy.prev) == (
        RecordKind.STUB, 2_000, RecordKind.COPY, 0
    )  # fmt: skip
    assert setup.journal.sent[0][:2] == (None, None)
    ((key, value, headers),) = setup.dead_letters.sent
    letter = read_headers(DeadLetter, headers)
    assert isinstance(letter, DeadLetter)
    assert (key, len(value or b""), letter.reason, letter.length) == (
        b"k",
        999,
        "too-large",
        2_000,
    )
    assert stub.reason == "too-large"


@pytest.mark.parametrize("size", [0, 250, 251, 900, 5_000])
def test_a_dead_letter_is_within_the_limit_of_a_record(setup: Setup, size: int) -> None:
    """Seen: it could be larger than what the topics are checked for at the start."""
    for key, value, name in ((size, 2_000, 0), (0, 2_000, size), (size, 2_000, size)):
        setup.dead_letters.sent.clear()
        offset = setup.kafka.flow("features").received + 1
        own = [("n" * name, b"")] if name else []
        record = Record("features", 0, offset, 1, b"k" * key, b"v" * value, own)
        setup.sequencer.put("features", FetchedBatch([record], -1, 1))
        assert setup.sequencer.copy_batch() == 1
        ((sent_key, sent_value, headers),) = setup.dead_letters.sent
        kept = producer_headers(headers)
        assert record_bytes(sent_key, sent_value, kept) <= CONFIG.record_bytes_max
        assert (sent_key is not None) == (key <= 250)
        assert kept == (own if name <= 247 else [])


def test_a_header_name_that_is_not_utf_8_leaves_a_stub_and_a_dead_letter(setup: Setup) -> None:
    """Seen: it ended the process at every start."""
    record = Record("features", 0, 0, 1, b"k", b"v", (), unreadable=True)
    setup.sequencer.put("features", FetchedBatch([record], -1, 1))
    setup.put(FEATURES)
    assert setup.sequencer.copy_batch() == 2
    stub, copy = setup.sources()
    assert (stub.kind, stub.reason, stub.length) == (RecordKind.STUB, "header-name", 1)
    assert (copy.kind, copy.prev) == (RecordKind.COPY, 0)
    ((key, value, headers),) = setup.dead_letters.sent
    letter = read_headers(DeadLetter, headers)
    assert isinstance(letter, DeadLetter)
    assert (key, value, letter.reason, letter.length) == (b"k", b"v", "header-name", None)


def test_only_what_is_durable_in_the_journal_may_be_committed(setup: Setup) -> None:
    setup.put(FEATURES)
    setup.put(FEATURES)
    assert setup.sequencer.copy_batch() == 2
    assert asyncio.run(setup.sequencer.committable()) == {}
    setup.journal.report()
    offsets = asyncio.run(setup.sequencer.committable())
    assert offsets == {("features", 0): 2}
    setup.sequencer.committed(offsets)
    assert asyncio.run(setup.sequencer.committable()) == {}


def test_the_side_that_is_ahead_is_paused_and_resumed_when_there_is_room(setup: Setup) -> None:
    for _ in range(10):
        setup.put(FEATURES)
    assert setup.kafka.flow("features").paused
    assert setup.sequencer.copy_batch() == 10
    assert not setup.kafka.flow("features").paused


def test_a_source_whose_copies_were_not_applied_is_a_reason_not_to_be_ready(setup: Setup) -> None:
    setup.put(FEATURES)
    setup.sequencer.copy_batch()
    setup.journal.report()
    setup.learner.next_offset = 1
    assert setup.sequencer.unready() == [
        "features was applied up to -1 only: the journal has lost what came after; restart the "
        "worker to repair this"
    ]
    setup.learner.marks = lambda _: [0, -1]
    assert setup.sequencer.unready() == []


def test_what_the_journal_has_lost_is_copied_again_first(setup: Setup) -> None:
    setup.kafka.topics["features"] = [
        Record("features", 0, offset, offset, b"k", b"v") for offset in range(5)
    ]
    setup.kafka.commits["features"] = 5
    setup.learner.marks = lambda _: [1, -1]
    setup.learner.ready.set()

    async def run() -> None:
        task = asyncio.create_task(setup.sequencer.run())
        async with asyncio.timeout(10):
            while len(setup.journal.sent) < 3:
                await asyncio.sleep(0)
        task.cancel()

    asyncio.run(run())
    assert [(source.prev, source.offset) for source in setup.sources()] == [(1, 2), (2, 3), (3, 4)]


def test_offsets_that_were_used_before_are_taken_up_first(setup: Setup) -> None:
    """After a lost tail of the journal an `at` stood for two answers."""
    setup.learner.lost_offsets = 3
    setup.learner.ready.set()
    setup.put(FEATURES)

    async def run() -> None:
        task = asyncio.create_task(setup.sequencer.run())
        async with asyncio.timeout(10):
            while len(setup.journal.sent) < 4:
                await asyncio.sleep(0)
        task.cancel()

    asyncio.run(run())
    padding = [read_control(value, headers) for _, value, headers in setup.journal.sent[:3]]
    assert padding == [Padding(3), Padding(2), Padding(1)]
    setup.journal.report()
    assert asyncio.run(setup.sequencer.committable()) == {("features", 0): 1}


def probes(setup: Setup, ends: dict[tuple[str, int], int]) -> Iterable[Probe]:
    return list(setup.sequencer.probes(ends))


def test_a_backlog_is_work_once_the_learner_is_ready(setup: Setup) -> None:
    (probe,) = probes(setup, {("features", 0): 3})
    assert not probe.has_work
    setup.learner.ready.set()
    (probe,) = probes(setup, {("features", 0): 3})
    assert probe.has_work
    (probe,) = probes(setup, {})
    assert not probe.has_work


def test_a_record_with_too_many_headers_leaves_a_stub_and_a_dead_letter(setup: Setup) -> None:
    """More than 100,000 were read by one client and not by the other."""
    setup.put(FEATURES, *[("", b"")] * 1_001)
    setup.put(FEATURES, *[("", b"")] * 400)  # 802 bytes on the wire
    setup.put(FEATURES, *[("", b"")] * 600)  # 1,202 bytes
    assert setup.sequencer.copy_batch() == 3
    kinds = [source.kind for source in setup.sources()]
    assert kinds == [RecordKind.STUB, RecordKind.COPY, RecordKind.STUB]
    letters = [read_headers(DeadLetter, headers) for _, _, headers in setup.dead_letters.sent]
    details = [letter.detail for letter in letters if isinstance(letter, DeadLetter)]
    assert details == ["record: over 1000 headers", "record: over 1000 bytes"]


def test_large_records_are_waited_for_in_bytes_not_in_numbers(setup: Setup) -> None:
    """150 records took gigabytes while 2,000 were allowed."""
    flow = setup.kafka.flow("labels")
    setup.put(LABELS, value=b"x" * (1 << 24))
    assert flow.paused
    setup.now_ms += HOLD_MS
    assert setup.sequencer.copy_batch() == 1
    assert not flow.paused


def test_the_age_of_records_is_measured_by_topic(setup: Setup) -> None:
    """A clock that is an hour slow shows on every record of its topic."""
    for age_ms in (3_600_500, 3_600_100, 3_650_000):
        setup.put(LABELS, timestamp_ms=int(setup.now_ms) - age_ms + 10_000_000)
        setup.now_ms += 10
    setup.put(FEATURES, timestamp_ms=int(setup.now_ms) - 20)
    shown = {
        dict(sample.labels)["topic"]: sample.value
        for sample in setup.sequencer.samples()
        if sample.name == "dtgol_sequencer_least_age_seconds"
    }
    assert shown["features"] == 0.02
    assert shown["labels"] == pytest.approx(3_600.1 - 10_000.0)
    assert asyncio.run(setup.sequencer.status())["least_age_ms"]["features"] == 20


def test_a_slow_clock_is_logged_once_and_not_in_a_backlog(
    setup: Setup, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing said that labels were stamped an hour too early."""
    setup.now_ms = 10_000_000.0
    for _ in range(2 * SEEN_MIN):
        setup.put(LABELS, timestamp_ms=int(setup.now_ms) - 3_600_000)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 1
    assert said[0].startswith("labels partition 0: every record of late is stamped 3600 s or more")
    setup.now_ms += REPORT_MS
    setup.kafka.flow("labels").end = 10_000
    setup.put(LABELS, timestamp_ms=int(setup.now_ms) - 3_600_000)
    assert len(caplog.records) == 1


def test_an_old_least_age_is_forgotten() -> None:
    ages = LeastAge()
    assert ages.least_ms is None
    ages.add(5.0)
    for _ in range(2 * AGE_RECORDS):
        ages.add(100.0)
    assert ages.least_ms == 100.0


def test_a_broker_that_stands_still_at_the_start_is_asked_again(setup: Setup) -> None:
    setup.kafka.unanswered = 3
    setup.sequencer.retry_s = 0.0
    setup.learner.ready.set()
    setup.put(FEATURES)

    async def work() -> None:
        task = asyncio.create_task(setup.sequencer.run())
        async with asyncio.timeout(20):
            while not setup.journal.sent:
                if task.done():
                    task.result()
                await asyncio.sleep(0)
        task.cancel()

    asyncio.run(work())
    assert setup.kafka.unanswered == 0
