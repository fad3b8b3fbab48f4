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

Bounded: beyond `pairs_max`, which is `evaluator.pairs_bytes_max` by the size of a pair, the
prediction with the smallest journal offset is forgotten, and none at or below it is taken in again;
beyond `labels_max` the oldest label without a prediction. So the order does count where something
is forgotten; `next_topic` decides which topic goes first there. Beyond `boards_max` streams further
ones are scored, but get no scoreboard.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple

from dtgol_core.losses import log_loss
from dtgol_core.scoring import Scoreboard
from dtgol_core.state import (
    CORRUPTION_ERRORS,
    Snapshot,
    SnapshotError,
    check_types,
    refuse_newer,
    require_int,
)
from pipeline.evaluation.pairs import (
    PAIR_BYTES,
    PairCopy,
    PairedInstance,
    PairMemory,
    StoredPrediction,
    Truth,
    key_of,
    pair_key,
)
from pipeline.evaluation.view import PartitionView
from pipeline.snapshots.copy_on_write import CopyOnWrite
from pipeline.snapshots.repository import StateSnapshot
from topics.labels import Label
from topics.predictions import Identity, Prediction
from topics.scores import Score

STATE_VERSION = 5
"""2, whose windows went by step, 3, without default labels, and 4, without thresholds and sets,
were never released: not read."""
BLOB = "evaluation"
ERASED_MAX = 1024
"""So many offsets of erased predictions, beyond those that are kept, may wait to be forgotten."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much is remembered of a partition."""

    pairs_max: int = (1 << 27) // PAIR_BYTES
    labels_max: int = 10_000
    window_rows: int = 1_000
    windows_max: int = 32
    boards_max: int = 1_000
    page_streams_max: int = 500


class EvaluationCopy(NamedTuple):
    """Copies of the state between two records; boards are copied when they are asked for."""

    next_offsets: dict[str, int]
    state: dict[str, Any]
    boards: CopyOnWrite[dict[str, Any]]
    pairs: PairCopy

    def snapshot(self) -> StateSnapshot:
        """The state and its one blob; takes a while, in any thread."""
        position = sum(self.next_offsets.values())
        arrays = self.pairs.arrays()
        boards = {stream: self.boards[stream] for stream in sorted(self.boards)}
        blob = Snapshot(arrays, {"boards": boards}, PairCopy.parts(arrays))
        return StateSnapshot(position, self.state, {BLOB: position}, {BLOB: blob})


