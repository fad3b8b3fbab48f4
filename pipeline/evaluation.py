"""Predictions and labels of one partition -> scores; what was said at the time against the truth.

The order between the two topics differs from run to run, so the state does not depend on it: pairs
are known by their identity, counters are whole numbers, windows go by step. Predictions are kept,
scored or not, so that a correction can be scored again. Of one identity the score counts that has
seen the newest label. A repeated answer (`repeat`) is not scored: its record was scored when it was
first answered.

Bounded: beyond `pairs_max` the prediction with the smallest journal offset is forgotten, and none
at or below it is taken in again; beyond `labels_max` the oldest label without a prediction. So the
order does count where something is forgotten, and `turn` says which topic goes first there.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from dtgol_core.losses import log_loss
from dtgol_core.scoring import Scoreboard
from dtgol_core.state import (
    DAMAGE,
    Snapshot,
    SnapshotError,
    check_types,
    pack_ids,
    unpack_ids,
    whole,
)
from topics.labels import Label
from topics.predictions import Identity, Prediction
from topics.scores import Score

STATE_VERSION = 1
Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much is remembered of a partition."""

    pairs_max: int = 50_000
    labels_max: int = 10_000
    window_rows: int = 1_000
    windows_max: int = 32


class Said(NamedTuple):
    """A prediction as it was made."""

    key: Key
    step: int
    ts: int
    p: float
    naive: float
    model: str


@dataclass(slots=True)
class Instance:
    """One id: its newest label, and the journal offsets of its predictions."""

    y: int | None = None
    label_ts: int = 0
    label_offset: int = -1
    offsets: list[int] = field(default_factory=list)


