"""The evaluator of one partition: predictions and labels -> scores, and its checkpoints.

At least once; of one identity the score of the newest label counts. Which of the two topics goes
first, live and restored, is decided by `Evaluation.next_topic`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dtgol_core.ids import signed_hash
from dtgol_core.scoring import Scoreboard
from pipeline.errors import FoldBugError, OvertakenError, RefusalError
from pipeline.evaluation.metrics import EvaluatorMetrics
from pipeline.evaluation.pairing import Bounds, Evaluation
from pipeline.evaluation.poison import FAILURES_MAX, FailureLog, Place
from pipeline.evaluation.view import Costs, PartitionView, equal_costs
from pipeline.faust_ext.flow import Delivery
from pipeline.kafka.record import Record
from pipeline.kafka.writer import Outbox, PartitionWriter
from pipeline.runtime.checkpoint import Checkpoint, Checkpointer
from pipeline.runtime.metrics import Sample
from pipeline.runtime.partition import Partition, of_each
from pipeline.runtime.port import PartitionKafka
from topics.codec import read_erasure, read_label, read_prediction, write_score
from topics.headers import Header, trace_headers
from topics.reasons import Limits, Rejection

log = logging.getLogger(__name__)

KeyedScore = tuple[bytes | None, bytes, list[Header]]
"""The key, the value and the headers of a score."""


@dataclass(frozen=True)
class EvaluatorConfig:
    """Names and bounds. `topics` gives the full names of predictions and labels by plain name."""

    journal_id: str
    topics: Mapping[str, str]
    bounds: Bounds
    limits: Limits
    accept_gap: bool = False
    metrics_streams_max: int = 20
    costs: Costs = equal_costs


class PartitionEvaluator(Partition[Evaluation]):
    """Pairs predictions and labels of one partition."""

    stage_name = "score"

    def __init__(
        self,
        number: int,
        config: EvaluatorConfig,
        kafka: PartitionKafka,
        outbox: Outbox,
        scores: PartitionWriter,
        checkpoints: Checkpointer,
        failures: FailureLog | None = None,
    ) -> None:
        super().__init__(number, list(config.topics.values()), kafka, outbox, checkpoints)
        self._config = config
        self._plain = {full: plain for plain, full in config.topics.items()}
        self._scores = scores
        self._failures = failures or FailureLog()
        self._failed: Place | None = None
        self.metrics = EvaluatorMetrics(config.metrics_streams_max, config.costs)
        self._restored_scores: list[KeyedScore] = []
        self._read_all = False
        """Whether all that was on the topics at the start has been taken in, once."""
        self._needed: dict[str, int] = {}
        """By topic, how far the next restore must read, whatever is committed."""

    def position(self, state: Evaluation) -> int:
        """Records of both topics."""
        return sum(state.next_offsets.values())

    def journal_offset(self, state: Evaluation) -> int:
        """Behind the newest prediction."""
        return state.newest_offset + 1

    def checkpoint(self, state: Evaluation) -> Checkpoint:
        """Copies; the snapshot is made of them in a thread."""
        copy = state.copy()
        offsets = {self._config.topics[name]: at for name, at in copy.next_offsets.items()}
        return Checkpoint(offsets, copy.snapshot)

    # --- restore ---------------------------------------------------------------------------------

    def restore(self) -> Evaluation:
        """Snapshot, then both topics up to what the group has committed.

        What is committed was scored. But a snapshot may be ahead of it in one topic and behind in
        the other, if it was saved by a process that the group had expelled. Then prediction and
        label of a pair may never have been in one process, so the scores of this restore are sent.
        """
        config = self._config
        about = config.journal_id, self.number, config.bounds
        found = self.checkpoints.repository.load(lambda *parts: Evaluation.restore(*about, *parts))
        state = found or Evaluation(*about)
        self.saved_position = self.position(state)
        committed = {name: self.kafka.committed(full) or 0 for name, full in config.topics.items()}
        ahead = any(state.next_offsets[name] > offset for name, offset in committed.items())
        readers = {
            name: self._stored(state, name, committed[name], found is not None)
            for name in config.topics
        }
        heads = {name: head for name, each in readers.items() if (head := next(each, None))}
        scores: list[KeyedScore] = []
        while heads:
            at_hand = {name: head.timestamp_ms for name, head in heads.items()}
            name = state.next_topic(at_hand, heads.__contains__)
            assert name is not None
            record, following = heads.pop(name), next(readers[name], None)
            if following is not None:
                heads[name] = following
            made = self._apply(state, record)
            if ahead or record.offset >= committed[name]:
                scores += made
            self.restored_records += 1
        self._restored_scores = scores
        return state

    def _stored(
        self, state: Evaluation, name: str, committed: int, found: bool
    ) -> Iterator[Record]:
        """A topic from where the state is up to what is committed, or was needed before."""
        full = self._config.topics[name]
        start = self._first_offset(state.next_offsets[name], full, committed, found)
        return self.kafka.read(full, start, max(committed, self._needed.get(name, 0)))

    def _first_offset(self, start: int, full: str, committed: int, found: bool) -> int:
        """The first record to read; refuses if records are gone that were read once."""
        low, high = self.kafka.watermarks(full)
        where = f"{full} partition {self.number}"
        if start > high:
            raise RefusalError(
                f"the evaluator's snapshot of {where} is at {start} and the topic ends at {high}: "
                f"it is not the topic that was read"
            )
        # Without a snapshot and a committed offset it starts where the topic begins.
        if start < low and (found or committed):
            if not self._config.accept_gap:
                at = f"the evaluator is at {start}" if found else "there is no snapshot"
                raise RefusalError(
                    f"{where} begins at {low} and {at}: records between are gone; "
                    f"--accept-gap goes on without them"
                )
            log.warning("%s: skipped %d to %d, accepted", where, start, low - 1)
        return max(start, low)

    # --- follow ----------------------------------------------------------------------------------

    def caught_up(self, state: Evaluation) -> bool:
        """Send what the restore has scored; then it is ready."""
        self._emit(self._restored_scores)
        self._restored_scores = []
        return True

    async def process(self, state: Evaluation, until: float) -> bool:
        """Take in what is at hand, one record of either topic at a time."""
        self._raise_if_overtaken(state)
        worked, begun = False, time.monotonic()
        while time.monotonic() < until and not self._gaps(state):
            at_hand = {
                self._plain[full]: queue[0].record.timestamp_ms
                for full, queue in self.inbox.items()
                if queue
            }
            name = state.next_topic(at_hand, self._is_unread)
            if name is None:
                self._read_all |= not at_hand and not any(
                    map(self._is_unread, self._plain.values())
                )
                break
            worked = True
            record = self.inbox[self._config.topics[name]].popleft().record
            self._emit(self._apply(state, record))
            self.stage.records += 1
        if worked:
            self.stage.seconds += time.monotonic() - begun
        return worked

    def _raise_if_overtaken(self, state: Evaluation) -> None:
        """Whether the next record follows some that this state does not have.

        So it is when the group had expelled us, another evaluator went on, and the partition came
        back: Faust starts where the other one has committed.
        """
        gaps = self._gaps(state)
        if not gaps:
            return
        # What this state has taken from the queues will not come again: the next one must read it.
        self._needed = dict(state.next_offsets)
        for full in gaps:
            record = self.inbox[full][0].record
            self._needed[self._plain[full]] = record.offset
            self.inbox[full][0] = Delivery(record, linked=True)
        log.warning("partition %d: overtaken, restored again", self.number)
        raise OvertakenError

    def _gaps(self, state: Evaluation) -> list[str]:
        """Topics whose next record may follow some that the state does not have."""
        return [
            full
            for full, queue in self.inbox.items()
            if queue
            and not queue[0].linked
            and queue[0].record.offset > state.next_offsets[self._plain[full]]
        ]

    def _is_unread(self, name: str) -> bool:
        """Whether records of a topic are in flight, or its end is not known yet."""
        flow = self.flows[self._config.topics[name]]
        return flow.position_and_end is None or flow.has_backlog(flow.received)

    def _apply(self, state: Evaluation, record: Record) -> list[KeyedScore]:
        """Take one record in, unless it is known by its offset; the scores it gives.

        `FoldBugError` if that fails; after the third time the record is left out.
        """
        name = self._plain[record.topic]
        if record.offset < state.next_offsets[name]:
            return []
        state.next_offsets[name] = record.offset + 1
        place = Place(name, self.number, record.offset)
        if self._failures.gives_up(place):
            state.counts[f"{name}/failed"] += 1
            log.error("%s: left out, it has failed %d times", place, FAILURES_MAX)
            return []
        try:
            with self._failures.position(place):
                return self._evaluate(state, name, record)
        except Exception as error:
            self._failed = place
            # What this state has taken from the queues will not come again.
            self._needed = {
                each: max(at, self._needed.get(each, 0)) for each, at in state.next_offsets.items()
            }
            raise FoldBugError(record.offset, error, record.topic) from None

    async def crashed(self, bug: FoldBugError) -> None:
        """The state is restored, and the record tried again or left out."""
        assert self._failed is not None
        count = self._failures.note(self._failed)
        log.error("partition %d: failure %d: %s", self.number, count, bug.report)

    def _evaluate(self, state: Evaluation, name: str, record: Record) -> list[KeyedScore]:
        if record.unreadable:  # the sequencer refuses it too
            state.counts[f"{name}/refused"] += 1
            return []
        if name == "predictions":
            prediction = read_prediction(record.value)
            if isinstance(prediction, Rejection):
                state.counts["predictions/refused"] += 1
                return []
            scores = state.predict(prediction)
        else:
            limits = self._config.limits
            label = read_label(record.value, record.key, record.timestamp_ms, limits)
            if isinstance(label, Rejection):
                erasure = read_erasure(record.value)
                if erasure is not None:
                    state.erase(erasure.stream, signed_hash(erasure.erase))
                    return []
                state.counts["labels/refused"] += 1
                return []
            scores = state.label(label, record.offset)
        if self.ready.is_set():
            self.metrics.scored(scores, state)
        # With a default label no record is about this instance: its deadline was met by another's.
        return [
            (record.key, write_score(score), [] if score.default else trace_headers(record.headers))
            for score in scores
        ]

    def _emit(self, scores: Sequence[KeyedScore]) -> None:
        for key, value, headers in scores:
            self._scores.send(key, value, headers)

    # --- what can be seen from outside -----------------------------------------------------------

    async def status(self) -> dict[str, Any]:
        """Offsets, counters, and the scores of every stream."""
        about, state = self.health(), self.state
        if state is None:
            return about
        return about | {
            "next_offsets": dict(state.next_offsets),
            "remembered": len(state.pairs),
            "remembered_max": state.bounds.pairs_max,
            "given_up_unlabelled": state.counts["predictions/unlabelled"],
            "counts": dict(state.counts),
            "streams": await of_each(state.boards, self._scores_of),
        }

    def _scores_of(self, name: str, board: Scoreboard) -> dict[str, Any]:
        """What `/status` shows of a stream."""
        total = board.total()
        forecast, coverage = total.forecast, total.coverage
        return {
            "scored": total.count,
            "accuracy": forecast.accuracy,
            "naive_accuracy": total.naive.accuracy,
            "log_loss": forecast.log_loss,
            "auc": forecast.auc,
            "precision": forecast.precision,
            "recall": forecast.recall,
            "false_positives": forecast.false_positives,
            "false_negatives": forecast.false_negatives,
            "cost": forecast.cost(*self._config.costs(name), total.count),
            "coverage": coverage.share,
            "coverage_by_class": coverage.by_class,
            "undecided": coverage.undecided,
        }

    @property
    def view(self) -> PartitionView | None:
        """For the live page; None during a restore, which fills it in a thread."""
        return self.state.view if self.state is not None and self.ready.is_set() else None

    @property
    def counts(self) -> Mapping[str, int]:
        """The counters of the evaluation, once it has read what was there at the start.

        Before that they may be lower than what another process has shown.
        """
        return self.state.counts if self.state is not None and self._read_all else {}

    def samples(self) -> Iterable[Sample]:
        """The scores of its streams; none in a restore, which changes them in a thread."""
        yield from super().samples()
        if self.state is not None and self.ready.is_set():
            yield from self.metrics.samples(self.state)
