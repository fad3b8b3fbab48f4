"""Persistent, rehearsed and transient weights of one space, by hand."""

import math

import numpy as np
import pytest

from dtgol_core.config import TracksConfig
from dtgol_core.state import SnapshotError
from dtgol_core.tracks import DualTrack, PersistentTrack

VECTORS = np.array([[1.0, 2.0], [0.5, -1.0], [3.0, 0.0]])


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def track_of(weights: list[float], **settings: object) -> DualTrack:
    track = DualTrack(TracksConfig(**settings))  # type: ignore[arg-type]
    track.grow(len(weights) - 1)
    track.weights[:] = weights
    if track.rehearsed is not None:
        track.rehearsed[:] = weights
    return track


def test_score_is_the_logistic_of_bias_and_columns() -> None:
    track = track_of([0.5, 1.0, -2.0])
    assert track.score(np.array([1.0, 0.25])) == pytest.approx(sigmoid(1.0))


@pytest.mark.parametrize("logit", [-1e5, -800.0, 0.0, 800.0, 1e5])
def test_score_of_any_logit_is_a_probability(logit: float) -> None:
    assert track_of([logit, 0.0]).score(np.zeros(1)) == pytest.approx(float(logit > 0), abs=0.5)


def test_persistent_step_goes_down_the_gradient_of_the_loss() -> None:
    track = track_of([0.1, 0.2, -0.3], rate=0.5)
    vector = np.array([1.0, 2.0])
    residual = sigmoid(0.1 + 0.2 - 0.6) - 1
    track.learn(vector, 1, labels=1)
    assert track.weights.tolist() == pytest.approx(
        [0.1 - 0.5 * residual, 0.2 - 0.5 * residual, -0.3 - 0.5 * residual * 2]
    )


@pytest.mark.parametrize(("labels", "rate"), [(1, 2.0), (4, 1.0), (400, 0.25), (10**9, 0.25)])
def test_the_rate_falls_with_the_root_of_the_labels_down_to_its_floor(
    labels: int, rate: float
) -> None:
    track = track_of([0.0, 0.0], rate=2.0, rate_floor=0.25)
    track.learn(np.array([1.0]), 1, labels)
    assert track.weights.tolist() == pytest.approx([0.5 * rate, 0.5 * rate])


def test_a_floor_at_the_rate_is_a_constant_rate_to_the_bit() -> None:
    for labels in range(1, 2000):
        track = track_of([0.0, 0.0], rate=0.1, rate_floor=0.1)
        track.learn(np.array([1.0]), 1, labels)
        assert track.weights.tolist() == [0.05, 0.05]


def test_rehearsal_is_one_step_on_the_mean_over_the_verified_set() -> None:
    """The first slot is free, the third unverified: neither is among the slots given."""
    settings = {"rehearsal_rate": 0.5, "rehearsal_l2": 0.1}
    track = track_of([0.1, 0.2, 0.3], **settings)
    vectors = np.array([[9.0, 9.0], *VECTORS])
    label = np.array([1, 1, -1, 0], dtype=np.int8)
    track.rehearse(vectors, label, np.array([1, 3]))
    residuals = [sigmoid(0.1 + 0.2 + 0.6) - 1, sigmoid(0.1 + 0.6)]
    gradient = [sum(residuals) / 2, (residuals[0] + 3 * residuals[1]) / 2, residuals[0]]
    assert track.anchor.tolist() == pytest.approx(
        [
            0.1 - 0.5 * gradient[0],
            0.2 - 0.5 * (gradient[1] + 0.1 * 0.2),
            0.3 - 0.5 * (gradient[2] + 0.1 * 0.3),
        ]
    )
    assert track.weights.tolist() == [0.1, 0.2, 0.3]


def test_rehearsal_of_nothing_changes_nothing() -> None:
    track = track_of([0.1, 0.2, 0.3])
    track.rehearse(VECTORS, np.array([-1, 1, -1], dtype=np.int8), np.zeros(0, dtype=np.int64))
    assert track.anchor.tolist() == [0.1, 0.2, 0.3]


def test_without_rehearsal_the_branch_leaves_from_the_persistent_weights() -> None:
    track = track_of([0.1, 0.2, 0.3], rehearsal_rate=0.0)
    track.rehearse(VECTORS, np.ones(3, dtype=np.int8), np.arange(3))
    assert np.shares_memory(track.anchor, track.weights)
    assert track.weights.tolist() == [0.1, 0.2, 0.3]
    assert "rehearsed" not in track.snapshot()


