"""Prequential scores: predictions and their labels in, counters only.

Every counter is an integer (losses in fixed-point units of 2⁻⁴⁰), so the state depends on the
set of scored predictions alone: any order of arrival and any split into merged parts gives the
same bits. Memory is bounded by the bins and by ``windows_max``, never by the stream.

Deliberately not here: pairing predictions with labels, clocks, and the exact AUC of a running
stream (`exact_auc` needs all predictions at hand; the backtest has them).
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dtgol_core.bins import exponential_bin, exponential_bin_top
from dtgol_core.state import require_int
from dtgol_core.tallies import ForecastCounters, Increment, Quality, bump, increment_of

_DELAY_BITS = 3
_DELAY_MAX = (1 << 48) - 1
_UNDECIDED = 2
BOTH = (0, 1)


class _Scored(NamedTuple):
    """What one scored prediction adds; made once for the total and the window."""

    forecast: Increment
    naive: Increment
    y: int
    delay: int | None
    covered: bool
    undecided: bool


@dataclass(frozen=True, slots=True)
class DelayQuantiles:
    """Label delays in the unit they were scored with, each at most 1/8 above the true quantile."""

    count: int
    p50: int | None
    p90: int | None
    p99: int | None
    largest: int | None


@dataclass(frozen=True, slots=True)
class Coverage:
    """How often the set that was given with a forecast had the label; ``None`` without labels.

    ``by_class`` is of the labels 0 and of the labels 1 on their own; ``undecided`` is the share of
    the sets that left both classes open, which covers always and says nothing.
    """

    share: float | None
    by_class: tuple[float | None, float | None]
    undecided: float | None


@dataclass(frozen=True, slots=True)
class Span:
    """The scores of the scored predictions from ``first_step`` to ``last_step``.

    The total has no limits: both are ``None``.
    """

    first_step: int | None
    last_step: int | None
    count: int
    positives: int
    forecast: Quality
    naive: Quality
    delay: DelayQuantiles
    coverage: Coverage


@dataclass(frozen=True, slots=True)
class Summary:
    """The scores of a `Scoreboard`; the windows come oldest first."""

    total: Span
    windows: tuple[Span, ...]


def exact_auc(p: npt.ArrayLike, y: npt.ArrayLike) -> float | None:
    """The area under the ROC curve, ties counted half; ``None`` when only one class is there.

    Parameters
    ----------
    p
        Forecasts, shape ``(rows,)``.
    y
        Labels, 0 or 1, shape ``(rows,)``.

    Notes
    -----
    The share of (positive, negative) pairs in the right order. Costs O(n log n) for the sort;
    pairs are counted in whole numbers, exact up to 2⁶² of them.

    Examples
    --------
    >>> exact_auc([0.1, 0.4, 0.4, 0.8], [0, 1, 0, 1])
    0.875
    """
    labels = np.asarray(y, dtype=np.int64)
    levels, place = np.unique(np.asarray(p, dtype=np.float64), return_inverse=True)
    positives = np.bincount(place[labels == 1], minlength=len(levels)).astype(np.int64)
    negatives = np.bincount(place[labels == 0], minlength=len(levels)).astype(np.int64)
    pairs = int(positives.sum()) * int(negatives.sum())
    if pairs == 0:
        return None
    twice_below = 2 * (np.cumsum(negatives) - negatives) + negatives
    return int(positives @ twice_below) / (2 * pairs)


@dataclass(slots=True)
class _Part:
    """Counters of one span of steps: both kinds of forecast, and the delays of the labels."""

    count: int = 0
    positives: int = 0
    forecast: ForecastCounters = field(default_factory=ForecastCounters)
    naive: ForecastCounters = field(default_factory=ForecastCounters)
    delays: dict[int, int] = field(default_factory=dict)
    sets: dict[int, int] = field(default_factory=dict)
    """Labels 0 and labels 1 that were in their sets, by class, and sets that were undecided."""

    def add(self, scored: "_Scored", sign: int) -> None:
        y, delay = scored.y, scored.delay
        self.count += sign
        self.positives += sign * y
        self.forecast.add(scored.forecast, sign)
        self.naive.add(scored.naive, sign)
        if scored.covered:
            bump(self.sets, y, sign)
        if scored.undecided:
            bump(self.sets, _UNDECIDED, sign)
        if delay is not None:
            bump(self.delays, delay, sign)

    def merge(self, other: "_Part") -> None:
        self.count += other.count
        self.positives += other.positives
        self.forecast.merge(other.forecast)
        self.naive.merge(other.naive)
        for own, more in ((self.delays, other.delays), (self.sets, other.sets)):
            for key, amount in more.items():
                bump(own, key, amount)

    def span(self, first_step: int | None, last_step: int | None) -> Span:
        return Span(
            first_step=first_step,
            last_step=last_step,
            count=self.count,
            positives=self.positives,
            forecast=self.forecast.quality(self.count, self.positives),
            naive=self.naive.quality(self.count, self.positives),
            delay=self._quantiles(),
            coverage=self._coverage(),
        )

    def _coverage(self) -> Coverage:
        of_class = self.count - self.positives, self.positives
        covered = self.sets.get(0, 0), self.sets.get(1, 0)
        return Coverage(
            sum(covered) / self.count if self.count else None,
            (
                covered[0] / of_class[0] if of_class[0] else None,
                covered[1] / of_class[1] if of_class[1] else None,
            ),
            self.sets.get(_UNDECIDED, 0) / self.count if self.count else None,
        )

    def _quantiles(self) -> DelayQuantiles:
        count = sum(self.delays.values())
        wanted = [max(1, math.ceil(count * percent / 100)) for percent in (50, 90, 99, 100)]
        found: list[int | None] = [None] * 4
        seen = 0
        for number in sorted(self.delays):
            seen += self.delays[number]
            for place, rank in enumerate(wanted):
                if found[place] is None and seen >= rank:
                    found[place] = exponential_bin_top(number, _DELAY_BITS)
        return DelayQuantiles(count, *found)


class Scoreboard:
    """Prequential scores of one learner, total and in windows of steps.

    Parameters
    ----------
    window_rows
        Steps per window, at least 1. Window k holds the steps ``k·window_rows + 1`` to
        ``(k+1)·window_rows``, whenever their labels came.
    windows_max
        The newest windows that are kept, at least 1; a label for an older step counts in the
        total only.

    Notes
    -----
    Log loss: mean cross entropy in nats. Brier: mean ``(p − y)²``. Expected calibration error
    over ten equal bins of p: ``Σ_b |Σ_{i∈b} (p_i − y_i)| / n``. AUC: from the counts of the
    bins of `probability_bin`; the pairs inside a bin count half, so it is wrong by at most
    ``½ Σ_b pos_b·neg_b / (P·N)``, given as ``auc_error`` for the counts at hand, and never by
    more than half the largest share of one class in one bin. Delays: eight bins per octave.

    The counters form a commutative group: `retract` subtracts what `add` added and even a
    part holding only the retraction merges right. The newest window seen is a maximum; it is
    not taken back. One `add` costs a few dictionary updates (about 20 µs), a window at most
    2 · min(window_rows, 10242) counters.

    Examples
    --------
    >>> board = Scoreboard(window_rows=100)
    >>> board.add(0.9, 0.6, y=1, step=1, delay=50)
    >>> board.add(0.7, 0.4, y=0, step=2, delay=50)
    >>> board.summary().total.forecast.cer, board.summary().total.naive.cer
    (0.5, 0.0)
    >>> board.retract(0.7, 0.4, y=0, step=2, delay=50)
    >>> board.add(0.7, 0.4, y=1, step=2, delay=90)
    >>> board.summary().windows[0].forecast.accuracy
    1.0
    """

    def __init__(self, window_rows: int = 1000, windows_max: int = 32) -> None:
        if window_rows < 1 or windows_max < 1:
            raise ValueError("window_rows and windows_max must be at least 1")
        self.window_rows = window_rows
        self.windows_max = windows_max
        self._newest = -1
        self._total = _Part()
        self._windows: dict[int, _Part] = {}

    def add(
        self,
        p: float,
        naive: float,
        y: int,
        step: int,
        delay: int | None = None,
        threshold: float = 0.5,
        open_set: Collection[int] = BOTH,
    ) -> None:
        """Score the prediction of `step` against its label.

        `delay` is how long the label took, in one unit of the caller's choice (the evaluator
        milliseconds, the backtest steps), ``None`` if unknown, below 0 taken as 0. The hard labels
        of forecast and naive are 1 above `threshold`; `open_set` are the classes that the forecast
        left open.
        """
        self._add(p, naive, y, step, delay, threshold, open_set, 1)

    def retract(
        self,
        p: float,
        naive: float,
        y: int,
        step: int,
        delay: int | None = None,
        threshold: float = 0.5,
        open_set: Collection[int] = BOTH,
    ) -> None:
        """Take a scored prediction back, with the values it was scored with: it was corrected."""
        self._add(p, naive, y, step, delay, threshold, open_set, -1)

    def merge(self, other: "Scoreboard") -> None:
        """Add the counters of another board with the same windows; `other` stays as it is."""
        if (self.window_rows, self.windows_max) != (other.window_rows, other.windows_max):
            raise ValueError("only scoreboards with the same windows can be merged")
        self._total.merge(other._total)
        self._newest = max(self._newest, other._newest)
        for window, part in other._windows.items():
            self._windows.setdefault(window, _Part()).merge(part)
        self._tidy()

    def total(self) -> Span:
        """The scores since the beginning, without the windows."""
        return self._total.span(None, None)

    def summary(self) -> Summary:
        """The scores so far, of all boards merged into this one."""
        rows = self.window_rows
        return Summary(
            total=self.total(),
            windows=tuple(
                self._windows[window].span(window * rows + 1, (window + 1) * rows)
                for window in sorted(self._windows)
            ),
        )

    def snapshot(self) -> dict[str, Any]:
        """The state as whole numbers in lists and dicts with string keys; equal states, equal
        bytes."""
        return {
            "window_rows": self.window_rows,
            "windows_max": self.windows_max,
            "newest": self._newest,
            "total": _pack(self._total),
            "windows": [[window, _pack(part)] for window, part in sorted(self._windows.items())],
        }

    @staticmethod
    def restore(snapshot: Mapping[str, Any]) -> "Scoreboard":
        """The board a snapshot was taken of; an error of Python's own kinds if it is none."""
        board = Scoreboard(
            require_int(snapshot["window_rows"]), require_int(snapshot["windows_max"])
        )
        board._newest = require_int(snapshot["newest"])
        board._total = _unpack(snapshot["total"])
        board._windows = {
            require_int(window): _unpack(part) for window, part in snapshot["windows"]
        }
        return board

    def _add(
        self,
        p: float,
        naive: float,
        y: int,
        step: int,
        delay: int | None,
        threshold: float,
        open_set: Collection[int],
        sign: int,
    ) -> None:
        if not (0.0 <= p <= 1.0 and 0.0 <= naive <= 1.0 and y in (0, 1) and step >= 1):
            raise ValueError("a scored prediction needs p and naive in [0, 1], y 0 or 1, step >= 1")
        y = int(y)  # numpy scalars would stay in the counters
        if delay is not None:
            delay = exponential_bin(min(max(int(delay), 0), _DELAY_MAX), _DELAY_BITS)
        scored = _Scored(
            increment_of(float(p), y, threshold),
            increment_of(float(naive), y, threshold),
            y,
            delay,
            covered=y in open_set,
            undecided=len(open_set) == len(BOTH),
        )
        self._total.add(scored, sign)
        window = (step - 1) // self.window_rows
        newer = window > self._newest
        self._newest = max(self._newest, window)
        if window > self._newest - self.windows_max:
            self._windows.setdefault(window, _Part()).add(scored, sign)
        if newer or sign < 0:
            self._tidy()

    def _tidy(self) -> None:
        """Drop windows that are too old or hold nothing, so that equal counts are equal states."""
        oldest = self._newest - self.windows_max + 1
        empty = _Part()
        for window in [w for w, part in self._windows.items() if w < oldest or part == empty]:
            del self._windows[window]


