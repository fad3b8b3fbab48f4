"""What is known of each column by itself: an observed value to scores of several kinds.

`Marginals`: normal scores and standard scores over the coarse buffer, the newest rows with the
present one among them, so no rank is ever 0 or 1. Every count and sum is taken afresh from the
window: nothing drifts. `RunningScales`: standard scores by running moments, cumulative and fast.
In for both: a row with NaN for missing, and the arrays of a `Vectors` that the scores are written
to.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from dtgol_core.compiled import compiled, in_place
from dtgol_core.elementary import exp, normal_quantile
from dtgol_core.state import SnapshotError, require_count, require_shape
from dtgol_core.types import FloatArray, IntArray, SingleArray

CLIP = 5.0
"""Bound of every standard score, in standard deviations."""
FAST_RATE = 0.01
"""Least weight of a new value in the fast moments: about the last hundred count."""
COMPLETION_CLIP = 3.0
"""Bound of a latent score that fills a missing cell."""
_VARIANCE_MIN = 1e-300


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
    ``(Φ⁻¹(#{<x}/n), Φ⁻¹(#{≤x}/n)]``. Cost per row: three passes over the window of every
    observed column (counts, sum, squares).

    References
    ----------
    Zhao and Udell (2020), Missing value imputation for mixed data via Gaussian copula, KDD.

    >>> marginals, spaces = Marginals(window=3), np.zeros((2, 1))
    >>> marginals.grow(1, [-1])
    >>> for value in (1.0, 2.0, 3.0, 4.0):
    ...     _ = marginals.absorb(np.array([value]), np.array([1], dtype=np.uint8), spaces)
    >>> spaces.round(4).tolist()
    [[0.6745], [1.2247]]
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

    def absorb(
        self, row: FloatArray, kinds: npt.NDArray[np.uint8], spaces: FloatArray
    ) -> FloatArray:
        """Let a row in, the oldest leaves when the window is full, and write its scores.

        The normal scores go to ``spaces[0]``, NaN where a value is missing; the standard scores,
        clipped and 0 where missing, to ``spaces[1]``. Returns the variance left inside the
        interval of each ordinal value, shape (columns,).
        """
        spread = np.empty(len(row))
        _absorb(self.rows, self.absorbed, row, kinds, spaces, spread)
        self.absorbed += 1
        return spread

    def snapshot(self) -> dict[str, Any]:
        """The window as it lies in memory, and how many rows it has ever seen."""
        return {"rows": self.rows.copy(), "absorbed": self.absorbed}

    @staticmethod
    def restore(window: int, snapshot: dict[str, Any], columns: int) -> "Marginals":
        """The buffer that `snapshot` described, over so many columns."""
        marginals = Marginals(window)
        require_shape("rows", snapshot["rows"], (columns, window))
        marginals.rows = snapshot["rows"].copy()
        marginals.absorbed = require_count(snapshot["absorbed"])
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

    *Completed*: a missing cell gets the value that its latent score z stands for among the newest
    values, ``x = mean_fast + sd_fast · clip(z, ±3)``, in the cumulative scale: ``(x − mean)/sd``,
    clipped to ±5. It stays 0 in a column that has no variance yet.

    >>> scales, scores = RunningScales(), np.zeros((2, 1), dtype=np.float32)
    >>> scales.grow(1)
    >>> for value in (1.0, 3.0):
    ...     scales.absorb(np.array([value]), np.zeros(1), scores)
    >>> scores[0].tolist()
    [1.0]
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

    def absorb(self, row: FloatArray, latent: FloatArray, scores: SingleArray) -> None:
        """Learn from a row and write its scores: cumulative, fast and, if there is a third, the
        cumulative ones completed from `latent`, its complete latent scores."""
        _standardise(row, latent, self.counts, self.means, self.variances, scores)

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
        if (snapshot["counts"] < 0).any() or (snapshot["variances"] < 0.0).any():
            raise SnapshotError("the snapshot is damaged: counts or variances of the scales")
        for name in ("counts", "means", "variances"):
            setattr(scales, name, snapshot[name].copy())
        return scales


@in_place
def _standardise(
    row: FloatArray,
    latent: FloatArray,
    counts: IntArray,
    means: FloatArray,
    variances: FloatArray,
    scores: SingleArray,
) -> None:
    for column in range(len(row)):
        x = row[column]
        observed = not math.isnan(x)
        counts[column] += observed
        for scale in range(2):
            scores[scale, column] = 0.0
            if not observed:
                continue
            gain = max(1.0 / counts[column], FAST_RATE if scale == 1 else 0.0)
            error = x - means[scale, column]
            mean = means[scale, column] + gain * error
            variance = (1.0 - gain) * (variances[scale, column] + gain * error * error)
            means[scale, column] = mean
            variances[scale, column] = variance
            if variance > _VARIANCE_MIN:
                scores[scale, column] = min(max((x - mean) / math.sqrt(variance), -CLIP), CLIP)
        if len(scores) == 3:
            scores[2, column] = scores[0, column]
            variance = variances[0, column]
            if not observed and variance > _VARIANCE_MIN:
                score = min(max(latent[column], -COMPLETION_CLIP), COMPLETION_CLIP)
                x = means[1, column] + math.sqrt(variances[1, column]) * score
                standard = (x - means[0, column]) / math.sqrt(variance)
                scores[2, column] = min(max(standard, -CLIP), CLIP)


@compiled
def _absorb(
    rows: FloatArray,
    absorbed: int,
    row: FloatArray,
    kinds: npt.NDArray[np.uint8],
    spaces: FloatArray,
    spread: FloatArray,
) -> None:
    """Put a row into the window and score it."""
    window, width = rows.shape[1], len(row)
    place, filled = absorbed % window, min(absorbed + 1, window)
    latent, original = spaces[0], spaces[1]
    columns = np.empty(width + 3, dtype=np.int64)
    counts, mean, squares = np.empty(width), np.empty(width), np.empty(width)
    varies = np.empty(width, dtype=np.bool_)
    observed = 0
    for column in range(width):
        rows[column, place] = row[column]
        latent[column], original[column], spread[column] = math.nan, 0.0, 0.0
        columns[observed] = column
        observed += row[column] == row[column]
    for each in range(observed):
        column = columns[each]
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
            latent[column] = normal_quantile((below + 0.5 * (equal + 1)) / (count + 1))
        else:
            low, high = below / count, (below + equal) / count
            latent[column], spread[column] = _truncated(low, high)
    for extra in range(3):  # sums are taken four columns at a time, the last one again and again
        columns[observed + extra] = columns[max(0, observed - 1)]
    for each in range(0, observed, 4):
        _sums(rows, filled, columns[each : each + 4], squares)
    for each in range(observed):
        mean[columns[each]] = squares[columns[each]] / counts[columns[each]]
    for each in range(0, observed, 4):
        _square_sums(rows, filled, columns[each : each + 4], mean, squares)
    for each in range(observed):
        column = columns[each]
        deviation = math.sqrt(squares[column] / counts[column])
        if deviation > 0.0 and varies[column]:
            standard = (row[column] - mean[column]) / deviation
            original[column] = min(max(standard, -CLIP), CLIP)


@in_place
def _truncated(low: float, high: float) -> tuple[float, float]:
    """Mean and variance of a standard normal number between its quantiles of two shares."""
    a, b, share = normal_quantile(low), normal_quantile(high), high - low
    density_a = 0.0 if math.isinf(a) else exp(-0.5 * a * a) / math.sqrt(2.0 * math.pi)
    density_b = 0.0 if math.isinf(b) else exp(-0.5 * b * b) / math.sqrt(2.0 * math.pi)
    tail_a = 0.0 if math.isinf(a) else a * density_a
    tail_b = 0.0 if math.isinf(b) else b * density_b
    mean = (density_a - density_b) / share
    return mean, max(0.0, 1.0 + (tail_a - tail_b) / share - mean * mean)


@in_place
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


@in_place
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
