"""Exponential and logarithm of our own: near the C library's, the same alone and in loops."""

import math

import numpy as np
from scipy.special import ndtri

from dtgol_core.compiled import compiled
from dtgol_core.elementary import LEAST, exp, log, normal_quantile, sigmoid
from dtgol_core.types import FloatArray


@compiled
def _all(x: FloatArray, out: FloatArray) -> None:
    for place in range(len(x)):
        out[place] = exp(x[place])


@compiled
def _all_logs(x: FloatArray, out: FloatArray) -> None:
    for place in range(len(x)):
        out[place] = log(x[place])


def test_the_exponential_is_within_two_units_of_the_last_place() -> None:
    rng = np.random.default_rng(7)
    x = -np.concatenate([rng.random(200_000), 700.0 * rng.random(200_000), np.logspace(-300, 0)])
    out = np.empty(len(x))
    _all(x, out)
    expected = np.exp(x)
    assert (np.abs(out - expected) <= 2.0 * np.spacing(expected)).all()


def test_a_number_alone_gives_the_bits_it_gives_in_a_loop() -> None:
    """Loops compute several at once; how many depends on the processor, and must not matter."""
    x = -30.0 * np.random.default_rng(8).random(1003)
    out = np.empty(len(x))
    _all(x, out)
    assert out.tolist() == [exp(value) for value in x.tolist()]
    _all_logs(-x, out)
    assert out.tolist() == [log(-value) for value in x.tolist()]


def test_the_logarithm_is_within_two_units_of_the_last_place() -> None:
    rng = np.random.default_rng(9)
    near_one = 1.0 + np.concatenate([[0.0], 10.0 ** rng.uniform(-16, 0, 100_000)])
    x = np.concatenate([rng.random(200_000), near_one, 1.0 / near_one, np.logspace(-307, 308)])
    out = np.empty(len(x))
    _all_logs(x, out)
    expected = np.log(x)
    assert (np.abs(out - expected) <= 2.0 * np.spacing(np.abs(expected))).all()


def test_the_ends() -> None:
    assert exp(0.0) == exp(-0.0) == 1.0
    assert exp(-math.inf) == exp(-1e9) == exp(LEAST) < 1e-307
    assert math.isnan(exp(math.nan))
    assert log(1.0) == 0.0


def test_the_sigmoid_is_symmetric_and_never_overflows() -> None:
    assert sigmoid(0.0) == 0.5
    assert sigmoid(800.0) == 1.0
    assert 0.0 <= sigmoid(-800.0) < 1e-300
    for logit in (0.1, 1.0, 7.5, 30.0):
        assert math.isclose(sigmoid(logit), 1.0 / (1.0 + math.exp(-logit)), rel_tol=1e-15)
        assert math.isclose(sigmoid(-logit), 1.0 - sigmoid(logit), abs_tol=1e-15)


def test_the_normal_quantile_is_that_of_scipy() -> None:
    shares = np.concatenate([np.linspace(0.0, 1.0, 20_001), np.logspace(-11, -1, 2_000)])
    shares = np.concatenate([shares, 1.0 - shares])
    found = [normal_quantile(share) for share in shares.tolist()]
    np.testing.assert_allclose(found, ndtri(shares), rtol=2e-15, atol=2e-16)
