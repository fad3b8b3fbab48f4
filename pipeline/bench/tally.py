"""Outcomes of jobs -> numbers of tables: means over seeds, streams, delays and masks."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.bench.jobs import Job
from pipeline.bench.scores import Outcome
from pipeline.bench.sources import CHOSEN_ON, REPORTED_ON
from pipeline.bench.stats import Ranking, rank, signed_rank

METRICS: dict[str, Callable[[Outcome], float | None]] = {
    "cer": lambda outcome: outcome.cer,
    "auc": lambda outcome: outcome.auc,
    "log_loss": lambda outcome: outcome.log_loss,
    "late_cer": lambda outcome: outcome.late_cer,
}


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


class Tally:
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
        return rank(scores, smaller_is_better=metric != "auc")

    def wins(self, method: str, other: str, metric: str) -> tuple[int, int]:
        """Streams on which a method is better, and on which it is worse, by 0.0001 or more."""
        sign = -1.0 if metric == "auc" else 1.0
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
