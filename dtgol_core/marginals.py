"""What is known of each column by itself: an observed value to scores of several kinds.

`Marginals`: normal scores and standard scores over the coarse buffer, the newest rows with the
present one among them, so no rank is ever 0 or 1. Every count and sum is taken afresh from the
window: nothing drifts. `RunningScales`: standard scores by running moments, cumulative and fast.
In for both: a row with NaN for missing.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from dtgol_core.compiled import compiled
from dtgol_core.state import require_shape
from dtgol_core.types import FloatArray, IntArray, SingleArray

CLIP = 5.0
"""Bound of every standard score, in standard deviations."""
FAST_RATE = 0.01
"""Least weight of a new value in the fast moments: about the last hundred count."""
COMPLETION_CLIP = 3.0
"""Bound of a latent score that fills a missing cell."""
_VARIANCE_MIN = 1e-300


@dataclass(frozen=True, slots=True)
class Scores:
    """One row in both scales, shape (columns,) each.

    ``latent`` is NaN where the value is missing; ``spread`` is the variance left inside an
    ordinal value's interval; ``original`` is standardised, clipped, and 0 where missing.
    """

    latent: FloatArray
    spread: FloatArray
    original: FloatArray


class Marginals:
    """The coarse buffer.

    Parameters
    ----------
    window
        Number of rows kept.

    Notes
    -----
    Continuous: ``z = Φ⁻¹((#{<x} + (#{=x} + 1)/2) / (n + 1))``; mid-ranks keep a tied or constant
    column at the centre. Ordinal: ``z`` is the mean of a standard normal truncated to
    ``(Φ⁻¹(#{<x}/n), Φ⁻¹(#{≤x}/n)]``. Cost per row: one pass over the window of every observed
    column.

    References
    ----------
    Zhao and Udell (2020), Missing value imputation for mixed data via Gaussian copula, KDD.

    >>> marginals = Marginals(window=3)
    >>> marginals.grow(1, [-1])
    >>> for value in (1.0, 2.0, 3.0, 4.0):
    ...     marginals.absorb(np.array([value]))
    >>> marginals.score(np.array([4.0]), np.array([1], dtype=np.uint8)).latent.round(4).tolist()
    [0.6745]
    """

    def __init__(self, window: int) -> None:
        self.rows = np.full((0, window), math.nan)
        self.absorbed = 0

    def grow(self, columns: int, siblings: list[int]) -> None:
        """Add columns: 0 wherever their sibling was observed, missing elsewhere."""
        fresh = np.full((columns, self.rows.shape[1]), math.nan)
        for row, sibling in zip(fresh, siblings, strict=True):
            if sibling >= 0:
                row[~np.isnan(self.rows[sibling])] = 0.0
        self.rows = np.concatenate([self.rows, fresh])

    def absorb(self, row: FloatArray) -> None:
        """Let a row in; the oldest leaves when the window is full."""
        self.rows[:, self.absorbed % self.rows.shape[1]] = row
        self.absorbed += 1

    def score(self, row: FloatArray, kinds: npt.NDArray[np.uint8]) -> Scores:
        """Scores of a row that has been let in."""
        filled = min(self.absorbed, self.rows.shape[1])
        ranks = np.empty((2, len(row)))
        original = np.empty(len(row))
        _rank(self.rows, filled, row, kinds, ranks, original)
        latent, spread = np.empty(len(row)), np.empty(len(row))
        _normal_scores(ndtri(ranks), ranks, row, kinds, latent, spread)
        return Scores(latent, spread, original)

    def snapshot(self) -> dict[str, Any]:
        """The window as it lies in memory, and how many rows it has ever seen."""
        return {"rows": self.rows.copy(), "absorbed": self.absorbed}

    @staticmethod
    def restore(window: int, snapshot: dict[str, Any], columns: int) -> "Marginals":
        """The buffer that `snapshot` described, over so many columns."""
        marginals = Marginals(window)
        require_shape("rows", snapshot["rows"], (columns, window))
        marginals.rows = snapshot["rows"].copy()
        marginals.absorbed = snapshot["absorbed"]
        return marginals


class RunningScales:
    """Two running standardisations of every column, cumulative and fast.

    Attributes
    ----------
    counts : (columns,)
        Values observed so far.
    means, variances : (2, columns)
        Cumulative moments first, fast ones second.

    Notes
    -----
    With the n-th observed value x of a column, for each scale in turn: ``g = max(1/n, floor)`` with
    floor 0 (cumulative) or 1/100 (fast), ``e = x − mean``, ``mean ← mean + g·e``,
    ``variance ← (1−g)(variance + g·e²)``, and the score is ``(x − mean)/√variance`` by the moments
    after the update, clipped to ±5 and rounded to float32; 0 where the value is missing or the
    variance is at most 1e-300. A window of 200 is noisy, hence the cumulative scale; and it hides
    what changes within the window, hence the fast one. Cost: O(d).

    >>> scales = RunningScales()
    >>> scales.grow(1)
    >>> [float(scales.absorb(np.array([value]))[0][0]) for value in (1.0, 3.0, math.nan)]
    [0.0, 1.0, 0.0]
    """

    def __init__(self) -> None:
        self.counts = np.zeros(0, dtype=np.int64)
        self.means = np.zeros((2, 0))
        self.variances = np.zeros((2, 0))

    def grow(self, columns: int) -> None:
        """Add columns that were never observed."""
        fresh = np.zeros((2, columns))
        self.counts = np.concatenate([self.counts, np.zeros(columns, dtype=np.int64)])
        self.means = np.concatenate([self.means, fresh], axis=1)
        self.variances = np.concatenate([self.variances, fresh], axis=1)

    def absorb(self, row: FloatArray) -> SingleArray:
        """Learn from a row; its cumulative and fast scores, shape (2, columns)."""
        scores = np.zeros((2, len(row)), dtype=np.float32)
        _standardise(row, self.counts, self.means, self.variances, scores)
        return scores

    def complete(self, row: FloatArray, cumulative: SingleArray, latent: FloatArray) -> SingleArray:
        """The cumulative scores of a row that was let in, its missing cells filled.

        A missing cell gets the value that its latent score z stands for among the newest values,
        ``x = mean_fast + sd_fast · clip(z, ±3)``, in the cumulative scale: ``(x − mean)/sd``,
        clipped to ±5. It stays 0 in a column that has no variance yet.
        """
        completed = cumulative.copy()
        _complete(row, latent, self.means, self.variances, completed)
        return completed

    def snapshot(self) -> dict[str, Any]:
        """Counts and moments."""
        return {
            "counts": self.counts.copy(),
            "means": self.means.copy(),
            "variances": self.variances.copy(),
        }

    @staticmethod
    def restore(snapshot: dict[str, Any], columns: int) -> "RunningScales":
        """The scales that `snapshot` described, over so many columns."""
        scales = RunningScales()
        require_shape("counts", snapshot["counts"], (columns,))
        for name in ("means", "variances"):
            require_shape(name, snapshot[name], (2, columns))
        for name in ("counts", "means", "variances"):
            setattr(scales, name, snapshot[name].copy())
        return scales


@compiled
def _standardise(
    row: FloatArray,
    counts: IntArray,
    means: FloatArray,
    variances: FloatArray,
    scores: SingleArray,
) -> None:
    for column in range(len(row)):
        x = row[column]
        if math.isnan(x):
            continue
        counts[column] += 1
        for scale in range(2):
            gain = max(1.0 / counts[column], FAST_RATE if scale == 1 else 0.0)
            error = x - means[scale, column]
            mean = means[scale, column] + gain * error
            variance = (1.0 - gain) * (variances[scale, column] + gain * error * error)
            means[scale, column] = mean
            variances[scale, column] = variance
            if variance > _VARIANCE_MIN:
                scores[scale, column] = min(max((x - mean) / math.sqrt(variance), -CLIP), CLIP)


@compiled
def _complete(
    row: FloatArray,
    latent: FloatArray,
    means: FloatArray,
    variances: FloatArray,
    completed: SingleArray,
) -> None:
    for column in range(len(row)):
        variance = variances[0, column]
        if not math.isnan(row[column]) or not variance > _VARIANCE_MIN:
            continue
        score = min(max(latent[column], -COMPLETION_CLIP), COMPLETION_CLIP)
        x = means[1, column] + math.sqrt(variances[1, column]) * score
        standard = (x - means[0, column]) / math.sqrt(variance)
        completed[column] = min(max(standard, -CLIP), CLIP)


@compiled
def _rank(
    rows: FloatArray,
    filled: int,
    row: FloatArray,
    kinds: npt.NDArray[np.uint8],
    ranks: FloatArray,
    original: FloatArray,
) -> None:
    """Cumulative shares below and up to each observed value, and its standard score."""
    columns = np.empty(len(row) + 3, dtype=np.int64)
    counts, mean, squares = np.empty(len(row)), np.empty(len(row)), np.empty(len(row))
    varies = np.empty(len(row), dtype=np.bool_)
    observed = 0
    for column in range(len(row)):
        ranks[0, column] = 0.5
        ranks[1, column] = 0.5
        original[column] = 0.0
        columns[observed] = column
        observed += row[column] == row[column]
    for place in range(observed):
        column = columns[place]
        values, x = rows[column, :filled], row[column]
        below, equal, count = 0, 0, 0
        for slot in range(filled):  # a comparison with NaN is false: no branch is needed
            value = values[slot]
            count += value == value
            below += value < x
            equal += value == x
        counts[column] = count
        varies[column] = equal < count
        if kinds[column] == 1:
            ranks[0, column] = (below + 0.5 * (equal + 1)) / (count + 1)
            ranks[1, column] = ranks[0, column]
        else:
            ranks[0, column] = below / count
            ranks[1, column] = (below + equal) / count
    for extra in range(3):  # sums are taken four columns at a time, the last one again and again
        columns[observed + extra] = columns[max(0, observed - 1)]
    for place in range(0, observed, 4):
        _sums(rows, filled, columns[place : place + 4], squares)
    for place in range(observed):
        mean[columns[place]] = squares[columns[place]] / counts[columns[place]]
    for place in range(0, observed, 4):
        _square_sums(rows, filled, columns[place : place + 4], mean, squares)
    for place in range(observed):
        column = columns[place]
        deviation = math.sqrt(squares[column] / counts[column])
        if deviation > 0.0 and varies[column]:
            standard = (row[column] - mean[column]) / deviation
            original[column] = min(max(standard, -CLIP), CLIP)


@compiled
def _sums(rows: FloatArray, filled: int, columns: IntArray, sums: FloatArray) -> None:
    """Sums over the window of four columns, side by side, each in its order."""
    a, b, c, d = rows[columns[0]], rows[columns[1]], rows[columns[2]], rows[columns[3]]
    of_a = of_b = of_c = of_d = 0.0
    for place in range(filled):
        of_a += a[place] if a[place] == a[place] else 0.0
        of_b += b[place] if b[place] == b[place] else 0.0
        of_c += c[place] if c[place] == c[place] else 0.0
        of_d += d[place] if d[place] == d[place] else 0.0
    sums[columns[0]], sums[columns[1]] = of_a, of_b
    sums[columns[2]], sums[columns[3]] = of_c, of_d


@compiled
def _square_sums(
    rows: FloatArray, filled: int, columns: IntArray, mean: FloatArray, sums: FloatArray
) -> None:
    """The same for the squares of the deviations from the mean."""
    a, b, c, d = rows[columns[0]], rows[columns[1]], rows[columns[2]], rows[columns[3]]
    mean_a, mean_b, mean_c, mean_d = (
        mean[columns[0]], mean[columns[1]], mean[columns[2]], mean[columns[3]],
    )  # fmt: skip
    of_a = of_b = of_c = of_d = 0.0
    for place in range(filled):
        off_a, off_b = a[place] - mean_a, b[place] - mean_b
        off_c, off_d = c[place] - mean_c, d[place] - mean_d
        of_a += off_a * off_a if off_a == off_a else 0.0
        of_b += off_b * off_b if off_b == off_b else 0.0
        of_c += off_c * off_c if off_c == off_c else 0.0
        of_d += off_d * off_d if off_d == off_d else 0.0
    sums[columns[0]], sums[columns[1]] = of_a, of_b
    sums[columns[2]], sums[columns[3]] = of_c, of_d


@compiled
def _normal_scores(
    bounds: FloatArray,
    ranks: FloatArray,
    row: FloatArray,
    kinds: npt.NDArray[np.uint8],
    latent: FloatArray,
    spread: FloatArray,
) -> None:
    """Latent value and the variance left in its interval (a, b]."""
    for column in range(len(row)):
        latent[column] = math.nan
        spread[column] = 0.0
        if math.isnan(row[column]):
            continue
        a = bounds[0, column]
        if kinds[column] == 1:
            latent[column] = a
            continue
        b = bounds[1, column]
        share = ranks[1, column] - ranks[0, column]
        density_a = 0.0 if math.isinf(a) else math.exp(-0.5 * a * a) / math.sqrt(2.0 * math.pi)
        density_b = 0.0 if math.isinf(b) else math.exp(-0.5 * b * b) / math.sqrt(2.0 * math.pi)
        tail_a = 0.0 if math.isinf(a) else a * density_a
        tail_b = 0.0 if math.isinf(b) else b * density_b
        mean = (density_a - density_b) / share
        latent[column] = mean
        spread[column] = max(0.0, 1.0 + (tail_a - tail_b) / share - mean * mean)
