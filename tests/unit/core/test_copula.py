"""The online copula: imputation, correlation, and what it does when it must not fail."""

import math
from itertools import pairwise

import numpy as np
import pytest

from dtgol_core.config import Config, CopulaConfig
from dtgol_core.copula import Copula
from dtgol_core.learner import Learner
from dtgol_core.types import FloatArray, Forecast
from tests.support.views import vectors_of

NAN = math.nan


def copula_of(correlation: list[list[float]], **settings: float) -> Copula:
    copula = Copula(CopulaConfig(**{"window": 100, "ridge": 1e-3, **settings}))  # type: ignore[arg-type]
    copula.grow(len(correlation))
    copula.correlation[:] = correlation
    return copula


def latent(copula: Copula, scores: list[float], step: int = 10) -> FloatArray:
    completed = np.array(scores)
    copula.absorb(completed, np.zeros(len(scores)), step)
    return completed


def test_missing_value_is_imputed_from_what_it_is_correlated_with() -> None:
    related = latent(copula_of([[1, 0.6], [0.6, 1]]), [2.0, NAN])
    unrelated = latent(copula_of([[1, 0], [0, 1]]), [2.0, NAN])
    assert related.tolist() == pytest.approx([2.0, 2.0 * 0.6 * 0.999])
    assert unrelated.tolist() == [2.0, 0.0]


