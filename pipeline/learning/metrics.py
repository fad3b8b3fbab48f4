"""The series of one partition's learner."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from pipeline.kafka.record import Record
from pipeline.learning.fold import Fold
from pipeline.learning.outputs import Output
from pipeline.learning.streams import IDS_SHARE, WAITING_SHARE
from pipeline.runtime.metric_table import LATENCY_S
from pipeline.runtime.metrics import Histogram, Sample, StreamLabels
from topics.headers import header_name

_TIMESTAMP = header_name("timestamp_ms")


class LearnerMetrics:
    """What is measured of a learner beside its state.

    Parameters
    ----------
    streams_max
        Streams with series of their own.
    now
        Wall clock in seconds, to compare with Kafka's timestamps.
    """

    def __init__(self, streams_max: int, now: Callable[[], float] = time.time) -> None:
        self._labels = StreamLabels(streams_max)
        self._now = now
        self._latency = Histogram(LATENCY_S)

    def answered(self, record: Record, outputs: Sequence[Output]) -> None:
        """A journal record was applied: measure the age of the features that it has answered."""
        if outputs and outputs[0].topic == "predictions":
            # Of headers with one name the last counts; ours are the last.
            stamps = (raw for name, raw in reversed(record.headers) if name == _TIMESTAMP)
            stamp = next(stamps, None)
            if stamp is not None:
                self._latency.observe(max(0.0, self._now() - int(stamp) / 1000))

    def samples(self, parked: bool, next_offset: int, waiting: int) -> Iterator[Sample]:
        """What is known without a state too."""
        yield Sample("dtgol_learner_parked", float(parked))
        yield Sample("dtgol_learner_next_offset", next_offset)
        yield Sample("dtgol_learner_waiting_records", waiting)
        yield Sample("dtgol_learner_latency_seconds", self._latency)

    def fold_samples(self, fold: Fold) -> Iterator[Sample]:
        """What the streams hold, how near they are to their bounds, and the weights of experts."""
        config, streams = fold.config, fold.streams
        learners = [stream.learner for stream in streams.values()]
        yield Sample("dtgol_fold_open_streams", len(learners))
        yield Sample("dtgol_fold_state_bytes", fold.streams.state_bytes)
        yield Sample("dtgol_fold_state_bytes_max", config.state_bytes_max)
        yield Sample("dtgol_delay_pending_instances", sum(each.pending for each in learners))
        early = sum(each.delay.early_labels for each in learners) + len(streams.unopened)
        yield Sample("dtgol_delay_early_labels", early)
        oldest = fold.oldest_early_ms
        age_s = 0.0 if oldest is None else max(0.0, self._now() - oldest / 1000)
        yield Sample("dtgol_delay_early_oldest_age_seconds", age_s)
        pending = [
            each.delay.pending_bytes / each.config.delay.pending_bytes_max for each in learners
        ]
        used = {
            "limits.state_bytes_max": fold.streams.state_bytes / max(1, config.state_bytes_max),
            "limits.streams_max": len(learners) / config.streams_max,
            "limits.early_bytes_max": streams.early_bytes / max(1, config.early_bytes_max),
            "delay.pending_bytes_max": max(pending, default=0.0),
            "waiting instances": sum(each.delay.pending_bytes for each in learners)
            / max(1, config.state_bytes_max // WAITING_SHARE),
            "remembered ids": sum(each.delay.settled.state_bytes for each in learners)
            / max(1, config.state_bytes_max // IDS_SHARE),
        }
        for bound, share in used.items():
            yield Sample("dtgol_bound_used_ratio", share, (("bound", bound),))
        for name in self._labels.chosen(streams):
            experts, guard = streams[name].learner.combination.weights()
            of = ("stream", name)
            for expert, weight in experts.items():
                yield Sample("dtgol_expert_weight", weight, (of, ("expert", expert)))
            for member, weight in guard.items():
                yield Sample("dtgol_guard_weight", weight, (of, ("member", member)))
