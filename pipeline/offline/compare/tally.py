"""Outcomes of jobs -> numbers of tables: means over seeds, streams, delays and masks."""

import math
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.offline.compare.jobs import Cell, Job
from pipeline.offline.compare.scores import Outcome
from pipeline.offline.compare.sources import CHOSEN_ON, REPORTED_ON
from pipeline.offline.compare.stats import Ranking, rank, signed_rank

METRICS: dict[str, Callable[[Outcome], float | None]] = {
    "cer": lambda outcome: outcome.cer,
    "auc": lambda outcome: outcome.auc,
    "log_loss": lambda outcome: outcome.log_loss,
    "late_cer": lambda outcome: outcome.late_cer,
    "ece": lambda outcome: outcome.ece,
    "average_precision": lambda outcome: outcome.average_precision,
    "first_cer": lambda outcome: outcome.first_cer,
    "us_per_record": lambda outcome: outcome.us_per_record,
}
MEASURES = {
    "cer": "CER",
    "auc": "AUC",
    "log_loss": "log loss",
    "ece": "ECE",
    "average_precision": "average precision",
    "first_cer": "CER, steps L + 1 to L + 100",
}
"""What tables with many measures show."""
MORE_IS_BETTER = frozenset({"auc", "average_precision"})


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean and standard deviation over seeds; of one seed there is no deviation."""

    mean: float
    deviation: float
    seeds: int

    def __str__(self) -> str:
        if math.isnan(self.mean):
            return "–"
        deviation = f" ± {self.deviation:.3f}" if self.seeds > 1 else ""
        return f"{self.mean:.3f}{deviation}"


def spread(values: Iterable[float | None]) -> Spread:
    """Over seeds.

    >>> str(spread([0.1, 0.2])), str(spread([0.1]))
    ('0.150 ± 0.071', '0.100')
    """
    known = [value for value in values if value is not None]
    if not known:
        return Spread(math.nan, math.nan, 0)
    deviation = float(np.std(known, ddof=1)) if len(known) > 1 else math.nan
    return Spread(float(np.mean(known)), deviation, len(known))


class Comparison:
    """The outcomes of a benchmark, by stream and method."""

    def __init__(self, outcomes: Mapping[Job, Outcome]) -> None:
        self.outcomes = outcomes
        self._by: dict[tuple[str, str], list[tuple[Job, Outcome]]] = defaultdict(list)
        for job, outcome in outcomes.items():
            self._by[job.source.name, job.method].append((job, outcome))
        self.streams = sorted({stream for stream, _ in self._by}, key=str.lower)
        """In alphabetical order, whatever the case."""
        self.halved = set(self.streams) == CHOSEN_ON | REPORTED_ON
        """Whether these are the fifteen streams that were halved; of others nothing was chosen."""

    def where(self, keep: Callable[[Job], bool]) -> "Comparison":
        """Of some of the jobs."""
        return Comparison({job: each for job, each in self.outcomes.items() if keep(job)})

    def common(self, methods: Sequence[str]) -> "Comparison":
        """Of these methods, on the streams, masks, delays and seeds that all of them were run on:
        means of others would not compare."""
        cells = [self.cells(method) for method in methods]
        shared = set.intersection(*cells) if cells else set()
        return self.where(lambda job: job.method in methods).in_cells(shared)

    def in_cells(self, cells: Container[object]) -> "Comparison":
        """Of the jobs in these cells (`Job.cell`)."""
        return self.where(lambda job: job.cell in cells)

    def having(self, **values: object) -> "Comparison":
        """Of the jobs whose attributes have these values."""
        return self.where(
            lambda job: all(getattr(job, name) == value for name, value in values.items())
        )

    def cells(self, method: str) -> set[Cell]:
        """Where a method was run."""
        return {job.cell for job in self.outcomes if job.method == method}

    @property
    def methods(self) -> set[str]:
        """The names of all that were run."""
        return {method for _, method in self._by}

    @property
    def seeds(self) -> int:
        """How many there are."""
        return len({job.seed for job in self.outcomes})

    def half(self, stream: str) -> str:
        """``odd`` (chosen on) or ``even`` (reported on); nothing where no halves were made."""
        if not self.halved:
            return ""
        return "odd" if stream in CHOSEN_ON else "even"

    def runs(self, stream: str, method: str) -> list[tuple[Job, Outcome]]:
        """All runs of a method on a stream."""
        return self._by.get((stream, method), [])

    def on(self, stream: str, method: str, metric: str) -> Spread:
        """Mean over delays and masks, then mean and deviation over seeds."""
        by_seed: dict[int, list[float]] = defaultdict(list)
        for job, outcome in self.runs(stream, method):
            value = METRICS[metric](outcome)
            if value is not None:
                by_seed[job.seed].append(value)
        return spread(float(np.mean(values)) for values in by_seed.values())

    def ranking(
        self, methods: Sequence[str], metric: str, streams: Sequence[str] | None = None
    ) -> Ranking:
        """Mean ranks of methods over streams (all without any), one block per stream."""
        scores = {
            method: [self.on(stream, method, metric).mean for stream in streams or self.streams]
            for method in methods
        }
        return rank(scores, smaller_is_better=metric not in MORE_IS_BETTER)

    def mean(self, method: str, metric: str, streams: Sequence[str] | None = None) -> float:
        """Mean over streams (all without any) of the means over delays, masks and seeds."""
        values = [self.on(stream, method, metric).mean for stream in streams or self.streams]
        known = [value for value in values if not math.isnan(value)]
        return float(np.mean(known)) if known else math.nan

    def worst(self, method: str) -> tuple[tuple[float, str], tuple[int, str]] | None:
        """The worst prefix of any run against naive: in nats and where, in errors and where."""
        found = [
            (each.worst, job.stream)
            for job, each in self.outcomes.items()
            if job.method == method and each.worst is not None
        ]
        if not found:
            return None
        nats = max((worst.nats, stream) for worst, stream in found)
        return nats, max((worst.errors, stream) for worst, stream in found)

    def wins(self, method: str, other: str, metric: str) -> tuple[int, int]:
        """Streams on which a method is better, and on which it is worse, by 0.0001 or more."""
        sign = -1.0 if metric in MORE_IS_BETTER else 1.0
        gaps = [sign * round(gap, 4) for gap in self._gaps(method, other, metric)]
        return sum(gap < 0.0 for gap in gaps), sum(gap > 0.0 for gap in gaps)

    def p_value(self, method: str, other: str, metric: str) -> float:
        """Of the Wilcoxon signed-rank test of two methods over the streams."""
        return signed_rank(self._gaps(method, other, metric))

    def _gaps(self, method: str, other: str, metric: str) -> list[float]:
        return [
            self.on(stream, method, metric).mean - self.on(stream, other, metric).mean
            for stream in self.streams
        ]

    def us_per_record(self, method: str) -> tuple[float, float]:
        """Processor time per record: median over runs, and the slowest stream's median."""
        medians = []
        every = []
        for stream in self.streams:
            times = [
                outcome.us_per_record
                for _, outcome in self.runs(stream, method)
                if outcome.us_per_record is not None
            ]
            if times:
                medians.append(float(np.median(times)))
                every.extend(times)
        return (float(np.median(every)), max(medians)) if every else (math.nan, math.nan)
