"""How accurate predictions are before their labels come: two estimates, and the error of each.

*Calibrated*: the mean chance that the hard label is right, by probabilities that were calibrated
on the labels so far (confidence-based performance estimation). *Last window*: the accuracy of the
newest labels that were there when the prediction was made. Neither can see a pure change of
concept, in which the same records get other labels: nothing shows it before the labels do.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

BINS = 20
"""Bins of p on each side of the threshold."""
PRIOR_LABELS = 20.0
"""Labels that a bin needs before its own residual counts as much as p itself. With
the memory below it calibrates probabilities that are off by 0.27 to within 0.12 (a test). A shorter
memory follows a moving stream better and calibrates less; measured in docs/guide-operations.md."""
MEMORY_LABELS = 1_000
"""The map forgets: a label counts 1/e after so many newer ones of its stream."""
LABELS_MIN = 20
"""Labels that a window needs to judge estimates, or to be one."""
USUAL_SHARE = 0.9
"""... and of those that windows of the stream usually have: where they still come, the quick ones
have come first."""

Sums = npt.NDArray[np.float64]


class CalibrationMap:
    """From p to the chance of label 1, learnt online: p plus the mean residual of its bin.

    ``c(p) = p + R_b / (n_b + 20)`` with R_b and n_b the decayed sums of y − p and of 1 over the
    labels of bin b, clipped to [0, 1]. Without labels it is p itself. Bins of p end at the
    threshold, so that the two hard labels share none. Cost: O(1); 80 numbers.

    >>> chances = CalibrationMap()
    >>> chances.right(0.9, 0.5)
    0.9
    >>> for y in [1, 0] * 200:
    ...     chances.learn(0.9, y, 0.5)
    >>> round(chances.right(0.9, 0.5), 1)
    0.5
    """

    def __init__(self) -> None:
        self._residual = [0.0] * (2 * BINS)
        self._count = [0.0] * (2 * BINS)
        # Every new label weighs more than the one before, in place of decaying all bins.
        self._weight = 1.0

    def right(self, p: float, threshold: float) -> float:
        """The chance that the hard label of p is right."""
        at = _bin(p, threshold)
        shift = self._residual[at] / (self._count[at] + PRIOR_LABELS * self._weight)
        chance = min(1.0, max(0.0, p + shift))
        return chance if p > threshold else 1.0 - chance

    def learn(self, p: float, y: int, threshold: float) -> None:
        """A label, with the p that was given on arrival."""
        at = _bin(p, threshold)
        self._weight *= 1.0 + 1.0 / MEMORY_LABELS
        self._residual[at] += self._weight * (y - p)
        self._count[at] += self._weight
        if self._weight > 1e100:
            for sums in (self._residual, self._count):
                sums[:] = [each / self._weight for each in sums]
            self._weight = 1.0


def _bin(p: float, threshold: float) -> int:
    return min(int(p * BINS), BINS - 1) + (BINS if p > threshold else 0)


class Estimate(NamedTuple):
    """One estimate of a stream: of its newest window, and its mean absolute error so far.

    `windows` are those it was judged by: they have their labels. None where nothing is known.
    """

    now: float | None
    error: float | None
    windows: int


class Estimates(NamedTuple):
    """Both, side by side: on some streams the one is better, on some the other."""

    calibrated: Estimate
    last_window: Estimate

    def as_json(self) -> dict[str, Any]:
        """For the page."""
        return {name: each._asdict() for name, each in self._asdict().items()}


def estimates(blocks: Sums, rows: int) -> Estimates:
    """From the sums of blocks of predictions, oldest first, shape ``(blocks, 6)``.

    The columns: predictions, scored ones, errors among these, the chances of being right, the
    accuracies of the last window at the time, and how many of these there were. Windows are
    neighbouring blocks with at least `rows` predictions, counted from the newest.
    """
    windows = _windows(blocks, rows)
    if not len(windows):
        nothing = Estimate(None, None, 0)
        return Estimates(nothing, nothing)
    share = windows[:, 1] / windows[:, 0]
    usual = np.sort(share)[int(0.75 * len(share))]
    judged = windows[(windows[:, 1] >= LABELS_MIN) & (share >= USUAL_SHARE * usual)]
    accuracy = 1.0 - judged[:, 2] / judged[:, 1]
    return Estimates(
        _estimate(windows[-1, 3], windows[-1, 0], judged[:, 3], judged[:, 0], accuracy),
        _estimate(windows[-1, 4], windows[-1, 5], judged[:, 4], judged[:, 5], accuracy),
    )


def _estimate(now: float, count: float, sums: Sums, counts: Sums, accuracy: Sums) -> Estimate:
    known = counts > 0
    off = np.abs(sums[known] / counts[known] - accuracy[known])
    return Estimate(
        float(now / count) if count else None,
        float(off.mean()) if len(off) else None,
        len(off),
    )


def _windows(blocks: Sums, rows: int) -> Sums:
    """Sums of neighbouring blocks, shape ``(windows, columns)``, oldest first."""
    found: list[Sums] = []
    for block in blocks[::-1]:
        if found and found[-1][0] < rows:
            found[-1] = found[-1] + block
        else:
            found.append(block)
    if len(found) > 1 and found[-1][0] < rows:
        found.pop()  # the oldest blocks are too few for a window
    return np.array(found[::-1])
