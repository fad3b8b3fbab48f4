"""A learner on rows at hand: the prequential loop with delayed labels, and its scores.

No printing and no files. The loop is the reference for every other way to run a learner: the
same rows in the same order through the worker must give the same predictions.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from time import perf_counter
from typing import NamedTuple, Protocol

import numpy as np

from dtgol_core.losses import P_CLIP
from dtgol_core.scoring import exact_auc
from dtgol_core.types import FeatureValues, Forecast, LabelReceipt, Rejection
from pipeline.offline.files.records import Row

PROGRESS_ROWS = 32
"""Rows between two calls of the progress function: often enough for slow learners."""


class OnlineLearner(Protocol):
    """The verbs the loop needs; the learner and the baselines have them."""

    def observe(self, id: str, x: FeatureValues) -> Forecast | Rejection:
        """Predict a record and remember it."""

    def learn(self, id: str, y: int) -> LabelReceipt:
        """Take the label of a record seen before."""


class BacktestPrediction(NamedTuple):
    """The answer to one row when it came, and its label."""

    step: int
    row: int
    p: float
    naive: float
    label: int | None
    set: tuple[int, ...] = (0, 1)


@dataclass(frozen=True, slots=True)
class BacktestScores:
    """``None`` where nothing defines the number: no labelled record, or one class only (AUC).

    CER, precision and recall are of the hard label, and so of the threshold."""

    cer: float | None
    auc: float | None
    log_loss: float | None
    precision: float | None = None
    recall: float | None = None
    false_positives: int = 0
    false_negatives: int = 0


NO_SCORES = BacktestScores(None, None, None)


@dataclass(frozen=True, slots=True)
class SetScores:
    """How often the sets had the label, overall and by class, and the share of those with both."""

    coverage: float | None
    coverage_0: float | None
    coverage_1: float | None
    undecided: float | None


@dataclass(frozen=True, slots=True)
class Backtest:
    """What a run gave. ``rejected`` counts by reason, ``labels`` by what became of them, ``late``
    those that came too late by the setting that decided it."""

    predictions: tuple[BacktestPrediction, ...]
    rejected: Mapping[str, int]
    labels: Mapping[str, int]
    seconds: float
    late: Mapping[str, int] = field(default_factory=dict)
    threshold: float = 0.5
    """The p above which the hard label is 1, of forecast and naive."""

    @property
    def us_per_record(self) -> float | None:
        """Microseconds per row, refused ones included: one `observe` and one `learn`."""
        rows = len(self.predictions) + sum(self.rejected.values())
        return self.seconds / rows * 1e6 if rows else None

    @property
    def majority_cer(self) -> float | None:
        """CER of whoever always gives the more frequent label: what a useful forecast beats."""
        labels = [each.label for each in self.predictions if each.label is not None]
        return min(sum(labels), len(labels) - sum(labels)) / len(labels) if labels else None

    def scores(self, first_step: int = 1) -> tuple[BacktestScores, BacktestScores]:
        """Of the forecast and of the naive forecast, over the labelled records from a step on."""
        labelled = [
            (each.p, each.naive, each.label)
            for each in self.predictions
            if each.label is not None and each.step >= first_step
        ]
        if not labelled:
            return NO_SCORES, NO_SCORES
        p, naive, y = np.array(labelled, dtype=np.float64).T
        return _scores(p, y, self.threshold), _scores(naive, y, self.threshold)

    def set_scores(self) -> SetScores:
        """Of the sets that were given on arrival, over the labelled records."""
        labelled = [each for each in self.predictions if each.label is not None]
        covered = [[each.label in each.set for each in labelled if each.label == y] for y in (0, 1)]
        return SetScores(
            _share(covered[0] + covered[1]),
            _share(covered[0]),
            _share(covered[1]),
            _share([len(each.set) > 1 for each in labelled]),
        )


def run_backtest(
    rows: Sequence[Row],
    learner: OnlineLearner,
    delay_steps: int | Sequence[int],
    progress: Callable[[int], None] | None = None,
    threshold: float = 0.5,
) -> Backtest:
    """Run a learner over rows; the label of step t − L is given before step t is observed.

    Labels that are due together are given in the order of their rows.

    Parameters
    ----------
    rows
        The records in the order they arrive; ids are their places in the file.
    learner
        A fresh one; it is changed.
    delay_steps
        The delay L, at least 1, or one for each row. A row without a label is predicted and never
        learnt.
    progress
        Called with the number of rows done, every `PROGRESS_ROWS` rows and at the end.
    threshold
        That of the learner, by which hard labels are scored.
    """
    delays = [delay_steps] * max(1, len(rows)) if isinstance(delay_steps, int) else delay_steps
    if min(delays, default=1) < 1:
        raise ValueError("a label cannot come before its prediction: delay_steps must be >= 1")
    predictions: list[BacktestPrediction] = []
    waiting: list[
        tuple[int, BacktestPrediction]
    ] = []  # a heap: (step at which it is due, the answer)
    rejected: Counter[str] = Counter()
    labels: Counter[str] = Counter()
    late: Counter[str] = Counter()
    step = 0
    start = perf_counter()
    for done, (number, record, label, *_) in enumerate(rows):
        if progress is not None and done % PROGRESS_ROWS == 0:
            progress(done)
        # After a refused record the next one has the same step, and nothing new is due.
        while waiting and waiting[0][0] <= step + 1:
            due = heappop(waiting)[1]
            if due.label is not None:
                receipt = learner.learn(str(due.row), due.label)
                labels[receipt.outcome] += 1
                if receipt.setting is not None:
                    late[f"delay.{receipt.setting}"] += 1
        forecast = learner.observe(str(number), record)
        if isinstance(forecast, Rejection):
            rejected[forecast.reason] += 1
            continue
        step = forecast.step
        predictions.append(
            BacktestPrediction(
                step, number, float(forecast.p), float(forecast.naive), label, forecast.set
            )
        )
        heappush(waiting, (step + delays[done], predictions[-1]))
    seconds = perf_counter() - start
    if progress is not None:
        progress(len(rows))
    counts = dict(rejected), dict(labels), seconds, dict(late)
    return Backtest(tuple(predictions), *counts, threshold)


def _scores(p: np.ndarray, y: np.ndarray, threshold: float) -> BacktestScores:
    clipped = np.clip(p, P_CLIP, 1.0 - P_CLIP)
    loss = -np.where(y == 1.0, np.log(clipped), np.log1p(-clipped))
    given = p > threshold
    found = int(np.count_nonzero(given & (y == 1.0)))
    wrong_1 = int(np.count_nonzero(given)) - found
    missed = int(np.count_nonzero(y)) - found
    return BacktestScores(
        cer=float(np.mean(given != y)),
        auc=exact_auc(p, y),
        log_loss=float(np.mean(loss)),
        precision=found / (found + wrong_1) if found + wrong_1 else None,
        recall=found / (found + missed) if found + missed else None,
        false_positives=wrong_1,
        false_negatives=missed,
    )


def _share(of: Sequence[bool]) -> float | None:
    return sum(of) / len(of) if of else None
