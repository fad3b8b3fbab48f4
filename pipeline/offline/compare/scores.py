"""The predictions of one run -> its numbers: CER, AUC, calibration, the blind zone, a curve."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dtgol_core.losses import P_CLIP
from dtgol_core.types import ExpertAnswer, FloatArray
from pipeline.offline.backtest import Backtest

MOVING_ROWS = 100
BEFORE_ROWS = 500
CURVE_POINTS = 100
FIRST_ROWS = 100
CALIBRATION_BINS = 10


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
class WorstPrefix:
    """The most by which a run was behind naive, over all its beginnings; 0 if it never was.

    ``nats``: of the summed log loss. ``errors``: of the count of errors.
    """

    nats: float
    errors: int


@dataclass(frozen=True, slots=True)
class ExpertScore:
    """One expert of DT-GOL by itself, in the same run, and its mean weight in the forecast."""

    cer: float
    log_loss: float
    weight: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """The numbers of one run. ``us_per_record``: processor time. ``late_cer``: from step L + 1 on.
    ``first_cer``: of the steps L + 1 to L + 100, while the first hundred labels come. ``curve``:
    moving accuracy at evenly spaced steps."""

    rows: int
    refused: int
    cer: float | None
    auc: float | None
    log_loss: float | None
    late_cer: float | None
    us_per_record: float | None
    curve: tuple[tuple[int, float], ...]
    blind: BlindZone | None = None
    ece: float | None = None
    average_precision: float | None = None
    first_cer: float | None = None
    worst: WorstPrefix | None = None
    experts: Mapping[str, ExpertScore] = field(default_factory=dict)

    @staticmethod
    def read(values: dict[str, Any]) -> "Outcome":
        """What `dataclasses.asdict` wrote, after a trip through JSON."""
        blind, worst = values["blind"], values["worst"]
        return Outcome(
            **{
                **values,
                "curve": tuple((int(step), float(share)) for step, share in values["curve"]),
                "blind": None if blind is None else BlindZone(**blind),
                "worst": None if worst is None else WorstPrefix(**worst),
                "experts": {name: ExpertScore(**each) for name, each in values["experts"].items()},
            }
        )


def judge(
    result: Backtest,
    delay: int,
    change: int,
    naive: FloatArray,
    experts: Sequence[Mapping[str, ExpertAnswer]] = (),
) -> Outcome:
    """All numbers of a run.

    Parameters
    ----------
    change
        The last row before the change, 0 without one.
    naive
        What naive answered to the same rows, shape ``(rows,)``.
    experts
        The answers of the experts to each row; empty for a method that has none.
    """
    scores, _ = result.scores()
    late, _ = result.scores(first_step=delay + 1)
    judged = [i for i, each in enumerate(result.predictions) if each.label is not None]
    p = np.array([result.predictions[i].p for i in judged])
    y = np.array([result.predictions[i].label for i in judged], dtype=np.float64)
    step = np.array([result.predictions[i].step for i in judged])
    right = ((p > 0.5) == y).astype(np.float64)
    first = right[(step > delay) & (step <= delay + FIRST_ROWS)]
    same_rows = len(naive) == len(result.predictions)
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
        ece=calibration_error(p, y) if judged else None,
        average_precision=average_precision(p, y),
        first_cer=1.0 - float(first.mean()) if len(first) else None,
        worst=worst_prefix(p, naive[judged], y) if judged and same_rows else None,
        experts=_expert_scores([experts[i] for i in judged], y) if experts and judged else {},
    )


def losses(p: FloatArray, y: FloatArray) -> FloatArray:
    """The log loss of each prediction in nats."""
    clipped = np.clip(p, P_CLIP, 1.0 - P_CLIP)
    loss: FloatArray = -np.where(y == 1.0, np.log(clipped), np.log1p(-clipped))
    return loss


def calibration_error(p: FloatArray, y: FloatArray) -> float:
    """Expected calibration error over ten equal bins of p: ``Σ_b |Σ_{i∈b} (p_i − y_i)| / n``.

    >>> calibration_error(np.array([0.1, 0.1, 0.9]), np.array([0.0, 1.0, 1.0]))
    0.3
    """
    bins = np.minimum((p * CALIBRATION_BINS).astype(np.int64), CALIBRATION_BINS - 1)
    surplus = np.bincount(bins, weights=p - y, minlength=CALIBRATION_BINS)
    return float(np.abs(surplus).sum() / len(p))


def average_precision(p: FloatArray, y: FloatArray) -> float | None:
    """Mean precision over the positives, each at the threshold that just includes it.

    ``Σ_k (recall_k − recall_{k−1}) · precision_k`` over the distinct values of p from the largest
    on, so that ties share a threshold; None without a positive.

    >>> average_precision(np.array([0.9, 0.8, 0.7]), np.array([1.0, 0.0, 1.0]))
    0.833...
    """
    positives = float(y.sum()) if len(y) else 0.0
    if not positives:
        return None
    order = np.argsort(-p, kind="stable")
    found = np.cumsum(y[order])
    last_of_ties = np.flatnonzero(np.append(np.diff(p[order]) != 0.0, True))
    found = found[last_of_ties]
    gained = np.diff(found, prepend=0.0)
    return float(np.sum(gained * found / (last_of_ties + 1.0)) / positives)


def worst_prefix(p: FloatArray, naive: FloatArray, y: FloatArray) -> WorstPrefix:
    """How far one is behind the other at the worst moment.

    >>> worst_prefix(np.array([0.4, 0.9]), np.array([0.6, 0.9]), np.array([1.0, 1.0]))
    WorstPrefix(nats=0.405..., errors=1)
    """
    nats = np.cumsum(losses(p, y) - losses(naive, y))
    wrong, naive_wrong = (p > 0.5) != y, (naive > 0.5) != y
    errors = np.cumsum(wrong.astype(np.int64) - naive_wrong)
    return WorstPrefix(max(0.0, float(nats.max())), max(0, int(errors.max())))


def _expert_scores(
    answers: Sequence[Mapping[str, ExpertAnswer]], y: FloatArray
) -> dict[str, ExpertScore]:
    scores = {}
    for name in answers[0]:
        p, weight = np.array([each[name] for each in answers]).T
        cer, loss = np.mean((p > 0.5) != y), np.mean(losses(p, y))
        scores[name] = ExpertScore(float(cer), float(loss), float(weight.mean()))
    return scores


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
