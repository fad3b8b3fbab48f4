"""Prometheus series. The counters of the fold are part of its state and exposed from there: every
record is counted once, whatever crashed in between, and a counter moves with its partition.

`dtgol_<subsystem>_<what>_<unit>`; labels are partitions, outcomes and reasons, never ids or values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

DOCS = {
    "records": "Journal records by outcome.",
    "features": "Feature records by outcome.",
    "labels": "Labels by outcome.",
    "instances": "Instances that expired without a label.",
    "streams": "Streams opened, evicted, reset.",
    "refusals": "Dead letters by reason.",
    "predictions": "Predictions by outcome.",
}


class Gauge(NamedTuple):
    """One sample; `name` is the full name of the series."""

    name: str
    doc: str
    value: float
    labels: tuple[tuple[str, str], ...] = ()
    counter: bool = False


class StateCollector(Collector):
    """Reads the state at every scrape.

    `counts` gives, per partition, the fold's counters; `gauges` everything else.
    """

    def __init__(
        self,
        subsystem: str,
        counts: Callable[[], Mapping[int, Mapping[str, int]]],
        gauges: Callable[[], Iterable[Gauge]],
    ) -> None:
        self._subsystem = subsystem
        self._counts = counts
        self._gauges = gauges

    def collect(self) -> Iterable[Metric]:
        """All series."""
        families: dict[str, Metric] = {}
        for partition, counts in self._counts().items():
            for name, count in counts.items():
                what, _, outcome = name.partition("/")
                label = "reason" if what == "refusals" else "outcome"
                full = f"dtgol_{self._subsystem}_{what}"
                family = families.setdefault(
                    full,
                    CounterMetricFamily(full, DOCS.get(what, what), labels=["partition", label]),
                )
                family.add_metric([str(partition), outcome], count)  # type: ignore[attr-defined]
        for gauge in self._gauges():
            kind = CounterMetricFamily if gauge.counter else GaugeMetricFamily
            family = families.setdefault(
                gauge.name,
                kind(gauge.name, gauge.doc, labels=[label for label, _ in gauge.labels]),
            )
            family.add_metric([value for _, value in gauge.labels], gauge.value)  # type: ignore[attr-defined]
        return families.values()


def make_registry(collector: Collector) -> CollectorRegistry:
    """A registry with the collector and the standard process metrics."""
    registry = CollectorRegistry()
    registry.register(collector)
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    return registry
