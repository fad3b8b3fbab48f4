"""Scores under label delay: order-free, mergeable, within the stated error bound."""

import json
import math
import random
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtgol_core.bins import exponential_bin, exponential_bin_top, probability_bin
from dtgol_core.scoring import Scoreboard, exact_auc

Scored = tuple[float, float, int, int, int | None]

probabilities = st.one_of(
    st.floats(0, 1), st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.5000000001, 0.9, 1.0])
)
scored_predictions = st.tuples(
    probabilities,
    probabilities,
    st.integers(0, 1),
    st.integers(1, 200),
    st.none() | st.integers(-5, 10**7),
)


def board_of(scored: list[Scored]) -> Scoreboard:
    board = Scoreboard(window_rows=16, windows_max=4)
    for p, naive, y, step, delay in scored:
        board.add(p, naive, y, step, delay)
    return board


@given(st.lists(scored_predictions, max_size=60), st.randoms(use_true_random=False))
def test_any_order_and_any_split_give_the_same_state(
    scored: list[Scored], chance: random.Random
) -> None:
    whole = board_of(scored).snapshot()
    shuffled = scored.copy()
    chance.shuffle(shuffled)
    parts: list[list[Scored]] = [[], [], []]
    for item in shuffled:
        parts[chance.randrange(3)].append(item)
    merged = board_of(parts[0])
    for part in parts[1:]:
        merged.merge(board_of(part))
    assert board_of(shuffled).snapshot() == whole
    assert merged.snapshot() == whole
    assert merged.summary() == board_of(scored).summary()


@given(st.lists(scored_predictions, max_size=30), scored_predictions)
def test_retract_undoes_add(scored: list[Scored], wrong: Scored) -> None:
    newest = (0.5, 0.5, 1, 200, None)  # the newest window seen is a maximum and stays
    board = board_of([*scored, newest])
    before = json.dumps(board.snapshot())
    board.add(*wrong)
    board.retract(*wrong)
    assert json.dumps(board.snapshot()) == before


def test_a_retraction_in_another_part_merges_right() -> None:
    board = board_of([(0.8, 0.7, 1, 3, 10), (0.2, 0.7, 1, 4, 10)])
    correction = Scoreboard(window_rows=16, windows_max=4)
    correction.retract(0.2, 0.7, 1, 4, 10)
    correction.add(0.2, 0.7, 0, 4, 30)
    board.merge(correction)
    assert board.snapshot() == board_of([(0.8, 0.7, 1, 3, 10), (0.2, 0.7, 0, 4, 30)]).snapshot()


@given(st.lists(scored_predictions, max_size=100))
def test_streaming_auc_is_within_its_bound_of_the_exact_one(scored: list[Scored]) -> None:
    quality = board_of(scored).summary().total.forecast
    exact = exact_auc([item[0] for item in scored], [item[2] for item in scored])
    if exact is None:
        assert quality.auc is None
        assert quality.auc_error is None
    else:
        assert quality.auc is not None
        assert quality.auc_error is not None
        assert abs(quality.auc - exact) <= quality.auc_error + 1e-15


def test_the_auc_bound_is_small_on_a_skewed_stream() -> None:
    generator = np.random.default_rng(1)
    board = Scoreboard()
    p = generator.beta(0.5, 60, size=20_000)
    y = (generator.random(20_000) < p).astype(int)
    for step, (forecast, label) in enumerate(zip(p, y, strict=True), start=1):
        board.add(forecast, 0.5, label, step)
    quality = board.summary().total.forecast
    exact = exact_auc(p, y)
    assert exact is not None
    assert quality.auc is not None
    assert quality.auc_error is not None
    assert quality.auc_error < 5e-4
    assert abs(quality.auc - exact) <= quality.auc_error
    naive = board.summary().total.naive
    assert naive.auc == 0.5
    assert naive.auc_error == 0.5


@given(st.lists(st.tuples(st.sampled_from([0.0, 0.2, 0.5, 1.0]), st.integers(0, 1)), max_size=25))
def test_exact_auc_counts_pairs_and_half_of_the_ties(pairs: list[tuple[float, int]]) -> None:
    positive = [p for p, y in pairs if y == 1]
    negative = [p for p, y in pairs if y == 0]
    auc = exact_auc([p for p, _ in pairs], [y for _, y in pairs])
    if not positive or not negative:
        assert auc is None
    else:
        wins = sum((a > b) + (a == b) / 2 for a in positive for b in negative)
        assert auc == pytest.approx(wins / (len(positive) * len(negative)), abs=1e-15)


@given(st.lists(scored_predictions, min_size=1, max_size=60))
def test_sums_are_those_of_the_plain_formulas(scored: list[Scored]) -> None:
    p = np.array([item[0] for item in scored])
    y = np.array([item[2] for item in scored])
    clipped = np.clip(p, 1e-12, 1 - 1e-12)
    buckets = np.minimum((p * 10).astype(int), 9)
    gaps = [abs(float((p - y)[buckets == b].sum())) for b in range(10)]
    total = board_of(scored).summary().total
    assert total.count == len(scored)
    assert total.positives == y.sum()
    assert total.forecast.cer == np.mean((p > 0.5) != y)
    assert total.forecast.accuracy == np.mean((p > 0.5) == y)
    assert total.forecast.log_loss == pytest.approx(
        np.mean(-np.where(y == 1, np.log(clipped), np.log1p(-clipped))), abs=1e-11
    )
    assert total.forecast.brier == pytest.approx(np.mean((p - y) ** 2), abs=1e-11)
    assert total.forecast.calibration_error == pytest.approx(sum(gaps) / len(scored), abs=1e-11)


