"""Persistent and transient weights of one space, by hand."""

import math

import numpy as np
import pytest

from dtgol_core.config import TracksConfig
from dtgol_core.tracks import Tracks

VECTORS = np.array([[1.0, 2.0], [0.5, -1.0], [3.0, 0.0]])


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def tracks_of(weights: list[float], **settings: object) -> Tracks:
    tracks = Tracks(TracksConfig(**settings))  # type: ignore[arg-type]
    tracks.grow(len(weights) - 1)
    tracks.weights[:] = weights
    if tracks.rehearsed is not None:
        tracks.rehearsed[:] = weights
    return tracks


def test_score_is_the_logistic_of_bias_and_columns() -> None:
    tracks = tracks_of([0.5, 1.0, -2.0])
    assert tracks.score(np.array([1.0, 0.25])) == pytest.approx(sigmoid(1.0))


@pytest.mark.parametrize("logit", [-1e5, -800.0, 0.0, 800.0, 1e5])
def test_score_of_any_logit_is_a_probability(logit: float) -> None:
    assert tracks_of([logit, 0.0]).score(np.zeros(1)) == pytest.approx(float(logit > 0), abs=0.5)


def test_persistent_step_goes_down_the_gradient_of_the_loss() -> None:
    tracks = tracks_of([0.1, 0.2, -0.3], rate=0.5)
    vector = np.array([1.0, 2.0])
    residual = sigmoid(0.1 + 0.2 - 0.6) - 1
    tracks.learn(vector, 1, labels=1)
    assert tracks.weights.tolist() == pytest.approx(
        [0.1 - 0.5 * residual, 0.2 - 0.5 * residual, -0.3 - 0.5 * residual * 2]
    )


@pytest.mark.parametrize(("labels", "rate"), [(1, 2.0), (4, 1.0), (400, 0.25), (10**9, 0.25)])
def test_the_rate_falls_with_the_root_of_the_labels_down_to_its_floor(
    labels: int, rate: float
) -> None:
    tracks = tracks_of([0.0, 0.0], rate=2.0, rate_floor=0.25)
    tracks.learn(np.array([1.0]), 1, labels)
    assert tracks.weights.tolist() == pytest.approx([0.5 * rate, 0.5 * rate])


def test_a_floor_at_the_rate_is_a_constant_rate_to_the_bit() -> None:
    for labels in range(1, 2000):
        tracks = tracks_of([0.0, 0.0], rate=0.1, rate_floor=0.1)
        tracks.learn(np.array([1.0]), 1, labels)
        assert tracks.weights.tolist() == [0.05, 0.05]


def test_rehearsal_is_one_step_on_the_mean_over_the_verified_set() -> None:
    """The first slot is free, the third unverified: neither counts."""
    settings = {"rehearsal_rate": 0.5, "rehearsal_l2": 0.1}
    tracks = tracks_of([0.1, 0.2, 0.3], **settings)
    vectors = np.array([[9.0, 9.0], *VECTORS])
    label = np.array([1, 1, -1, 0], dtype=np.int8)
    tracks.rehearse(vectors, label, np.array([-1, 5, 6, 7]))
    residuals = [sigmoid(0.1 + 0.2 + 0.6) - 1, sigmoid(0.1 + 0.6)]
    gradient = [sum(residuals) / 2, (residuals[0] + 3 * residuals[1]) / 2, residuals[0]]
    assert tracks.anchor.tolist() == pytest.approx(
        [
            0.1 - 0.5 * gradient[0],
            0.2 - 0.5 * (gradient[1] + 0.1 * 0.2),
            0.3 - 0.5 * (gradient[2] + 0.1 * 0.3),
        ]
    )
    assert tracks.weights.tolist() == [0.1, 0.2, 0.3]


def test_rehearsal_of_nothing_changes_nothing() -> None:
    tracks = tracks_of([0.1, 0.2, 0.3])
    tracks.rehearse(VECTORS, np.array([-1, 1, -1], dtype=np.int8), np.array([1, -1, 2]))
    assert tracks.anchor.tolist() == [0.1, 0.2, 0.3]


