"""The series of `/metrics`: declared, documented, complete from the start, bounded."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from pipeline.runtime.metric_table import COUNTERS, METRICS, page
from pipeline.runtime.metrics import Histogram, Sample, StateCollector, StreamLabels
from tests.support.scrape import scraped

ROOT = Path(__file__).parents[4]
UNITS = ("seconds", "bytes", "ratio", "records", "total", "info", "nats")


def text_of(collector: StateCollector) -> str:
    registry = CollectorRegistry()
    registry.register(collector)
    return generate_latest(registry).decode()


def test_the_page_of_the_docs_is_the_generated_one() -> None:
    written = (ROOT / "docs" / "metrics.md").read_text()
    assert written == page(), "run: python -m pipeline.runtime.metric_table > docs/metrics.md"


@pytest.mark.parametrize("name", sorted(METRICS))
def test_a_name_says_what_kind_it_is_and_its_meaning_is_a_sentence(name: str) -> None:
    each = METRICS[name]
    assert name.startswith("dtgol_")
    assert name.endswith("_total") == (each.kind == "counter")
    assert each.kind != "histogram" or name.endswith(UNITS)
    assert each.doc.endswith(".")
    assert not {"id", "value"} & set(each.labels)


def test_every_counter_of_the_states_is_declared() -> None:
    """Literal keys; those made from an enumeration are declared from the same one."""
    places = {"fold": "pipeline/learning/*.py", "evaluator": "pipeline/evaluation/*.py"}
    for subsystem, places_of in places.items():
        source = "".join(path.read_text() for path in ROOT.glob(places_of))
        counted = set(re.findall(r'counts\["([a-z]+/[a-z-]+)"\]', source))
        counted |= {f"{what}/refused" for what in re.findall(r'self\._reject\("([a-z]+)"', source)}
        named = {
            f"{each.key}/{outcome}"
            for each in COUNTERS
            if each.subsystem == subsystem
            for outcome in each.outcomes
        }
        assert len(counted) > 5
        assert counted <= named


def test_what_never_happened_is_zero_and_not_absent() -> None:
    """A rate over a series that appears with its first event does not see that event."""
    text = text_of(StateCollector("fold", lambda: {3: Counter({"labels/late": 2})}, lambda: ()))
    assert 'dtgol_fold_labels_total{outcome="late",partition="3"} 2.0' in text
    assert 'dtgol_fold_labels_total{outcome="learnt",partition="3"} 0.0' in text
    assert 'dtgol_fold_dead_letters_total{partition="3",reason="not-json"} 0.0' in text
    assert "dtgol_evaluator" not in text


def test_late_labels_are_counted_once_in_their_outcome() -> None:
    counts = {"labels/late": 2, "labels/late/delay.expire_ms": 2}
    text = text_of(StateCollector("fold", lambda: {0: counts}, lambda: ()))
    lines = re.findall(r"^dtgol_fold_labels_total.* ([0-9.]+)$", text, re.MULTILINE)
    assert sum(map(float, lines)) == 2
    assert 'late_labels_total{partition="0",setting="delay.expire_ms"} 2.0' in text


@pytest.mark.parametrize(
    "sample",
    [
        Sample("dtgol_unheard_of", 1),
        Sample("dtgol_worker_ready", 1, (("partition", "0"),)),
        Sample("dtgol_learner_parked", 1),
    ],
)
def test_a_sample_that_is_not_declared_is_an_error(sample: Sample) -> None:
    with pytest.raises(KeyError):
        text_of(StateCollector("fold", dict, lambda: (sample,)))


def test_a_histogram_is_written_as_prometheus_reads_it() -> None:
    histogram = Histogram((1, 10))
    for value in (0.5, 5.0, 50.0):
        histogram.observe(value)
    at = (("partition", "0"),)
    sample = Sample("dtgol_learner_latency_seconds", histogram, at)
    text = text_of(StateCollector("fold", dict, lambda: (sample,)))
    assert scraped(text)["dtgol_learner_latency_seconds_bucket"] == {"partition", "le"}
    assert 'dtgol_learner_latency_seconds_bucket{le="10.0",partition="0"} 2.0' in text
    assert 'dtgol_learner_latency_seconds_count{partition="0"} 3.0' in text
    assert 'dtgol_learner_latency_seconds_sum{partition="0"} 55.5' in text


def test_streams_beyond_the_bound_have_no_series_and_those_that_have_keep_them() -> None:
    labels = StreamLabels(2)
    assert labels.chosen(["c", "b"]) == ["c", "b"]
    assert labels.chosen(["a", "b", "c", "d"]) == ["c", "b"]
    assert labels.chosen(["a", "b", "d"]) == ["b", "a"]
    assert StreamLabels(0).chosen(["a"]) == []
