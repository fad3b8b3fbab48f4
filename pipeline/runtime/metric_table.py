"""Every series of `/metrics`, declared once; docs/metrics.md comes from here
(`python -m pipeline.runtime.metric_table`).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Literal, NamedTuple

from dtgol_core.delay import EXPIRY_SETTINGS, SHARED_BOUND
from dtgol_core.types import LabelOutcome
from topics.journal import RecordKind
from topics.reasons import Reason

LATENCY_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
DELAY_S = (1, 10, 60, 600, 3_600, 21_600, 86_400, 604_800, 2_592_000, 31_536_000)
"""Bounds of label delays: a second, a minute, an hour, a day, a week, a month, a year."""
OTHER = "(other)"
"""The stream label of all streams without series of their own; no stream can have this name."""


class Declared(NamedTuple):
    """One series: what it counts, its labels, and which process shows it."""

    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    shown_by: tuple[str, ...]
    doc: str


class StateCounter(NamedTuple):
    """A family of counters that are part of a state, under the keys ``key/outcome``."""

    subsystem: str
    key: str
    what: str
    label: str
    outcomes: tuple[str, ...]
    doc: str

    @property
    def name(self) -> str:
        """The name of the series."""
        return f"dtgol_{self.subsystem}_{self.what}_total"


_RECORDS = ("duplicate", "broken", "gone", "erase", "skipped", "refused", "unknown-fields")
_LABELS = ("learnt", "defaulted", "refused", "stamped-before")
COUNTERS = (
    StateCounter(
        "fold",
        "records",
        "records",
        "outcome",
        (*RecordKind, *_RECORDS),
        "Journal records by what they are and what became of them.",
    ),
    StateCounter(
        "fold",
        "features",
        "features",
        "outcome",
        ("answered", "repeat", "refused"),
        "Feature records: answered, answered again, refused.",
    ),
    StateCounter(
        "fold",
        "labels",
        "labels",
        "outcome",
        (*LabelOutcome, *_LABELS),
        "Labels by what became of them on arrival; `learnt` and `defaulted` count when they are "
        "learnt, which is later; `stamped-before` those with a clock long before their features'.",
    ),
    StateCounter(
        "fold",
        "labels/late",
        "late_labels",
        "setting",
        (*(f"delay.{name}" for name in EXPIRY_SETTINGS), f"limits.{SHARED_BOUND}"),
        "Late labels by the setting that let their instance expire.",
    ),
    StateCounter(
        "fold", "cells", "cells", "outcome", ("kind-conflict",), "Cells taken as missing."
    ),
    StateCounter(
        "fold", "instances", "instances", "outcome", ("expired",), "Instances without a label."
    ),
    StateCounter(
        "fold",
        "streams",
        "streams",
        "outcome",
        ("opened", "evicted", "reset", "unchanged"),
        "Streams opened, forgotten as idle, reset, and left with their old settings.",
    ),
    StateCounter(
        "fold",
        "refusals",
        "dead_letters",
        "reason",
        tuple(Reason),
        "Dead letters by reason; docs/dead-letters.md says what to do.",
    ),
    StateCounter(
        "fold",
        "predictions",
        "predictions",
        "outcome",
        ("refused",),
        "Predictions that were too large to be written.",
    ),
    StateCounter(
        "evaluator",
        "predictions",
        "predictions",
        "outcome",
        (
            *("kept", "scored", "unlabelled", "repeat", "duplicate", "foreign", "refused"),
            *("without-board", "failed"),
        ),
        "Predictions read: kept, scored at least once, forgotten without a label, not scored "
        "(repeat, duplicate, foreign, refused), scored without a scoreboard, left out because the "
        "evaluator failed on them three times.",
    ),
    StateCounter(
        "evaluator",
        "labels",
        "labels",
        "outcome",
        ("first", "corrected", "repeated", "default", "unmatched", "erase", "refused", "failed"),
        "Labels read: first of their id, another value, the same again, default labels, forgotten "
        "without a prediction, erasures, refused, left out after three failures.",
    ),
)
_BOTH = ("worker", "evaluator")
_AT = ("partition",)
_OF = ("partition", "stream")
_BY = ("partition", "stream", "forecast")
_CLASS = ("partition", "stream", "class")
_ESTIMATE = ("partition", "stream", "estimate")
_WORKER, _EVALUATOR = ("worker",), ("evaluator",)


def _gauge(shown_by: tuple[str, ...], labels: tuple[str, ...], doc: str) -> Declared:
    return Declared("gauge", labels, shown_by, doc)


def _counter(shown_by: tuple[str, ...], labels: tuple[str, ...], doc: str) -> Declared:
    return Declared("counter", labels, shown_by, doc)


METRICS: Mapping[str, Declared] = {
    "dtgol_build_info": _gauge(
        _BOTH, ("version", "python", "numpy", "numba"), "1; the labels say what runs."
    ),
    "dtgol_worker_ready": _gauge(_WORKER, (), "1 when /readyz is green."),
    "dtgol_evaluator_ready": _gauge(_EVALUATOR, (), "1 when /readyz is green."),
    "dtgol_outbox_waiting_records": _gauge(
        _BOTH, (), "Records handed to the producer and not yet acknowledged."
    ),
    "dtgol_partition_ready": _gauge(_BOTH, _AT, "1 when the partition is restored and follows."),
    "dtgol_consumer_lag_records": _gauge(
        _BOTH,
        ("partition", "topic"),
        "Records of a topic that are not processed, as far as the consumer knows its end.",
    ),
    "dtgol_stage_busy_seconds_total": _counter(
        _BOTH,
        ("partition", "stage"),
        "Time spent by stage: `sequence` (copy to the journal), `fold`, `score`, `snapshot`.",
    ),
    "dtgol_stage_records_total": _counter(
        _BOTH,
        ("partition", "stage"),
        "Records that went through a stage in this time; for `snapshot` the snapshots written.",
    ),
    "dtgol_snapshot_next_offset": _gauge(
        _BOTH, _AT, "Position of the newest snapshot: journal offset, or records of the evaluator."
    ),
    "dtgol_snapshot_unsaved_records": _gauge(
        _BOTH, _AT, "Records processed since the newest snapshot."
    ),
    "dtgol_snapshot_age_seconds": _gauge(
        _BOTH,
        _AT,
        "Since the last snapshot of this process, or since it has the partition. Without new "
        "records none is written.",
    ),
    "dtgol_snapshot_written_bytes": _gauge(_BOTH, _AT, "What the last snapshot has written."),
    "dtgol_snapshot_failed": _gauge(_BOTH, _AT, "1 if the last one could not be written."),
    "dtgol_bound_used_ratio": _gauge(
        _BOTH,
        ("partition", "bound"),
        "How much of a bound is in use, by the setting that holds it; of bounds of a stream the "
        "fullest one. Of `evaluator.pairs_bytes_max` what has no label counts: the scored make "
        "room. docs/limits.md says what happens at 1.",
    ),
    "dtgol_sequencer_copied_records_total": _counter(
        _WORKER, _AT, "Records copied to the journal by this process."
    ),
    "dtgol_sequencer_waiting_records": _gauge(_WORKER, _AT, "Records that wait for the merge."),
    "dtgol_sequencer_least_age_seconds": _gauge(
        _WORKER,
        ("partition", "topic"),
        "Least age of the newest records when they came: a slow clock, or a lag.",
    ),
    "dtgol_learner_next_offset": _gauge(_WORKER, _AT, "Journal offset folded up to."),
    "dtgol_learner_waiting_records": _gauge(_WORKER, _AT, "Received, not folded."),
    "dtgol_learner_parked": _gauge(
        _WORKER, _AT, "1 if it waits for a decision about a record on which the fold fails."
    ),
    "dtgol_learner_latency_seconds": Declared(
        "histogram",
        _AT,
        _WORKER,
        "From the timestamp of a features record to its prediction being handed to the producer.",
    ),
    "dtgol_fold_open_streams": _gauge(_WORKER, _AT, "Streams with a learner."),
    "dtgol_fold_state_bytes": _gauge(_WORKER, _AT, "Memory of the learners, as last measured."),
    "dtgol_fold_state_bytes_max": _gauge(_WORKER, _AT, "Memory that the learners may have."),
    "dtgol_delay_pending_instances": _gauge(_WORKER, _AT, "Instances that wait for a label."),
    "dtgol_delay_early_labels": _gauge(_WORKER, _AT, "Labels held before their features."),
    "dtgol_delay_early_oldest_age_seconds": _gauge(
        _WORKER, _AT, "Age of the oldest label without features; a wrong key makes it grow."
    ),
    "dtgol_expert_weight": _gauge(
        _WORKER,
        ("partition", "stream", "expert"),
        "By how much the log-odds of the forecast move with an expert's; may be negative.",
    ),
    "dtgol_guard_weight": _gauge(
        _WORKER,
        ("partition", "stream", "member"),
        "Share of each stack and of naive in the forecast; they sum to 1.",
    ),
    "dtgol_evaluator_remembered_predictions": _gauge(
        _EVALUATOR, _AT, "Predictions kept, scored or not."
    ),
    "dtgol_evaluator_rescored_total": _counter(
        _EVALUATOR, _AT, "Scored again by this process: the label was corrected."
    ),
    "dtgol_evaluator_label_delay_seconds": Declared(
        "histogram",
        _AT,
        _EVALUATOR,
        "Event time of the first label minus that of its features, by this process.",
    ),
    "dtgol_scoring_scored_total": _counter(
        _EVALUATOR,
        _OF,
        "Scores by this process since its restore; a corrected label counts again. Streams "
        f"without series of their own are together `{OTHER}`, here and in errors and loss.",
    ),
    "dtgol_scoring_errors_total": _counter(
        _EVALUATOR, _BY, "Scores whose hard label was wrong, of the forecast and of naive."
    ),
    "dtgol_scoring_false_positives_total": _counter(
        _EVALUATOR, _BY, "Those of the errors whose hard label was 1; the others missed a label 1."
    ),
    "dtgol_scoring_covered_total": _counter(
        _EVALUATOR, _OF, "Scores whose label was in the set that the prediction left open."
    ),
    "dtgol_scoring_undecided_total": _counter(
        _EVALUATOR, _OF, "Scores whose set was [0, 1]: to be sent to a human."
    ),
    "dtgol_scoring_loss_nats_total": _counter(_EVALUATOR, _BY, "Sum of their log losses, in nats."),
    "dtgol_scoring_window_labels": _gauge(
        _EVALUATOR, _OF, "Labels in the last window: the newest 200 or some more."
    ),
    "dtgol_scoring_window_accuracy_ratio": _gauge(
        _EVALUATOR, _BY, "Accuracy of the last window, by label arrival."
    ),
    "dtgol_scoring_window_gain_ratio": _gauge(
        _EVALUATOR, _OF, "Accuracy of the forecast minus that of naive in the last window."
    ),
    "dtgol_scoring_window_calibration_error": _gauge(
        _EVALUATOR, _BY, "Expected calibration error of the last window, over ten bins."
    ),
    "dtgol_scoring_window_precision_ratio": _gauge(
        _EVALUATOR, _OF, "Of the labels 1 that were given, the share that was right; last window."
    ),
    "dtgol_scoring_window_recall_ratio": _gauge(
        _EVALUATOR, _OF, "Of the labels 1 that came, the share that was found; last window."
    ),
    "dtgol_scoring_window_coverage_ratio": _gauge(
        _EVALUATOR,
        _CLASS,
        "Share of the labels of the last window that were in their sets: `all`, and by class.",
    ),
    "dtgol_scoring_window_undecided_ratio": _gauge(
        _EVALUATOR, _OF, "Share of the sets of the last window that left both classes open."
    ),
    "dtgol_scoring_estimated_accuracy_ratio": _gauge(
        _EVALUATOR,
        _ESTIMATE,
        "Accuracy of the newest 200 predictions or some more, before their labels: `calibrated` "
        "by their probabilities, `last_window` by the labels that had come. Neither sees a pure "
        "change of concept.",
    ),
    "dtgol_scoring_estimate_error_ratio": _gauge(
        _EVALUATOR,
        _ESTIMATE,
        "Mean absolute error that this estimate has had, over the windows whose labels have come.",
    ),
    "dtgol_scoring_predictions": _gauge(
        _EVALUATOR, _OF, "Scored predictions since the stream began."
    ),
    "dtgol_scoring_accuracy": _gauge(_EVALUATOR, _BY, "Accuracy since the stream began."),
    "dtgol_scoring_auc": _gauge(_EVALUATOR, _BY, "Area under the ROC curve since then."),
    "dtgol_scoring_log_loss": _gauge(_EVALUATOR, _BY, "Mean log loss since then, in nats."),
    "dtgol_scoring_brier": _gauge(_EVALUATOR, _BY, "Mean Brier score since then."),
    "dtgol_scoring_calibration_error": _gauge(
        _EVALUATOR, _BY, "Expected calibration error since then, over ten bins."
    ),
    "dtgol_scoring_precision": _gauge(
        _EVALUATOR, _BY, "Of the labels 1 that were given, the share that was right, since then."
    ),
    "dtgol_scoring_recall": _gauge(
        _EVALUATOR, _BY, "Of the labels 1 that came, the share that was found, since then."
    ),
    "dtgol_scoring_cost": _gauge(
        _EVALUATOR,
        _BY,
        "Mean cost of a prediction since then, by `decision.cost_fp` and `decision.cost_fn` in the "
        "evaluator's settings; without these the share of errors.",
    ),
    "dtgol_scoring_coverage_ratio": _gauge(
        _EVALUATOR,
        _CLASS,
        "Share of the labels since then that were in their sets: `all`, and by class.",
    ),
    "dtgol_scoring_undecided_ratio": _gauge(
        _EVALUATOR, _OF, "Share of the sets since then that left both classes open."
    ),
    **{
        each.name: Declared(
            "counter",
            ("partition", each.label),
            _WORKER if each.subsystem == "fold" else _EVALUATOR,
            each.doc,
        )
        for each in COUNTERS
    },
}

HEAD = """# Metrics

