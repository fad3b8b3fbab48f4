"""The prequential loop: when labels are given, and what is scored."""

import pytest

from pipeline.offline.backtest import Backtest, BacktestPrediction, SetScores, run_backtest
from pipeline.offline.files.records import Row
from tests.support.fake_learner import FakeLearner


def test_the_label_of_step_t_minus_l_is_given_before_t_is_observed() -> None:
    learner = FakeLearner()
    rows = [Row(number, {"p": 0.9}, number % 2) for number in (4, 2, 7, 5)]
    result = run_backtest(rows, learner, delay_steps=2)
    assert learner.calls == [
        ("observe", "4"),
        ("observe", "2"),
        ("learn 0", "4"),
        ("observe", "7"),
        ("learn 0", "2"),
        ("observe", "5"),
    ]
    assert [(each.step, each.row, each.label) for each in result.predictions] == [
        (1, 4, 0),
        (2, 2, 0),
        (3, 7, 1),
        (4, 5, 1),
    ]
    assert result.labels == {"queued": 2}


def test_labels_may_overtake_each_other() -> None:
    learner = FakeLearner()
    rows = [Row(number, {"p": 0.9}, 1) for number in range(4)]
    run_backtest(rows, learner, delay_steps=[3, 1, 1, 9])
    assert learner.calls == [
        ("observe", "0"),
        ("observe", "1"),
        ("learn 1", "1"),
        ("observe", "2"),
        ("learn 1", "0"),
        ("learn 1", "2"),
        ("observe", "3"),
    ]


def test_refused_records_take_no_step_and_are_not_scored() -> None:
    learner = FakeLearner()
    rows = [Row(0, {"p": 0.9}, 1), Row(1, {"bad": True}, 0), Row(2, {"p": 0.9}, 1)]
    result = run_backtest(rows, learner, delay_steps=1)
    assert result.rejected == {"out-of-range": 1}
    assert [each.row for each in result.predictions] == [0, 2]
    assert [each.step for each in result.predictions] == [1, 2]
    assert learner.calls.count(("learn 1", "0")) == 1
    assert ("learn 0", "1") not in learner.calls
    assert result.scores()[0].cer == 0


def test_a_row_without_label_is_predicted_but_neither_learnt_nor_scored() -> None:
    learner = FakeLearner()
    rows = [Row(0, {"p": 0.1}, None), Row(1, {"p": 0.9}, 1), Row(2, {"p": 0.8}, 1)]
    result = run_backtest(rows, learner, delay_steps=1)
    assert len(result.predictions) == 3
    assert result.labels == {"queued": 1}
    forecast, _ = result.scores()
    assert forecast.cer == 0
    assert forecast.auc is None


def test_scores_can_start_after_the_first_labels() -> None:
    rows = [Row(0, {"p": 0.1}, 1), Row(1, {"p": 0.9}, 1), Row(2, {"p": 0.1}, 0)]
    result = run_backtest(rows, FakeLearner(), delay_steps=1)
    assert result.scores()[0].cer == pytest.approx(1 / 3)
    assert result.scores(first_step=2)[0].cer == 0
    assert result.scores(first_step=9)[0].cer is None


def test_a_label_cannot_come_before_its_prediction() -> None:
    with pytest.raises(ValueError, match="delay_steps must be >= 1"):
        run_backtest([], FakeLearner(), delay_steps=0)
    with pytest.raises(ValueError, match="delay_steps must be >= 1"):
        run_backtest([Row(0, {}, 1), Row(1, {}, 1)], FakeLearner(), delay_steps=[1, 0])
    assert run_backtest([], FakeLearner(), delay_steps=1).us_per_record is None


def test_progress_is_reported_every_few_rows_and_at_the_end() -> None:
    reported: list[int] = []
    run_backtest([Row(n, {}, 0) for n in range(70)], FakeLearner(), 5, reported.append)
    assert reported == [0, 32, 64, 70]


def test_sets_are_scored_by_class() -> None:
    given = [(0, (0,)), (0, (1,)), (1, (0, 1)), (1, (1,)), (None, (0,))]
    predictions = tuple(
        BacktestPrediction(step, step, 0.5, 0.5, label, left_open)
        for step, (label, left_open) in enumerate(given, start=1)
    )
    found = Backtest(predictions, {}, {}, 1.0).set_scores()
    assert found == SetScores(0.75, 0.5, 1.0, 0.25)
    assert Backtest((), {}, {}, 1.0).set_scores() == SetScores(None, None, None, None)
