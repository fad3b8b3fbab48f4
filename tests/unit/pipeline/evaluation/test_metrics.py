"""The evaluator's series: totals that only grow, the last window, bounded streams."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pipeline.evaluation.metrics import EvaluatorMetrics
from pipeline.evaluation.pairing import Bounds, Evaluation
from pipeline.evaluation.view import Costs, equal_costs
from pipeline.runtime.metrics import Histogram
from tests.unit.pipeline.evaluation.test_partition import EXAMPLE
from topics.labels import Label
from topics.predictions import Identity

FORECAST, NAIVE = ("forecast", "forecast"), ("forecast", "naive")


class Scored:
    """An evaluation and its metrics, fed with one stream after the other."""

    def __init__(self, streams_max: int = 20, costs: Costs = equal_costs) -> None:
        self.state = Evaluation("journal", 0, Bounds())
        self.metrics = EvaluatorMetrics(streams_max, costs)
        self.offset = 0

    def predict(
        self, id: str, p: float, naive: float = 0.9, stream: str = "s", **more: Any
    ) -> None:
        at = Identity("journal", 0, self.offset)
        self.offset += 1
        about: dict[str, Any] = {"stream": stream, "id": id, "at": at, "ts": 0, "repeat": False}
        made = replace(EXAMPLE, p=p, naive=naive, **about | more)
        self.metrics.scored(self.state.predict(made), self.state)

    def label(self, id: str, y: int, stream: str = "s", ts: int = 5_000) -> None:
        label = Label(stream, id, y, ts)
        self.offset += 1
        self.metrics.scored(self.state.label(label, self.offset), self.state)

    def values(self) -> dict[tuple[object, ...], float]:
        """By name and labels without the stream where it is the usual one."""
        return {
            (each.name.removeprefix("dtgol_"), *(of for of in each.labels if of[1] != "s")): (
                each.value.sum if isinstance(each.value, Histogram) else each.value
            )
            for each in self.metrics.samples(self.state)
        }


def test_scores_are_summed_for_forecast_and_naive() -> None:
    scored = Scored()
    for number, (p, y) in enumerate([(0.9, 1), (0.8, 0), (0.2, 0), (0.6, 1)]):
        scored.predict(f"i{number}", p)
        scored.label(f"i{number}", y)
    values = scored.values()
    assert values[("scoring_scored_total",)] == 4
    assert values["scoring_errors_total", FORECAST] == 1
    assert values["scoring_errors_total", NAIVE] == 2
    assert 0 < values["scoring_loss_nats_total", FORECAST] < 4
    assert values["scoring_window_accuracy_ratio", FORECAST] == 0.75
    assert values["scoring_window_accuracy_ratio", NAIVE] == 0.5
    assert values[("scoring_window_gain_ratio",)] == 0.25
    assert values[("scoring_window_labels",)] == 4
    assert values[("evaluator_label_delay_seconds",)] == 20.0
    assert "scoring_calibration_error" in {name for name, *_ in values}


def test_a_collapse_shows_in_the_last_window_and_not_in_the_total() -> None:
    """20,000 wrong answers moved no window."""
    scored = Scored()
    for number in range(3_000):
        scored.predict(f"i{number}", 0.9)
        scored.label(f"i{number}", 1 if number < 2_500 else 0)
    values = scored.values()
    assert values["scoring_window_accuracy_ratio", FORECAST] == 0.0
    assert values["scoring_accuracy", FORECAST] > 0.8
    # The lifetime's moves by a sixth; the window has it whole.
    assert values["scoring_calibration_error", FORECAST] < 0.1
    assert values["scoring_window_calibration_error", FORECAST] == pytest.approx(0.9)
    assert values["scoring_window_calibration_error", NAIVE] == pytest.approx(0.9)


def test_counters_do_not_fall_when_a_label_is_corrected() -> None:
    scored = Scored()
    scored.predict("a", 0.9)
    scored.label("a", 0)
    before = scored.values()
    scored.label("a", 1)
    after = scored.values()
    assert after["scoring_accuracy", FORECAST] > before["scoring_accuracy", FORECAST]
    for name in (("scoring_scored_total",), ("scoring_errors_total", FORECAST)):
        assert after[name] >= before[name]
    assert after[("evaluator_rescored_total",)] == 1
    assert after[("evaluator_label_delay_seconds",)] == before[("evaluator_label_delay_seconds",)]


def test_streams_beyond_the_bound_are_summed_together() -> None:
    scored = Scored(streams_max=2)
    for stream in ("s", "t", "u", "v", "u"):
        id = f"{stream}{scored.offset}"
        scored.predict(id, 0.9, stream=stream)
        scored.label(id, 1, stream=stream)
    values = scored.values()
    streams = {label for key in values for label in key[1:] if label[0] == "stream"}  # type: ignore[index]
    assert streams == {("stream", "t"), ("stream", "(other)")}
    assert values["scoring_scored_total", ("stream", "(other)")] == 3


def test_how_full_the_bounds_are() -> None:
    scored = Scored()
    scored.state.bounds = Bounds(labels_max=4)
    scored.label("early", 1)
    assert scored.values()["bound_used_ratio", ("bound", "evaluator.labels_max")] == 0.25
    scored.state.bounds = Bounds(pairs_max=4)
    scored.predict("a", 0.9)
    bound = "bound_used_ratio", ("bound", "evaluator.pairs_bytes_max")
    assert scored.values()[bound] == 0.25
    scored.label("a", 1)
    assert scored.values()[bound] == 0  # scored ones make room: a full memory is as it should be


def test_precision_recall_cost_and_coverage() -> None:
    scored = Scored(costs=lambda stream: (1.0, 4.0))
    told = [(0.3, 1, (1,)), (0.3, 0, (1,)), (0.1, 1, (0,)), (0.1, 0, (0, 1))]
    for number, (p, y, given) in enumerate(told):
        scored.predict(f"i{number}", p, naive=0.15, threshold=0.2, set=given)
        scored.label(f"i{number}", y)
    values = scored.values()
    assert values["scoring_errors_total", FORECAST] == 2
    assert values["scoring_false_positives_total", FORECAST] == 1
    assert values["scoring_precision", FORECAST] == values["scoring_recall", FORECAST] == 0.5
    assert values[("scoring_window_precision_ratio",)] == 0.5
    assert values[("scoring_window_recall_ratio",)] == 0.5
    assert values["scoring_cost", FORECAST] == (1 + 4) / 4
    assert values["scoring_cost", NAIVE] == 2 * 4 / 4  # gives 0 always, by the same threshold
    for series in ("scoring_coverage_ratio", "scoring_window_coverage_ratio"):
        assert [values[series, ("class", each)] for each in ("all", "0", "1")] == [0.5, 0.5, 0.5]
    assert values[("scoring_undecided_ratio",)] == 0.25
    assert values[("scoring_window_undecided_ratio",)] == 0.25
    assert (values[("scoring_covered_total",)], values[("scoring_undecided_total",)]) == (2, 1)


def test_both_estimates_of_accuracy_and_their_errors() -> None:
    scored = Scored()
    for number in range(1_000):
        scored.predict(f"i{number}", 0.9)
        if number < 800:
            scored.label(f"i{number}", int(number % 4 > 0))
    values = scored.values()
    calibrated, last = (("estimate", name) for name in ("calibrated", "last_window"))
    name = "scoring_estimated_accuracy_ratio"
    assert values[name, calibrated] == pytest.approx(0.75, abs=0.02)  # 0.9 is what p claims
    assert values[name, last] == pytest.approx(0.75, abs=0.01)
    assert values["scoring_estimate_error_ratio", calibrated] < 0.05
    assert values["scoring_estimate_error_ratio", last] < 0.05