class Evaluation:
    """The state of one partition."""

    def __init__(self, journal_id: str, partition: int, bounds: Bounds) -> None:
        self.journal_id = journal_id
        self.partition = partition
        self.bounds = bounds
        self.next_offsets = {"predictions": 0, "labels": 0}
        self.floor = -1
        self.newest_offset = -1
        """The journal offset of the newest prediction; for events, no part of the state."""
        self.counts: Counter[str] = Counter()
        self.pairs = PairMemory()
        self.boards: dict[str, Scoreboard] = {}
        self._copied: CopyOnWrite[dict[str, Any]] = CopyOnWrite({})
        self.rescored = 0  # depends on the order, and so is no part of the state; nor is the view
        self.view = PartitionView(bounds.page_streams_max, self.boards)
        self._oldest: list[int] = []
        self._unmatched: dict[int, None] = {}
        self._unscored = 0

    def predict(self, prediction: Prediction) -> list[Score]:
        """Take in a prediction; its score, if its label is known."""
        offset = prediction.at.offset
        if prediction.at.journal != self.journal_id:
            self.counts["predictions/foreign"] += 1
            return []
        if offset <= self.floor or offset in self.pairs:
            self.counts["predictions/duplicate"] += 1
            return []
        if prediction.repeat:
            self.counts["predictions/repeat"] += 1
            return []
        self.counts["predictions/kept"] += 1
        key = key_of(prediction.stream, prediction.id)
        self.pairs.add(
            offset,
            StoredPrediction(
                prediction.stream,
                prediction.model,
                key,
                prediction.step,
                prediction.ts,
                prediction.labels_offset,
                prediction.p,
                prediction.naive,
                prediction.threshold,
                prediction.set,
            ),
        )
        self.newest_offset = max(self.newest_offset, offset)
        self.view.predicted(prediction)
        heapq.heappush(self._oldest, offset)
        instance = self.pairs.instance(key) or PairedInstance()
        instance.offsets.append(offset)
        instance.first = offset if instance.first < 0 else min(instance.first, offset)
        self.pairs.keep(key, instance)
        self._unmatched.pop(key, None)
        self._unscored += 1
        scores = self._judge(prediction.id, instance, {offset: None})
        for id in prediction.defaulted:
            scores += self._default(id, prediction)
        self._forget_old()
        return scores

    def _default(self, id: str, prediction: Prediction) -> list[Score]:
        """An instance met its deadline: what was predicted of it is scored with a default label."""
        key = key_of(prediction.stream, id)
        instance, y = self.pairs.instance(key), prediction.default
        if instance is None or y is None or prediction.at.offset <= instance.default_at:
            return []
        self.counts["labels/default"] += 1
        self.view.label_came(prediction.stream, "default")
        before = self._truths(instance)
        instance.default = Truth(y, prediction.ts, -1)
        instance.default_at = prediction.at.offset
        self.pairs.keep(key, instance)
        return self._judge(id, instance, before)

    def label(self, label: Label, offset: int) -> list[Score]:
        """Take in a label; scores of the predictions it is about, if it changes anything."""
        key = key_of(label.stream, label.id)
        instance = self.pairs.instance(key) or PairedInstance()
        before, known = self._truths(instance), instance.label
        news = known is None or known.y != label.y
        if news:
            outcome = "first" if known is None else "corrected"
            instance.label = Truth(label.y, label.ts, offset)
        else:
            outcome = "repeated"
        self.counts[f"labels/{outcome}"] += 1
        self.view.label_came(label.stream, outcome if instance.offsets else "early")
        instance.newest = offset
        self.pairs.keep(key, instance)
        if not instance.offsets:
            if news:
                self._unmatched.pop(key, None)
                self._unmatched[key] = None
                self._forget_labels()
            return []
        return self._judge(label.id, instance, before)

    def erase(self, stream: str, hash: int) -> None:
        """Forget the predictions and labels of an id, by its hash; counts and boards stay."""
        self.counts["labels/erase"] += 1
        key = pair_key(stream, hash)
        instance = self.pairs.instance(key)
        if instance is None:
            return
        for at in instance.offsets:
            self._unscored -= self._truth(instance, at) is None
        for at in instance.offsets:
            self.pairs.pop(at)
            self.view.forget_prediction(stream, at)
        self.pairs.drop(key)
        self._unmatched.pop(key, None)
        if len(self._oldest) > 2 * len(self.pairs) + ERASED_MAX:
            self._oldest = [offset for offset in self._oldest if offset in self.pairs]
            heapq.heapify(self._oldest)

    def _truths(self, instance: PairedInstance) -> dict[int, Truth | None]:
        """What each prediction of an instance is scored with."""
        return {at: self._truth(instance, at) for at in instance.offsets}

    def _truth(self, instance: PairedInstance, at: int) -> Truth | None:
        later = instance.newest > self.pairs.labels_offset(at)
        if instance.label is not None and (later or at == instance.first):
            return instance.label
        return instance.default if at < instance.default_at else None

    def _judge(
        self, id: str, instance: PairedInstance, before: Mapping[int, Truth | None]
    ) -> list[Score]:
        """Score the predictions whose truth is not what it was before."""
        scores = []
        for offset, old in sorted(before.items()):
            truth = self._truth(instance, offset)
            if truth is None or truth == old:
                continue
            stored = self.pairs.get(offset)
            self._copied.keep(stored.stream)
            answer, known = (stored.p, stored.naive), self.boards.get(stored.stream)
            given = stored.threshold, stored.set
            if old is not None and known is not None:
                known.retract(*answer, old.y, offset + 1, old.ts - stored.ts, *given)
            board = self._board(stored.stream)
            if board is not None:
                board.add(*answer, truth.y, offset + 1, truth.ts - stored.ts, *given)
            if old is None:
                self._unscored -= 1
                self.counts["predictions/scored"] += 1
                self.counts["predictions/without-board"] += board is None
            else:
                self.rescored += 1
            scores.append(self._score(offset, id, stored, truth, old is not None))
        return scores

    def _score(
        self, offset: int, id: str, stored: StoredPrediction, truth: Truth, again: bool
    ) -> Score:
        score = Score(
            stream=stored.stream,
            id=id,
            step=stored.step,
            model=stored.model,
            at=Identity(self.journal_id, self.partition, offset),
            p=stored.p,
            naive=stored.naive,
            y=truth.y,
            correct=int(stored.p > stored.threshold) == truth.y,
            naive_correct=int(stored.naive > stored.threshold) == truth.y,
            loss=log_loss(stored.p, truth.y),
            naive_loss=log_loss(stored.naive, truth.y),
            delay_ms=truth.ts - stored.ts,
            rescored=again,
            label_offset=truth.offset,
            default=truth.offset < 0,
            threshold=stored.threshold,
            set=stored.set,
            covered=truth.y in stored.set,
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
        while len(self.pairs) > self.bounds.pairs_max:
            offset = heapq.heappop(self._oldest)
            if offset not in self.pairs:  # erased
                continue
            key = self.pairs.get(offset).key
            instance = self.pairs.instance(key)
            assert instance is not None
            unscored = self._truth(instance, offset) is None
            self.pairs.pop(offset)
            self.floor = offset
            instance.offsets.remove(offset)
            if unscored:
                self._unscored -= 1
                self.counts["predictions/unlabelled"] += 1
            if instance.offsets:
                self.pairs.keep(key, instance)
            else:
                self.pairs.drop(key)

    def _forget_labels(self) -> None:
        while len(self._unmatched) > self.bounds.labels_max:
            key = next(iter(self._unmatched))
            del self._unmatched[key]
            self.pairs.drop(key)
            self.counts["labels/unmatched"] += 1

    @property
    def unscored(self) -> int:
        """Predictions without a label: what is lost when memory ends; the others make room."""
        return self._unscored

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
            "predictions": len(self.pairs) >= self.bounds.pairs_max,
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
        """The state as it is now, copied quickly; `EvaluationCopy.snapshot` does the work.

        A board is copied then, or before it changes; so only the newest copy may be used.
        """
        state = {
            "version": STATE_VERSION,
            "next_offsets": dict(self.next_offsets),
            "floor": self.floor,
            "counts": dict(sorted(self.counts.items())),
            "unscored": self._unscored,
        }
        self._copied = CopyOnWrite(self.boards)
        return EvaluationCopy(dict(self.next_offsets), state, self._copied, self.pairs.copy())

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
            for name, board in blob.manifest["boards"].items():
                evaluation.boards[name] = Scoreboard.restore(board)
        except CORRUPTION_ERRORS as error:
            raise SnapshotError(f"the state of the partition is damaged: {error!r}") from error
        return evaluation

    def _fill(self, arrays: Mapping[str, Any]) -> None:
        self.pairs.fill(arrays)
        self._oldest = self.pairs.offsets()
        self.newest_offset = self._oldest[-1] if self._oldest else self.floor
        heard = [self.pairs.labels_offset(at) for at in self._oldest]
        alone: list[tuple[int, int]] = []
        arrivals: list[tuple[float, int, int, Truth]] = []
        for key in self.pairs.instance_keys():
            instance = self.pairs.instance(key)
            assert instance is not None
            for at, truth in self._truths(instance).items():
                if truth is None:
                    self._unscored += 1
                    continue
                # By the order of the journal: live, the two topics may come otherwise.
                place = bisect_left(heard, truth.offset)
                before = self._oldest[place] if place < len(heard) else inf
                before = instance.default_at if truth.offset < 0 else before
                arrivals.append((max(before, at + 1), truth.offset, at, truth))
            if not instance.offsets and instance.label is not None:
                alone.append((instance.label.offset, key))
        self._unmatched = {key: None for _, key in sorted(alone)}
        self._fill_view(sorted(arrivals, reverse=True))

    def _fill_view(self, arrivals: list[tuple[float, int, int, Truth]]) -> None:
        """Show again what is known of the past: each label before the predictions that follow it.

        `arrivals`, the last one first: the offset before which it came, and which label of what.
        """
        for offset in self._oldest:
            while arrivals and arrivals[-1][0] <= offset:
                _, _, at, truth = arrivals.pop()
                self.view.restore_label(at, self.pairs.get(at), truth)
            self.view.restore_prediction(offset, self.pairs.get(offset))
        while arrivals:
            _, _, at, truth = arrivals.pop()
            self.view.restore_label(at, self.pairs.get(at), truth)
