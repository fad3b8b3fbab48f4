"""Generated streams: their distributions before and after a change, noise, and random delays."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy.optimize import linprog

from dtgol_core.streams import (
    AGRAWAL_COLUMNS,
    CLOUD_DISTANCE,
    MOVING,
    MOVING_ANGLES,
    PERIOD_ROWS,
    RBF_CENTRES,
    RBF_SPREAD,
    SEA_THRESHOLDS,
    STREAMS,
    Change,
    Stream,
    agrawal_label,
    crossing,
    generate,
    generate_moving,
    label_delays,
    rotating,
    schedule,
    walking,
)

ROWS = 8000
ABRUPT = Change("abrupt", at=ROWS // 2)


def make(name: str, change: Change | None = None, noise: float = 0.0, seed: int = 1) -> Stream:
    return generate(name, ROWS, np.random.default_rng(seed), change, noise)


def linear_accuracy(features: np.ndarray, labels: np.ndarray, on: slice, test: slice) -> float:
    """Accuracy of a least-squares plane, fitted on one part and used on another."""
    centre, scale = features[on].mean(axis=0), features[on].std(axis=0)
    rows = np.column_stack([np.ones(len(features)), (features - centre) / scale])
    weights = np.linalg.lstsq(rows[on], 2.0 * labels[on] - 1.0, rcond=None)[0]
    return float(np.mean((rows[test] @ weights > 0.0) == labels[test]))


@pytest.mark.parametrize("name", STREAMS)
def test_same_generator_state_same_stream(name: str) -> None:
    once, again = make(name, ABRUPT, noise=0.1), make(name, ABRUPT, noise=0.1)
    other = make(name, ABRUPT, noise=0.1, seed=2)
    assert np.array_equal(once.features, again.features)
    assert np.array_equal(once.labels, again.labels)
    assert not np.array_equal(once.features, other.features)


@pytest.mark.parametrize("name", STREAMS)
def test_shapes_and_labels(name: str) -> None:
    stream = make(name, ABRUPT)
    assert stream.features.shape == (ROWS, len(stream.names))
    assert set(stream.labels.tolist()) == {0, 1}
    assert 0.2 < stream.labels.mean() < 0.8
    assert np.isfinite(stream.features).all()


@pytest.mark.parametrize("name", ["hyperplane", "moving", "rbf", "sea"])
def test_a_plane_learnt_before_an_abrupt_change_fails_after_it(name: str) -> None:
    stream = make(name, ABRUPT)
    before, after = slice(0, ROWS // 2), slice(ROWS // 2, ROWS)
    stale = linear_accuracy(stream.features, stream.labels, before, after)
    fresh = linear_accuracy(stream.features, stream.labels, after, after)
    assert linear_accuracy(stream.features, stream.labels, before, before) > 0.8
    assert stale < fresh - 0.1


@pytest.mark.parametrize("name", STREAMS)
def test_covariate_change_moves_rows_and_keeps_the_rule(name: str) -> None:
    stream = make(name, Change("covariates", at=ROWS // 2))
    assert not stream.concepts.any()
    before, after = stream.features[: ROWS // 2], stream.features[ROWS // 2 :]
    shift = np.abs(before.mean(axis=0) - after.mean(axis=0)) / before.std(axis=0)
    widening = after.std(axis=0) / before.std(axis=0)
    assert shift.max() > 0.1 or np.abs(np.log(widening)).max() > 0.5
    if name == "sea":
        rule = stream.features[:, 0] + stream.features[:, 1] > SEA_THRESHOLDS[0]
        assert np.array_equal(rule, stream.labels == 1)
    elif name == "agrawal":
        assert np.array_equal(agrawal_label(7, stream.features), stream.labels)
    elif name == "moving":
        old = slice(0, ROWS // 2), slice(ROWS // 2, ROWS)
        assert linear_accuracy(stream.features, stream.labels, *old) > 0.9


@pytest.mark.parametrize("name", ["agrawal", "hyperplane", "sea"])
def test_concept_change_alone_leaves_the_rows_where_they_are(name: str) -> None:
    stream = make(name, ABRUPT)
    before, after = stream.features[: ROWS // 2], stream.features[ROWS // 2 :]
    assert (np.abs(before.mean(axis=0) - after.mean(axis=0)) < 0.1 * before.std(axis=0)).all()


def test_sea_is_uniform_and_labelled_by_its_thresholds() -> None:
    stream = make("sea", ABRUPT)
    assert stream.features.min() >= 0.0
    assert stream.features.max() < 10.0
    assert np.allclose(stream.features.mean(axis=0), 5.0, atol=0.15)
    threshold = np.array(SEA_THRESHOLDS)[stream.concepts]
    assert np.array_equal(stream.features[:, :2].sum(axis=1) > threshold, stream.labels == 1)
    # P(x1 + x2 > θ) = 1 − θ²/200 for θ up to 10
    for part, theta in zip(
        (slice(0, ROWS // 2), slice(ROWS // 2, ROWS)), SEA_THRESHOLDS, strict=True
    ):
        assert stream.labels[part].mean() == pytest.approx(1.0 - theta**2 / 200.0, abs=0.03)


def test_moving_clouds_turn_by_the_angle() -> None:
    stream = make("moving", ABRUPT)
    directions = []
    for part in (slice(0, ROWS // 2), slice(ROWS // 2, ROWS)):
        features, labels = stream.features[part], stream.labels[part]
        gap = features[labels == 1].mean(axis=0) - features[labels == 0].mean(axis=0)
        assert np.linalg.norm(gap) == pytest.approx(3.0, abs=0.15)
        assert np.abs(gap[2:]).max() < 0.15
        directions.append(gap / np.linalg.norm(gap))
    turn = np.degrees(np.arccos(directions[0] @ directions[1]))
    assert turn == pytest.approx(MOVING_ANGLES[1] - MOVING_ANGLES[0], abs=4.0)


def test_hyperplane_is_uniform_and_labelled_by_a_plane_through_the_middle() -> None:
    stream = make("hyperplane", ABRUPT)
    assert stream.features.min() >= 0.0
    assert stream.features.max() < 1.0
    quarters = (stream.features[:, :, None] < [0.25, 0.5, 0.75]).mean(axis=0)
    assert np.abs(quarters - [0.25, 0.5, 0.75]).max() < 0.02

    def margin(part: slice) -> float:
        """How far rows can be kept from one plane through the middle; 0 if there is none."""
        rows = (stream.features[part] - 0.5) * (2.0 * stream.labels[part] - 1.0)[:, None]
        rows = np.column_stack([-rows, np.ones(len(rows))])  # w·x ≥ margin, |w| ≤ 1
        bounds = [(-1.0, 1.0)] * 10 + [(None, None)]
        best = linprog([0.0] * 10 + [-1.0], rows, np.zeros(len(rows)), bounds=bounds)
        return float(best.x[-1])

    assert margin(slice(0, ROWS // 2)) > 0.0
    assert margin(slice(ROWS // 2, ROWS)) > 0.0
    assert margin(slice(0, ROWS)) <= 0.0
    assert stream.labels.mean() == pytest.approx(0.5, abs=0.03)


def test_rbf_centres_are_balanced_and_rows_near_them() -> None:
    """Rows of one centre are about 0.45 apart, centres about 1.3: clouds can be told apart."""
    stream = make("rbf", ABRUPT, seed=4)  # no two of its centres are nearer than 0.65
    for part in (slice(0, ROWS // 2), slice(ROWS // 2, ROWS)):
        features, labels = stream.features[part], stream.labels[part]
        centres = features[:1]
        while len(centres) < RBF_CENTRES:
            gap = np.linalg.norm(features[:, None] - centres, axis=2).min(axis=1)
            centres = np.vstack([centres, features[np.argmax(gap)]])
        for _ in range(3):
            cloud = np.linalg.norm(features[:, None] - centres, axis=2).argmin(axis=1)
            centres = np.stack([features[cloud == c].mean(axis=0) for c in range(RBF_CENTRES)])
        apart = features - centres[cloud]
        assert apart.std() == pytest.approx(RBF_SPREAD, rel=0.05)
        assert np.linalg.norm(apart, axis=1).max() < 0.7
        assert -0.1 < centres.min() < 0.1
        assert 0.9 < centres.max() < 1.1
        of_class = [set(labels[cloud == c].tolist()) for c in range(RBF_CENTRES)]
        assert of_class.count({0}) == of_class.count({1}) == RBF_CENTRES // 2


def test_agrawal_columns_have_their_ranges() -> None:
    stream = make("agrawal", ABRUPT)
    columns = dict(zip(AGRAWAL_COLUMNS, stream.features.T, strict=True))
    assert 20_000 <= columns["salary"].min() < columns["salary"].max() <= 150_000
    assert set(columns["elevel"]) == set(range(5))
    assert set(columns["car"]) == set(range(1, 21))
    assert set(columns["zipcode"]) == set(range(9))
    assert columns["age"].min() == 20
    assert columns["age"].max() == 80
    assert (columns["commission"][columns["salary"] >= 75_000] == 0.0).all()
    assert columns["commission"][columns["salary"] < 75_000].min() >= 10_000


@pytest.mark.parametrize("number", [1, 2, 3, 7])
def test_agrawal_functions_agree_with_rivers(number: int) -> None:
    synth = pytest.importorskip("river.datasets.synth")
    features = make("agrawal").features[:500]
    river = synth.Agrawal(classification_function=number - 1)
    theirs = [river._classification_functions[number - 1](*row) for row in features.tolist()]
    # River calls group A 1 in the first functions and 0 in the seventh.
    group_a = np.array(theirs) if number < 7 else 1 - np.array(theirs)
    assert np.array_equal(agrawal_label(number, features), group_a)


def test_an_unknown_agrawal_function_is_refused() -> None:
    with pytest.raises(ValueError, match="no function 5"):
        agrawal_label(5, make("agrawal").features)


def test_noise_flips_that_share_of_the_labels() -> None:
    clean, noisy = make("sea"), make("sea", noise=0.2)
    assert np.array_equal(clean.features, noisy.features)
    assert np.mean(clean.labels != noisy.labels) == pytest.approx(0.2, abs=0.02)


def test_gradual_change_ramps_up_over_its_width() -> None:
    generator = np.random.default_rng(1)
    concept, _ = schedule(10_000, Change("gradual", at=5000, width=1000), generator)
    assert concept[:4000].mean() < 0.02
    assert concept[6000:].mean() > 0.98
    assert concept[4900:5100].mean() == pytest.approx(0.5, abs=0.12)


def test_recurring_concepts_take_turns() -> None:
    concept, _ = schedule(1000, Change("recurring", at=250), np.random.default_rng(1))
    assert [int(concept[row]) for row in (0, 249, 250, 499, 500, 999)] == [0, 0, 1, 1, 0, 1]


def test_no_change_is_one_concept() -> None:
    concept, population = schedule(100, Change(), np.random.default_rng(1))
    assert not concept.any()
    assert not population.any()


@pytest.mark.parametrize("kind", ["fixed", "uniform", "geometric"])
def test_delays_have_the_mean_and_never_come_before_the_prediction(kind: str) -> None:
    delays = label_delays(20_000, 50, kind, np.random.default_rng(1))  # type: ignore[arg-type]
    assert delays.min() >= 1
    assert delays.mean() == pytest.approx(50.0, rel=0.05)
    assert (delays.std() > 10) == (kind != "fixed")


def test_a_delay_of_less_than_one_step_is_refused() -> None:
    with pytest.raises(ValueError, match="before its prediction"):
        label_delays(10, 0, "fixed", np.random.default_rng(1))


def test_records_carry_names_and_whole_numbers_where_a_column_is_whole() -> None:
    record, label = next(iter(make("agrawal").records()))
    assert tuple(record) == AGRAWAL_COLUMNS
    assert isinstance(record["elevel"], int)
    assert isinstance(record["salary"], float)
    assert label in (0, 1)


def clouds(name: str, missing: float = 0.0, seed: int = 1, rows: int = ROWS) -> Stream:
    return generate_moving(name, rows, np.random.default_rng(seed), missing)


@pytest.mark.parametrize("name", MOVING)
def test_moving_streams_follow_their_generator_and_carry_finite_numbers(name: str) -> None:
    once, again, other = clouds(name), clouds(name), clouds(name, seed=2)
    assert np.array_equal(once.features, again.features)
    assert np.array_equal(once.labels, again.labels)
    assert not np.array_equal(once.features, other.features)
    assert np.isfinite(once.features).all()
    assert once.features.shape == (ROWS, len(once.names))
    assert not once.concepts.any()


@pytest.mark.parametrize("name", ["rotating", "crossing"])
def test_what_was_learnt_half_a_round_ago_is_wrong_and_what_is_fresh_is_right(name: str) -> None:
    stream = clouds(name)
    now, old = slice(4200, 4400), slice(4200 - PERIOD_ROWS // 2, 4400 - PERIOD_ROWS // 2)
    assert linear_accuracy(stream.features, stream.labels, now, now) > 0.94
    assert linear_accuracy(stream.features, stream.labels, old, now) < 0.6


@pytest.mark.parametrize("move", [rotating, crossing])
def test_clouds_of_two_classes_keep_their_distance_and_move_a_little_each_row(
    move: Callable[[np.ndarray, np.random.Generator], np.ndarray],
) -> None:
    centres = move(np.arange(PERIOD_ROWS), np.random.default_rng(1))
    apart = np.linalg.norm(centres[:, 0] - centres[:, 1], axis=-1)
    assert apart == pytest.approx(CLOUD_DISTANCE)
    assert np.linalg.norm(np.diff(centres, axis=0), axis=-1).max() < 0.01


def test_crossing_clouds_pass_the_same_place_at_different_times() -> None:
    centres = crossing(np.arange(PERIOD_ROWS), np.random.default_rng(1))
    middle = np.linalg.norm(centres[:, :, 0], axis=-1).argmin(axis=0)
    assert np.abs(centres[middle, [0, 1], 0]).max() < 0.01
    assert abs(int(middle[0]) - int(middle[1])) >= PERIOD_ROWS // 4 - 1


def test_walking_clouds_wander_but_stay_about_the_middle() -> None:
    centres = walking(np.arange(40_000), np.random.default_rng(1))
    assert centres.shape == (40_000, 2, 2, 5)
    assert centres.std() == pytest.approx(3.0, rel=0.25)
    flat = centres.reshape(len(centres), -1)
    near = np.mean(flat[200:] * flat[:-200]) / np.mean(flat**2)
    far = np.mean(flat[8000:] * flat[:-8000]) / np.mean(flat**2)
    assert near == pytest.approx(np.exp(-0.1), abs=0.05)
    assert abs(far) < 0.25


def test_drifting_priors_swing_and_leave_the_clouds_where_they_are() -> None:
    stream = clouds("priors")
    quarter = PERIOD_ROWS // 4
    assert stream.labels[quarter - 300 : quarter + 300].mean() == pytest.approx(0.9, abs=0.05)
    low = stream.labels[3 * quarter - 300 : 3 * quarter + 300].mean()
    assert low == pytest.approx(0.1, abs=0.05)
    for label in (0, 1):
        of_class = stream.features[stream.labels == label]
        first, second = np.array_split(of_class, 2)
        assert np.abs(first.mean(axis=0) - second.mean(axis=0)).max() < 0.15


def test_one_in_a_hundred_is_positive_in_the_rare_stream() -> None:
    assert clouds("rare", rows=40_000).labels.mean() == pytest.approx(0.01, abs=0.002)


def test_half_of_the_cells_missing_are_left_out_of_the_records() -> None:
    stream = clouds("crossing", missing=0.5)
    assert np.isnan(stream.features).mean() == pytest.approx(0.5, abs=0.01)
    records = [record for record, _ in stream.records()]
    assert sum(map(len, records)) == np.isfinite(stream.features).sum()
    whole = clouds("crossing")
    assert np.array_equal(stream.labels, whole.labels)
    seen = ~np.isnan(stream.features)
    assert np.array_equal(stream.features[seen], whole.features[seen])
