"""Risks and the weight of the latent space."""

import math

import numpy as np
import pytest

from dtgol_core.config import EnsembleConfig
from dtgol_core.ensemble import Ensemble


def test_weight_is_a_half_before_the_first_label() -> None:
    assert Ensemble(EnsembleConfig()).latent_weight() == 0.5
    assert Ensemble(EnsembleConfig(horizon=10)).latent_weight() == 0.5


def test_without_risks_only_the_latent_space_answers() -> None:
    ensemble = Ensemble(EnsembleConfig(), latent_only=True)
    assert ensemble.latent_weight() == 1.0
    ensemble.reweigh(latent=0.1, original=0.9, label=1)
    assert ensemble.latent_weight() == 1.0


def test_risk_is_the_sum_of_the_losses_on_arrival() -> None:
    ensemble = Ensemble(EnsembleConfig())
    ensemble.reweigh(latent=0.8, original=0.3, label=1)
    ensemble.reweigh(latent=0.8, original=0.3, label=0)
    assert ensemble.latent_risk == pytest.approx(-math.log(0.8) - math.log(0.2))
    assert ensemble.original_risk == pytest.approx(-math.log(0.3) - math.log(0.7))
    assert ensemble.labels_learnt == 2


@pytest.mark.parametrize("horizon", [None, 50])
def test_weight_is_the_softmax_of_the_risks_at_the_rate_of_the_horizon(
    horizon: int | None,
) -> None:
    ensemble = Ensemble(EnsembleConfig(horizon=horizon))
    for _ in range(5):
        ensemble.reweigh(latent=0.9, original=0.6, label=1)
    rate = math.sqrt(2 * math.log(2) / (horizon or 5))
    latent, original = math.exp(-rate * -5 * math.log(0.9)), math.exp(-rate * -5 * math.log(0.6))
    assert ensemble.latent_weight() == pytest.approx(latent / (latent + original))
    assert ensemble.latent_weight() > 0.5


def test_loss_of_certainty_is_clipped() -> None:
    ensemble = Ensemble(EnsembleConfig())
    ensemble.reweigh(latent=0.0, original=1.0, label=1)
    assert ensemble.latent_risk == pytest.approx(-math.log(1e-12))
    assert 0 < ensemble.original_risk < 1e-11


def test_weight_stays_a_share_whatever_the_risks() -> None:
    ensemble = Ensemble(EnsembleConfig(horizon=1))
    for _ in range(5000):
        ensemble.reweigh(latent=0.0, original=1.0, label=1)
    assert 0.0 <= ensemble.latent_weight() < 1e-200
    mirrored = Ensemble(EnsembleConfig(horizon=1))
    for _ in range(5000):
        mirrored.reweigh(latent=1.0, original=0.0, label=1)
    assert mirrored.latent_weight() == 1.0


@pytest.mark.parametrize("beta", [0.0, 0.25, 1.0])
def test_beta_is_the_share_of_the_persistent_track(beta: float) -> None:
    ensemble = Ensemble(EnsembleConfig(beta=beta))
    assert ensemble.blend(1.0, 0.0) == beta
    assert ensemble.blend(np.array([1.0, 0.0]), np.array([0.0, 1.0])).tolist() == [beta, 1 - beta]