def test_only_the_newest_windows_are_kept_and_old_labels_count_in_the_total() -> None:
    board = Scoreboard(window_rows=10, windows_max=2)
    for step in (1, 10, 11, 20, 21, 35):
        board.add(0.9, 0.9, 1, step)
    board.add(0.9, 0.9, 1, 5)
    summary = board.summary()
    assert summary.total.count == 7
    assert [(w.first_step, w.last_step, w.count) for w in summary.windows] == [
        (21, 30, 1),
        (31, 40, 1),
    ]


def test_a_snapshot_is_plain_json_and_restores_the_same_board() -> None:
    board = board_of([(0.3, 0.6, 0, 1, 7), (0.99, 0.2, 1, 40, None)])
    restored = Scoreboard.restore(json.loads(json.dumps(board.snapshot())))
    assert restored.snapshot() == board.snapshot()
    board.add(0.1, 0.2, 1, 41, 3)
    restored.add(0.1, 0.2, 1, 41, 3)
    assert restored.snapshot() == board.snapshot()
    assert restored.summary() == board.summary()


def test_numpy_scalars_leave_plain_integers_in_the_state() -> None:
    board = Scoreboard()
    board.add(np.float64(0.7), np.float64(0.2), np.int64(1), 1, 5)  # type: ignore[arg-type]
    assert json.loads(json.dumps(board.snapshot())) == board.snapshot()


def test_an_empty_board_has_no_numbers() -> None:
    total = Scoreboard().summary().total
    assert total.count == 0
    assert total.forecast.cer is None
    assert total.delay.p50 is None


def test_delay_quantiles_are_at_most_an_eighth_too_large() -> None:
    board = Scoreboard()
    for delay in range(1, 1001):
        board.add(0.5, 0.5, 1, 1, delay)
    delays = board.summary().total.delay
    assert delays.count == 1000
    for found, true in ((delays.p50, 500), (delays.p90, 900), (delays.p99, 990)):
        assert found is not None
        assert true <= found <= true * 9 / 8
    assert delays.largest is not None
    assert delays.largest >= 1000


@pytest.mark.parametrize(
    ("p", "naive", "y", "step"),
    [
        (1.1, 0.5, 1, 1),
        (math.nan, 0.5, 1, 1),
        (0.5, -0.1, 1, 1),
        (0.5, 0.5, 2, 1),
        (0.5, 0.5, 1, 0),
    ],
)
def test_values_that_cannot_be_scored_are_refused_and_change_nothing(
    p: float, naive: float, y: int, step: int
) -> None:
    board = Scoreboard()
    with pytest.raises(ValueError, match="a scored prediction needs"):
        board.add(p, naive, y, step)
    assert board.snapshot() == Scoreboard().snapshot()


def test_boards_with_other_windows_are_not_merged() -> None:
    with pytest.raises(ValueError, match="same windows"):
        Scoreboard(window_rows=10).merge(Scoreboard(window_rows=20))
    with pytest.raises(ValueError, match="at least 1"):
        Scoreboard(windows_max=0)


@given(st.lists(st.floats(0, 1), min_size=2, max_size=50))
def test_probability_bins_rise_with_p_and_are_narrow(values: list[float]) -> None:
    for low, high in pairwise(sorted(values)):
        assert probability_bin(low) <= probability_bin(high)
        if probability_bin(low) == probability_bin(high):
            assert (low > 0.5) == (high > 0.5)
            edge = max(min(low, 1 - low), min(high, 1 - high))
            assert high - low <= max(2.0**-27, edge / 128)


@given(st.integers(0, 2**48 - 1), st.integers(1, 8))
def test_a_bin_ends_at_its_top(value: int, bits: int) -> None:
    number = exponential_bin(value, bits)
    top = exponential_bin_top(number, bits)
    assert value <= top <= value + (value >> bits)
    assert exponential_bin(top, bits) == number
    assert exponential_bin(top + 1, bits) == number + 1


def test_hard_labels_go_by_the_threshold_for_forecast_and_naive() -> None:
    board = Scoreboard()
    for p, naive, y in ((0.3, 0.1, 1), (0.3, 0.4, 0), (0.1, 0.3, 0), (0.9, 0.1, 1)):
        board.add(p, naive, y, 1, threshold=0.2)
    total = board.total()
    forecast, naive_quality = total.forecast, total.naive
    assert (forecast.accuracy, forecast.precision, forecast.recall) == (0.75, 2 / 3, 1.0)
    assert (forecast.false_positives, forecast.false_negatives) == (1, 0)
    assert (naive_quality.accuracy, naive_quality.recall) == (0.0, 0.0)
    assert forecast.cost(5.0, 1.0, total.count) == 1.25
    assert naive_quality.cost(5.0, 1.0, total.count) == (2 * 5 + 2 * 1) / 4


@given(st.lists(st.tuples(scored_predictions, st.sampled_from([(), (0,), (1,), (0, 1)]))))
def test_coverage_counts_the_sets_that_had_the_label(given_sets: list[Any]) -> None:
    board = Scoreboard(window_rows=16, windows_max=4)
    for (p, naive, y, step, delay), each in given_sets:
        board.add(p, naive, y, step, delay, 0.3, each)
    found, pairs = board.total().coverage, [(s[2], each) for s, each in given_sets]
    for y in (0, 1):
        of_class = [y in each for label, each in pairs if label == y]
        assert found.by_class[y] == (sum(of_class) / len(of_class) if of_class else None)
    if pairs:
        assert found.share == sum(y in each for y, each in pairs) / len(pairs)
        assert found.undecided == sum(len(each) == 2 for _, each in pairs) / len(pairs)
    else:
        assert (found.share, found.undecided) == (None, None)
    again = Scoreboard.restore(json.loads(json.dumps(board.snapshot())))
    assert again.summary() == board.summary()
