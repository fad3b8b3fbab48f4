"""The counters of one kind of forecast, and its quality from them.

Integers only, losses in fixed-point units, so that counters can be added in any order.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from dtgol_core.bins import probability_bin
from dtgol_core.losses import log_loss

LOSS_UNITS = 1 << 40
"""Units per nat: rounding costs at most 2⁻⁴¹ per prediction, and the sum of integers is exact."""
_CALIBRATION_BINS = 10


def bump(counts: dict[int, int], key: int, amount: int) -> None:
    """Add to one counter; a counter at zero is absent, so equal counts are equal dicts."""
    value = counts.get(key, 0) + amount
    if value:
        counts[key] = value
    else:
        counts.pop(key, None)


@dataclass(frozen=True, slots=True)
class Quality:
    """How good one kind of forecast was; ``None`` where nothing defines the number.

    ``auc`` differs from the exact AUC of the same predictions by at most ``auc_error``.
    ``precision`` is the share of the labels 1 that were right, ``recall`` that of the true ones
    that were found; both are of the hard label, and so of the threshold in force.
    """

    cer: float | None
    accuracy: float | None
    auc: float | None
    auc_error: float | None
    log_loss: float | None
    brier: float | None
    calibration_error: float | None
    precision: float | None
    recall: float | None
    false_positives: int
    false_negatives: int

    def cost(self, cost_fp: float, cost_fn: float, count: int) -> float | None:
        """What the errors cost per scored prediction."""
        total = cost_fp * self.false_positives + cost_fn * self.false_negatives
        return total / count if count else None


class Increment(NamedTuple):
    """What one forecast adds to the counters; made once for the total and the window."""

    false_positive: int
    false_negative: int
    loss: int
    brier: int
    bin: int
    bucket: int
    surplus: int


def increment_of(p: float, y: int, threshold: float) -> Increment:
    """The increment of a forecast whose label is known; its hard label is 1 above `threshold`."""
    return Increment(
        false_positive=int(p > threshold and not y),
        false_negative=int(p <= threshold and y),
        loss=round(log_loss(p, y) * LOSS_UNITS),
        brier=round((p - y) * (p - y) * LOSS_UNITS),
        bin=2 * probability_bin(p) + y,
        bucket=min(int(p * _CALIBRATION_BINS), _CALIBRATION_BINS - 1),
        surplus=round(p * LOSS_UNITS) - y * LOSS_UNITS,
    )


@dataclass(slots=True)
class ForecastCounters:
    """Counters of one kind of forecast. ``bins`` is keyed by 2·bin + label."""

    false_positives: int = 0
    false_negatives: int = 0
    loss: int = 0
    brier: int = 0
    bins: dict[int, int] = field(default_factory=dict)
    surplus: dict[int, int] = field(default_factory=dict)
    """Per calibration bin: the sum of p − y in loss units."""

    def add(self, increment: Increment, sign: int) -> None:
        """Count a forecast, or with `sign` −1 take it back."""
        self.false_positives += sign * increment.false_positive
        self.false_negatives += sign * increment.false_negative
        self.loss += sign * increment.loss
        self.brier += sign * increment.brier
        bump(self.bins, increment.bin, sign)
        bump(self.surplus, increment.bucket, sign * increment.surplus)

    def merge(self, other: "ForecastCounters") -> None:
        """Add the counters of others."""
        self.false_positives += other.false_positives
        self.false_negatives += other.false_negatives
        self.loss += other.loss
        self.brier += other.brier
        for own, more in ((self.bins, other.bins), (self.surplus, other.surplus)):
            for key, amount in more.items():
                bump(own, key, amount)

    @property
    def errors(self) -> int:
        """Hard labels that were wrong."""
        return self.false_positives + self.false_negatives

    def quality(self, count: int, positives: int) -> Quality:
        """The quality of `count` forecasts, of which `positives` had the label 1."""
        if count == 0:
            return Quality(None, None, None, None, None, None, None, None, None, 0, 0)
        auc, error = self._auc()
        found = positives - self.false_negatives
        given = found + self.false_positives
        return Quality(
            cer=self.errors / count,
            accuracy=(count - self.errors) / count,
            precision=found / given if given else None,
            recall=found / positives if positives else None,
            false_positives=self.false_positives,
            false_negatives=self.false_negatives,
            auc=auc,
            auc_error=error,
            log_loss=self.loss / (count * LOSS_UNITS),
            brier=self.brier / (count * LOSS_UNITS),
            calibration_error=sum(map(abs, self.surplus.values())) / (count * LOSS_UNITS),
        )

    def _auc(self) -> tuple[float | None, float | None]:
        """Ties inside a bin count half: wrong by at most half of the pairs that share a bin."""
        below = positives = twice = shared = 0
        for number in sorted({key >> 1 for key in self.bins}):
            negative = self.bins.get(2 * number, 0)
            positive = self.bins.get(2 * number + 1, 0)
            twice += positive * (2 * below + negative)
            shared += positive * negative
            below += negative
            positives += positive
        pairs = positives * below
        return (twice / (2 * pairs), shared / (2 * pairs)) if pairs else (None, None)
