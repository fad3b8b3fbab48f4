"""Predictions and labels of one partition -> scores: what was predicted at the time, and the truth.

The order between the two topics differs from run to run, so the state must not depend on it: pairs
are known by their identity, counters are whole numbers, windows go by journal offset, which goes on
where a stream starts anew and its steps begin at 1 again. Predictions are kept,
scored or not, so that a correction can be scored again. Of one identity the score with the newest
label counts. A repeated answer (`repeat`) is not scored: its record was scored when it was first
answered.

A label is about predictions that were made before it came, by the order of the journal, or else
about the first prediction of its id, which it came too early for. So an id that comes back after
the learner has forgotten it is not scored with the label of its first life. A default label
(`Prediction.defaulted`) is about what was predicted before, until a true one comes.

Bounded: beyond `pairs_max` the prediction with the smallest journal offset is forgotten, and none
at or below it is taken in again; beyond `labels_max` the oldest label without a prediction. So the
order does count where something is forgotten; `next_topic` decides which topic goes first there.
Beyond `boards_max` streams further ones are scored, but get no scoreboard.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from dtgol_core.ids import id_hash
from dtgol_core.losses import log_loss
from dtgol_core.scoring import Scoreboard
from dtgol_core.state import (
    CORRUPTION_ERRORS,
    Snapshot,
    SnapshotError,
    check_types,
    pack_ids,
    refuse_newer,
    require_int,
    unpack_ids,
)
from pipeline.evaluation.view import PartitionView
from pipeline.snapshots.repository import StateSnapshot
from topics.labels import Label
from topics.predictions import Identity, Prediction
from topics.scores import Score

STATE_VERSION = 4
"""2, whose windows went by step, and 3, without default labels, were never released: not read."""
BLOB = "evaluation"
Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much is remembered of a partition."""

    pairs_max: int = 50_000
    labels_max: int = 10_000
    window_rows: int = 1_000
    windows_max: int = 32
    boards_max: int = 1_000
    page_streams_max: int = 500


class StoredPrediction(NamedTuple):
    """A prediction as it was made."""

    key: Key
    step: int
    ts: int
    p: float
    naive: float
    model: str
    labels_offset: int


class Truth(NamedTuple):
    """What a prediction is scored with; `offset` is the label's, -1 for a default label."""

    y: int
    ts: int
    offset: int


NO_TRUTH = Truth(-1, 0, -1)


@dataclass(slots=True)
class Instance:
    """One id: its newest label, and the journal offsets of its predictions.

    `label` is the first of those that say the same, `newest` the offset of the last one. `default`
    is about predictions before the journal offset `default_at`; `first` is the offset of the first
    prediction, also when that is forgotten.
    """

    label: Truth | None = None
    newest: int = -1
    default: Truth | None = None
    default_at: int = -1
    first: int = -1
    offsets: list[int] = field(default_factory=list)


class EvaluationCopy(NamedTuple):
    """Copies of the state between two records."""

    next_offsets: dict[str, int]
    state: dict[str, Any]
    boards: dict[str, Any]
    predictions: list[tuple[int, StoredPrediction]]
    labels: Sequence[tuple[Key, tuple[int, ...]]]

    def snapshot(self) -> StateSnapshot:
        """The state and its one blob; takes a while, in any thread."""
        position = sum(self.next_offsets.values())
        blob = Snapshot(self._arrays(), {"boards": self.boards})
        return StateSnapshot(position, self.state, {BLOB: position}, {BLOB: blob})

    def _arrays(self) -> dict[str, Any]:
        predictions, labels = sorted(self.predictions), sorted(self.labels)
        texts = {
            "prediction_stream": [each.key[0] for _, each in predictions],
            "prediction_id": [each.key[1] for _, each in predictions],
            "prediction_model": [each.model for _, each in predictions],
            "instance_stream": [key[0] for key, _ in labels],
            "instance_id": [key[1] for key, _ in labels],
        }
        arrays: dict[str, Any] = {}
        for name, column in texts.items():
            arrays[name + "_text"], arrays[name + "_lengths"] = pack_ids(column)
        numbers = [(at, each.step, each.ts, each.labels_offset) for at, each in predictions]
        arrays["prediction"] = np.array(numbers, dtype=np.int64).reshape(-1, 4)
        probabilities = [(each.p, each.naive) for _, each in predictions]
        arrays["probability"] = np.array(probabilities, dtype=np.float64).reshape(-1, 2)
        arrays["label"] = np.array([each for _, each in labels], dtype=np.int64).reshape(-1, 9)
        return arrays


