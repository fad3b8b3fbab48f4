"""The evaluator of one partition, and what Faust may do to it, without a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import orjson
import pytest

from pipeline.errors import RefusalError
from pipeline.evaluation.pairing import Bounds, Evaluation
from pipeline.evaluation.partition import EvaluatorConfig, PartitionEvaluator
from pipeline.faust_ext.consumer import FetchedBatch
from pipeline.kafka.record import Record
from pipeline.runtime.checkpoint import Checkpointer
from pipeline.snapshots.repository import SnapshotRepository
from tests.support.fake_kafka import FakeKafka, FakeOutbox, FakeWriter, MemoryStore
from topics.codec import read_prediction, write_prediction
from topics.generate import FOLDER
from topics.labels import Label
from topics.predictions import Identity, Prediction
from topics.reasons import Limits

NAMES = {"predictions": "p-predictions", "labels": "p-labels"}
PREDICTIONS, LABELS = NAMES.values()


def example() -> Prediction:
    found = read_prediction((FOLDER / "examples" / "predictions.json").read_bytes())
    assert isinstance(found, Prediction)
    return found


EXAMPLE = example()


class Setup:
    """An evaluator, its topics, its store and its scores."""

    def __init__(self, bounds: Bounds | None = None, accept_gap: bool = False) -> None:
        self.kafka = FakeKafka({PREDICTIONS: [], LABELS: []})
        self.store = MemoryStore()
        self.scores = FakeWriter()
        self.repository = SnapshotRepository(self.store, 0, {})
        config = EvaluatorConfig("journal", NAMES, bounds or Bounds(), Limits(), accept_gap)
        outbox: Any = FakeOutbox()
        writer: Any = self.scores
        commit = self.kafka.commit
        checkpoints = Checkpointer(0, self.repository, [writer], commit, 10**9, 10**9)
        self.evaluator = PartitionEvaluator(0, config, self.kafka, outbox, writer, checkpoints)

    def fill(self, topic: str, count: int, first: int = 0) -> None:
        """Records that are no messages; each is counted as refused."""
        self.kafka.topics[topic] = [
            Record(topic, 0, offset, 5, b"k", b"?") for offset in range(first, first + count)
        ]

    def put(self, topic: str, *offsets: int, after_seek: bool = False) -> None:
        for offset in offsets:
            if after_seek:
                self.kafka.flow(topic).unlinked.add(offset)
            record = Record(topic, 0, offset, 5, b"k", b"?")
            self.evaluator.put(topic, FetchedBatch([record], -1, 1))

    def run(self, until: Callable[[], bool]) -> None:
        async def work() -> None:
            task = asyncio.create_task(self.evaluator.run())
            async with asyncio.timeout(20):
                while not until():
                    if task.done():
                        task.result()
                    await asyncio.sleep(0)
            task.cancel()

        asyncio.run(work())

    def save(self, state: Evaluation) -> None:
        """Let a snapshot of this state be found."""
        self.repository.save(state.snapshot())

    def restore(self) -> Evaluation:
        return self.evaluator.restore()

    @property
    def offset(self) -> int:
        state = self.evaluator.state
        return -1 if state is None else state.next_offsets["predictions"]

    @property
    def refused(self) -> int:
        return (
            0
            if self.evaluator.state is None
            else self.evaluator.state.counts["predictions/refused"]
        )


def at(predictions: int, labels: int = 0) -> Evaluation:
    found = Evaluation("journal", 0, Bounds())
    found.next_offsets = {"predictions": predictions, "labels": labels}
    return found


@pytest.fixture
def setup() -> Setup:
    """The snapshot and the group are at prediction 100."""
    found = Setup()
    found.fill(PREDICTIONS, 200)
    found.save(at(100))
    found.kafka.commits = {PREDICTIONS: 100}
    found.kafka.flow(PREDICTIONS).received = 99
    return found


def test_a_state_that_others_have_overtaken_is_restored_again(setup: Setup) -> None:
    """Another evaluator had the partition and committed 120: what lies between was never here."""
    setup.put(PREDICTIONS, 100)
    setup.put(PREDICTIONS, 120, after_seek=True)
    setup.put(PREDICTIONS, 121)
    setup.run(lambda: setup.offset == 122)
    assert setup.refused == 22  # from 100 on, each once
    assert (PREDICTIONS, 100, 120) in setup.kafka.reads


def test_a_broker_that_stands_still_in_a_restore_is_asked_again(setup: Setup) -> None:
    """An evaluator that met a frozen broker ended."""
    setup.kafka.unanswered = 3
    setup.evaluator.retry_s = 0.0
    setup.put(PREDICTIONS, 100)
    setup.put(PREDICTIONS, 120, after_seek=True)
    setup.run(lambda: setup.offset == 121)
    assert setup.kafka.unanswered == 0


def test_a_restore_that_gets_no_answer_counts_as_one_that_does_not_move(setup: Setup) -> None:
    setup.kafka.unanswered = 1_000_000
    setup.evaluator.retry_s = 0.0
    setup.run(lambda: setup.kafka.unanswered < 999_990)
    probes = {probe.what: probe.has_work for probe in setup.evaluator.probes({})}
    assert probes["partition 0: the restore does not move"]


def test_what_an_overtaken_state_had_taken_in_is_read_by_the_next_one(setup: Setup) -> None:
    """Seen in a trial: labels in front of the gap were gone with the state that had them."""
    setup.fill(LABELS, 2)
    setup.put(LABELS, 0, 1)

    def restored() -> bool:
        state = setup.evaluator.state
        if state is not None and state.next_offsets == {"predictions": 100, "labels": 2}:
            setup.put(PREDICTIONS, 120, after_seek=True)
        return setup.offset == 121

    setup.run(restored)
    assert (LABELS, 0, 2) in setup.kafka.reads
    assert setup.evaluator.state is not None
    assert setup.evaluator.state.counts["labels/refused"] == 2


def test_a_gap_that_the_broker_left_is_no_reason_to_restore(setup: Setup) -> None:
    setup.put(PREDICTIONS, 100, 104)  # between them a transaction's markers
    setup.run(lambda: setup.offset == 105)
    assert setup.refused == 2


def test_what_is_known_is_skipped_after_a_seek(setup: Setup) -> None:
    setup.save(at(103))
    setup.put(PREDICTIONS, 100, after_seek=True)
    setup.put(PREDICTIONS, 101, 102, 103)
    setup.run(lambda: setup.offset == 104)
    assert setup.refused == 1


@pytest.mark.parametrize(("label_read", "sent"), [(7, 1), (5, 0)], ids=["ahead", "as committed"])
def test_a_pair_that_only_a_restore_has_seen_is_scored(label_read: int, sent: int) -> None:
    """A zombie saved its state with a label that the owner had not read, without its prediction."""
    setup = Setup()
    prediction = replace(EXAMPLE, at=Identity("journal", 0, 60))
    saved = at(60, label_read)
    saved.label(Label(prediction.stream, prediction.id, 1, 9), 4)
    setup.save(saved)
    value = write_prediction(prediction)
    setup.kafka.topics[PREDICTIONS] = [Record(PREDICTIONS, 0, 60, 5, b"k", value)]
    setup.fill(LABELS, 7)
    setup.kafka.commits = {PREDICTIONS: 61, LABELS: 5}
    setup.run(setup.evaluator.ready.is_set)
    assert setup.evaluator.state is not None
    assert setup.evaluator.state.counts["predictions/scored"] == 1
    assert len(setup.scores.sent) == sent


OF_LABEL, OF_PREDICTION = (("traceparent", b"00-%d-1-01" % number) for number in (1, 2))
TRACES = {LABELS: OF_LABEL, PREDICTIONS: OF_PREDICTION}


def headers_of_scores(*records: tuple[str, bytes]) -> list[list[tuple[str, bytes | None]]]:
    """Of what an evaluator makes of records, each with a trace and a header of its own."""
    setup, state = Setup(), at(0)
    scores = []
    for topic, value in records:
        headers = [TRACES[topic], ("tracestate", b"vendor=1"), ("own", b"1")]
        offset = state.next_offsets[setup.evaluator._plain[topic]]
        record = Record(topic, 0, offset, 5, b"k", value, headers)
        scores += setup.evaluator._apply(state, record)
    return [headers for _, _, headers in scores]


def test_a_score_has_the_trace_of_the_record_that_completed_it() -> None:
    prediction, label = (PREDICTIONS, _prediction(1)), (LABELS, _label("i1", 1))
    state = ("tracestate", b"vendor=1")
    assert headers_of_scores(prediction, label) == [[OF_LABEL, state]]
    assert headers_of_scores(label, prediction) == [[OF_PREDICTION, state]]


def test_a_score_with_a_default_label_has_no_trace() -> None:
    """What completed it is the prediction of another instance, and its trace is not this one's."""
    other = replace(
        EXAMPLE, id="other", at=Identity("journal", 0, 2), step=2, defaulted=("i1",), default=0
    )
    of_other = (PREDICTIONS, write_prediction(other))
    assert headers_of_scores((PREDICTIONS, _prediction(1)), of_other) == [[]]


