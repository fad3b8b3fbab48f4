"""Prometheus series. The counters of the fold are part of its state and exposed from there: every
record is counted once, whatever crashed in between, and a counter moves with its partition. What
depends on the order of arrival, or on time, is counted by the process and starts at 0 with it.

Every series is declared in `pipeline.runtime.metric_table`; labels are partitions, streams (the
first `web.metrics_streams_max` of a partition), outcomes and reasons, never ids or values.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from pipeline.runtime.metric_table import COUNTERS, METRICS

FAMILIES = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}


class Histogram:
    """How many values were at most each of the bounds, and their sum.

    >>> histogram = Histogram((1.0, 10.0))
    >>> for value in (0.5, 1.0, 20.0):
    ...     histogram.observe(value)
    >>> histogram.cumulative()
    [('1.0', 2), ('10.0', 2), ('+Inf', 3)]
    """

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(map(float, bounds))
        self._counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Take one value in."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self.sum += value

    def cumulative(self) -> list[tuple[str, int]]:
        """Counts by upper bound, as Prometheus writes them."""
        total, found = 0, []
        for bound, count in zip((*self._bounds, "+Inf"), self._counts, strict=True):
            total += count
            found.append((str(bound), total))
        return found


class Sample(NamedTuple):
    """One value of a series that `METRICS` declares."""

    name: str
    value: float | Histogram
    labels: tuple[tuple[str, str], ...] = ()


class StageTime:
    """Time that a stage has taken, and records that went through it."""

    def __init__(self, stage: str) -> None:
        self._stage = stage
        self.seconds = 0.0
        self.records = 0

    def samples(self) -> Iterator[Sample]:
        """Both as counters."""
        of = (("stage", self._stage),)
        yield Sample("dtgol_stage_busy_seconds_total", self.seconds, of)
        yield Sample("dtgol_stage_records_total", self.records, of)


def lag_sample(topic: str, position_and_end: tuple[int, int] | None, here: int) -> Iterator[Sample]:
    """How far a topic is behind: not fetched, and `here` records that wait; none if not known."""
    if position_and_end is not None:
        position, end = position_and_end
        behind = max(0, end - position) + here
        yield Sample("dtgol_consumer_lag_records", behind, (("topic", topic),))


class StreamLabels:
    """Which streams of a partition have series of their own: the first, while they are there.

    >>> labels = StreamLabels(2)
    >>> labels.chosen(["b", "a", "c"]), labels.chosen(["c", "a"])
    (['b', 'a'], ['a', 'c'])
    """

    def __init__(self, streams_max: int) -> None:
        self._max = streams_max
        self._chosen: dict[str, None] = {}

    def chosen(self, streams: Collection[str]) -> list[str]:
        """Those of `streams` that have series of their own."""
        self._chosen = {name: None for name in self._chosen if name in streams}
        for name in streams:
            if len(self._chosen) >= self._max:
                break
            self._chosen.setdefault(name)
        return list(self._chosen)


class StateCollector(Collector):
    """Reads the state at every scrape.

    `counts` gives, per partition, the counters of the state; `samples` everything else.
    """

    def __init__(
        self,
        subsystem: str,
        counts: Callable[[], Mapping[int, Mapping[str, int]]],
        samples: Callable[[], Iterable[Sample]],
    ) -> None:
        self._subsystem = subsystem
        self._counts = counts
        self._samples = samples

    def collect(self) -> Iterable[Metric]:
        """All series; what is not declared is an error."""
        families: dict[str, Metric] = {}
        for name, value, labels in (*self._counted(), *self._samples()):
            about = METRICS[name]
            given = dict(labels)
            if name not in families:
                make = FAMILIES[about.kind]
                families[name] = make(name, about.doc, labels=about.labels)
            values = [given.pop(label) for label in about.labels]
            if given:
                raise KeyError(f"{name} is declared without {', '.join(given)}")
            if isinstance(value, Histogram):
                families[name].add_metric(values, value.cumulative(), value.sum)  # type: ignore[attr-defined]
            else:
                families[name].add_metric(values, value)  # type: ignore[attr-defined]
        return families.values()

    def _counted(self) -> Iterator[Sample]:
        """The counters of the state; outcomes that never happened are 0, so that rates see them."""
        declared = [counter for counter in COUNTERS if counter.subsystem == self._subsystem]
        for partition, counts in self._counts().items():
            at = ("partition", str(partition))
            for what in declared:
                for outcome in what.outcomes:
                    value = counts.get(f"{what.key}/{outcome}", 0)
                    yield Sample(what.name, value, (at, (what.label, outcome)))


def make_registry(collector: Collector) -> CollectorRegistry:
    """A registry with the collector and the standard process metrics."""
    registry = CollectorRegistry()
    registry.register(collector)
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    return registry
