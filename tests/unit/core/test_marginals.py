"""Windowed ranks and running moments: values to normal scores and standard scores."""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import ndtri

from dtgol_core.marginals import Marginals, RunningScales
from dtgol_core.types import FloatArray, SingleArray

ORDINAL, CONTINUOUS = np.array([0], dtype=np.uint8), np.array([1], dtype=np.uint8)


class Scores(NamedTuple):
    """Of one row."""

    latent: FloatArray
    original: FloatArray
    spread: FloatArray


def absorb(
    marginals: Marginals, row: list[float], kinds: npt.NDArray[np.uint8] = CONTINUOUS
) -> Scores:
    spaces = np.zeros((2, len(row)))
    spread = marginals.absorb(np.array(row), kinds, spaces)
    return Scores(spaces[0], spaces[1], spread)


def scored(values: list[float], kind: npt.NDArray[np.uint8], window: int = 10) -> Scores:
    """Let values into one column; the scores of the last of them."""
    marginals = Marginals(window)
    marginals.grow(1, [-1])
    return [absorb(marginals, [value], kind) for value in values][-1]


def test_continuous_value_is_the_normal_score_of_its_mid_rank() -> None:
    assert scored([1, 2, 3, 2], CONTINUOUS).latent[0] == pytest.approx(0.0)
    assert scored([1, 2, 2, 3], CONTINUOUS).latent[0] == pytest.approx(float(ndtri(4 / 5)))
    assert scored([5], CONTINUOUS).latent[0] == pytest.approx(0.0)


def test_constant_continuous_column_stays_at_the_centre() -> None:
    scores = scored([7.5] * 6, CONTINUOUS)
    assert scores.latent[0] == pytest.approx(0.0)
    assert scores.original[0] == 0.0


def test_ordinal_value_is_the_mean_of_its_interval() -> None:
    scores = scored([0, 1], ORDINAL)
    assert scores.latent[0] == pytest.approx(math.sqrt(2 / math.pi))
    assert scores.spread[0] == pytest.approx(1 - 2 / math.pi)
    assert scored([1, 0], ORDINAL).latent[0] == pytest.approx(-math.sqrt(2 / math.pi))


def test_constant_ordinal_column_has_the_whole_line_as_its_interval() -> None:
    scores = scored([3, 3, 3], ORDINAL)
    assert scores.latent[0] == pytest.approx(0.0)
    assert scores.spread[0] == pytest.approx(1.0)


def test_continuous_value_has_no_spread() -> None:
    assert scored([1, 2, 3], CONTINUOUS).spread[0] == 0.0


def test_missing_value_is_nan_in_latent_and_zero_elsewhere() -> None:
    scores = scored([1, 2, math.nan], CONTINUOUS)
    assert math.isnan(scores.latent[0])
    assert (scores.spread[0], scores.original[0]) == (0.0, 0.0)


def test_missing_rows_do_not_count_in_ranks() -> None:
    with_gaps = scored([1, math.nan, 2, math.nan, 3, 2], CONTINUOUS)
    without = scored([1, 2, 3, 2], CONTINUOUS)
    assert with_gaps.latent[0] == without.latent[0]
    assert with_gaps.original[0] == pytest.approx(without.original[0])


def test_rows_beyond_the_window_are_forgotten() -> None:
    assert scored([100, 200, 1, 2, 3], CONTINUOUS, window=3).latent[0] == pytest.approx(
        float(ndtri(3 / 4))
    )


def test_original_value_is_standardised_by_the_window() -> None:
    values = [1.0, 4.0, 2.0, 9.0]
    expected = (9.0 - np.mean(values)) / np.std(values)
    assert scored(values, ORDINAL).original[0] == pytest.approx(float(expected))


def test_original_value_is_clipped_at_five_deviations() -> None:
    assert scored([0.0] * 40 + [1.0], CONTINUOUS, window=50).original[0] == 5.0
    assert scored([0.0] * 40 + [-1.0], CONTINUOUS, window=50).original[0] == -5.0


