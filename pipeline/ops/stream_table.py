"""Predictions and their scores per stream: the state behind `dtgol watch`.

Messages of predictions, scores and dead-letters in, one `View` out. A prediction or score sent
again counts once; a re-score replaces. Bounded: the newest `SCORES_MAX` scores can be replaced,
older ones stay in the totals as they are. No Kafka and no clock here.
"""

from collections import Counter, OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pipeline.kafka.record import Record
from topics.codec import read_prediction, read_score
from topics.dead_letters import DeadLetter, is_marker
from topics.headers import Header, read_headers
from topics.predictions import Identity, Prediction
from topics.reasons import Rejection
from topics.scores import Score, is_event

SCORES_MAX = 100_000
"""Scores per stream that a re-score still finds: some 20 MB, hours of a busy stream."""


class Rate(NamedTuple):
    """How often the forecast and the naive forecast were wrong; None before the first score."""

    scored: int
    cer: float | None
    naive_cer: float | None


@dataclass(frozen=True, slots=True)
class StreamRow:
    """One row of the table. ``records`` and ``labels_learnt`` are the learners' own counts;
    ``expert_weights`` are averaged over the partitions."""

    stream: str
    records: int
    predictions: int
    labels_learnt: int
    scored: int
    total: Rate
    window: Rate
    expert_weights: dict[str, float]
    unverified: int
    partitions: int


@dataclass(frozen=True, slots=True)
class View:
    """Everything on the table at one moment."""

    streams: tuple[StreamRow, ...]
    dead_letters: dict[str, int]
    unreadable: int


@dataclass(slots=True)
class _Stream:
    """What is known of one stream; predictions are kept as the newest per partition."""

    window_size: int
    newest: dict[int, Prediction] = field(default_factory=dict)
    marks: dict[tuple[str, int], int] = field(default_factory=dict)
    predictions: int = 0
    scores: OrderedDict[Identity, tuple[bool, bool, int]] = field(default_factory=OrderedDict)
    window: deque[Identity] = field(default_factory=deque)
    scored: int = 0
    wrong: int = 0
    naive_wrong: int = 0

    def add_prediction(self, prediction: Prediction) -> None:
        at = prediction.at
        if at.offset <= self.marks.get((at.journal, at.partition), -1):
            return
        self.marks[at.journal, at.partition] = at.offset
        self.predictions += 1
        if not prediction.repeat:  # A repeated record is answered without a step.
            self.newest[at.partition] = prediction

    def add_score(self, score: Score) -> None:
        before = self.scores.get(score.at)
        if before is not None:
            if score.label_offset < before[2]:
                return  # of a label that was corrected since
            self.wrong -= not before[0]
            self.naive_wrong -= not before[1]
        else:
            self.scored += 1
            self.window.append(score.at)
        self.wrong += not score.correct
        self.naive_wrong += not score.naive_correct
        self.scores[score.at] = score.correct, score.naive_correct, score.label_offset
        if len(self.scores) > max(SCORES_MAX, self.window_size):
            self.scores.popitem(last=False)
        while len(self.window) > self.window_size:
            self.window.popleft()

    def view(self, stream: str) -> StreamRow:
        newest = self.newest.values()
        recent = [self.scores[at] for at in self.window]
        wrong = sum(not correct for correct, _, _ in recent)
        naive_wrong = sum(not naive for _, naive, _ in recent)
        return StreamRow(
            stream,
            records=sum(each.step for each in newest),
            predictions=self.predictions,
            labels_learnt=sum(each.labels_learnt for each in newest),
            scored=self.scored,
            total=_rate(self.scored, self.wrong, self.naive_wrong),
            window=_rate(len(recent), wrong, naive_wrong),
            expert_weights=_mean_weights(list(newest)),
            unverified=sum(each.unverified for each in newest),
            partitions=len(newest),
        )


class StreamTable:
    """The table: `add` records, `view` at any time."""

    def __init__(self, window: int = 500) -> None:
        self._window = window
        self._streams: dict[str, _Stream] = {}
        self._dead: Counter[str] = Counter()
        self._unreadable = 0

    def add(self, topic: str, record: Record) -> Prediction | Score | None:
        """Take one record of predictions, scores or dead-letters, by plain name; what it was."""
        if topic == "dead-letters":
            self._count_dead_letter(record.headers)
            return None
        if topic == "scores" and is_event(record.headers):
            return None
        read = read_prediction if topic == "predictions" else read_score
        message: Prediction | Score | Rejection = read(record.value)
        if isinstance(message, Rejection):
            self._unreadable += 1
            return None
        stream = self._streams.setdefault(message.stream, _Stream(self._window))
        if isinstance(message, Prediction):
            stream.add_prediction(message)
        else:
            stream.add_score(message)
        return message

    def _count_dead_letter(self, headers: Sequence[Header]) -> None:
        """One dead letter; the marker of one that was sent back is none."""
        if is_marker(headers):
            return
        letter = read_headers(DeadLetter, headers)
        self._dead["unreadable" if isinstance(letter, Rejection) else letter.reason] += 1

    def view(self) -> View:
        """The table as it is now, streams by name."""
        streams = tuple(self._streams[name].view(name) for name in sorted(self._streams))
        return View(streams, dict(self._dead.most_common()), self._unreadable)


def _rate(scored: int, wrong: int, naive_wrong: int) -> Rate:
    if not scored:
        return Rate(0, None, None)
    return Rate(scored, wrong / scored, naive_wrong / scored)


def _mean_weights(newest: Sequence[Prediction]) -> dict[str, float]:
    """The mean weight of every expert; one that a partition does not have weighs 0 there."""
    totals: dict[str, float] = {}
    for prediction in newest:
        for name, answer in prediction.experts.items():
            totals[name] = totals.get(name, 0.0) + answer.weight
    return {name: total / len(newest) for name, total in totals.items()}


def as_plain(view: View) -> dict[str, Any]:
    """The view for a program, flat names."""
    return {
        "streams": [
            {
                "stream": each.stream,
                "records": each.records,
                "predictions": each.predictions,
                "labels_learnt": each.labels_learnt,
                "scored": each.scored,
                "cer": each.total.cer,
                "naive_cer": each.total.naive_cer,
                "window": each.window.scored,
                "window_cer": each.window.cer,
                "window_naive_cer": each.window.naive_cer,
                "expert_weights": each.expert_weights,
                "unverified": each.unverified,
                "partitions": each.partitions,
            }
            for each in view.streams
        ],
        "dead_letters": view.dead_letters,
        "unreadable": view.unreadable,
    }