def test_without_rehearsal_the_branch_leaves_from_the_persistent_weights() -> None:
    tracks = tracks_of([0.1, 0.2, 0.3], rehearsal_rate=0.0)
    tracks.rehearse(VECTORS, np.ones(3, dtype=np.int8), np.arange(3))
    assert tracks.anchor is tracks.weights
    assert tracks.weights.tolist() == [0.1, 0.2, 0.3]
    assert list(tracks.snapshot()) == ["weights"]


def test_one_track_rehearses_with_its_only_weights() -> None:
    tracks = Tracks(TracksConfig(), dual=False)
    tracks.grow(2)
    tracks.rehearse(VECTORS, np.ones(3, dtype=np.int8), np.arange(3))
    assert tracks.anchor is tracks.weights
    assert tracks.weights[0] == 0.5


def test_rehearsal_that_is_switched_on_starts_from_the_persistent_weights() -> None:
    before = tracks_of([0.1, 0.2], rehearsal_rate=0.0)
    after = Tracks.restore(TracksConfig(), before.snapshot())
    assert after.anchor.tolist() == [0.1, 0.2]
    assert after.anchor is not after.weights
    assert Tracks.restore(TracksConfig(rehearsal_rate=0.0), after.snapshot()).rehearsed is None


def test_penalty_shrinks_the_weights_but_not_the_bias() -> None:
    plain = tracks_of([2.0, 1.0, -1.0], rate=0.1)
    penalised = tracks_of([2.0, 1.0, -1.0], rate=0.1, l2=0.5)
    for tracks in (plain, penalised):
        tracks.learn(np.zeros(2), 1, labels=1)
    assert penalised.weights[0] == plain.weights[0]
    assert penalised.weights[1:].tolist() == pytest.approx([1.0 - 0.1 * 0.5, -1.0 + 0.1 * 0.5])


@pytest.mark.parametrize(("reduction", "share"), [("sum", 1.0), ("mean", 0.5)])
def test_branch_is_one_step_on_the_soft_labelled_window(reduction: str, share: float) -> None:
    tracks = tracks_of([0.1, 0.2, 0.3], transient_rate=0.4, transient_reduction=reduction)
    soft = np.array([0.9, 0.123, 0.2])
    branch = tracks.branch(VECTORS, np.array([0, 2]), soft)
    residuals = [sigmoid(0.1 + 0.2 + 0.6) - 0.9, sigmoid(0.1 + 0.6) - 0.2]
    gradient = [sum(residuals), residuals[0] + 3 * residuals[1], 2 * residuals[0]]
    expected = [w - 0.4 * share * g for w, g in zip([0.1, 0.2, 0.3], gradient, strict=True)]
    assert branch.tolist() == pytest.approx(expected)
    assert tracks.weights.tolist() == [0.1, 0.2, 0.3], "only true labels touch the persistent track"


def test_branch_of_an_empty_window_is_its_anchor() -> None:
    for reduction in ("sum", "mean"):
        tracks = tracks_of([0.1, 0.2, 0.3], transient_reduction=reduction)
        branch = tracks.branch(VECTORS, np.zeros(0, dtype=np.int64), np.zeros(3))
        assert branch.tolist() == [0.1, 0.2, 0.3]
        assert branch is not tracks.anchor


def test_branch_is_scored_in_place_of_the_persistent_track() -> None:
    tracks = tracks_of([0.0, 0.0])
    persistent, transient = tracks.answer(np.ones(1), np.array([1.0, 1.0]))
    assert transient == pytest.approx(sigmoid(2.0))
    assert persistent == tracks.score(np.ones(1)) == 0.5


def test_new_columns_weigh_nothing() -> None:
    tracks = tracks_of([0.1, 0.2])
    tracks.grow(2)
    assert tracks.weights.tolist() == [0.1, 0.2, 0.0, 0.0]