def test_without_dual_track_the_only_weights_take_every_step() -> None:
    track = DualTrack(TracksConfig(), dual=False)
    track.grow(2)
    track.rehearse(VECTORS, np.ones(3, dtype=np.int8), np.arange(3))
    assert np.shares_memory(track.anchor, track.weights)
    assert track.weights[0] == 0.5
    track.branch(VECTORS, np.array([0]), np.array([0.1, 0.0, 0.0]))
    assert track.weights.tolist() == track.transient.tolist()
    assert track.weights[0] < 0.5
    track.learn(VECTORS[0], 1, labels=1)
    assert track.weights.tolist() != track.transient.tolist()


def test_rehearsal_that_is_switched_on_starts_from_the_persistent_weights() -> None:
    before = track_of([0.1, 0.2], rehearsal_rate=0.0)
    after = DualTrack.restore(TracksConfig(), before.snapshot(), 1)
    assert after.anchor.tolist() == [0.1, 0.2]
    assert not np.shares_memory(after.anchor, after.weights)
    without = TracksConfig(rehearsal_rate=0.0)
    assert DualTrack.restore(without, after.snapshot(), 1).rehearsed is None


def test_penalty_shrinks_the_weights_but_not_the_bias() -> None:
    plain = track_of([2.0, 1.0, -1.0], rate=0.1)
    penalised = track_of([2.0, 1.0, -1.0], rate=0.1, l2=0.5)
    for track in (plain, penalised):
        track.learn(np.zeros(2), 1, labels=1)
    assert penalised.weights[0] == plain.weights[0]
    assert penalised.weights[1:].tolist() == pytest.approx([1.0 - 0.1 * 0.5, -1.0 + 0.1 * 0.5])


@pytest.mark.parametrize(("reduction", "share"), [("sum", 1.0), ("mean", 0.5)])
def test_branch_is_one_step_on_the_soft_labelled_window(reduction: str, share: float) -> None:
    track = track_of([0.1, 0.2, 0.3], transient_rate=0.4, transient_reduction=reduction)
    soft = np.array([0.9, 0.123, 0.2])
    track.branch(VECTORS, np.array([0, 2]), soft)
    residuals = [sigmoid(0.1 + 0.2 + 0.6) - 0.9, sigmoid(0.1 + 0.6) - 0.2]
    gradient = [sum(residuals), residuals[0] + 3 * residuals[1], 2 * residuals[0]]
    expected = [w - 0.4 * share * g for w, g in zip([0.1, 0.2, 0.3], gradient, strict=True)]
    assert track.transient.tolist() == pytest.approx(expected)
    assert track.weights.tolist() == [0.1, 0.2, 0.3], "only true labels touch the persistent track"


def test_branch_of_an_empty_window_is_its_anchor() -> None:
    for reduction in ("sum", "mean"):
        track = track_of([0.1, 0.2, 0.3], transient_reduction=reduction)
        track.branch(VECTORS, np.zeros(0, dtype=np.int64), np.zeros(3))
        assert track.transient.tolist() == [0.1, 0.2, 0.3]
        assert not np.shares_memory(track.transient, track.anchor)


def test_without_soft_labels_the_branch_is_a_copy_of_its_anchor() -> None:
    track = track_of([0.1, 0.2, 0.3])
    track.restart()
    track.rehearse(VECTORS, np.ones(3, dtype=np.int8), np.arange(3))
    assert track.transient.tolist() == [0.1, 0.2, 0.3], "what is learnt later does not reach it"


def test_branch_is_scored_in_place_of_the_persistent_track() -> None:
    track = track_of([0.0, 0.0])
    track.transient[:] = 1.0
    persistent, transient = track.answer(np.ones(1))
    assert transient == pytest.approx(sigmoid(2.0))
    assert persistent == track.score(np.ones(1)) == 0.5


def test_new_columns_weigh_nothing() -> None:
    track = track_of([0.1, 0.2])
    track.grow(2)
    assert track.weights.tolist() == track.anchor.tolist() == [0.1, 0.2, 0.0, 0.0]


@pytest.mark.parametrize("name", ["weights", "transient", "rehearsed"])
def test_weights_of_another_width_are_refused(name: str) -> None:
    snapshot = track_of([0.1, 0.2, 0.3]).snapshot()
    for width in (2, 4):
        with pytest.raises(SnapshotError, match="does not fit together"):
            DualTrack.restore(TracksConfig(), {**snapshot, name: np.zeros(width)}, 2)
    with pytest.raises(SnapshotError, match="does not fit together"):
        PersistentTrack.restore(TracksConfig(), snapshot, 3)
