"""The durable fold: the journal of one partition -> predictions, dead letters, state.

In: journal records in order of their offsets. Out: per record what goes on the wire. Pure: no
clock, no randomness, no I/O, so the state and every output byte depend on the journal prefix alone;
the worker, a restore, a replay and the tests run this same class.

A source record is applied once. At or below its source's mark it is a duplicate and is dropped;
if its `prev` is beyond the mark the chain is broken, something before it is missing, and it is not
applied either: it will come again. Bad input is an answer (a dead letter), never an exception; an
exception is a bug, and the caller must stop. One exception is none: a journal that a newer version
of the software has folded is refused (`RefusalError`).
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from dtgol_core.config import ConfigError
from dtgol_core.delay import SHARED_BOUND
from dtgol_core.ids import signed_hash
from dtgol_core.state import (
    CORRUPTION_ERRORS,
    Snapshot,
    SnapshotError,
    refuse_newer,
    require_int,
)
from dtgol_core.state import digest as state_digest
from dtgol_core.types import LabelOutcome, LabelReceipt
from dtgol_core.types import Rejection as LearnerRejection
from pipeline.errors import RefusalError
from pipeline.kafka.record import Record
from pipeline.learning.early import UNOPENED, EarlyLabel, UnopenedLabels
from pipeline.learning.fold_config import FOLD_VERSION, FoldConfig, Lineage
from pipeline.learning.outputs import (
    Output,
    PartitionRef,
    SourceContext,
    journal_context,
    make_event,
    make_prediction,
    orphan_dead_letter,
)
from pipeline.learning.source_marks import SourceMarks
from pipeline.learning.stream import StreamState
from pipeline.learning.streams import Streams
from pipeline.snapshots.repository import StateSnapshot
from topics.catalog import HEADROOM_BYTES
from topics.codec import read_erasure, read_features, read_label
from topics.features import Features
from topics.headers import producer_headers
from topics.journal import (
    NO_OFFSET,
    ConfigChange,
    Crash,
    Padding,
    RecordKind,
    Reset,
    Retry,
    Retype,
    Skip,
    Source,
    Version,
    read_control,
    read_source,
)
from topics.labels import Erasure, Label
from topics.reasons import Reason, Rejection

STATE_VERSION = 3
SKEW_MAX_MS = 1_000
"""A label may be stamped so long before its features: clocks differ by that much anyway."""
REASONS = frozenset(each.value for each in Reason)
PREDICTION_BYTES = HEADROOM_BYTES // 2
"""A prediction may be so much larger than the largest record, whose headers it carries: the topics
take twice as much."""


class Fold:
    """The state of one partition.

    Notes
    -----
    `skips` are journal offsets that an operator has decided never to apply; they are looked up in
    the journal ahead of the fold, and so are not part of the state.

    Attributes
    ----------
    clock_ms, append_ms
        The largest event time that counts, and the largest time at which a record was appended to
        the journal. Streams are idle by the second: event times may be of last year.
    labels_offset
        The offset of the last label on its topic.
    label_skew_ms
        How long before its features the newest such label was stamped: its producer's clock is
        slow. 0 if there was none.
    lineage, marked
        Which software has folded this state, and the newest `version` record.
    """

    def __init__(
        self,
        ref: PartitionRef,
        config: FoldConfig | None = None,
        skips: frozenset[int] = frozenset(),
    ) -> None:
        self.ref = ref
        self.skips = skips
        self.next_offset = 0
        self.clock_ms = 0
        self.append_ms = 0
        self.labels_offset = NO_OFFSET
        self.lineage = Lineage(FOLD_VERSION, 0)
        self.marked: Lineage | None = None
        self.marks = SourceMarks()
        self.counts: Counter[str] = Counter()
        self.streams = Streams()
        self.label_skew_ms = 0
        self._set_config(config or FoldConfig())

    def apply(self, record: Record) -> list[Output]:
        """Fold one record in; returns what is to be written because of it."""
        if record.offset < self.next_offset:
            raise AssertionError(f"journal offset {record.offset} is already folded")
        self.next_offset = record.offset + 1
        self.append_ms = max(self.append_ms, record.timestamp_ms)
        source = read_source(record.headers)
        if isinstance(source, Source) and source.kind in (RecordKind.COPY, RecordKind.STUB):
            return self._apply_source(record, source)
        if record.offset in self.skips:
            return [self._skip(journal_context(self.ref, record))]
        return self._control(record)

    def jump(self, offset: int) -> None:
        """Go on at a later offset: an operator has accepted that the records between are lost.

        Each source may break its chain once after it. The journal does not hold this, so a
        replay must be given it too.
        """
        assert offset > self.next_offset
        self.counts["records/gone"] += offset - self.next_offset
        self.next_offset = offset
        self.marks.accept_gap()

    @property
    def oldest_early_ms(self) -> int | None:
        """When the label that is held longest for its features was appended; None for none."""
        firsts = [next(iter(stream.early.values()), None) for stream in self.streams.values()]
        firsts.append(self.streams.unopened.oldest)
        return min((label.time_ms for label in firsts if label is not None), default=None)

    def _apply_source(self, record: Record, source: Source) -> list[Output]:
        """Apply a copy or a stub: once, and only after the record before it at its source."""
        refused = self.marks.admit(source)
        if refused is not None:
            self.counts[f"records/{refused}"] += 1
            return []
        if source.kind is RecordKind.STUB:
            self.counts["records/stub"] += 1
            # Its dead letter is the sequencer's; it is counted here, where it counts once.
            reason = source.reason if source.reason in REASONS else Reason.TOO_LARGE
            self.counts[f"refusals/{reason}"] += 1
            return []
        self.counts["records/copy"] += 1
        context = SourceContext(record, source)
        if record.offset in self.skips:
            # Its mark has moved, so the source's next record is applied although this one is not.
            return [self._skip(context)]
        config = self.config
        if source.topic == self.ref.features:
            features = read_features(
                record.value, record.key, source.timestamp_ms, config.limits, config.allowed_streams
            )
            if isinstance(features, Rejection):
                return [self._reject("features", context, features.reason, features.detail)]
            return self._observe(context, features)
        if source.topic == self.ref.labels:
            self.labels_offset = source.offset
            label = read_label(
                record.value, record.key, source.timestamp_ms, config.limits, config.allowed_streams
            )
            if isinstance(label, Rejection):
                erasure = read_erasure(record.value)
                if erasure is not None:
                    return self._erase(erasure, record.offset)
                return [self._reject("labels", context, label.reason, label.detail)]
            return self._learn(context, label)
        return [self._reject("records", context, Reason.BAD_HEADERS, "dtgol-topic: unknown source")]

    def _erase(self, erasure: Erasure, offset: int) -> list[Output]:
        """Forget what is kept of an instance; held labels go without a dead letter."""
        self.counts["records/erase"] += 1
        if erasure.stream in self.streams:
            stream = self.streams.change(erasure.stream, offset + 1)
            stream.release_early(stream.learner.erase(signed_hash(erasure.erase)))
        self._change_unopened().erase(erasure.stream, signed_hash(erasure.erase))
        return []

    def _observe(self, context: SourceContext, features: Features) -> list[Output]:
        event_ms = self._advance_clock(context.record, features.ts, features.unknown)
        full = self.streams.state_bytes >= self.config.state_bytes_max
        known = features.stream in self.streams
        if full and not known:
            return [self._reject("features", context, *self._state_full("stream"))]
        stream = self._open_stream(features.stream, context.record.offset)
        if stream is None:
            return [self._reject("features", context, *self._too_many_streams())]
        held = [] if known else self._take_unopened(features.stream, stream)
        if full and stream.learner.needs_columns(features.x):
            return [self._reject("features", context, *self._state_full("x: a feature or level"))]
        forecast = stream.learner.observe(features.id, features.x, event_ms, self.config.why)
        if isinstance(forecast, LearnerRejection):
            outputs = [self._reject("features", context, Reason(forecast.reason), forecast.detail)]
            return outputs + held + self._evict()
        self.streams.measure(stream)
        learnt, forgotten = self.streams.shed_history(self.config.state_bytes_max, self.next_offset)
        self.counts["labels/learnt"] += learnt
        self.counts["instances/expired"] += forgotten
        if forecast.repeat:
            self.counts["features/repeat"] += 1
        else:
            self.counts["features/answered"] += 1
            self.counts["cells/kind-conflict"] += forecast.conflicts
            if stream.early:
                for label in stream.release_early([features.id]):
                    self._measure_skew(features.ts - label.ts)
        self.counts["labels/learnt"] += len(forecast.learnt)
        self.counts["labels/defaulted"] += len(forecast.defaulted)
        self.counts["instances/expired"] += len(forecast.expired)
        answer = (context.record, features, forecast, stream, self.labels_offset)
        outputs = [make_prediction(self.ref, *answer)]
        bytes_max = self.config.limits.record_bytes_max + PREDICTION_BYTES
        if outputs[0].size > bytes_max:
            detail = f"prediction: over {bytes_max} bytes with the record's own headers"
            outputs = [self._reject("predictions", context, Reason.TOO_LARGE, detail)]
        if forecast.orphans:
            outputs += self._orphans(stream.release_early(forecast.orphans))
        return outputs + held + self._evict()

    def _measure_skew(self, before_ms: int) -> None:
        """Note how long before its features a label was stamped, if that is more than chance."""
        if before_ms > SKEW_MAX_MS:
            self.counts["labels/stamped-before"] += 1
            self.label_skew_ms = before_ms

    def _learn(self, context: SourceContext, label: Label) -> list[Output]:
        record = context.record
        event_ms = self._advance_clock(record, label.ts, label.unknown)
        if label.stream not in self.streams:
            self._change_unopened().add(label.stream, _early_label(context, label))
            return self._shed_early() + self._evict()
        stream = self._open_stream(label.stream, record.offset)
        assert stream is not None
        early = partial(_early_label, context, label)
        receipt, orphans = self._add_label(stream, label, event_ms, early)
        return self._dismiss(context, receipt) + orphans + self._evict()

    def _add_label(
        self, stream: StreamState, label: Label, event_ms: int, early: Callable[[], EarlyLabel]
    ) -> tuple[LabelReceipt, list[Output]]:
        """Hand a label to its learner; its bytes are kept if it is early. With what goes for it.

        `early` makes what is kept: few labels are early.
        """
        receipt = stream.learner.learn(label.id, label.y, event_ms)
        outcome = receipt.outcome
        self.counts[f"labels/{outcome}"] += 1
        held = label.id in stream.early
        outputs: list[Output] = []
        if outcome is LabelOutcome.EARLY or (outcome is LabelOutcome.CORRECTED_REPLACED and held):
            stream.keep_early(label.id, early())
            outputs = self._orphans(stream.release_early(receipt.orphans)) + self._shed_early()
        return receipt, outputs

    def _take_unopened(self, name: str, stream: StreamState) -> list[Output]:
        """The labels that waited for the first features of a stream come to its learner."""
        outputs: list[Output] = []
        if not self.streams.unopened:
            return outputs
        for early in self._change_unopened().take(name):
            label = read_label(early.value, early.key, early.ts, self.config.limits)
            if isinstance(label, Rejection):  # by limits that came after it
                outputs += self._orphans([early])
            else:
                event_ms = min(label.ts, self.clock_ms)
                outputs += self._add_label(stream, label, event_ms, early._replace)[1]
        return outputs

    def _change_unopened(self) -> UnopenedLabels:
        """The labels of streams without features, for a change by the record in hand."""
        return self.streams.change_unopened(self.next_offset)

    def _shed_early(self) -> list[Output]:
        """Give up the oldest early labels, from the stream that holds most, until all fit."""
        return self._orphans(self.streams.shed_early(self.config.early_bytes_max, self.next_offset))

    def _dismiss(self, context: SourceContext, receipt: LabelReceipt) -> list[Output]:
        """The dead letter of a label that cannot be learnt, if it is one."""
        if receipt.outcome is LabelOutcome.LATE:
            shared = receipt.setting == SHARED_BOUND
            setting = f"limits.{SHARED_BOUND}" if shared else f"delay.{receipt.setting}"
            self.counts[f"labels/late/{setting}"] += 1
            reason = Reason.LABEL_LATE
            detail = f"{setting}: its instance expired by it before the label came"
        elif receipt.outcome is LabelOutcome.CORRECTION_TOO_LATE:
            reason = Reason.CORRECTION_TOO_LATE
            detail = "another label was learnt, and the instance is not rehearsed any more"
        elif receipt.outcome is LabelOutcome.CORRECTED_IGNORED:
            reason = Reason.CORRECTION_TOO_LATE
            detail = "delay.corrected: the first label counts"
        else:
            return []
        self.counts[f"refusals/{reason}"] += 1
        return [context.write(reason, detail)]

    def _advance_clock(self, record: Record, ts: int, unknown: Sequence[str]) -> int:
        """The event time, capped to `ts_ahead_max_ms` after the journal's timestamp."""
        if unknown:
            self.counts["records/unknown-fields"] += 1
        capped = min(ts, max(record.timestamp_ms, 0) + self.config.ts_ahead_max_ms)
        self.clock_ms = max(self.clock_ms, capped)
        return capped

    def _open_stream(self, name: str, offset: int) -> StreamState | None:
        """The stream, opened if new; None if there are too many."""
        if name not in self.streams:
            if len(self.streams) >= self.config.streams_max:
                return None
            self.streams.add(name, StreamState(self.config.config_for(name), self.lineage))
            self.counts["streams/opened"] += 1
        return self.streams.touch(name, offset + 1, self.append_ms)

    def _evict(self) -> list[Output]:
        """Close streams to which nothing was appended for too long, by the brokers' clock."""
        outputs: list[Output] = []
        idle_ms = self.config.stream_idle_ms
        if idle_ms is None:
            return outputs
        for name in self.streams.idle(self.append_ms - idle_ms):
            stream = self.streams[name]
            detail = (
                f"streams.idle_ms: no record was appended for {self.append_ms - stream.touched_ms} "
                f"ms; forgotten with {stream.learner.step} records and "
                f"{stream.learner.labels_learnt} labels learnt"
            )
            outputs += self._close_stream(name)
            at = self.next_offset - 1
            outputs.append(make_event(self.ref, at, "stream-evicted", name, detail))
            self.counts["streams/evicted"] += 1
        return outputs

    def _close_stream(self, name: str) -> list[Output]:
        stream = self.streams.remove(name)
        self.counts["instances/expired"] += stream.learner.pending
        return self._orphans(stream.release_early(list(stream.early)))

    def _too_many_streams(self) -> tuple[Reason, str]:
        limit = self.config.streams_max
        return Reason.TOO_MANY_STREAMS, f"stream: new, and the partition may have {limit}"

    def _state_full(self, what: str) -> tuple[Reason, str]:
        limit = self.config.state_bytes_max
        return Reason.STATE_FULL, f"{what}: new, and the learners may take {limit} bytes"

    def _reject(self, what: str, context: SourceContext, reason: Reason, detail: str) -> Output:
        self.counts[f"{what}/refused"] += 1
        self.counts[f"refusals/{reason}"] += 1
        return context.write(reason, detail)

    def _skip(self, context: SourceContext) -> Output:
        self.counts["records/skipped"] += 1
        return self._reject("records", context, Reason.SKIPPED, "skipped by an operator")

    def _orphans(self, labels: list[EarlyLabel]) -> list[Output]:
        """The dead letters of early labels whose features never came."""
        if labels:
            self.counts[f"refusals/{Reason.LABEL_ORPHAN}"] += len(labels)
        return [orphan_dead_letter(self.ref, label) for label in labels]

    def _control(self, record: Record) -> list[Output]:
        """A control record: a configuration, a reset, or one about a single record."""
        control = read_control(record.value, record.headers)
        if isinstance(control, ConfigChange):
            return self._change(record, control)
        if isinstance(control, Reset):
            self.counts["records/reset"] += 1
            return self._reset(control)
        if isinstance(control, Retype):
            return self._retype(record, control)
        if isinstance(control, Version):
            self.counts["records/version"] += 1
            self.marked = Lineage(control.fold, control.since)
            self.refuse_newer(control.fold)
            return []
        if isinstance(control, Crash | Skip | Retry | Padding):
            # The first three are read ahead of the fold (`pipeline.learning.poison`).
            self.counts[f"records/{type(control).__name__.lower()}"] += 1
            return []
        detail = control.detail if isinstance(control, Rejection) else "dtgol-kind: no such record"
        return [
            self._reject("records", journal_context(self.ref, record), Reason.BAD_HEADERS, detail)
        ]

    def _change(self, record: Record, change: ConfigChange) -> list[Output]:
        try:
            config = FoldConfig.read(change.config)
        except ConfigError as error:
            context = journal_context(self.ref, record)
            return [self._reject("records", context, Reason.BAD_HEADERS, f"config: {error}")]
        self.counts["records/config"] += 1
        self._set_config(config)
        for name, stream in self.streams.items():
            chosen = config.config_for(name)
            if chosen == stream.learner.config:
                continue
            if chosen.shape_differs(stream.learner.config):
                self.counts["streams/unchanged"] += 1  # keeps its configuration until it is reset
                continue
            self.streams.change(name, record.offset + 1).adopt(chosen)
        return []

    def _set_config(self, config: FoldConfig) -> None:
        """Set the configuration in force."""
        self.config = config
        self.config_digest = config.digest()

    def _reset(self, reset: Reset) -> list[Output]:
        names = [name for name in self.streams if reset.stream in (None, name)]
        self.counts["streams/reset"] += len(names)
        closed = [output for name in names for output in self._close_stream(name)]
        return closed + self._orphans(self._change_unopened().take(reset.stream))

    def _retype(self, record: Record, retype: Retype) -> list[Output]:
        """Change the kind of one feature; a stream that is not here has none to change."""
        self.counts["records/retype"] += 1
        if retype.stream not in self.streams:
            return []
        stream = self.streams.change(retype.stream, record.offset + 1)
        refusal = stream.learner.retype(retype.feature, retype.kind.value)
        if refusal is None:
            return []
        context = journal_context(self.ref, record)
        return [self._reject("records", context, Reason(refusal.reason), refusal.detail)]

    def snapshot(self) -> StateSnapshot:
        """The state, as copies."""
        return self._state_snapshot(self.streams.copies())

    def snapshot_changed(self, stored: Mapping[str, int]) -> StateSnapshot:
        """The state as it is now, without streams `stored` as they are.

        See `Streams.changed_since`.
        """
        return self._state_snapshot(self.streams.changed_since(stored))

    def _state_snapshot(self, changed: Mapping[str, Snapshot]) -> StateSnapshot:
        state = {
            "version": STATE_VERSION,
            "lineage": list(self.lineage),
            "marked": None if self.marked is None else list(self.marked),
            "partition": asdict(self.ref),
            "next_offset": self.next_offset,
            "clock_ms": self.clock_ms,
            "append_ms": self.append_ms,
            "labels_offset": self.labels_offset,
            "label_skew_ms": self.label_skew_ms,
            "unopened": self.streams.versions.get(UNOPENED),
            **self.marks.state(),
            "counts": dict(sorted((name, n) for name, n in self.counts.items() if n)),
            "config": self.config.as_mapping(),
            "streams": [[name, stream.next_offset] for name, stream in self.streams.items()],
        }
        versions = self.streams.versions
        return StateSnapshot(self.next_offset, state, versions, changed, self.append_ms)

    @staticmethod
    def refuse_newer(version: int) -> None:
        """Refuse to go on from what a newer version of the fold has done."""
        if version > FOLD_VERSION:
            raise RefusalError(
                f"the journal was folded by version {version} of the fold and this software has "
                f"{FOLD_VERSION}: going back would answer the same records differently; start the "
                f"newer release, or use another prefix"
            )

    @staticmethod
    def restore(
        ref: PartitionRef,
        state: Mapping[str, Any],
        streams: Mapping[str, Snapshot],
        skips: frozenset[int] = frozenset(),
    ) -> Fold:
        """The fold that a snapshot described; `streams` must hold every stream it names."""
        refuse_newer(state.get("version"), STATE_VERSION)
        if state.get("version") != STATE_VERSION:
            raise SnapshotError(f"the state of the partition has format {state.get('version')!r}")
        try:
            fold = Fold(ref, FoldConfig.read(state["config"]), skips)
            for name in ("next_offset", "clock_ms", "append_ms", "labels_offset"):
                setattr(fold, name, require_int(state[name]))
            folded_by = Lineage(*map(require_int, state["lineage"]))
            Fold.refuse_newer(folded_by.version)
            if folded_by.version < FOLD_VERSION:
                folded_by = Lineage(FOLD_VERSION, fold.next_offset)
            fold.lineage = folded_by
            if state["marked"] is not None:
                fold.marked = Lineage(*map(require_int, state["marked"]))
            fold.marks = SourceMarks.restore(state)
            fold.counts = Counter({name: require_int(n) for name, n in state["counts"].items()})
            fold.label_skew_ms = require_int(state.get("label_skew_ms", 0))
            listed = dict(state["streams"])
            if state.get("unopened") is not None:
                listed[UNOPENED] = state["unopened"]
            fold.streams = Streams.restore(listed, streams, folded_by)
        except CORRUPTION_ERRORS as error:
            if isinstance(error, SnapshotError):
                raise
            raise SnapshotError(f"the state of the partition is damaged: {error!r}") from error
        return fold

    def digest(self) -> str:
        """SHA-256 of all state: equal exactly when every bit of two folds is."""
        taken = self.snapshot()
        bits = [taken.state, {name: state_digest(each) for name, each in taken.changed.items()}]
        text = json.dumps(bits, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


def _early_label(context: SourceContext, label: Label) -> EarlyLabel:
    """The bytes of a label as they are kept until its features come."""
    record, source = context
    assert record.key is not None
    assert record.value is not None
    original = tuple(producer_headers(record.headers))
    at = source.offset, record.key, record.value, original
    return EarlyLabel(*at, record.timestamp_ms, label.ts, sys.intern(source.topic_id))
