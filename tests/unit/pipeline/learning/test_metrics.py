"""The learner's series: latency from the source's timestamp, bounds, weights of experts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipeline.learning.fold import Fold
from pipeline.learning.fold_config import FoldConfig
from pipeline.learning.metrics import LearnerMetrics
from pipeline.runtime.metrics import Histogram, Sample
from tests.support.journal import REF, Journal, fold_all
from tests.unit.pipeline.learning.test_partition import Setup


def folded(streams: int = 3, config: FoldConfig | None = None) -> Fold:
    journal = Journal()
    for number in range(12):
        stream = f"s{number % streams}"
        journal.features(f"i{number}", {"v": number}, stream=stream)
    fold = Fold(REF, config)
    for record in journal.records:
        fold.apply(record)
    return fold


def number(sample: Sample) -> float:
    value = sample.value
    return value.sum if isinstance(value, Histogram) else value


def test_the_latency_is_counted_from_the_timestamp_of_the_features() -> None:
    journal = Journal()
    journal.features("a", {"v": 1})
    journal.label("a", 1)
    fold = Fold(REF)
    stamps = [int(dict(record.headers)["dtgol-timestamp-ms"] or b"") for record in journal.records]
    metrics = LearnerMetrics(20, now=lambda: stamps[0] / 1000 + 0.2)
    for record in journal.records:
        metrics.answered(record, fold.apply(record))
    (latency,) = (
        each.value for each in metrics.samples(False, 2, 0) if isinstance(each.value, Histogram)
    )
    assert latency.sum == pytest.approx(0.2)
    assert latency.cumulative()[-1] == ("+Inf", 1)  # the label is no answer


def test_how_full_the_bounds_are_and_whose_weights_are_shown() -> None:
    fold = folded(config=replace(FoldConfig(), streams_max=6, state_bytes_max=10**9))
    fold.streams.state_bytes = 5 * 10**8
    shown = list(LearnerMetrics(2).fold_samples(fold))
    used = {
        each.labels[0][1]: number(each) for each in shown if each.name == "dtgol_bound_used_ratio"
    }
    assert used["limits.streams_max"] == 0.5
    assert used["limits.state_bytes_max"] == 0.5
    assert 0 < used["delay.pending_bytes_max"] < 1
    assert 0 < used["waiting instances"] < 1
    assert used["remembered ids"] == 0
    weights = [each for each in shown if each.name == "dtgol_guard_weight"]
    assert {dict(each.labels)["stream"] for each in weights} == {"s0", "s1"}
    assert sum(number(each) for each in weights) == pytest.approx(2.0)


def test_a_learner_shows_its_lag_its_time_and_what_is_not_saved() -> None:
    setup = Setup(records=5)
    flow = setup.kafka.flow("journal")
    setup.put(0, 1, 2)
    setup.run_to(3)
    flow.position, flow.end = 3, 5
    shown = {(each.name, *each.labels): number(each) for each in setup.learner.samples()}
    assert shown["dtgol_consumer_lag_records", ("topic", "journal")] == 2
    assert shown["dtgol_stage_records_total", ("stage", "fold")] == 3
    assert shown["dtgol_stage_busy_seconds_total", ("stage", "fold")] > 0
    assert shown[("dtgol_snapshot_unsaved_records",)] == 3
    assert shown[("dtgol_snapshot_failed",)] == 0


def test_a_label_under_another_key_shows_by_its_age() -> None:
    """Its features are in another partition: it waits here, and the gauge grows."""
    journal = Journal()
    journal.features("a", {"v": 1})
    journal.label("elsewhere", 1)
    held = journal.records[-1]
    journal.label("later", 1)
    fold, _ = fold_all(journal.records)

    def age(now_s: float) -> float:
        metrics = LearnerMetrics(2, lambda: now_s)
        (found,) = (
            each
            for each in metrics.fold_samples(fold)
            if each.name == "dtgol_delay_early_oldest_age_seconds"
        )
        return number(found)

    assert age(held.timestamp_ms / 1000 + 90) == pytest.approx(90)
    assert age(held.timestamp_ms / 1000 - 5) == 0  # a clock that is behind the brokers'
    fold.apply(journal.features("elsewhere", {"v": 1}))
    assert age(held.timestamp_ms / 1000 + 90) == pytest.approx(89)
    fold.apply(journal.features("later", {"v": 1}))
    assert age(held.timestamp_ms / 1000 + 90) == 0


def test_a_label_of_a_stream_without_features_shows_by_its_age_too() -> None:
    journal = Journal()
    held = journal.label("a", 1, stream="misspelt")
    fold, _ = fold_all(journal.records)
    metrics = LearnerMetrics(2, lambda: held.timestamp_ms / 1000 + 60)
    shown = {each.name: each for each in metrics.fold_samples(fold)}
    assert number(shown["dtgol_delay_early_oldest_age_seconds"]) == pytest.approx(60)
