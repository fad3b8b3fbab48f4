"""The predictions of one run -> its numbers: CER, AUC, the blind zone, a curve."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from dtgol_core.types import FloatArray
from pipeline.backtest import Backtest

MOVING_ROWS = 100
BEFORE_ROWS = 500
CURVE_POINTS = 100


@dataclass(frozen=True, slots=True)
class BlindZone:
    """Of the steps between a change and the first label from after it.

    ``drop``: the most by which the 100-record moving accuracy fell below the mean accuracy of the
    500 steps before the change. ``recovery``: steps from the change until the moving accuracy is
    back at that mean; ``None`` if it never is.
    """

    accuracy: float
    drop: float
    recovery: int | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The numbers of one run. ``us_per_record``: processor time. ``late_cer``: from step L + 1 on.
    ``curve``: moving accuracy at evenly spaced steps."""

    rows: int
    refused: int
    cer: float | None
    auc: float | None
    log_loss: float | None
    late_cer: float | None
    us_per_record: float | None
    curve: tuple[tuple[int, float], ...]
    blind: BlindZone | None = None

    @staticmethod
    def read(values: dict[str, Any]) -> "Outcome":
        """What `dataclasses.asdict` wrote, after a trip through JSON."""
        blind = values["blind"]
        curve = tuple((int(step), float(accuracy)) for step, accuracy in values["curve"])
        zone = None if blind is None else BlindZone(**blind)
        return Outcome(**{**values, "curve": curve, "blind": zone})


def judge(result: Backtest, delay: int, change: int) -> Outcome:
    """All numbers of a run; `change` is the last row before the change, 0 without one."""
    scores, _ = result.scores()
    late, _ = result.scores(first_step=delay + 1)
    judged = [said for said in result.predictions if said.label is not None]
    right = np.array([(said.p > 0.5) == said.label for said in judged], dtype=np.float64)
    return Outcome(
        rows=len(result.predictions),
        refused=sum(result.rejected.values()),
        cer=scores.cer,
        auc=scores.auc,
        log_loss=scores.log_loss,
        late_cer=late.cer,
        us_per_record=result.us_per_record,
        curve=_curve(right),
        blind=blind_zone(right, change, delay) if change else None,
    )


def blind_zone(right: FloatArray, change: int, delay: int) -> BlindZone:
    """The blind zone of a run in which step ``change + 1`` is the first of the new concept.

    >>> steps = np.ones(400)
    >>> steps[200:250] = 0.0
    >>> blind_zone(steps, change=200, delay=100)
    BlindZone(accuracy=0.5, drop=0.5, recovery=150)
    """
    before = float(right[max(0, change - BEFORE_ROWS) : change].mean())
    moving = moving_accuracy(right)
    zone = slice(change, change + delay)
    back = np.flatnonzero(moving[change + MOVING_ROWS - 1 :] >= before)
    recovery = int(back[0]) + MOVING_ROWS if len(back) else None
    drop = max(0.0, before - float(moving[zone].min()))
    return BlindZone(float(right[zone].mean()), drop, recovery)


def moving_accuracy(right: FloatArray) -> FloatArray:
    """The mean of the last 100 steps at every step; of all steps before the hundredth."""
    total = np.concatenate([[0.0], np.cumsum(right)])
    step = np.arange(1, len(right) + 1)
    first = np.maximum(0, step - MOVING_ROWS)
    moving: FloatArray = (total[step] - total[first]) / (step - first)
    return moving


def _curve(right: FloatArray) -> tuple[tuple[int, float], ...]:
    if not len(right):
        return ()
    moving = moving_accuracy(right)
    every = max(1, len(right) // CURVE_POINTS)
    return tuple(
        (step + 1, round(float(moving[step]), 4)) for step in range(every - 1, len(right), every)
    )