@dataclass(frozen=True)
class Story:
    """What two topics hold: pairs one millisecond apart, a label some pairs after its prediction.

    Every tenth has no label and every seventh a correction. `outage`: all predictions were made
    when the labels were there already. `orphans`: labels of nothing, in front of the others.
    """

    pairs: int = 2_000
    delay: int = 40
    correction: int = 40
    outage: bool = False
    orphans: int = 0

    def labelled(self) -> list[int]:
        return [number for number in range(self.pairs) if number % 10]

    def positives(self) -> int:
        return sum(1 for number in self.labelled() if number % 7 == 0)

    def topics(self) -> dict[str, list[Record]]:
        late = 10**6 if self.outage else 0
        predictions = [(late + number, _prediction(number)) for number in range(self.pairs)]
        labels = [(number + self.delay, _label(f"i{number}", 0)) for number in self.labelled()]
        labels += [
            (number + self.delay + self.correction, _label(f"i{number}", 1))
            for number in self.labelled()
            if number % 7 == 0
        ]
        orphans = [(0, _label(f"orphan{number}", 0)) for number in range(self.orphans)]
        logs = {
            PREDICTIONS: predictions,
            LABELS: orphans + sorted(labels, key=lambda each: each[0]),
        }
        return {
            topic: [
                Record(topic, 0, offset, time_ms, b"k", value)
                for offset, (time_ms, value) in enumerate(log)
            ]
            for topic, log in logs.items()
        }


