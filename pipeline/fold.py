"""The durable fold: the journal of one partition -> predictions, dead letters, state.

In: journal records in order of their offsets. Out: per record what goes on the wire. Pure: no
clock, no chance, no I/O, so the state and every output byte depend on the journal prefix alone;
the worker, a restore, a replay and the tests run this same class.

A source record is applied once. At or below its source's mark it is a duplicate and is dropped;
if its `prev` is beyond the mark the chain is broken, something before it is missing, and it is not
applied either: it will come again. Bad input is an answer (a dead letter), never an exception; an
exception is a bug, and the caller must stop.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from dtgol_core.config import ConfigError
from dtgol_core.state import DAMAGE, Snapshot, SnapshotError, text, whole
from dtgol_core.state import digest as state_digest
from dtgol_core.types import LabelOutcome
from dtgol_core.types import Rejection as LearnerRejection
from pipeline.answers import JournalRecord, Letter, Output, Place, answer, orphan, stray
from pipeline.rules import FOLD_VERSION, Rules
from pipeline.streamstate import Held, StreamState
from topics.codec import read_features, read_label
from topics.deadletters import FoldReason
from topics.features import Features
from topics.headers import foreign, read_headers
from topics.journal import (
    NO_OFFSET,
    ConfigChange,
    Crash,
    Kind,
    Reset,
    Retry,
    Skip,
    Source,
    read_control,
)
from topics.labels import Label
from topics.refusals import Reason, Rejection

__all__ = ["Fold", "FoldSnapshot", "JournalRecord", "Output", "Place"]

STATE_VERSION = 1


class FoldSnapshot(NamedTuple):
    """The state of a partition, and of those streams that the caller does not have yet."""

    state: dict[str, Any]
    streams: dict[str, Snapshot]

    @property
    def next_offset(self) -> int:
        """The first journal offset that is not in it."""
        return whole(self.state["next_offset"])


class Fold:
    """The state of one partition.

    Notes
    -----
    `skips` are journal offsets that an operator has decided never to apply; they are looked up in
    the journal ahead of the fold, and so are not part of the state. Streams are kept in the order
    in which they were last heard of, the idlest first.
    """

    def __init__(
        self, place: Place, rules: Rules | None = None, skips: frozenset[int] = frozenset()
    ) -> None:
        self.place = place
        self.skips = skips
        self.next_offset = 0
        self.clock_ms = 0
        self.marks: dict[tuple[str, str], int] = {}
        self.forgiven: set[tuple[str, str]] | None = None
        self.counts: Counter[str] = Counter()
        self.streams: OrderedDict[str, StreamState] = OrderedDict()
        self._rule(rules or Rules())

    def apply(self, record: JournalRecord) -> list[Output]:
        """Fold one record in; returns what is to be written because of it."""
        if record.offset < self.next_offset:
            raise AssertionError(f"journal offset {record.offset} is already folded")
        self.next_offset = record.offset + 1
        source = read_headers(Source, record.headers)
        if isinstance(source, Source) and source.kind in (Kind.COPY, Kind.STUB):
            return self._travel(record, source)
        if record.offset in self.skips:
            return [self._leave_out(stray(self.place, record))]
        return self._control(record)

    def jump(self, offset: int) -> None:
        """Go on at a later offset: an operator has accepted that the records between are gone.

        Each source may break its chain once after it. The journal does not tell of this, so a
        replay must be told of it too.
        """
        assert offset > self.next_offset
        self.counts["records/gone"] += offset - self.next_offset
        self.next_offset, self.forgiven = offset, set()

    def mark(self, topic: str, topic_id: str) -> int | None:
        """The last record of a source that was applied; None if any record may come next."""
        at = (topic, topic_id)
        if self.forgiven is not None and at not in self.forgiven:
            return None
        return self.marks.get(at, NO_OFFSET)

    def _travel(self, record: JournalRecord, source: Source) -> list[Output]:
        """A copy or a stub: once, and only behind what it followed at its source."""
        at = (source.topic, source.topic_id)
        mark = self.marks.get(at, NO_OFFSET)
        if source.offset <= mark:
            self.counts["records/duplicate"] += 1
            return []
        if source.prev > mark and (self.forgiven is None or at in self.forgiven):
            self.counts["records/broken"] += 1
            return []
        if self.forgiven is not None:
            self.forgiven.add(at)
        self.marks[at] = source.offset
        self.counts[f"records/{source.kind}"] += 1
        if source.kind is Kind.STUB:
            return []
        letter = Letter(record, source)
        if record.offset in self.skips:
            # Its mark has moved: the source's next record follows it although it was left out.
            return [self._leave_out(letter)]
        rules = self.rules
        if source.topic == self.place.features:
            features = read_features(
                record.value, record.key, source.timestamp_ms, rules.limits, rules.known
            )
            if isinstance(features, Rejection):
                return [self._refuse("features", letter, features.reason, features.detail)]
            return self._observe(letter, features)
        if source.topic == self.place.labels:
            label = read_label(
                record.value, record.key, source.timestamp_ms, rules.limits, rules.known
            )
            if isinstance(label, Rejection):
                return [self._refuse("labels", letter, label.reason, label.detail)]
            return self._learn(letter, label)
        return [self._refuse("records", letter, Reason.BAD_HEADERS, "dtgol-topic: unknown source")]

    def _observe(self, letter: Letter, features: Features) -> list[Output]:
        event_ms = self._hear(letter.record, features.ts, features.unknown)
        stream = self._enter(features.stream, letter.record.offset)
        if stream is None:
            return [self._refuse("features", letter, *self._crowded())]
        forecast = stream.learner.observe(features.id, features.x, event_ms, self.rules.why)
        if isinstance(forecast, LearnerRejection):
            outputs = [self._refuse("features", letter, forecast.reason, forecast.detail)]
            return outputs + self._evict()
        if forecast.repeat:
            self.counts["features/repeat"] += 1
        else:
            self.counts["features/answered"] += 1
            stream.release([features.id])
        self.counts["labels/learnt"] += len(forecast.learnt)
        self.counts["instances/expired"] += len(forecast.expired)
        outputs = [answer(self.place, letter.record, features, forecast, stream.model)]
        outputs += self._give_up(stream.release(forecast.orphans))
        return outputs + self._evict()

    def _learn(self, letter: Letter, label: Label) -> list[Output]:
        record = letter.record
        event_ms = self._hear(record, label.ts, label.unknown)
        stream = self._enter(label.stream, record.offset)
        if stream is None:
            return [self._refuse("labels", letter, *self._crowded())]
        outcome, orphans = _receipt(stream, label, event_ms)
        self.counts[f"labels/{outcome}"] += 1
        held = label.id in stream.held
        if outcome is LabelOutcome.EARLY or (outcome is LabelOutcome.CORRECTED_REPLACED and held):
            assert record.key is not None
            assert record.value is not None
            original = tuple(foreign(record.headers))
            stream.hold(label.id, Held(letter.source.offset, record.key, record.value, original))
        outputs = []
        if outcome is LabelOutcome.LATE:
            detail = "its instance expired before the label came"
            outputs.append(letter.write(FoldReason.LABEL_LATE, detail))
            self.counts[f"refusals/{FoldReason.LABEL_LATE}"] += 1
        outputs += self._give_up(stream.release(orphans))
        if self.rules.held_bytes_max is not None:
            outputs += self._give_up(stream.shed(self.rules.held_bytes_max))
        return outputs + self._evict()

    def _hear(self, record: JournalRecord, ts: int, unknown: Sequence[str]) -> int:
        """The event time that counts: no further ahead of the journal's time than allowed."""
        if unknown:
            self.counts["records/unknown-fields"] += 1
        capped = min(ts, max(record.timestamp_ms, 0) + self.rules.ts_ahead_max_ms)
        self.clock_ms = max(self.clock_ms, capped)
        return capped

    def _enter(self, name: str, offset: int) -> StreamState | None:
        """The stream, made if it is new and there is room; now the last to be idle."""
        stream = self.streams.get(name)
        if stream is None:
            if len(self.streams) >= self.rules.streams_max:
                return None
            stream = self.streams[name] = StreamState(self.rules.config_for(name))
            self.counts["streams/opened"] += 1
        self.streams.move_to_end(name)
        stream.next_offset, stream.touched_ms = offset + 1, self.clock_ms
        return stream

    def _evict(self) -> list[Output]:
        """Streams that were not heard of for too long, by the partition's own clock, go."""
        idle_ms = self.rules.stream_idle_ms
        outputs: list[Output] = []
        while idle_ms is not None and self.streams:
            name, stream = next(iter(self.streams.items()))
            if stream.touched_ms + idle_ms >= self.clock_ms:
                break
            outputs += self._close(name)
            self.counts["streams/evicted"] += 1
        return outputs

    def _close(self, name: str) -> list[Output]:
        stream = self.streams.pop(name)
        self.counts["instances/expired"] += stream.learner.pending
        return self._give_up(stream.release(list(stream.held)))

    def _crowded(self) -> tuple[str, str]:
        limit = self.rules.streams_max
        return FoldReason.TOO_MANY_STREAMS, f"stream: new, and the partition may have {limit}"

    def _refuse(self, what: str, letter: Letter, reason: str, detail: str) -> Output:
        self.counts[f"{what}/refused"] += 1
        self.counts[f"refusals/{reason}"] += 1
        return letter.write(reason, detail)

    def _leave_out(self, letter: Letter) -> Output:
        self.counts["records/skipped"] += 1
        return self._refuse("records", letter, FoldReason.SKIPPED, "left out by an operator")

    def _give_up(self, labels: list[Held]) -> list[Output]:
        """Held labels whose features never came, with their original bytes."""
        if labels:
            self.counts[f"refusals/{FoldReason.LABEL_ORPHAN}"] += len(labels)
        return [orphan(self.place, held) for held in labels]

    def _control(self, record: JournalRecord) -> list[Output]:
        """A decision: other rules, a stream that starts anew; anything else is refused."""
        control = read_control(record.value, record.headers)
        if isinstance(control, ConfigChange):
            return self._change(record, control)
        if isinstance(control, Reset):
            self.counts["records/reset"] += 1
            return self._reset(control)
        if isinstance(control, Crash | Skip | Retry):
            # About single records, and read ahead of the fold (`pipeline.decisions`).
            self.counts[f"records/{type(control).__name__.lower()}"] += 1
            return []
        detail = control.detail if isinstance(control, Rejection) else "dtgol-kind: no such record"
        return [self._refuse("records", stray(self.place, record), Reason.BAD_HEADERS, detail)]

    def _change(self, record: JournalRecord, change: ConfigChange) -> list[Output]:
        try:
            rules = Rules.read(change.config)
        except ConfigError as error:
            letter = stray(self.place, record)
            return [self._refuse("records", letter, Reason.BAD_HEADERS, f"config: {error}")]
        self.counts["records/config"] += 1
        self._rule(rules)
        for name, stream in self.streams.items():
            config = rules.config_for(name)
            if config == stream.learner.config:
                continue
            if config.shape_differs(stream.learner.config):
                self.counts["streams/unchanged"] += 1  # goes on as it is until it is reset
                continue
            stream.adopt(config)
            stream.next_offset = record.offset + 1
        return []

    def _rule(self, rules: Rules) -> None:
        """Let rules hold. The hash is that of the writer's text, by this version of the fold."""
        self.rules = rules
        self.rules_digest = rules.digest()

    def _reset(self, reset: Reset) -> list[Output]:
        names = [name for name in self.streams if reset.stream in (None, name)]
        self.counts["streams/reset"] += len(names)
        return [output for name in names for output in self._close(name)]

    def snapshot(self, stored: Mapping[str, int] | None = None) -> FoldSnapshot:
        """The state; streams that are `stored` with the same `next_offset` are left out."""
        have = stored or {}
        state = {
            "version": STATE_VERSION,
            "fold": FOLD_VERSION,
            "place": asdict(self.place),
            "next_offset": self.next_offset,
            "clock_ms": self.clock_ms,
            "marks": [[*source, mark] for source, mark in sorted(self.marks.items())],
            "forgiven": None
            if self.forgiven is None
            else [list(at) for at in sorted(self.forgiven)],
            "counts": dict(sorted((name, n) for name, n in self.counts.items() if n)),
            "rules": self.rules.as_mapping(),
            "streams": [[name, stream.next_offset] for name, stream in self.streams.items()],
        }
        changed = {
            name: stream.snapshot()
            for name, stream in self.streams.items()
            if have.get(name) != stream.next_offset
        }
        return FoldSnapshot(state, changed)

    @staticmethod
    def restore(
        place: Place,
        state: Mapping[str, Any],
        streams: Mapping[str, Snapshot],
        skips: frozenset[int] = frozenset(),
    ) -> Fold:
        """The fold that a snapshot described; `streams` must hold every stream it names."""
        if state.get("version") != STATE_VERSION:
            raise SnapshotError(f"the state of the partition has format {state.get('version')!r}")
        try:
            fold = Fold(place, Rules.read(state["rules"]), skips)
            fold.next_offset, fold.clock_ms = whole(state["next_offset"]), whole(state["clock_ms"])
            fold.marks = {(text(name), text(id)): whole(mark) for name, id, mark in state["marks"]}
            if state["forgiven"] is not None:
                fold.forgiven = {(text(name), text(id)) for name, id in state["forgiven"]}
            fold.counts = Counter({name: whole(n) for name, n in state["counts"].items()})
            for name, next_offset in state["streams"]:
                stream = fold.streams[name] = StreamState.restore(streams[name])
                if stream.next_offset != next_offset:
                    raise SnapshotError(f"the snapshot of stream {name} is of another offset")
        except DAMAGE as error:
            if isinstance(error, SnapshotError):
                raise
            raise SnapshotError(f"the state of the partition is damaged: {error!r}") from error
        return fold

    def digest(self) -> str:
        """SHA-256 of all state: equal exactly when every bit of two folds is."""
        taken = self.snapshot()
        whole = [taken.state, {name: state_digest(each) for name, each in taken.streams.items()}]
        text = json.dumps(whole, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


def _receipt(
    stream: StreamState, label: Label, event_ms: int
) -> tuple[LabelOutcome, tuple[str, ...]]:
    receipt = stream.learner.learn(label.id, label.y, event_ms)
    return receipt.outcome, receipt.orphans
