"""Accuracy before the labels come: calibrated, at the threshold, and honest about its error."""

from __future__ import annotations

import random

import numpy as np
import pytest

from pipeline.evaluation.estimate import CalibrationMap, Estimate, estimates


def test_without_labels_the_probabilities_are_believed() -> None:
    chances = CalibrationMap()
    assert chances.right(0.8, 0.5) == pytest.approx(0.8)
    assert chances.right(0.3, 0.5) == pytest.approx(0.7)
    assert chances.right(0.3, 0.2) == pytest.approx(0.3)  # the hard label is 1 here


@pytest.mark.parametrize("threshold", [0.5, 0.22])
def test_overconfident_probabilities_are_calibrated_on_both_sides_of_the_threshold(
    threshold: float,
) -> None:
    chance, chances = random.Random(1), CalibrationMap()
    for _ in range(5_000):
        p = chance.random()
        chances.learn(p, int(chance.random() < 0.5 + 0.4 * (p - 0.5)), threshold)
    for p in (0.05, 0.2, 0.25, 0.6, 0.95):
        true = 0.5 + 0.4 * (p - 0.5)
        assert chances.right(p, threshold) == pytest.approx(
            true if p > threshold else 1 - true, abs=0.12
        )


def test_the_map_follows_a_change() -> None:
    chances = CalibrationMap()
    for y in [1] * 3_000 + [0] * 3_000:
        chances.learn(0.9, y, 0.5)
    assert chances.right(0.9, 0.5) < 0.1


def test_a_map_of_many_labels_stays_finite() -> None:
    chances = CalibrationMap()
    for number in range(300_000):
        chances.learn(0.9, number % 2, 0.5)
    assert chances.right(0.9, 0.5) == pytest.approx(0.5, abs=0.01)


def block(predicted: float, scored: float, errors: float, right: float, last: float) -> list[float]:
    return [predicted, scored, errors, right, last, predicted]


def test_an_estimate_is_judged_by_the_windows_that_have_their_labels() -> None:
    blocks = [block(100, 100, 20, 90, 70)] * 4 + [block(100, 10, 0, 60, 80)] * 2
    found = estimates(np.array(blocks, dtype=np.float64), 200)
    assert found.calibrated == pytest.approx((0.6, 0.1, 2))
    assert found.last_window == pytest.approx((0.8, 0.1, 2))


def test_nothing_is_known_before_there_is_anything() -> None:
    nothing = Estimate(None, None, 0)
    assert estimates(np.zeros((0, 6)), 200) == (nothing, nothing)
    unlabelled = estimates(np.array([[30.0, 0, 0, 24, 0, 0]]), 200)
    assert unlabelled == (Estimate(0.8, None, 0), nothing)


def test_a_pure_change_of_concept_shows_only_in_the_error() -> None:
    """Documented: the same records with other labels look the same before their labels come."""
    before, after = block(200, 200, 20, 180, 180), block(200, 200, 180, 180, 180)
    found = estimates(np.array([before, after]), 200)
    assert found.calibrated.now == 0.9
    assert found.calibrated.error == pytest.approx(0.4)