def _prediction(number: int) -> bytes:
    at = Identity("journal", 0, number)
    return write_prediction(replace(EXAMPLE, id=f"i{number}", at=at, step=number))


def _label(id: str, y: int) -> bytes:
    return orjson.dumps({"stream": EXAMPLE.stream, "id": id, "y": y})


def work_off(setup: Setup, story: Story, chunks: tuple[int, int]) -> Evaluation:
    """Deliver a backlog in chunks of each topic, with small queues."""
    setup.kafka.topics = story.topics()
    setup.kafka.commits = {}
    setup.evaluator.queue_max = 100

    async def work() -> None:
        task = asyncio.create_task(setup.evaluator.run())
        async with asyncio.timeout(60):
            await setup.evaluator.ready.wait()
            handed = dict(zip(NAMES.values(), chunks, strict=True))
            await setup.kafka.deliver(setup.evaluator, handed)
            while setup.evaluator.waiting:
                await asyncio.sleep(0)
        task.cancel()

    asyncio.run(work())
    assert setup.evaluator.state is not None
    return setup.evaluator.state


@pytest.mark.parametrize(
    "story",
    [Story(), Story(outage=True), Story(correction=300), Story(orphans=700)],
    ids=["down", "worker down too", "corrected late", "labels of nothing"],
)
@pytest.mark.parametrize("chunks", [(130, 850), (2_000, 100), (50, 2_000)], ids=str)
def test_a_backlog_is_scored_whole_however_the_topics_take_turns(
    story: Story, chunks: tuple[int, int]
) -> None:
    """Seen by a reviewer: labels ran ahead of predictions, and were forgotten when these came."""
    found = work_off(Setup(Bounds(pairs_max=500, labels_max=300)), story, chunks)
    total = found.boards[EXAMPLE.stream].summary().total
    assert found.counts["predictions/scored"] == total.count == len(story.labelled())
    assert total.positives == story.positives()
    assert found.counts["labels/unmatched"] == max(0, story.orphans - 300)