class Cut(NamedTuple):
    """Copies of the state between two records."""

    state: dict[str, Any]
    boards: dict[str, Any]
    said: list[tuple[int, Said]]
    known: list[tuple[Key, tuple[int, int, int]]]

    def snapshot(self) -> tuple[dict[str, Any], dict[str, Snapshot]]:
        """State and its one blob."""
        return self.state, {"pairs": Snapshot(self._arrays(), {"boards": self.boards})}

    def _arrays(self) -> dict[str, Any]:
        said, known = sorted(self.said), sorted(self.known)
        texts = {
            "said_stream": [each.key[0] for _, each in said],
            "said_id": [each.key[1] for _, each in said],
            "said_model": [each.model for _, each in said],
            "known_stream": [key[0] for key, _ in known],
            "known_id": [key[1] for key, _ in known],
        }
        arrays: dict[str, Any] = {}
        for name, column in texts.items():
            arrays[name + "_text"], arrays[name + "_lengths"] = pack_ids(column)
        numbers = [(offset, each.step, each.ts) for offset, each in said]
        arrays["said"] = np.array(numbers, dtype=np.int64).reshape(-1, 3)
        told = [(each.p, each.naive) for _, each in said]
        arrays["told"] = np.array(told, dtype=np.float64).reshape(-1, 2)
        truth = [each for _, each in known]
        arrays["truth"] = np.array(truth, dtype=np.int64).reshape(-1, 3)
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
        self.said: dict[int, Said] = {}
        self.instances: dict[Key, Instance] = {}
        self.boards: dict[str, Scoreboard] = {}
        self.rescored = 0  # depends on the order, and so is no part of the state
        self._oldest: list[int] = []
        self._unmatched: dict[Key, None] = {}
        self._unscored = 0

    def predict(self, prediction: Prediction) -> list[Score]:
        """Take in a prediction; its score, if its label is known."""
        offset = prediction.at.offset
        if prediction.at.journal != self.journal_id:
            self.counts["predictions/foreign"] += 1
            return []
        if offset <= self.floor or offset in self.said:
            self.counts["predictions/duplicate"] += 1
            return []
        if prediction.repeat:
            self.counts["predictions/repeat"] += 1
            return []
        self.counts["predictions/kept"] += 1
        key = (prediction.stream, prediction.id)
        self.said[offset] = Said(
            key, prediction.step, prediction.ts, prediction.p, prediction.naive, prediction.model
        )
        heapq.heappush(self._oldest, offset)
        instance = self.instances.setdefault(key, Instance())
        instance.offsets.append(offset)
        self._unmatched.pop(key, None)
        self._unscored += instance.y is None
        scores = [] if instance.y is None else [self._judge(offset, instance, False)]
        self._forget_old()
        return scores

    def label(self, label: Label, offset: int) -> list[Score]:
        """Take in a label; scores of the predictions it is about, if it says anything new."""
        key = (label.stream, label.id)
        instance = self.instances.setdefault(key, Instance())
        if instance.y == label.y:
            self.counts["labels/repeated"] += 1
            return []
        corrected = instance.y is not None
        self.counts["labels/corrected" if corrected else "labels/first"] += 1
        if corrected:
            for at in instance.offsets:
                self._retract(at, instance)
        else:
            self._unscored -= len(instance.offsets)
        instance.y, instance.label_ts, instance.label_offset = label.y, label.ts, offset
        if not instance.offsets:
            self._unmatched.pop(key, None)
            self._unmatched[key] = None
            self._forget_labels()
        return [self._judge(at, instance, corrected) for at in sorted(instance.offsets)]

    def _judge(self, offset: int, instance: Instance, rescored: bool) -> Score:
        said, y = self.said[offset], instance.y
        assert y is not None
        stream, id = said.key
        delay_ms = instance.label_ts - said.ts
        self._board(stream).judge(said.p, said.naive, y, said.step, delay_ms)
        if rescored:
            self.rescored += 1
        else:
            self.counts["predictions/scored"] += 1
        return Score(
            stream=stream,
            id=id,
            step=said.step,
            model=said.model,
            at=Identity(self.journal_id, self.partition, offset),
            p=said.p,
            naive=said.naive,
            y=y,
            correct=int(said.p > 0.5) == y,
            naive_correct=int(said.naive > 0.5) == y,
            loss=log_loss(said.p, y),
            naive_loss=log_loss(said.naive, y),
            delay_ms=delay_ms,
            rescored=rescored,
            label_offset=instance.label_offset,
        )

    def _retract(self, offset: int, instance: Instance) -> None:
        said = self.said[offset]
        assert instance.y is not None
        delay_ms = instance.label_ts - said.ts
        self._board(said.key[0]).retract(said.p, said.naive, instance.y, said.step, delay_ms)

    def _board(self, stream: str) -> Scoreboard:
        board = self.boards.get(stream)
        if board is None:
            rows, windows = self.bounds.window_rows, self.bounds.windows_max
            board = self.boards[stream] = Scoreboard(rows, windows)
        return board

    def _forget_old(self) -> None:
        while len(self.said) > self.bounds.pairs_max:
            offset = heapq.heappop(self._oldest)
            said = self.said.pop(offset)
            self.floor = offset
            instance = self.instances[said.key]
            instance.offsets.remove(offset)
            if instance.y is None:
                self._unscored -= 1
                self.counts["predictions/unlabelled"] += 1
            if not instance.offsets:
                del self.instances[said.key]

    def _forget_labels(self) -> None:
        while len(self._unmatched) > self.bounds.labels_max:
            key = next(iter(self._unmatched))
            del self._unmatched[key], self.instances[key]
            self.counts["labels/unmatched"] += 1

    def turn(self, at_hand: Mapping[str, int], unread: Callable[[str], bool]) -> str | None:
        """The topic whose next record is to be taken in; None while none may be.

        `at_hand` gives the timestamp of the next record of each topic that has one here, `unread`
        whether a topic has records that are not here yet. Where something would be forgotten, the
        other topic is waited for if it has unread records, so never both wait. Of two records the
        earlier goes first, as it happened; but if one topic is far ahead of the other, whatever
        its timestamps say, the other goes first: what is forgotten next is what it will ask for.
        """
        full = {
            "predictions": len(self.said) >= self.bounds.pairs_max,
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

    def cut(self) -> Cut:
        """The state as it is now, copied quickly; `Cut.snapshot` does the work, in any thread."""
        state = {
            "version": STATE_VERSION,
            "next_offsets": dict(self.next_offsets),
            "floor": self.floor,
            "counts": dict(sorted(self.counts.items())),
            "streams": [["pairs", sum(self.next_offsets.values())]],
        }
        boards = {stream: board.snapshot() for stream, board in sorted(self.boards.items())}
        known = [
            (key, (-1 if each.y is None else each.y, each.label_ts, each.label_offset))
            for key, each in self.instances.items()
        ]
        return Cut(state, boards, list(self.said.items()), known)

    def snapshot(self) -> tuple[dict[str, Any], dict[str, Snapshot]]:
        """State and its one blob; equal for equal sets of records, whatever their order."""
        return self.cut().snapshot()

    @staticmethod
    def restore(
        journal_id: str,
        partition: int,
        bounds: Bounds,
        state: Mapping[str, Any],
        blobs: Mapping[str, Snapshot],
    ) -> Evaluation:
        """The evaluation that a snapshot described."""
        if state.get("version") != STATE_VERSION:
            raise SnapshotError(f"the state of the partition has format {state.get('version')!r}")
        evaluation = Evaluation(journal_id, partition, bounds)
        try:
            check_types(blobs["pairs"], evaluation.cut().snapshot()[1]["pairs"])
            offsets = state["next_offsets"]
            evaluation.next_offsets = {name: whole(at) for name, at in offsets.items()}
            evaluation.floor = whole(state["floor"])
            evaluation.counts = Counter({name: whole(n) for name, n in state["counts"].items()})
            evaluation._fill(blobs["pairs"].arrays)
            boards = blobs["pairs"].manifest["boards"]
            evaluation.boards = {name: Scoreboard.restore(board) for name, board in boards.items()}
        except DAMAGE as error:
            raise SnapshotError(f"the state of the partition is damaged: {error!r}") from error
        return evaluation

    def _fill(self, arrays: Mapping[str, Any]) -> None:
        def column(name: str) -> list[str]:
            return unpack_ids(arrays[name + "_text"], arrays[name + "_lengths"])

        keys = zip(column("known_stream"), column("known_id"), strict=True)
        for key, (y, ts, offset) in zip(keys, arrays["truth"].tolist(), strict=True):
            self.instances[key] = Instance(None if y < 0 else y, ts, offset)
        for row in zip(
            arrays["said"].tolist(),
            arrays["told"].tolist(),
            column("said_stream"),
            column("said_id"),
            column("said_model"),
            strict=True,
        ):
            (offset, step, ts), (p, naive), stream, id, model = row
            self.said[offset] = Said((stream, id), step, ts, p, naive, model)
            self.instances[stream, id].offsets.append(offset)
        self._oldest = sorted(self.said)
        self._unscored = sum(self.instances[each.key].y is None for each in self.said.values())
        lone = [
            (each.label_offset, key) for key, each in self.instances.items() if not each.offsets
        ]
        self._unmatched = {key: None for _, key in sorted(lone)}
