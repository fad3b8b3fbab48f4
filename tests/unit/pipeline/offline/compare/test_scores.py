"""The numbers of one run: the blind zone, moving accuracy."""

import numpy as np
import pytest

from pipeline.offline.backtest import Backtest, BacktestPrediction
from pipeline.offline.compare.scores import (
    BlindZone,
    WorstPrefix,
    average_precision,
    blind_zone,
    calibration_error,
    judge,
    moving_accuracy,
    worst_prefix,
)


def test_blind_zone_of_a_learner_that_fails_and_comes_back() -> None:
    right = np.ones(1000)
    right[500:600] = 0.0
    zone = blind_zone(right, change=500, delay=200)
    assert zone == BlindZone(accuracy=0.5, drop=1.0, recovery=200)
    never = right.copy()
    never[500:] = 0.0
    assert blind_zone(never, change=500, delay=200).recovery is None


def test_moving_accuracy_is_of_the_last_hundred() -> None:
    right = np.concatenate([np.ones(100), np.zeros(100)])
    moving = moving_accuracy(right)
    assert moving[[0, 99, 149, 199]].tolist() == [1.0, 1.0, 0.5, 0.0]


def test_average_precision_by_hand() -> None:
    """Thresholds from the top: .9 finds 1 of 1, the tie at .8 finds 2 of 3, .1 finds 3 of 5."""
    p = np.array([0.8, 0.9, 0.1, 0.3, 0.8])
    y = np.array([1.0, 1.0, 1.0, 0.0, 0.0])
    assert average_precision(p, y) == pytest.approx((1 / 1 + 2 / 3 + 3 / 5) / 3)
    assert average_precision(np.array([0.5, 0.5]), np.array([1.0, 0.0])) == 0.5
    assert average_precision(p, np.zeros(5)) is None
    assert average_precision(np.array([]), np.array([])) is None


def test_average_precision_agrees_with_scikit_learn() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    generator = np.random.default_rng(1)
    for _ in range(20):
        y = (generator.random(200) < 0.05).astype(float)
        y[0] = 1.0
        p = generator.random(200).round(1)
        assert average_precision(p, y) == pytest.approx(metrics.average_precision_score(y, p))


def test_calibration_error_by_hand() -> None:
    p, y = np.array([0.2, 0.3, 0.25, 1.0]), np.array([0.0, 0.0, 1.0, 1.0])
    # .2 and .25 share a bin: |.45 − 1| = .55; .3 has its own: .3; 1 is in the last one: 0.
    assert calibration_error(p, y) == pytest.approx((0.55 + 0.3) / 4)


def test_the_worst_prefix_is_not_the_end() -> None:
    y = np.ones(4)
    naive = np.array([0.8, 0.8, 0.2, 0.2])
    p = np.array([0.4, 0.4, 0.9, 0.9])
    worst = worst_prefix(p, naive, y)
    assert worst.nats == pytest.approx(2 * np.log(0.8 / 0.4))
    assert worst.errors == 2
    assert worst_prefix(naive, naive, y) == WorstPrefix(0.0, 0)
    assert worst_prefix(np.full(4, 0.9), naive, y) == WorstPrefix(0.0, 0)


def test_all_numbers_of_a_run_count_labelled_rows_alone() -> None:
    """Right from step 31 on; the delay is 20, so the hundred steps from 21 on have ten errors."""
    predictions = tuple(
        BacktestPrediction(
            step, step, 0.9 if step > 30 else 0.1, 0.9, None if step % 50 == 0 else 1
        )
        for step in range(1, 201)
    )
    naive = np.full(200, 0.9)
    outcome = judge(Backtest(predictions, {}, {}, 1.0), 20, 0, naive)
    assert outcome.rows == 200
    assert outcome.cer == pytest.approx(30 / 196)
    assert outcome.first_cer == pytest.approx(10 / 98)
    assert outcome.worst is not None
    assert outcome.worst.nats == pytest.approx(30 * np.log(0.9 / 0.1))
    assert outcome.worst.errors == 30
    assert outcome.ece == pytest.approx((30 * 0.9 + 166 * 0.1) / 196)
    assert outcome.average_precision == 1.0
    assert outcome.blind is None
    shorter = judge(Backtest(predictions, {}, {}, 1.0), 20, 0, naive[:-1])
    assert shorter.worst is None