class Evaluation:
    """The state of one partition."""

    def __init__(self, journal_id: str, partition: int, bounds: Bounds) -> None:
        self.journal_id = journal_id
        self.partition = partition
        self.bounds = bounds
        self.next_offsets = {"predictions": 0, "labels": 0}
        self.floor = -1
        self.counts: Counter[str] = Counter()
        self.predictions: dict[int, StoredPrediction] = {}
        self.instances: dict[Key, Instance] = {}
        self.boards: dict[str, Scoreboard] = {}
        self.rescored = 0  # depends on the order, and so is no part of the state; nor is the view
        self.view = PartitionView(bounds.page_streams_max)
        self._oldest: list[int] = []
        self._unmatched: dict[Key, None] = {}
        self._unscored = 0

    def predict(self, prediction: Prediction) -> list[Score]:
        """Take in a prediction; its score, if its label is known."""
        offset = prediction.at.offset
        if prediction.at.journal != self.journal_id:
            self.counts["predictions/foreign"] += 1
            return []
        if offset <= self.floor or offset in self.predictions:
            self.counts["predictions/duplicate"] += 1
            return []
        if prediction.repeat:
            self.counts["predictions/repeat"] += 1
            return []
        self.counts["predictions/kept"] += 1
        key = (prediction.stream, prediction.id)
        self.predictions[offset] = StoredPrediction(
            key,
            prediction.step,
            prediction.ts,
            prediction.p,
            prediction.naive,
            prediction.model,
            prediction.labels_offset,
        )
        self.view.predicted(prediction)
        heapq.heappush(self._oldest, offset)
        instance = self.instances.setdefault(key, Instance())
        instance.offsets.append(offset)
        instance.first = offset if instance.first < 0 else min(instance.first, offset)
        self._unmatched.pop(key, None)
        self._unscored += 1
        scores = self._judge(instance, {offset: None})
        for id in prediction.defaulted:
            scores += self._default((prediction.stream, id), prediction)
        self._forget_old()
        return scores

    def _default(self, key: Key, prediction: Prediction) -> list[Score]:
        """An instance met its deadline: what was predicted of it is scored with a default label."""
        instance, y = self.instances.get(key), prediction.default
        if instance is None or y is None or prediction.at.offset <= instance.default_at:
            return []
        self.counts["labels/default"] += 1
        self.view.label_came(key[0], "default")
        before = self._truths(instance)
        instance.default = Truth(y, prediction.ts, -1)
        instance.default_at = prediction.at.offset
        return self._judge(instance, before)

    def label(self, label: Label, offset: int) -> list[Score]:
        """Take in a label; scores of the predictions it is about, if it changes anything."""
        key = (label.stream, label.id)
        instance = self.instances.setdefault(key, Instance())
        before, known = self._truths(instance), instance.label
        if known is None or known.y != label.y:
            outcome = "first" if known is None else "corrected"
            instance.label = Truth(label.y, label.ts, offset)
        else:
            outcome = "repeated"
        self.counts[f"labels/{outcome}"] += 1
        self.view.label_came(label.stream, outcome if instance.offsets else "early")
        instance.newest = offset
        if not instance.offsets:
            if known is None or known.y != label.y:
                self._unmatched.pop(key, None)
                self._unmatched[key] = None
                self._forget_labels()
            return []
        return self._judge(instance, before)

    def erase(self, stream: str, hash: int) -> None:
        """Forget the predictions and labels of an id, by its hash; counts and boards stay."""
        self.counts["labels/erase"] += 1
        for key in [key for key in self.instances if key[0] == stream and id_hash(key[1]) == hash]:
            instance = self.instances.pop(key)
            self._unmatched.pop(key, None)
            for at in instance.offsets:
                self._unscored -= self._truth(instance, at) is None
                del self.predictions[at]
                self.view.forget_prediction(stream, at)
        self._oldest = sorted(self.predictions)

    def _truths(self, instance: Instance) -> dict[int, Truth | None]:
        """What each prediction of an instance is scored with."""
        return {at: self._truth(instance, at) for at in instance.offsets}

    def _truth(self, instance: Instance, at: int) -> Truth | None:
        later = instance.newest > self.predictions[at].labels_offset
        if instance.label is not None and (later or at == instance.first):
            return instance.label
        return instance.default if at < instance.default_at else None

    def _judge(self, instance: Instance, before: Mapping[int, Truth | None]) -> list[Score]:
        """Score the predictions whose truth is not what it was before."""
        scores = []
        for offset, old in sorted(before.items()):
            truth = self._truth(instance, offset)
            if truth is None or truth == old:
                continue
            stored = self.predictions[offset]
            answer, known = (stored.p, stored.naive), self.boards.get(stored.key[0])
            if old is not None and known is not None:
                known.retract(*answer, old.y, offset + 1, old.ts - stored.ts)
            board = self._board(stored.key[0])
            if board is not None:
                board.add(*answer, truth.y, offset + 1, truth.ts - stored.ts)
            if old is None:
                self._unscored -= 1
                self.counts["predictions/scored"] += 1
                self.counts["predictions/without-board"] += board is None
            else:
                self.rescored += 1
            scores.append(self._score(offset, stored, truth, old is not None))
        return scores

    def _score(self, offset: int, stored: StoredPrediction, truth: Truth, again: bool) -> Score:
        stream, id = stored.key
        score = Score(
            stream=stream,
            id=id,
            step=stored.step,
            model=stored.model,
            at=Identity(self.journal_id, self.partition, offset),
            p=stored.p,
            naive=stored.naive,
            y=truth.y,
            correct=int(stored.p > 0.5) == truth.y,
            naive_correct=int(stored.naive > 0.5) == truth.y,
            loss=log_loss(stored.p, truth.y),
            naive_loss=log_loss(stored.naive, truth.y),
            delay_ms=truth.ts - stored.ts,
            rescored=again,
            label_offset=truth.offset,
            default=truth.offset < 0,
        )
        self.view.scored(score, truth.ts)
        return score

    def _board(self, stream: str) -> Scoreboard | None:
        """The board of a stream; None for one that came when there was no room for another.

        Boards never go: a correction must be taken from the board that the first label went to.
        """
        board = self.boards.get(stream)
        if board is None:
            if len(self.boards) >= self.bounds.boards_max:
                return None
            rows, windows = self.bounds.window_rows, self.bounds.windows_max
            board = self.boards[stream] = Scoreboard(rows, windows)
        return board

    def _forget_old(self) -> None:
        while len(self.predictions) > self.bounds.pairs_max:
            offset = heapq.heappop(self._oldest)
            instance = self.instances[self.predictions[offset].key]
            unscored = self._truth(instance, offset) is None
            stored = self.predictions.pop(offset)
            self.floor = offset
            instance.offsets.remove(offset)
            if unscored:
                self._unscored -= 1
                self.counts["predictions/unlabelled"] += 1
            if not instance.offsets:
                del self.instances[stored.key]

    def _forget_labels(self) -> None:
        while len(self._unmatched) > self.bounds.labels_max:
            key = next(iter(self._unmatched))
            del self._unmatched[key], self.instances[key]
            self.counts["labels/unmatched"] += 1

    @property
    def newest_offset(self) -> int:
        """The journal offset of the newest prediction that is known."""
        return max(self.predictions, default=self.floor)

    @property
    def unmatched(self) -> int:
        """Labels without a prediction."""
        return len(self._unmatched)

    def next_topic(self, at_hand: Mapping[str, int], unread: Callable[[str], bool]) -> str | None:
        """The topic whose next record is to be taken in; None while none may be.

        `at_hand` gives the timestamp of the next record of each topic that has one here, `unread`
        whether a topic has records that are not here yet. Where something would be forgotten, the
        other topic is waited for if it has unread records, so never both wait. Of two records the
        earlier goes first, as it happened; but if one topic is far ahead of the other, whatever
        its timestamps say, the other goes first: its records need what would be forgotten next.
        """
        full = {
            "predictions": len(self.predictions) >= self.bounds.pairs_max,
            "labels": len(self._unmatched) >= self.bounds.labels_max,
        }
        if len(at_hand) < len(full):
            for name in at_hand:
                (other,) = full.keys() - {name}
                return None if full[name] and unread(other) else name
            return None
        # Some predictions are never scored; if most are not, it is for want of labels.
        ahead = 2 * self._unscored > self.bounds.pairs_max
        if ahead != full["labels"]:
            return "labels" if ahead else "predictions"
        return "predictions" if at_hand["predictions"] <= at_hand["labels"] else "labels"

    def copy(self) -> EvaluationCopy:
        """The state as it is now, copied quickly; `EvaluationCopy.snapshot` does the work."""
        state = {
            "version": STATE_VERSION,
            "next_offsets": dict(self.next_offsets),
            "floor": self.floor,
            "counts": dict(sorted(self.counts.items())),
        }
        boards = {stream: board.snapshot() for stream, board in sorted(self.boards.items())}
        labels = [
            (
                key,
                (
                    *(each.label or NO_TRUTH),
                    each.newest,
                    *(each.default or NO_TRUTH),
                    each.default_at,
                    each.first,
                ),
            )
            for key, each in self.instances.items()
        ]
        predictions = list(self.predictions.items())
        return EvaluationCopy(dict(self.next_offsets), state, boards, predictions, labels)

    def snapshot(self) -> StateSnapshot:
        """State and its one blob; equal for equal sets of records, whatever their order."""
        return self.copy().snapshot()

    @staticmethod
    def restore(
        journal_id: str,
        partition: int,
        bounds: Bounds,
        state: Mapping[str, Any],
        blobs: Mapping[str, Snapshot],
    ) -> Evaluation:
        """The evaluation that a snapshot described."""
        refuse_newer(state.get("version"), STATE_VERSION)
        if state.get("version") != STATE_VERSION:
            raise SnapshotError(f"the state of the partition has format {state.get('version')!r}")
        evaluation = Evaluation(journal_id, partition, bounds)
        try:
            blob = blobs[BLOB]
            check_types(blob, evaluation.snapshot().changed[BLOB])
            offsets = state["next_offsets"]
            evaluation.next_offsets = {name: require_int(at) for name, at in offsets.items()}
            evaluation.floor = require_int(state["floor"])
            evaluation.counts = Counter(
                {name: require_int(n) for name, n in state["counts"].items()}
            )
            evaluation._fill(blob.arrays)
            boards = blob.manifest["boards"]
            evaluation.boards = {name: Scoreboard.restore(board) for name, board in boards.items()}
        except CORRUPTION_ERRORS as error:
            raise SnapshotError(f"the state of the partition is damaged: {error!r}") from error
        return evaluation

    def _fill(self, arrays: Mapping[str, Any]) -> None:
        def column(name: str) -> list[str]:
            return unpack_ids(arrays[name + "_text"], arrays[name + "_lengths"])

        keys = zip(column("instance_stream"), column("instance_id"), strict=True)
        for key, row in zip(keys, arrays["label"].tolist(), strict=True):
            label, default = Truth(*row[:3]), Truth(*row[4:7])
            self.instances[key] = Instance(
                None if label.y < 0 else label,
                row[3],
                None if default.y < 0 else default,
                *row[7:],
            )
        for row in zip(
            arrays["prediction"].tolist(),
            arrays["probability"].tolist(),
            column("prediction_stream"),
            column("prediction_id"),
            column("prediction_model"),
            strict=True,
        ):
            (offset, step, ts, labels_offset), (p, naive), stream, id, model = row
            self.predictions[offset] = StoredPrediction(
                (stream, id), step, ts, p, naive, model, labels_offset
            )
            self.instances[stream, id].offsets.append(offset)
        self._oldest = sorted(self.predictions)
        self._unscored = sum(
            self._truth(self.instances[each.key], at) is None
            for at, each in self.predictions.items()
        )
        alone = [
            (each.label.offset, key)
            for key, each in self.instances.items()
            if not each.offsets and each.label is not None
        ]
        self._unmatched = {key: None for _, key in sorted(alone)}
        self._fill_view()

    def _fill_view(self) -> None:
        """Show again what is known of the past: predictions by offset, labels by arrival."""
        scored = []
        for offset, each in sorted(self.predictions.items()):
            stream, truth = each.key[0], self._truth(self.instances[each.key], offset)
            self.view.restore_prediction(stream, offset, each.step, each.ts, each.p)
            if truth is not None:
                late = truth.y, truth.ts, truth.ts - each.ts
                scored.append((truth.offset, stream, offset, each.p, each.naive, *late))
        for label in sorted(scored):
            self.view.restore_label(*label[1:])