Generated by `python -m pipeline.runtime.metric_table`; do not edit. `/metrics` of worker and
evaluator, in base units. Counters of `fold` and `evaluator` are part of the state: every record
counts once, whatever crashed, and a counter goes on in the process that gets the partition. All
other counters begin at 0 with the process. Aggregate over processes: `sum by (…) (rate(…))`.

The label `stream` is bounded: the first `web.metrics_streams_max` streams of a partition have
series of their own. No label carries an id or a value. `python_…` and `process_…` are the client
library's. Alerts that use these series: [runbook.md](runbook.md).
"""


def page() -> str:
    """The page of the documentation."""
    parts = [HEAD, "| series | kind | labels | of | meaning |", "|---|---|---|---|---|"]
    for name, each in sorted(METRICS.items()):
        labels = ", ".join(each.labels)
        shown = ", ".join(each.shown_by)
        parts.append(f"| `{name}` | {each.kind} | {labels} | {shown} | {each.doc} |")
    parts.append("\n## Outcomes\n\nEvery value is shown from the start, as 0 until it happens.\n")
    parts.append("| series | label | values |\n|---|---|---|")
    for counter in COUNTERS:
        values = ", ".join(counter.outcomes)
        parts.append(f"| `{counter.name}` | {counter.label} | {values} |")
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    sys.stdout.write(page())
