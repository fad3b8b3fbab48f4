"""The regression against its formulas in plain numpy, full and in blocks."""

import numpy as np
import pytest

from dtgol_core.bayes import WEIGHTS_FULL_MAX, Regression, design_prior
from dtgol_core.types import FloatArray, Vectors


def plain_step(
    mean: FloatArray,
    covariance: FloatArray,
    prior: tuple[FloatArray, FloatArray],
    memory: float,
    x: FloatArray,
    label: int,
    blocks: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Drift and update; `blocks` is 1 where covariances are kept."""
    mean = prior[0] + memory * (mean - prior[0])
    covariance = memory**2 * covariance + (1 - memory**2) * np.diag(prior[1])
    along = covariance @ x
    variance = x @ along
    p = float(1 / (1 + np.exp(-mean @ x / np.sqrt(1 + np.pi * variance / 8))))
    curvature = max(p * (1 - p), 1e-6)
    shrink = 1 / (1 + curvature * variance)
    mean = mean + shrink * (label - p) * along
    return mean, covariance - shrink * curvature * np.outer(along, along) * blocks


def in_blocks(weights: int) -> FloatArray:
    kept = np.zeros((weights, weights))
    kept[0, 0] = 1
    for first in range(1, weights, 3):
        kept[first : first + 3, first : first + 3] = 1
    return kept


@pytest.mark.parametrize("columns", [0, 1, 5, 64, 65])
def test_it_is_the_formula(columns: int) -> None:
    rng = np.random.default_rng(columns)
    prior = design_prior(columns)
    weights = 3 * columns + 1
    regression = Regression(*prior, memory=0.95)
    full = weights <= WEIGHTS_FULL_MAX
    blocks = np.ones((weights, weights)) if full else in_blocks(weights)
    mean, covariance = prior[0], np.diag(prior[1])
    for _ in range(30):
        x = np.concatenate([[1.0], rng.normal(size=weights - 1)])
        variance = x @ covariance @ x
        score = mean @ x / np.sqrt(1 + np.pi * variance / 8)
        assert regression.score(x) == pytest.approx(score, abs=1e-10)
        assert regression.terms(x).sum() == pytest.approx(score, abs=1e-10)
        label = int(rng.integers(2))
        regression.learn(x, label)
        mean, covariance = plain_step(mean, covariance, prior, 0.95, x, label, blocks)
    np.testing.assert_allclose(regression.mean, mean, atol=1e-10)
    if full:
        np.testing.assert_allclose(regression.covariance, covariance, atol=1e-10)
        assert (regression.covariance == regression.covariance.T).all(), "symmetric to the bit"
    else:
        assert regression.covariance[0, 0] == pytest.approx(covariance[0, 0])
        second = regression.covariance[:, 4:7]
        np.testing.assert_allclose(second, covariance[4:7, 4:7], atol=1e-10)
        assert (second == second.T).all(), "symmetric to the bit"


def test_growing_beyond_the_limit_keeps_the_blocks_of_what_is_known() -> None:
    rng = np.random.default_rng(3)
    regression = Regression(*design_prior(60), memory=0.99)
    for _ in range(20):
        regression.learn(np.concatenate([[1.0], rng.normal(size=180)]), int(rng.integers(2)))
    before, mean = regression.covariance.copy(), regression.mean.copy()
    regression.grow(*design_prior(70))
    assert regression.covariance.shape == (3, 211)
    assert regression.covariance[:, 0].tolist() == [before[0, 0], 0.0, 0.0]
    np.testing.assert_array_equal(regression.covariance[:, 61:64], before[61:64, 61:64])
    np.testing.assert_array_equal(regression.covariance[:, 208:], np.eye(3) * 10 / 210)
    np.testing.assert_array_equal(regression.mean[:181], mean)
    assert not regression.mean[181:].any()
    regression.grow(*design_prior(71))
    assert regression.covariance.shape == (3, 214)
    again = Regression.restore(*design_prior(71), 0.99, regression.snapshot())
    x = rng.normal(size=3 * 71 + 1)
    assert again.score(x) == regression.score(x)


def test_the_covariance_stays_positive_definite_over_many_labels() -> None:
    rng = np.random.default_rng(4)
    regression = Regression(*design_prior(4), memory=0.9999)
    for _ in range(50_000):
        x = np.concatenate([[1.0], np.clip(rng.normal(size=12) * 3, -5, 5)])
        regression.learn(x, int(x[1] > 0))
    assert np.linalg.eigvalsh(regression.covariance).min() > 0
    assert np.isfinite(regression.mean).all()


def test_the_design_interleaves_the_scales_in_single_precision() -> None:
    single = np.array([0.1, 0.2], dtype=np.float32)
    vectors = Vectors.of(np.array([1 / 3, -2.0]), np.zeros(2), single, 2 * single)
    expected = [1.0, np.float32(1 / 3), single[0], 2 * single[0], -2.0, single[1], 2 * single[1]]
    assert vectors.design.tolist() == [float(each) for each in expected]
    assert vectors.padded(3).design.tolist()[7:] == [0.0, 0.0, 0.0]