@pytest.mark.parametrize("values", [[1e150, -1e150, 1e150], [5e-324, 0.0, 1e-200], [0.0, -0.0]])
def test_extreme_values_give_finite_scores(values: list[float]) -> None:
    for kind in (ORDINAL, CONTINUOUS):
        scores = scored(values, kind)
        assert math.isfinite(scores.latent[0])
        assert math.isfinite(scores.original[0])
        assert 0 <= scores.spread[0] <= 1


def test_new_level_was_zero_wherever_its_sibling_was_observed() -> None:
    marginals = Marginals(4)
    marginals.grow(1, [-1])
    for value in (1.0, math.nan, 1.0):
        absorb(marginals, [value])
    marginals.grow(2, [0, -1])
    absorb(marginals, [0.0, 1.0, 2.0], np.ones(3, dtype=np.uint8))
    np.testing.assert_array_equal(marginals.rows[1], [0.0, math.nan, 0.0, 1.0])
    np.testing.assert_array_equal(marginals.rows[2], [math.nan] * 3 + [2.0])


# --- running scales ------------------------------------------------------------------------------


def standardised(
    scales: RunningScales, row: list[float], latent: list[float] | None = None
) -> SingleArray:
    """Cumulative, fast and completed scores of a row; of whatever was in the array before."""
    scores = np.full((3, len(row)), 7.0, dtype=np.float32)
    scales.absorb(np.array(row), np.array(latent or [0.0] * len(row)), scores)
    return scores


def test_running_moments_are_those_of_all_values_and_of_the_newest() -> None:
    rng = np.random.default_rng(5)
    values = rng.normal(3.0, 2.0, size=500)
    scales = RunningScales()
    scales.grow(1)
    for value in values:
        cumulative, fast, _ = standardised(scales, [value])
    assert scales.means[0, 0] == pytest.approx(values.mean())
    assert scales.variances[0, 0] == pytest.approx(values.var())
    assert cumulative[0] == pytest.approx((values[-1] - values.mean()) / values.std(), rel=1e-6)
    mean = variance = 0.0
    for n, value in enumerate(values, start=1):
        gain = max(1 / n, 0.01)
        error = value - mean
        mean, variance = mean + gain * error, (1 - gain) * (variance + gain * error**2)
    assert (scales.means[1, 0], scales.variances[1, 0]) == (mean, variance)
    assert fast[0] == np.float32((values[-1] - mean) / math.sqrt(variance))


def test_missing_constant_and_far_values_have_scores_within_bounds() -> None:
    scales = RunningScales()
    scales.grow(3)
    for _ in range(10):
        scores = standardised(scales, [math.nan, 7.0, 1.0])
    assert scores.tolist() == [[0.0, 0.0, 0.0]] * 3
    scores = standardised(scales, [1e150, 7.0, -1e150])
    assert scores[:, 1].tolist() == [0.0] * 3
    assert scores[:, 2].tolist() == pytest.approx([-math.sqrt(10)] * 3, rel=1e-5)
    assert np.isfinite(scales.variances).all()


def test_a_missing_cell_is_completed_by_its_latent_score_among_the_newest_values() -> None:
    rng = np.random.default_rng(6)
    scales = RunningScales()
    scales.grow(2)
    for step in range(1000):
        standardised(scales, [rng.normal(step / 100, 1.0), math.nan])
    missing = [math.nan, math.nan]
    completed = standardised(scales, missing, [0.5, 0.5])[2]
    newest = scales.means[1, 0] + 0.5 * math.sqrt(scales.variances[1, 0])
    standard = (newest - scales.means[0, 0]) / math.sqrt(scales.variances[0, 0])
    assert completed[0] == pytest.approx(standard, rel=1e-6)
    assert completed[1] == 0.0, "nothing is known of the column"
    far = standardised(scales, missing, [99.0, 0.0])[2]
    assert far[0] == standardised(scales, missing, [3.0, 0.0])[2, 0]
    cumulative, _, completed = standardised(scales, [1.0, 2.0], [9.0, 9.0])
    assert completed.tolist() == cumulative.tolist(), "what was observed stays"


def test_scores_that_no_expert_uses_are_not_made() -> None:
    scales, scores = RunningScales(), np.zeros((2, 1), dtype=np.float32)
    scales.grow(1)
    for value in (1.0, 3.0):
        scales.absorb(np.array([value]), np.zeros(1), scores)
    assert scores.tolist() == [[1.0], [1.0]]
