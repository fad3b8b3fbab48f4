"""The series of one partition's evaluator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dtgol_core.scoring import Span
from pipeline.evaluation.pairing import Evaluation
from pipeline.evaluation.view import Costs, StreamView, Window, equal_costs
from pipeline.runtime.metric_table import DELAY_S, OTHER
from pipeline.runtime.metrics import Histogram, Sample, StreamLabels
from topics.scores import Score

Labels = tuple[tuple[str, str], ...]
QUALITIES = (
    *("accuracy", "auc", "log_loss", "brier", "calibration_error"),
    *("precision", "recall"),
)


class ScoreTotals:
    """Sums over the scores of one stream, which only grow.

    Those of a scoreboard do not: it takes back what a corrected label replaces, and a counter that
    falls looks like a restart to Prometheus.
    """

    def __init__(self) -> None:
        self.scored = 0
        self.errors = [0, 0]
        self.false_positives = [0, 0]
        self.covered = 0
        self.undecided = 0
        self.losses = [0.0, 0.0]

    def add(self, score: Score) -> None:
        """Take one score in."""
        self.scored += 1
        self.errors[0] += not score.correct
        self.errors[1] += not score.naive_correct
        self.false_positives[0] += not score.correct and not score.y
        self.false_positives[1] += not score.naive_correct and not score.y
        self.covered += score.covered
        self.undecided += len(score.set) > 1
        self.losses[0] += score.loss
        self.losses[1] += score.naive_loss

    def merge(self, other: ScoreTotals) -> None:
        """Add those of another stream."""
        self.scored += other.scored
        self.covered += other.covered
        self.undecided += other.undecided
        for which in (0, 1):
            self.errors[which] += other.errors[which]
            self.false_positives[which] += other.false_positives[which]
            self.losses[which] += other.losses[which]

    def samples(self, of: Labels) -> Iterator[Sample]:
        """As counters, of the forecast and of naive."""
        yield Sample("dtgol_scoring_scored_total", self.scored, of)
        yield Sample("dtgol_scoring_covered_total", self.covered, of)
        yield Sample("dtgol_scoring_undecided_total", self.undecided, of)
        for which, name in enumerate(("forecast", "naive")):
            by = (*of, ("forecast", name))
            yield Sample("dtgol_scoring_errors_total", self.errors[which], by)
            wrong_1 = self.false_positives[which]
            yield Sample("dtgol_scoring_false_positives_total", wrong_1, by)
            yield Sample("dtgol_scoring_loss_nats_total", self.losses[which], by)


class EvaluatorMetrics:
    """What is counted of an evaluator beside its state, from its restore on.

    `streams_max` is how many streams have series of their own; `costs` what errors cost in each.
    """

    def __init__(self, streams_max: int, costs: Costs = equal_costs) -> None:
        self._costs = costs
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
        yield Sample("dtgol_evaluator_remembered_predictions", len(state.pairs))
        yield Sample("dtgol_evaluator_rescored_total", state.rescored)
        yield Sample("dtgol_evaluator_label_delay_seconds", self._delays)
        bounds = state.bounds
        used = {
            "evaluator.boards_max": len(state.boards) / bounds.boards_max,
            "evaluator.labels_max": state.unmatched / bounds.labels_max,
            "evaluator.pairs_bytes_max": state.unscored / bounds.pairs_max,
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
            yield from _window_samples(view.last_window(), of)
            yield from _estimate_samples(view, of)
        total = state.boards[stream].total()
        yield Sample("dtgol_scoring_predictions", total.count, of)
        yield from _coverage_samples(total, of)
        costs = self._costs(stream)
        for which, quality in (("forecast", total.forecast), ("naive", total.naive)):
            by = (*of, ("forecast", which))
            values = {name: getattr(quality, name) for name in QUALITIES}
            values["cost"] = quality.cost(*costs, total.count)
            for name, value in values.items():
                if value is not None:
                    yield Sample(f"dtgol_scoring_{name}", value, by)


def _window_samples(window: Window, of: Labels) -> Iterator[Sample]:
    """The last window by label arrival."""
    yield Sample("dtgol_scoring_window_labels", window.labels, of)
    if window.accuracy is None or window.naive is None:
        return
    forecast, naive = ((*of, ("forecast", name)) for name in ("forecast", "naive"))
    yield Sample("dtgol_scoring_window_accuracy_ratio", window.accuracy, forecast)
    yield Sample("dtgol_scoring_window_accuracy_ratio", window.naive, naive)
    yield Sample("dtgol_scoring_window_gain_ratio", window.accuracy - window.naive, of)
    optional = {
        ("dtgol_scoring_window_calibration_error", forecast): window.calibration_error,
        ("dtgol_scoring_window_calibration_error", naive): window.naive_calibration_error,
        ("dtgol_scoring_window_precision_ratio", of): window.precision,
        ("dtgol_scoring_window_recall_ratio", of): window.recall,
        ("dtgol_scoring_window_coverage_ratio", (*of, ("class", "all"))): window.coverage,
        ("dtgol_scoring_window_coverage_ratio", (*of, ("class", "0"))): window.coverage_0,
        ("dtgol_scoring_window_coverage_ratio", (*of, ("class", "1"))): window.coverage_1,
        ("dtgol_scoring_window_undecided_ratio", of): window.undecided,
    }
    for (name, by), value in optional.items():
        if value is not None:
            yield Sample(name, value, by)


def _estimate_samples(view: StreamView, of: Labels) -> Iterator[Sample]:
    """Accuracy before the labels come, by both estimates, and their errors so far."""
    for name, each in view.estimates()._asdict().items():
        by = (*of, ("estimate", name))
        if each.now is not None:
            yield Sample("dtgol_scoring_estimated_accuracy_ratio", each.now, by)
        if each.error is not None:
            yield Sample("dtgol_scoring_estimate_error_ratio", each.error, by)


def _coverage_samples(total: Span, of: Labels) -> Iterator[Sample]:
    """How often sets had the label, since the stream began."""
    found = total.coverage
    shares = {"all": found.share, "0": found.by_class[0], "1": found.by_class[1]}
    for name, share in shares.items():
        if share is not None:
            yield Sample("dtgol_scoring_coverage_ratio", share, (*of, ("class", name)))
    if found.undecided is not None:
        yield Sample("dtgol_scoring_undecided_ratio", found.undecided, of)
