"""What the live page shows of a partition's streams: sums over blocks of records, in memory.

Bounded, fed by the pairing, and no part of its state: it depends on the order of arrival. A restore
builds it again from the predictions and labels that the state keeps; only the weights of the
experts, the share of missing features, the newest predictions and what became of labels are not
kept there and begin with the process.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson

from dtgol_core.bins import exponential_bin, exponential_bin_top
from dtgol_core.losses import log_loss
from dtgol_core.scoring import Scoreboard
from pipeline.evaluation.estimate import LABELS_MIN, CalibrationMap, Estimates, estimates
from pipeline.evaluation.pairs import StoredPrediction, Truth
from topics.events import ProcessEvent
from topics.predictions import Prediction
from topics.scores import Score

BLOCKS_MAX = 128
BLOCKS_FIRST = 4
"""Blocks with room at once: with many streams most have few records, and views come and go."""
BLOCK_ROWS, BLOCK_ROWS_MAX = 16, 512
WEIGHTS_MAX = 24
"""Experts and members of the guard of one stream; more are left out."""
WINDOW_ROWS = 200
"""The last window of a stream: the newest blocks that hold at least so many labels."""
SPARK_POINTS = 24
DELAY_BITS = 3
DELAY_MS_MAX = (1 << 48) - 1
CALIBRATION_BINS = 10
RECENT_MAX = 20
"""The newest predictions of a stream that can be looked at one by one."""

PREDICTION_SUMS = (
    "predicted",
    "estimated",
    "scored",
    "errors",
    "naive_errors",
    "disagreed",
    "loss",
    "naive_loss",
    "detailed",
    "observed_share",
    "last_window",
    "last_known",
    "ones",
)
"""Sums of a block of predictions. `estimated` adds up the chance that the hard label is right, by
the probabilities calibrated so far; `last_window` the accuracy of the last labelled window when the
prediction was made, where there was one (`last_known`); `disagreed` counts scored predictions where
exactly one of forecast and naive was right; `detailed` counts those whose weights and observed
share are known; `ones` counts labels 1."""
ONES = PREDICTION_SUMS.index("ones")
ARRIVAL_SUMS = ("scored", "errors", "naive_errors")
ARRIVAL_COUNTS = ("positives", "false_positives", "covered_0", "covered_1", "undecided")
"""Further sums of a block of labels, which the page does not show over time; behind them the sums
of p − y by tenth of p, of the forecast and of naive."""
_SURPLUS = len(ARRIVAL_SUMS) + len(ARRIVAL_COUNTS)

Sums = npt.NDArray[np.float64]
Costs = Callable[[str], tuple[float, float]]
"""Of a stream: what a false positive costs, and a false negative."""


def equal_costs(stream: str) -> tuple[float, float]:
    """Where nobody has set any."""
    return 1.0, 1.0


class Pair(NamedTuple):
    """A prediction, as far as it is judged, and its label."""

    offset: int
    p: float
    naive: float
    y: int
    threshold: float
    set: tuple[int, ...]

    @property
    def wrong(self) -> tuple[bool, bool]:
        """Whether the hard labels of forecast and naive are."""
        return (self.p > self.threshold) != self.y, (self.naive > self.threshold) != self.y


class Window(NamedTuple):
    """The newest labels; None where they do not define a number."""

    labels: int
    accuracy: float | None
    naive: float | None
    calibration_error: float | None
    naive_calibration_error: float | None
    precision: float | None
    recall: float | None
    false_positives: int
    false_negatives: int
    coverage: float | None
    coverage_0: float | None
    coverage_1: float | None
    undecided: float | None


class Blocks:
    """Sums over blocks of consecutive records, oldest first.

    When all blocks are full, neighbours are added up in pairs and a block holds twice as many
    records, up to `BLOCK_ROWS_MAX`; from there on the oldest block is forgotten.
    """

    def __init__(self, columns: int) -> None:
        self.sums: Sums = np.zeros((BLOCKS_FIRST, columns))  # grows up to BLOCKS_MAX
        self.first_offsets: list[int] = []
        self.last_ms: list[int] = []
        self.rows = BLOCK_ROWS
        self.forgotten = 0
        """Records in front of the first block."""
        self._newest_rows = 0

    def __len__(self) -> int:
        return len(self.first_offsets)

    def add(self, offset: int, ts_ms: int) -> Sums:
        """Take a record in; the sums of its block, to be added to."""
        if not self.first_offsets or self._newest_rows == self.rows:
            if len(self) == BLOCKS_MAX:
                self._make_room()
            elif len(self) == len(self.sums):
                self.sums = np.concatenate([self.sums, np.zeros_like(self.sums)])
            self.first_offsets.append(offset)
            self.last_ms.append(ts_ms)
            self._newest_rows = 0
        self._newest_rows += 1
        self.last_ms[-1] = max(self.last_ms[-1], ts_ms)
        newest: Sums = self.sums[len(self) - 1]
        return newest

    def find(self, offset: int) -> Sums | None:
        """The sums of the block that a record is in; None if it is forgotten."""
        at = bisect_right(self.first_offsets, offset) - 1
        return self.sums[at] if at >= 0 else None

    def kept(self) -> Sums:
        """The sums of all blocks, shape ``(blocks, columns)``."""
        return self.sums[: len(self)]

    def _make_room(self) -> None:
        if self.rows < BLOCK_ROWS_MAX:
            half = BLOCKS_MAX // 2
            self.sums[:half] = self.sums[0::2] + self.sums[1::2]
            self.sums[half:] = 0.0
            self.first_offsets = self.first_offsets[0::2]
            self.last_ms = self.last_ms[1::2]
            self.rows *= 2
        else:
            self.sums[:-1] = self.sums[1:]
            self.sums[-1] = 0.0
            del self.first_offsets[0], self.last_ms[0]
            self.forgotten += self.rows


class StreamView:
    """One stream of one partition."""

    def __init__(self) -> None:
        self.predictions = Blocks(len(PREDICTION_SUMS) + WEIGHTS_MAX)
        self.arrivals = Blocks(_SURPLUS + 2 * CALIBRATION_BINS)
        self._chances = CalibrationMap()
        self._window: Window | None = NO_LABELS
        self._row: dict[str, Any] | None = None
        self.weights: dict[tuple[str, str], int] = {}
        """What the last sums of a block of predictions add up, of an expert or of the guard, and
        their columns."""
        self.delays: tuple[Counter[int], Counter[int]] = (Counter(), Counter())
        self.calibration: Sums = np.zeros((CALIBRATION_BINS, 3))
        """By tenth of p: scored predictions, sum of p, labels 1."""
        self.records = 0
        self.learnt: int | None = None
        self.expire_ms: int | None = None
        self.outcomes: Counter[str] = Counter()
        """What became of labels."""
        self.recent: dict[int, bytes] = {}
        """The newest predictions by journal offset, as JSON: a tenth of the memory of objects."""
        self.recent_labels: dict[int, int] = {}
        self._newest_offset = -1
        self._labels = 0

    def add_prediction(
        self, offset: int, step: int, ts_ms: int, p: float, threshold: float
    ) -> Sums:
        """Take a prediction in; the sums of its block."""
        self._row = None
        self.records = step
        self._newest_offset = offset
        sums = self.predictions.add(offset, ts_ms)
        sums[0] += 1.0
        sums[1] += self._chances.right(p, threshold)
        last = self.last_window()
        if last.accuracy is not None and last.labels >= LABELS_MIN:
            sums[10:12] += (last.accuracy, 1.0)
        return sums

    def add_details(self, sums: Sums, prediction: Prediction) -> None:
        """What the state does not keep of a prediction."""
        self.learnt = prediction.labels_learnt
        self.expire_ms = prediction.expire_ms
        self._keep_recent(prediction)
        sums[8] += 1.0
        sums[9] += prediction.observed_share
        for name, answer in prediction.experts.items():
            self._add_weight(sums, ("experts", name), answer.weight)
        for name, weight in prediction.guard.items():
            self._add_weight(sums, ("guard", name), weight)

    def _add_weight(self, sums: Sums, key: tuple[str, str], weight: float) -> None:
        column = self.weights.get(key)
        if column is None:
            if len(self.weights) == WEIGHTS_MAX:
                return
            column = self.weights[key] = len(PREDICTION_SUMS) + len(self.weights)
        sums[column] += weight

    def _keep_recent(self, prediction: Prediction) -> None:
        if len(self.recent) == RECENT_MAX:
            oldest = next(iter(self.recent))
            del self.recent[oldest]
            self.recent_labels.pop(oldest, None)
        experts = prediction.experts.items()
        # Rounded when it is shown: most are pushed out before.
        self.recent[prediction.at.offset] = orjson.dumps(
            {
                "id": prediction.id,
                "offset": prediction.at.offset,
                "step": prediction.step,
                "ts": prediction.ts,
                "p": prediction.p,
                "label": prediction.label,
                "naive": prediction.naive,
                "threshold": prediction.threshold,
                "set": prediction.set,
                "experts": [[n, each.p, each.weight] for n, each in experts],
                "guard": [[name, each] for name, each in prediction.guard.items()],
                "why": [[each.feature, each.log_odds] for each in prediction.why],
                "missing": prediction.missing,
                "observed_share": prediction.observed_share,
                "labels_learnt": prediction.labels_learnt,
            }
        )

    def add_label(self, pair: Pair, label_ms: int, delay_ms: int) -> None:
        """The first label of a prediction."""
        self._row = None
        self._count(pair, 1)
        self._chances.learn(pair.p, pair.y, pair.threshold)
        if pair.offset in self.recent:
            self.recent_labels[pair.offset] = pair.y
        arrived = self.arrivals.add(self._labels, label_ms)
        self._labels += 1
        self._window = None
        y, (wrong, naive_wrong) = pair.y, pair.wrong
        covered = y in pair.set
        arrived[:_SURPLUS] += (
            *(1.0, wrong, naive_wrong, y, wrong and not y),
            *(covered and not y, covered and y, len(pair.set) == 2),
        )
        for which, p in enumerate((pair.p, pair.naive)):
            arrived[_SURPLUS + which * CALIBRATION_BINS + _tenth(p)] += p - y
        delay = min(max(delay_ms, 0), DELAY_MS_MAX)
        self.delays[y][exponential_bin(delay, DELAY_BITS)] += 1

    def correct_label(self, pair: Pair) -> None:
        """The label of a scored prediction is now another one.

        Of a prediction that is forgotten here the first label may be too: nothing is taken back.
        """
        self._row = None
        if pair.offset in self.recent:
            self.recent_labels[pair.offset] = pair.y
        if self.predictions.find(pair.offset) is None:
            return
        self._count(pair._replace(y=1 - pair.y), -1)
        self._count(pair, 1)

    def _count(self, pair: Pair, sign: int) -> None:
        p, y = pair.p, pair.y
        self.calibration[_tenth(p)] += (sign, sign * p, sign * y)
        sums = self.predictions.find(pair.offset)
        if sums is not None:
            wrong, naive_wrong = pair.wrong
            counts = 1, wrong, naive_wrong, wrong != naive_wrong
            losses = log_loss(p, y), log_loss(pair.naive, y)
            sums[2:8] += sign * np.array((*counts, *losses), dtype=np.float64)
            sums[ONES] += sign * y

    # --- for the page ----------------------------------------------------------------------------

    def row(self) -> dict[str, Any]:
        """Its row in the table; None where there is nothing to show yet. Kept until it changes."""
        if self._row is None:
            self._row = self._make_row()
        return self._row

    def _make_row(self) -> dict[str, Any]:
        sums = self.predictions.kept()
        predicted, scored = (int(sums[:, column].sum()) for column in (0, 2))
        window = self.last_window()
        return {
            "records": self.records,
            "learnt": self.learnt,
            "predicted": predicted,
            "scored": scored,
            "waiting": predicted - scored,
            "window": window.labels,
            "accuracy": window.accuracy,
            "naive": window.naive,
            "median_delay_ms": self._median_delay_ms(),
            "spark": _spark(sums[:, 2], sums[:, 3]),
        }

    def estimates(self) -> Estimates:
        """Accuracy before the labels come, by both estimates."""
        sums = self.predictions.kept()
        return estimates(sums[:, [0, 2, 3, 1, 10, 11]], WINDOW_ROWS)

    def detail(self) -> dict[str, Any]:
        """All of it, for one stream over time."""
        predictions, arrivals = self.predictions, self.arrivals
        sums = np.round(predictions.kept()[:, len(PREDICTION_SUMS) :], 4)
        weights: dict[str, dict[str, list[float]]] = {"experts": {}, "guard": {}}
        for column, (kind, name) in enumerate(self.weights):
            weights[kind][name] = sums[:, column].tolist()
        top = [exponential_bin_top(number, DELAY_BITS) for number in self._delay_bins()]
        return {
            "predictions": _columns(predictions, PREDICTION_SUMS),
            **weights,
            "arrivals": _columns(arrivals, ARRIVAL_SUMS),
            "delays": {
                "top_ms": top,
                "counts": [[each[number] for number in self._delay_bins()] for each in self.delays],
            },
            "calibration": np.round(self.calibration, 4).tolist(),
            "expire_ms": self.expire_ms,
            "labels": dict(self.outcomes),
            "estimates": self.estimates().as_json(),
            "window": self.last_window()._asdict(),
        }

    def recent_predictions(self, ids: bool) -> list[dict[str, Any]]:
        """The newest predictions, newest first, with their labels; ids only if asked for."""
        found = []
        for offset, data in reversed(self.recent.items()):
            kept = orjson.loads(data)
            shown = _rounded(kept) | {"threshold": kept["threshold"]}
            shown["y"] = self.recent_labels.get(offset)
            if not ids:
                del shown["id"]
            found.append(shown)
        return found

    def marks(self, events: Sequence[ProcessEvent]) -> list[dict[str, Any]]:
        """Events with their places among the predictions; without those before the first."""
        found = []
        for event in events:
            x = self._place(event.offset)
            if x is not None:
                about = {"kind": event.kind, "at_ms": event.at_ms, "role": event.role}
                found.append(about | {"x": x, "process": event.process, "detail": event.detail})
        return found

    def _place(self, offset: int) -> float | None:
        """How many predictions were made before a journal offset: exact at the ends of blocks."""
        firsts = self.predictions.first_offsets
        at = bisect_right(firsts, offset - 1) - 1
        if at < 0:
            return None
        counts = self.predictions.kept()[:, 0]
        end = firsts[at + 1] if at + 1 < len(firsts) else self._newest_offset + 1
        share = min(1.0, (offset - firsts[at]) / (end - firsts[at]))
        before = self.predictions.forgotten + float(counts[:at].sum())
        return round(before + share * float(counts[at]), 1)

    def last_window(self) -> Window:
        """The newest arrivals: the fewest blocks with `WINDOW_ROWS`, or all."""
        if self._window is None:
            sums = self.arrivals.kept()
            enough = np.flatnonzero(np.cumsum(sums[::-1, 0]) >= WINDOW_ROWS)
            newest = sums[-(enough[0] + 1) :] if enough.size else sums
            self._window = _window(newest.sum(axis=0))
        return self._window

    def _median_delay_ms(self) -> int | None:
        both = self.delays[0] + self.delays[1]
        seen = 0
        for number in sorted(both):
            seen += both[number]
            if 2 * seen >= both.total():
                return exponential_bin_top(number, DELAY_BITS)
        return None

    def _delay_bins(self) -> Sequence[int]:
        """Every bin from the shortest to the longest delay, empty ones included."""
        seen = self.delays[0].keys() | self.delays[1].keys()
        return range(min(seen), max(seen) + 1) if seen else ()


class PartitionView:
    """The streams of one partition; beyond `streams_max` the one without records for longest goes.

    >>> view = PartitionView(streams_max=100)
    >>> view.dropped
    0
    """

    def __init__(self, streams_max: int, boards: Mapping[str, Scoreboard] | None = None) -> None:
        self._streams_max = streams_max
        self.boards: Mapping[str, Scoreboard] = {} if boards is None else boards
        self.streams: dict[str, StreamView] = {}
        self.dropped = 0

    def predicted(self, prediction: Prediction) -> None:
        """A prediction that the pairing keeps."""
        stream = self._stream(prediction.stream)
        at = prediction.at.offset, prediction.step, prediction.ts
        sums = stream.add_prediction(*at, prediction.p, prediction.threshold)
        stream.add_details(sums, prediction)

    def scored(self, score: Score, label_ms: int) -> None:
        """A score: the first of its prediction, or after a correction another one."""
        stream = self.streams.get(score.stream)
        if stream is None:
            return
        answer = score.at.offset, score.p, score.naive
        pair = Pair(*answer, score.y, score.threshold, score.set)
        if score.rescored:
            stream.correct_label(pair)
        else:
            stream.add_label(pair, label_ms, score.delay_ms)

    def label_came(self, stream: str, outcome: str) -> None:
        """What became of a label of a stream that is shown."""
        if stream in self.streams:
            self.streams[stream].outcomes[outcome] += 1

    def forget_prediction(self, stream: str, offset: int) -> None:
        """Its instance was erased: it cannot be looked at any more; it stays in the sums."""
        if stream in self.streams:
            self.streams[stream].recent.pop(offset, None)
            self.streams[stream].recent_labels.pop(offset, None)

    def restore_prediction(self, offset: int, each: StoredPrediction) -> None:
        """A prediction of a restored state; to be called by rising offset."""
        stream = self._stream(each.stream)
        stream.add_prediction(offset, each.step, each.ts, each.p, each.threshold)

    def restore_label(self, offset: int, each: StoredPrediction, truth: Truth) -> None:
        """The label of a restored prediction; to be called in the order the labels came."""
        stream = self.streams.get(each.stream)
        if stream is not None:
            pair = Pair(offset, each.p, each.naive, truth.y, each.threshold, each.set)
            stream.add_label(pair, truth.ts, truth.ts - each.ts)
            stream.outcomes["first"] += 1

    def _stream(self, name: str) -> StreamView:
        stream = self.streams.pop(name, None) or StreamView()
        self.streams[name] = stream  # the newest last
        if len(self.streams) > self._streams_max:
            del self.streams[next(iter(self.streams))]
            self.dropped += 1
        return stream


def streams_page(
    views: Mapping[int, PartitionView],
    stream: str | None,
    partition: int | None,
    costs: Costs = equal_costs,
    events: Callable[[int], Sequence[ProcessEvent]] = lambda _: (),
    ids: bool = False,
) -> dict[str, Any]:
    """The evaluator's part of the page: all streams, and one of them over time.

    Without a stream the one with the most scored predictions is shown. `costs` of a stream are
    those of a false positive and a false negative; `events` gives those of a partition; `ids`:
    whether predictions are shown with the ids of their instances.
    """
    found = {
        (name, number): each
        for number, view in sorted(views.items())
        for name, each in sorted(view.streams.items())
    }
    rows = {key: each.row() for key, each in found.items()}
    if stream is not None and partition is not None:
        wanted: tuple[str, int] | None = (stream, partition)
    else:
        wanted = max(
            rows, key=lambda key: (rows[key]["scored"], rows[key]["records"]), default=None
        )
    shown = None if wanted is None else found.get(wanted)
    return {
        "streams": [
            {"stream": name, "partition": number} | row for (name, number), row in rows.items()
        ],
        "streams_dropped": sum(view.dropped for view in views.values()),
        "selected": None
        if wanted is None or shown is None
        else {
            "stream": wanted[0],
            "partition": wanted[1],
            "decision": _decision(views[wanted[1]].boards.get(wanted[0]), *costs(wanted[0])),
            **shown.detail(),
            "recent": shown.recent_predictions(ids),
            "marks": shown.marks(events(wanted[1])),
        },
    }


def _decision(board: Scoreboard | None, cost_fp: float, cost_fn: float) -> dict[str, Any] | None:
    """What hard labels and sets were worth since the stream began; None without a board."""
    if board is None:
        return None
    total = board.total()
    quality, coverage = total.forecast, total.coverage
    return {
        "scored": total.count,
        "false_positives": quality.false_positives,
        "false_negatives": quality.false_negatives,
        "precision": quality.precision,
        "recall": quality.recall,
        "cost_fp": cost_fp,
        "cost_fn": cost_fn,
        "cost": quality.cost(cost_fp, cost_fn, total.count),
        "naive_cost": total.naive.cost(cost_fp, cost_fn, total.count),
        "coverage": coverage.share,
        "coverage_0": coverage.by_class[0],
        "coverage_1": coverage.by_class[1],
        "undecided": coverage.undecided,
    }


def _rounded(value: Any) -> Any:
    """A JSON value with four digits behind the point."""
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    return value


def _tenth(p: float) -> int:
    return min(int(p * CALIBRATION_BINS), CALIBRATION_BINS - 1)


def _window(sums: Sums) -> Window:
    """The quality of labels from their sums."""

    def ratio(part: float, whole: float) -> float | None:
        return part / whole if whole else None

    labels, errors, naive_errors, positives, wrong_1, covered_0, covered_1, undecided = sums[
        :_SURPLUS
    ].tolist()
    off = np.abs(sums[_SURPLUS:]).reshape(2, CALIBRATION_BINS).sum(axis=1).tolist()
    missed = errors - wrong_1
    found = positives - missed
    return Window(
        labels=int(labels),
        accuracy=ratio(labels - errors, labels),
        naive=ratio(labels - naive_errors, labels),
        calibration_error=ratio(off[0], labels),
        naive_calibration_error=ratio(off[1], labels),
        precision=ratio(found, found + wrong_1),
        recall=ratio(found, positives),
        false_positives=int(wrong_1),
        false_negatives=int(missed),
        coverage=ratio(covered_0 + covered_1, labels),
        coverage_0=ratio(covered_0, labels - positives),
        coverage_1=ratio(covered_1, positives),
        undecided=ratio(undecided, labels),
    )


NO_LABELS = _window(np.zeros(_SURPLUS + 2 * CALIBRATION_BINS))
"""The window of a stream without labels."""


def _columns(blocks: Blocks, names: Sequence[str]) -> dict[str, Any]:
    sums = blocks.kept()
    return {
        "before": blocks.forgotten,
        "last_ms": list(blocks.last_ms),
        **{name: np.round(sums[:, column], 4).tolist() for column, name in enumerate(names)},
    }


def _spark(scored: Sums, errors: Sums) -> list[float | None]:
    """Accuracy by prediction time in at most `SPARK_POINTS` points; None without labels."""
    if not len(scored):
        return []
    edges = np.linspace(0, len(scored), min(SPARK_POINTS, len(scored)), endpoint=False).astype(int)
    counts, wrong = (np.add.reduceat(each, edges).tolist() for each in (scored, errors))
    return [round(1.0 - w / n, 3) if n else None for n, w in zip(counts, wrong, strict=True)]
