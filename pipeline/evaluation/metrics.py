"""The series of one partition's evaluator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pipeline.evaluation.pairing import Evaluation
from pipeline.runtime.metric_table import DELAY_S, OTHER
from pipeline.runtime.metrics import Histogram, Sample, StreamLabels
from topics.scores import Score

Labels = tuple[tuple[str, str], ...]
QUALITIES = ("accuracy", "auc", "log_loss", "brier", "calibration_error")


class ScoreTotals:
    """Sums over the scores of one stream, which only grow.

    Those of a scoreboard do not: it takes back what a corrected label replaces, and a counter that
    falls looks like a restart to Prometheus.
    """

    def __init__(self) -> None:
        self.scored = 0
        self.errors = [0, 0]
        self.losses = [0.0, 0.0]

    def add(self, score: Score) -> None:
        """Take one score in."""
        self.scored += 1
        self.errors[0] += not score.correct
        self.errors[1] += not score.naive_correct
        self.losses[0] += score.loss
        self.losses[1] += score.naive_loss

    def merge(self, other: ScoreTotals) -> None:
        """Add those of another stream."""
        self.scored += other.scored
        for which in (0, 1):
            self.errors[which] += other.errors[which]
            self.losses[which] += other.losses[which]

    def samples(self, of: Labels) -> Iterator[Sample]:
        """As counters, of the forecast and of naive."""
        yield Sample("dtgol_scoring_scored_total", self.scored, of)
        for which, name in enumerate(("forecast", "naive")):
            by = (*of, ("forecast", name))
            yield Sample("dtgol_scoring_errors_total", self.errors[which], by)
            yield Sample("dtgol_scoring_loss_nats_total", self.losses[which], by)


class EvaluatorMetrics:
    """What is counted of an evaluator beside its state, from its restore on.

    `streams_max` is how many streams have series of their own.
    """

    def __init__(self, streams_max: int) -> None:
        self._labels = StreamLabels(streams_max)
        self._totals: dict[str, ScoreTotals] = {}
        self._other = ScoreTotals()
        self._delays = Histogram(DELAY_S)

    def scored(self, scores: Sequence[Score], state: Evaluation) -> None:
        """Count scores; those of streams without series of their own together."""
        for score in scores:
            stream = score.stream
            if stream not in self._totals and stream in self._labels.chosen(state.boards):
                self._totals[stream] = ScoreTotals()
            self._totals.get(stream, self._other).add(score)
            if not score.rescored:
                self._delays.observe(max(0.0, score.delay_ms / 1000))

    def samples(self, state: Evaluation) -> Iterator[Sample]:
        """Bounds, totals, and of each stream that is chosen its quality."""
        yield Sample("dtgol_evaluator_remembered_predictions", len(state.predictions))
        yield Sample("dtgol_evaluator_rescored_total", state.rescored)
        yield Sample("dtgol_evaluator_label_delay_seconds", self._delays)
        bounds = state.bounds
        used = {
            "evaluator.boards_max": len(state.boards) / bounds.boards_max,
            "evaluator.labels_max": state.unmatched / bounds.labels_max,
        }
        for bound, share in used.items():
            yield Sample("dtgol_bound_used_ratio", share, (("bound", bound),))
        for stream, totals in self._totals.items():
            yield from totals.samples((("stream", stream),))
        if self._other.scored:
            yield from self._other.samples((("stream", OTHER),))
        for stream in self._labels.chosen(state.boards):
            yield from self._quality(state, stream)

    def _quality(self, state: Evaluation, stream: str) -> Iterator[Sample]:
        """One stream: the last window by label arrival, and all since it began."""
        of = (("stream", stream),)
        view = state.view.streams.get(stream)
        if view is not None:
            window = view.last_window()
            yield Sample("dtgol_scoring_window_labels", window.labels, of)
            if window.labels:
                name = "dtgol_scoring_window_accuracy_ratio"
                yield Sample(name, window.accuracy, (*of, ("forecast", "forecast")))
                yield Sample(name, window.naive, (*of, ("forecast", "naive")))
                gain = window.accuracy - window.naive
                yield Sample("dtgol_scoring_window_gain_ratio", gain, of)
        total = state.boards[stream].total()
        yield Sample("dtgol_scoring_predictions", total.count, of)
        for which, quality in (("forecast", total.forecast), ("naive", total.naive)):
            for name in QUALITIES:
                value = getattr(quality, name)
                if value is not None:
                    by = (*of, ("forecast", which))
                    yield Sample(f"dtgol_scoring_{name}", value, by)