def _pack(part: _Part) -> dict[str, Any]:
    return {
        "count": part.count,
        "positives": part.positives,
        "delays": [list(item) for item in sorted(part.delays.items())],
        "sets": [list(item) for item in sorted(part.sets.items())],
        **{
            name: {
                "sums": [
                    counters.false_positives,
                    counters.false_negatives,
                    counters.loss,
                    counters.brier,
                ],
                "bins": [list(item) for item in sorted(counters.bins.items())],
                "surplus": [list(item) for item in sorted(counters.surplus.items())],
            }
            for name, counters in (("forecast", part.forecast), ("naive", part.naive))
        },
    }


def _unpack(packed: Mapping[str, Any]) -> _Part:
    forecast, naive = (_unpack_counters(packed[name]) for name in ("forecast", "naive"))
    count, positives = require_int(packed["count"]), require_int(packed["positives"])
    delays, sets = _unpack_counts(packed["delays"]), _unpack_counts(packed["sets"])
    return _Part(count, positives, forecast, naive, delays, sets)


def _unpack_counters(packed: Mapping[str, Any]) -> ForecastCounters:
    false_positives, false_negatives, loss, brier = map(require_int, packed["sums"])
    counts = _unpack_counts(packed["bins"]), _unpack_counts(packed["surplus"])
    return ForecastCounters(false_positives, false_negatives, loss, brier, *counts)


def _unpack_counts(packed: list[list[int]]) -> dict[int, int]:
    return {require_int(number): require_int(count) for number, count in packed}
