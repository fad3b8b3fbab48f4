"""Label mass on small trees, worked out by hand."""

import math

import numpy as np
import pytest

from dtgol_core.config import SoftLabelsConfig
from dtgol_core.softlabels import SoftLabels
from dtgol_core.types import FloatArray

STILL = {"rate": 0.0, "frontier_steps": 0, "refine_steps": 0}
"""The classifier does not learn, so its answers are those of the weights given."""


def entropy(p: float) -> float:
    p = min(max(p, 1e-12), 1 - 1e-12)
    return -(p * math.log(p) + (1 - p) * math.log(1 - p))


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def fused(views: list[float], temperature: float = 5.0) -> float:
    weights = [math.exp(-entropy(view) * temperature) for view in views]
    return sum(w * v for w, v in zip(weights, views, strict=True)) / sum(weights)


def spread(
    stage: SoftLabels,
    parents: list[int],
    labels: list[int],
    latent: list[float],
    weights: tuple[float, float] = (0.0, 1.0),
) -> FloatArray:
    """One column; nodes are given so that parents stand before their children."""
    return stage.spread(
        np.arange(len(parents)),
        np.array(parents, dtype=np.int64),
        np.array(latent, dtype=np.float64)[:, None],
        np.array(labels, dtype=np.int8),
        np.array(weights),
    )


def test_verified_nodes_carry_their_true_label() -> None:
    soft = spread(SoftLabels(SoftLabelsConfig()), [-1, 0, 0], [1, 0, -1], [0.1, 0.2, 0.3])
    assert soft[:2].tolist() == [1.0, 0.0]


def test_without_refinement_the_final_label_is_what_the_classifier_says() -> None:
    stage = SoftLabels(SoftLabelsConfig(**STILL))  # type: ignore[arg-type]
    soft = spread(stage, [-1, 0], [1, -1], [0.5, 2.0])
    assert soft[1] == pytest.approx(sigmoid(2.0))


def one_step(
    latent: list[float], targets: list[float], weights: tuple[float, float], rate: float
) -> tuple[float, float]:
    """A gradient step on the mean soft cross entropy of the rows."""
    residuals = [
        sigmoid(weights[0] + weights[1] * z) - y for z, y in zip(latent, targets, strict=True)
    ]
    n = len(latent)
    bias = weights[0] - rate * sum(residuals) / n
    slope = weights[1] - rate * sum(r * z for r, z in zip(residuals, latent, strict=True)) / n
    return bias, slope


def test_ascending_hears_the_mean_of_the_active_children_only() -> None:
    """Node 0 has children 1 (verified 1), 2 (verified 0), 3 (unverified): v_T is ½, not ⅓ or ⅔.

    Then 3 comes down from 0. With f at rest and one refinement over all four, by hand.
    """
    config = SoftLabelsConfig(rate=0.5, frontier_steps=0, refine_steps=1, temperature=5.0)
    latent = [0.4, 1.0, -1.0, -0.6]
    soft = spread(SoftLabels(config), [-1, 0, 0, 0], [-1, 1, 0, -1], latent)
    top = fused([sigmoid(0.4), 0.8, 0.5])
    below = fused([sigmoid(-0.6), 1 - 0.8, top])
    bias, slope = one_step(latent, [top, 1.0, 0.0, below], (0.0, 1.0), 0.5)
    assert soft.tolist() == pytest.approx(
        [sigmoid(bias + slope * 0.4), 1.0, 0.0, sigmoid(bias + slope * -0.6)]
    )


def test_frontier_is_fused_with_one_classifier_and_then_learnt() -> None:
    """A chain 0 ← 1 ← 2 with 2 verified: 1 first, f learns it, then 0 with the new f."""
    config = SoftLabelsConfig(rate=0.5, frontier_steps=1, refine_steps=0)
    latent = [0.7, -0.3, 0.2]
    soft = spread(SoftLabels(config), [-1, 0, 1], [-1, -1, 1], latent)
    f = (0.0, 1.0)
    first = fused([sigmoid(-0.3), 1 - 0.8, 1.0])
    f = one_step([-0.3], [first], f, 0.5)
    probability = sigmoid(f[0] + f[1] * 0.7)
    second = fused([probability, 0.8, first])
    f = one_step([0.7], [second], f, 0.5)
    assert soft[:2].tolist() == pytest.approx([sigmoid(f[0] + f[1] * z) for z in latent[:2]])


def test_two_members_of_a_frontier_share_the_classifier() -> None:
    """Descending from a verified root to two children: neither sees what the other taught."""
    config = SoftLabelsConfig(rate=2.0, frontier_steps=1, refine_steps=0)
    latent = [0.0, 1.0, -1.0]
    soft = spread(SoftLabels(config), [-1, 0, 0], [1, -1, -1], latent)
    targets = [fused([sigmoid(1.0), 0.8, 1.0]), fused([sigmoid(-1.0), 1 - 0.8, 1.0])]
    bias, slope = one_step([1.0, -1.0], targets, (0.0, 1.0), 2.0)
    assert soft[1:].tolist() == pytest.approx([sigmoid(bias + slope), sigmoid(bias - slope)])


def test_classifier_starts_from_the_weights_and_leaves_them_alone() -> None:
    weights = np.array([0.3, -0.4])
    stage = SoftLabels(SoftLabelsConfig(rate=1.0, frontier_steps=3, refine_steps=3))
    stage.spread(
        np.arange(3),
        np.array([-1, 0, 0], dtype=np.int64),
        np.array([[0.0], [1.0], [2.0]]),
        np.array([1, -1, -1], dtype=np.int8),
        weights,
    )
    assert weights.tolist() == [0.3, -0.4]
    assert stage.prototypes.tolist() == pytest.approx([0.2, 0.8])


def test_certain_views_weigh_more() -> None:
    """Temperature 0 is the plain mean; a high one takes the most certain view."""
    for temperature in (0.0, 100.0):
        config = SoftLabelsConfig(
            temperature=temperature, rate=1.0, frontier_steps=0, refine_steps=1
        )
        soft = spread(SoftLabels(config), [-1, 0], [1, -1], [0.0, 0.1])
        target = fused([sigmoid(0.1), 0.8, 1.0], temperature)
        bias, slope = one_step([0.0, 0.1], [1.0, target], (0.0, 1.0), 1.0)
        assert soft[1] == pytest.approx(sigmoid(bias + 0.1 * slope))
        assert target == pytest.approx((sigmoid(0.1) + 1.8) / 3 if temperature == 0 else 1.0)


def test_prototype_moves_only_when_the_label_was_on_the_right_side() -> None:
    stage = SoftLabels(SoftLabelsConfig(prototype_start=0.8, prototype_rate=0.1))
    stage.seed(0.9, 1)
    assert stage.prototypes.tolist() == pytest.approx([0.2, 0.81])
    stage.seed(0.9, 0)
    stage.seed(0.4, 1)
    stage.seed(0.5, 1)  # ½ is on the side of 0
    assert stage.prototypes.tolist() == pytest.approx([0.2, 0.81])
    stage.seed(0.5, 0)
    assert stage.prototypes.tolist() == pytest.approx([0.23, 0.81])


def test_every_node_is_reached_from_one_verified_leaf() -> None:
    """A verified leaf at the end of one arm; labels climb to the root and come down the other."""
    config = SoftLabelsConfig(rate=0.1)
    soft = spread(SoftLabels(config), [-1, 0, 0, 1, 2, 4], [-1, -1, -1, 1, -1, -1], [0.0] * 6)
    assert np.isfinite(soft).all()
    assert ((soft > 0.5) | (soft == 1)).all()