def test_correlation_changes_an_imputed_value_of_the_learner() -> None:
    """Two features that always agree: seeing one tells the other, but not with Σ left out."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=60).tolist()
    imputed = {}
    for part in ("none", "marginals"):
        ablate = {} if part == "none" else {part: True}
        learner = Learner(Config.read({"ablate": ablate}))
        for i, value in enumerate(values):
            learner.observe(f"{i}", {"a": value, "b": value + 0.01})
        learner.observe("half", {"a": max(values) + 1})
        imputed[part] = vectors_of(learner, learner.step).latent.tolist()
    assert imputed["none"][0] == imputed["marginals"][0] > 1.5
    assert imputed["marginals"][1] == 0.0
    assert imputed["none"][1] > 0.5 * imputed["none"][0]


def test_nothing_observed_gives_the_origin_and_teaches_nothing() -> None:
    copula = copula_of([[1, 0.6], [0.6, 1]])
    before = copula.correlation.copy()
    assert latent(copula, [NAN, NAN]).tolist() == [0.0, 0.0]
    np.testing.assert_array_equal(copula.correlation, before)


def test_record_moves_the_correlation_by_gamma() -> None:
    """Nothing missing, no spread: Σ ← corr((1−γ)Σ + γ zzᵀ)."""
    copula = copula_of([[1, 0], [0, 1]], gamma_floor=0.25)
    latent(copula, [1.0, 2.0], step=100)
    a, b, c = 0.75 + 0.25 * 1, 0.75 + 0.25 * 4, 0.25 * 2
    assert copula.correlation[0, 1] == pytest.approx(c / math.sqrt(a * b))
    assert copula.correlation.diagonal().tolist() == [1.0, 1.0]


def test_early_records_weigh_more_than_the_floor() -> None:
    moved = []
    for step in (1, 10, 1000, 100_000):
        copula = copula_of([[1, 0], [0, 1]], gamma_floor=0.001)
        latent(copula, [1.0, 1.0], step=step)
        moved.append(copula.correlation[0, 1])
    assert moved[0] == pytest.approx(0.5)
    assert moved[0] > moved[1] > moved[2] == pytest.approx(0.001)
    assert moved[3] == moved[2]


def test_gamma_floor_is_one_over_the_window_unless_set() -> None:
    auto, told = copula_of([[1, 0], [0, 1]]), copula_of([[1, 0], [0, 1]], gamma_floor=0.01)
    for copula in (auto, told):
        latent(copula, [1.0, 1.0], step=10**6)
    assert auto.correlation[0, 1] == told.correlation[0, 1] == pytest.approx(0.01)


def test_spread_of_an_ordinal_value_weakens_what_is_learnt_from_it() -> None:
    """C_oo = diag(v): the variance left goes onto the diagonal, so correlations shrink."""
    sharp, blurred = copula_of([[1, 0], [0, 1]]), copula_of([[1, 0], [0, 1]])
    scores = np.array([1.0, 1.0])
    sharp.absorb(scores, np.zeros(2), step=1)
    blurred.absorb(scores, np.full(2, 0.5), step=1)
    assert sharp.correlation[0, 1] == pytest.approx(0.5 / 1.0)
    assert blurred.correlation[0, 1] == pytest.approx(0.5 / 1.25)


def test_spread_reaches_missing_columns_through_the_regression() -> None:
    """By hand: C_mo = Jᵀv, C_mm = S_mm − JᵀS_om + JᵀvJ with J = 0.6, v = 0.5, γ = ½."""
    copula = copula_of([[1, 0.6], [0.6, 1]], ridge=1e-9)
    completed = np.array([2.0, NAN])
    copula.absorb(completed, np.array([0.5, 0.0]), step=1)
    assert completed.tolist() == pytest.approx([2.0, 1.2])
    moved = 0.5 * np.array([[1, 0.6], [0.6, 1]]) + 0.5 * np.array([[4.5, 2.7], [2.7, 2.26]])
    expected = moved[0, 1] / math.sqrt(moved[0, 0] * moved[1, 1])
    assert copula.correlation[0, 1] == pytest.approx(expected)


def test_new_columns_are_correlated_with_nothing() -> None:
    copula = copula_of([[1, 0.6], [0.6, 1]])
    copula.grow(1)
    np.testing.assert_array_equal(copula.correlation, [[1, 0.6, 0], [0.6, 1, 0], [0, 0, 1]])


def test_singular_correlation_raises_the_ridge_and_survives() -> None:
    """Columns 0 and 1 are one and the same, and rounding has made Σ indefinite."""
    over = 1.0 + 5e-7
    matrix = [[1, over, 0.5], [over, 1, 0.5 + 1e-7], [0.5, 0.5 + 1e-7, 1]]
    assert np.linalg.eigvalsh(np.array(matrix)).min() < -1e-9
    copula = copula_of(matrix, ridge=1e-9)
    completed = latent(copula, [1.0, -1.0, NAN])
    assert np.isfinite(completed).all()
    assert np.isfinite(copula.correlation).all()
    # Σ_oo is definite again from a ridge of 5e-7 on: 1e-9, 1e-8 and 1e-7 fail, 1e-6 holds.
    held = 0.999999 * np.array([[1, over], [over, 1]]) + 1e-6 * np.eye(2)
    regression = np.linalg.solve(held, 0.999999 * np.array([0.5, 0.5 + 1e-7]))
    assert completed[2] == pytest.approx(float(regression[0] - regression[1]), rel=1e-3)
    assert completed[2] == pytest.approx(-1e-7 / (1e-6 - 5e-7), rel=1e-3)


def test_ridge_is_raised_for_one_record_only() -> None:
    """After the bad record the configured ridge is back."""
    copula = copula_of([[1, 2, 0], [2, 1, 0], [0, 0, 1]], ridge=1e-3)
    latent(copula, [1.0, 1.0, NAN])
    copula.correlation[:] = np.array([[1, 0, 0.6], [0, 1, 0], [0.6, 0, 1]])
    assert latent(copula, [1.0, 0.0, NAN])[2] == pytest.approx(0.6 * 0.999)


def test_worst_matrix_ends_at_full_ridge() -> None:
    copula = copula_of([[1, 50.0, 1], [50.0, 1, 1], [1, 1, 1]], ridge=1e-9)
    completed = latent(copula, [1.0, 1.0, NAN])
    assert np.isfinite(completed).all()
    assert np.isfinite(copula.correlation).all()


def test_duplicated_columns_and_a_tiny_ridge_stay_finite_in_the_learner() -> None:
    config = Config.read({"copula": {"window": 30, "ridge": 1e-9, "gamma_floor": 0.5}})
    learner = Learner(config)
    rng = np.random.default_rng(5)
    for i, value in enumerate(rng.normal(size=400).tolist()):
        record = {"a": value, "b": value, "c": value, "d": 2 * value}
        if i % 3:
            del record["abcd"[i % 4]]
        forecast = learner.observe(f"{i}", record)
        assert isinstance(forecast, Forecast)
        assert np.isfinite(learner.copula.correlation).all()
        learner.learn(f"{i}", int(value > 0))
        assert 0 <= forecast.p <= 1
    assert learner.copula.correlation[0, 1] > 0.9


def test_correlation_follows_a_change() -> None:
    """The floor lets Σ forget: a correlation that turns round is followed."""
    copula = copula_of([[1, 0], [0, 1]], gamma_floor=0.05)
    rng = np.random.default_rng(1)
    seen = []
    for sign in (1, -1, 1):
        for step in range(200):
            z = float(rng.normal())
            latent(copula, [z, sign * z], step=1000 + step)
        seen.append(copula.correlation[0, 1])
    assert all(a * b < -0.8 for a, b in pairwise(seen))
