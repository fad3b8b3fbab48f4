"""Windowed ranks: values to normal scores and standard scores."""

import math

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import ndtri

from dtgol_core.marginals import Marginals, Scores

ORDINAL, CONTINUOUS = np.array([0], dtype=np.uint8), np.array([1], dtype=np.uint8)


def scored(
    values: list[float], kind: npt.NDArray[np.uint8], window: int = 10, last: float | None = None
) -> Scores:
    """Let values into one column and score the last of them."""
    marginals = Marginals(window)
    marginals.grow(1, [-1])
    for value in values:
        marginals.absorb(np.array([value]))
    return marginals.score(np.array([values[-1] if last is None else last]), kind)


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
    assert scored([0, 1], ORDINAL, last=0).latent[0] == pytest.approx(-math.sqrt(2 / math.pi))


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
        marginals.absorb(np.array([value]))
    marginals.grow(2, [0, -1])
    marginals.absorb(np.array([0.0, 1.0, 2.0]))
    np.testing.assert_array_equal(marginals.rows[1], [0.0, math.nan, 0.0, 1.0])
    np.testing.assert_array_equal(marginals.rows[2], [math.nan] * 3 + [2.0])
