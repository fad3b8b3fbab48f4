"""Windowed empirical distributions: an observed value to a normal score and a standard score.

In: a row with NaN for missing, and the kind of each column. Out: `Scores`. The window is the
coarse buffer, the newest rows with the present one among them, so no rank is ever 0 or 1. Every
count and sum is taken afresh from the window: nothing drifts.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from dtgol_core.compiled import compiled
from dtgol_core.types import FloatArray

CLIP = 5.0
"""Bound of the original space, in standard deviations."""


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
    Continuous: ``z = Φ⁻¹((#{<x} + (#{=x} + 1)/2) / (n + 1))`` (mid-ranks; reading R2). Ordinal:
    ``z`` is the mean of a standard normal truncated to ``(Φ⁻¹(#{<x}/n), Φ⁻¹(#{≤x}/n)]``.
    Cost per row: one pass over the window of every observed column.

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
    def restore(window: int, snapshot: dict[str, Any]) -> "Marginals":
        """The buffer that `snapshot` described."""
        marginals = Marginals(window)
        marginals.rows = snapshot["rows"].copy()
        marginals.absorbed = snapshot["absorbed"]
        return marginals


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
    for column in range(len(row)):
        x = row[column]
        ranks[0, column] = 0.5
        ranks[1, column] = 0.5
        original[column] = 0.0
        if math.isnan(x):
            continue
        below = 0
        equal = 0
        count = 0
        total = 0.0
        low = math.inf
        high = -math.inf
        for place in range(filled):
            value = rows[column, place]
            if not math.isnan(value):
                count += 1
                total += value
                below += value < x
                equal += value == x
                low = min(low, value)
                high = max(high, value)
        if kinds[column] == 1:
            ranks[0, column] = (below + 0.5 * (equal + 1)) / (count + 1)
            ranks[1, column] = ranks[0, column]
        else:
            ranks[0, column] = below / count
            ranks[1, column] = (below + equal) / count
        if low < high:
            mean = total / count
            squares = 0.0
            for place in range(filled):
                value = rows[column, place]
                if not math.isnan(value):
                    squares += (value - mean) * (value - mean)
            deviation = math.sqrt(squares / count)
            if deviation > 0.0:
                original[column] = min(max((x - mean) / deviation, -CLIP), CLIP)


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