def test_labels_of_nothing_are_forgotten_where_the_predictions_end() -> None:
    story = Story(pairs=100, orphans=3_000)
    found = work_off(Setup(Bounds(pairs_max=50, labels_max=20)), story, (50, 500))
    assert found.counts["labels/unmatched"] >= 2_980
    lengths = {name: len(story.topics()[full]) for name, full in NAMES.items()}
    assert found.next_offsets == lengths


def test_labels_wait_while_nothing_is_known_of_the_predictions() -> None:
    """A first fetch may bring labels alone; in front of a full memory they are not taken then."""
    setup = Setup()
    is_unread = setup.evaluator._is_unread
    state = Evaluation("journal", 0, Bounds(labels_max=0))
    flow = setup.kafka.flow(PREDICTIONS)
    flow.received = 99
    assert state.next_topic({"labels": 5}, is_unread) is None
    flow.position, flow.end = 100, 101
    assert state.next_topic({"labels": 5}, is_unread) is None
    flow.position, flow.received = 101, 100
    assert state.next_topic({"labels": 5}, is_unread) == "labels"


@pytest.mark.parametrize("bounds", [(500, 300), (500, 60)], ids=str)
def test_a_restore_scores_what_was_scored_before(bounds: tuple[int, int]) -> None:
    """Seen by a reviewer: all predictions first, and most were forgotten before their label."""
    story = Story()
    setup = Setup(Bounds(*bounds))
    setup.kafka.topics = story.topics()
    setup.kafka.commits = {topic: len(log) for topic, log in story.topics().items()}
    restored = setup.restore()
    assert restored.counts["predictions/scored"] == len(story.labelled())
    assert restored.boards[EXAMPLE.stream].summary().total.positives == story.positives()
    assert setup.evaluator.restored_records == sum(map(len, story.topics().values()))


def trimmed(accept_gap: bool = False, committed: int = 9) -> Setup:
    """Both topics begin at 4; the snapshots are lost."""
    setup = Setup(accept_gap=accept_gap)
    for topic in NAMES.values():
        setup.fill(topic, 5, first=4)
        setup.kafka.low[topic] = 4
    setup.kafka.commits = dict.fromkeys(NAMES.values(), committed) if committed else {}
    return setup


def test_snapshots_that_are_lost_where_the_topics_are_trimmed_are_a_refusal() -> None:
    """Totals would shrink in silence."""
    with pytest.raises(RefusalError, match="p-predictions partition 0 begins at 4 and there is no"):
        trimmed().restore()
    accepted = trimmed(accept_gap=True).restore()
    assert accepted.counts == {"predictions/refused": 5, "labels/refused": 5}


def test_a_first_start_begins_where_the_topics_do() -> None:
    assert trimmed(committed=0).restore().counts == {}


def test_a_snapshot_beyond_the_end_of_a_topic_is_refused(setup: Setup) -> None:
    setup.fill(PREDICTIONS, 50)
    with pytest.raises(RefusalError, match="is at 100 and the topic ends at 50"):
        setup.restore()


def test_a_checkpoint_commits_both_topics(setup: Setup) -> None:
    setup.put(PREDICTIONS, 100, 101)
    setup.run(lambda: setup.offset == 102)
    asyncio.run(setup.evaluator.finish())
    assert setup.kafka.commits == {PREDICTIONS: 102, LABELS: 0}
    assert at(102).next_offsets == setup.restore().next_offsets


def test_counters_are_hidden_until_both_topics_are_read() -> None:
    """Seen: after a restart they went down, which Prometheus takes for a reset."""
    setup = Setup()
    for topic in NAMES.values():
        flow = setup.kafka.flow(topic)
        flow.position, flow.end = 0, 3
    setup.put(NAMES["predictions"], 0, 1, 2)
    shown: list[dict[str, int]] = []

    def until() -> bool:
        if setup.refused == 3 and not shown:
            shown.append(dict(setup.evaluator.counts))
            setup.put(NAMES["labels"], 0, 1, 2)
        return bool(setup.evaluator.counts)

    setup.run(until)
    assert shown == [{}]
    assert setup.evaluator.counts["labels/refused"] == 3
