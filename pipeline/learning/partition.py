"""The learner of one partition: its journal -> predictions and dead letters, and its checkpoints.

The state is the fold's. Records that Faust has not delivered are read from the journal; after a
long gap, which others have filled meanwhile, the state is restored again. At least once, ordered by
the journal. A bug is recorded in the journal and ends the process; the third at one record
parks the partition before it (`poison`).
"""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import orjson

from pipeline.errors import FoldBugError, OvertakenError, RefusalError
from pipeline.kafka.record import Record
from pipeline.kafka.writer import Outbox, PartitionWriter
from pipeline.learning.answered import TAIL_RECORDS, last_answered, lost_offsets
from pipeline.learning.fold import Fold
from pipeline.learning.fold_config import FoldConfig
from pipeline.learning.metrics import LearnerMetrics
from pipeline.learning.outputs import Output, PartitionRef
from pipeline.learning.poison import PoisonGuard
from pipeline.learning.stream import StreamState
from pipeline.runtime.checkpoint import Checkpoint, Checkpointer
from pipeline.runtime.metrics import Sample
from pipeline.runtime.partition import Partition, of_each
from pipeline.runtime.port import PartitionKafka
from pipeline.runtime.positions import PositionFile
from pipeline.runtime.watchdog import Ends, Probe
from topics.dead_letters import DeadLetter
from topics.events import EventKind
from topics.headers import Header, read_headers
from topics.journal import NO_OFFSET, ConfigChange, Control, Reset, Version, write_control

log = logging.getLogger(__name__)

TOGETHER = 64
"""Outputs that are sent together at most: sending holds the event loop too."""
REPORT_S = 60.0
"""Between two lines about refused records: a producer that is wrong must not fill the log."""
FREEZE_STREAMS = 100
"""So many new streams are taken out of the garbage collector's sight: with those of 1,000, about a
hundred objects each, a full collection holds the event loop 15 ms. Their memory is freed as ever
when they go, by reference counts."""


@dataclass(frozen=True)
class Outputs:
    """Where the learner of a partition writes."""

    predictions: PartitionWriter
    dead_letters: PartitionWriter
    journal: PartitionWriter
    scores: PartitionWriter


@dataclass(frozen=True)
class LearnerConfig:
    """The configuration that should hold, and decisions for this start.

    `predictions` is the topic on which answers are looked up if another version gave them.
    """

    fold: FoldConfig
    predictions: str = "predictions"
    accept_gap: bool = False
    reset_changed: bool = False
    metrics_streams_max: int = 20


class RefusalLog:
    """Dead letters in the log: at most one line in `REPORT_S`, with counts by reason."""

    def __init__(self, partition: int, now: Callable[[], float] = time.monotonic) -> None:
        self._partition = partition
        self._now = now
        self._counts: Counter[str] = Counter()
        self._reported = -math.inf

    def note(self, headers: Iterable[Header]) -> None:
        """Count one dead letter."""
        letter = read_headers(DeadLetter, headers)
        self._counts[letter.reason if isinstance(letter, DeadLetter) else "unreadable"] += 1

    def report(self) -> None:
        """Log what was counted since the last line, if that was long enough ago."""
        if not self._counts or self._now() - self._reported < REPORT_S:
            return
        listed = ", ".join(f"{reason} {count}" for reason, count in self._counts.most_common())
        log.warning("partition %d: records refused: %s", self._partition, listed)
        self._counts.clear()
        self._reported = self._now()


class PartitionLearner(Partition[Fold]):
    """Folds the journal of one partition."""

    stage_name = "fold"

    def __init__(
        self,
        ref: PartitionRef,
        config: LearnerConfig,
        kafka: PartitionKafka,
        outbox: Outbox,
        outputs: Outputs,
        checkpoints: Checkpointer,
        positions: PositionFile | None = None,
    ) -> None:
        super().__init__(ref.partition, [ref.journal], kafka, outbox, checkpoints)
        self.ref = ref
        self._config = config
        self._outputs = outputs
        self._queue = self.inbox[ref.journal]
        self.poison = PoisonGuard(ref, kafka, outputs.journal, positions)
        self._emit_from = 0
        self._answered = NO_OFFSET
        """Up to here records were answered by another version of the fold: never again."""
        self.lost_offsets = 0
        """How many offsets after the end of the journal were answered: it has lost its tail."""
        self._end_at_start = 0
        self._restored_for = 0
        self._refusals = RefusalLog(ref.partition)
        self.metrics = LearnerMetrics(config.metrics_streams_max)
        self._late_reported = 0, -REPORT_S
        self._skew_reported = 0, -REPORT_S
        self._parked_reported: int | None = None
        self._opened_frozen = 0

    @property
    def next_offset(self) -> int:
        """The first journal offset that is not folded."""
        return self.state.next_offset if self.state is not None else 0

    def marks(self, sources: Iterable[tuple[str, str]]) -> list[int | None]:
        """The last record of each source that was applied; None if that is not known."""
        fold = self.state  # None while it is restored after a crash
        return [fold.marks.last(*each) if fold is not None else None for each in sources]

    def position(self, state: Fold) -> int:
        """The journal offset folded up to."""
        return state.next_offset

    def checkpoint(self, state: Fold) -> Checkpoint:
        """The streams changed since the newest snapshot, each copied when it is written."""
        taken = state.snapshot_changed(self.checkpoints.repository.stored)
        return Checkpoint({self.ref.journal: taken.next_offset}, lambda: taken)

    # --- restore ---------------------------------------------------------------------------------

    def restore(self) -> Fold:
        """Snapshot, then the journal up to what the group has committed."""
        ref = self.ref
        found = self.checkpoints.repository.load(lambda *parts: Fold.restore(ref, *parts))
        fold = found or Fold(ref)
        low, high = self.kafka.watermarks(ref.journal)
        self.saved_position, self._end_at_start = fold.next_offset, high
        self._refuse_gap(fold, found is not None, low, high)
        self.lost_offsets = lost_offsets(self.kafka, self._config.predictions, ref, high)
        self.poison.read(fold.next_offset, high)
        fold.skips = self.poison.skips
        self._take_over(fold)
        committed = self.kafka.committed(ref.journal) or 0
        self._emit_from = max(committed, fold.next_offset)
        end = min(self._emit_from, high)
        if self.poison.parked_at is not None:
            log.critical("partition %d: %s", self.number, self.poison.sentence)
            end = min(end, self.poison.parked_at)
        self._read(fold, end, [])
        self._late_reported = sum(_late(fold).values()), -REPORT_S
        self._skew_reported = fold.counts["labels/stamped-before"], -REPORT_S
        return fold

    def _take_over(self, fold: Fold) -> None:
        """If the journal was folded by another version, or from another state, leave its answers.

        Computed again they could differ, and no record is to have two answers. The first record
        that has none is the first that this version answers, under a model name of its own.
        """
        marked = self.poison.marked or fold.marked
        if marked is None or marked == fold.lineage:
            return
        Fold.refuse_newer(marked.version)
        topic = self._config.predictions
        self._answered = last_answered(self.kafka, topic, self.ref, TAIL_RECORDS)
        log.warning(
            "partition %d: folded by version %s so far, by %s from journal offset %d on",
            self.number,
            marked,
            fold.lineage,
            self._answered + 1,
        )

    def _refuse_gap(self, fold: Fold, found: bool, low: int, high: int) -> None:
        """Refuse a journal that is not the one folded, or that begins behind the state."""
        where = f"partition {self.number} of {self.ref.journal}"
        if fold.next_offset > high:
            raise RefusalError(
                f"the snapshot of {where} is at {fold.next_offset} and the journal ends at {high}: "
                f"it is not the journal that was folded; restore it, or use another prefix"
            )
        if fold.next_offset < low:
            if not self._config.accept_gap:
                at = f"the snapshot is at {fold.next_offset}" if found else "there is no snapshot"
                raise RefusalError(
                    f"{where} begins at {low} and {at}: records between are gone; "
                    f"restore an older state, or go on without them with --accept-gap"
                )
            log.warning("%s: skipped %d to %d, accepted", where, fold.next_offset, low - 1)
            fold.jump(low)

    def _read(self, fold: Fold, end: int, outputs: list[Output]) -> int:
        """Fold the journal up to `end` outside Faust; outputs already delivered are left out."""
        count = 0
        if fold.next_offset >= end:
            return 0
        for record in self.kafka.read(self.ref.journal, fold.next_offset, end):
            made = self._new(record, self.poison.apply(fold, record))
            if record.offset >= self._emit_from:
                outputs += made
            count += 1
            if self.state is None:
                self.restored_records = count
        fold.next_offset = max(fold.next_offset, end)
        return count

    # --- follow ----------------------------------------------------------------------------------

    def caught_up(self, state: Fold) -> bool:
        """Whether the journal is folded up to where it ended at the start.

        Only there it is known which configuration is in force; ours is appended if it is another.
        """
        if state.next_offset < self._end_at_start:
            return False
        if state.marked != state.lineage:
            self._append(Version(*state.lineage, version("dtgol")))
        self._announce_config(state)
        return True

    def _announce_config(self, fold: Fold) -> None:
        """Append our configuration to the journal if another is in force; it holds from there."""
        config = self._config.fold
        if fold.config_digest == config.digest():
            return
        # Streams share their configurations; comparing two takes 100 µs.
        compared: dict[tuple[int, int], list[str]] = {}
        for name, stream in fold.streams.items():
            made_with = stream.learner.config
            pair = id(config.config_for(name)), id(made_with)
            if pair not in compared:
                compared[pair] = config.shape_differs(name, made_with)
            differ = compared[pair]
            if not differ:
                continue
            if not self._config.reset_changed:
                raise RefusalError(
                    f"stream {name} of partition {self.number} was learnt with another "
                    f"{', '.join(differ)}, which cannot change in flight: set it as it was, or "
                    f"start with --reset-changed, which forgets all that such streams have learnt "
                    f"and their pending instances, and cannot be undone"
                )
            self._append(Reset(name, f"changed: {', '.join(differ)}"))
        self._append(ConfigChange(config.digest(), config.as_mapping()))
        self._event(EventKind.CONFIG, ", ".join(config.differs(fold.config)))

    def _append(self, control: Control) -> None:
        value, headers = write_control(control)
        self._outputs.journal.send(None, value, headers)

    async def process(self, state: Fold, until: float) -> bool:
        """Fold what is at hand; before a poison record, wait for a decision."""
        self._refusals.report()
        self._report_parking()
        if self.poison.parked_at is not None:
            await self._wait_parked(state, self.poison.parked_at)
            return True
        start, worked = time.monotonic(), False
        burst: list[Output] = []
        try:
            while self._queue and time.monotonic() < until:
                record = self._queue[0].record
                if record.offset > state.next_offset:
                    self._emit(burst)
                    if not await self._fill_gap(state, record.offset):
                        return True
                self._queue.popleft()
                if record.offset == state.next_offset:
                    outputs = self._new(record, self.poison.apply(state, record))
                    self.stage.records += 1
                    self.metrics.answered(record, outputs)
                    burst += outputs
                    worked = True
                    if len(burst) >= TOGETHER:
                        self._emit(burst)
        finally:
            # Together: librdkafka waits a millisecond for more, and every request to the broker
            # costs more than a record.
            self._emit(burst)
        if worked:
            self.stage.seconds += time.monotonic() - start
            self._report_late(state)
            self._report_skew(state)
            opened = state.counts["streams/opened"]
            if opened >= self._opened_frozen + FREEZE_STREAMS:
                self._opened_frozen = opened
                gc.collect()  # what is garbage now would stay for ever
                gc.freeze()
        return worked

    def _report_late(self, fold: Fold) -> None:
        """Log, at most once a minute, how many labels came too late and by which settings."""
        late, now = _late(fold), time.monotonic()
        count = sum(late.values())
        before, at = self._late_reported
        if count > before and now - at >= REPORT_S:
            self._late_reported = count, now
            by = ", ".join(f"{setting} {count}" for setting, count in sorted(late.items()))
            text = "partition %d: %d more labels came too late to be learnt; so far by setting: %s"
            log.warning(text, self.number, count - before, by)

    def _report_skew(self, fold: Fold) -> None:
        """Log, at most once a minute, that labels are stamped before their features."""
        count, now = fold.counts["labels/stamped-before"], time.monotonic()
        before, at = self._skew_reported
        if count > before and now - at >= REPORT_S:
            self._skew_reported = count, now
            text = (
                "partition %d: %d more labels are stamped before their features, the last by %.0f "
                "s: the clock of who sends labels is slow; see Clocks in docs/guide-operations.md"
            )
            log.warning(text, self.number, count - before, fold.label_skew_ms / 1000)

    def _report_parking(self) -> None:
        """An event where the partition is parked, and one where it goes on."""
        before, now = self._parked_reported, self.poison.parked_at
        self._parked_reported = now
        if now == before:
            return
        if before is not None:
            kind = EventKind.SKIPPED if before in self.poison.skips else EventKind.RETRIED
            self.send_event(kind, self.number, before, "")
        if now is not None:
            self.send_event(EventKind.PARKED, self.number, now, "a record fails again and again")

    async def _wait_parked(self, fold: Fold, offset: int) -> None:
        """Wait before a record on which the fold fails, until an operator has decided about it."""
        if fold.next_offset < offset:
            await self._read_gap(fold, offset)
            return
        await asyncio.sleep(self.poison.recheck_s)
        await asyncio.to_thread(self.poison.read_on)
        fold.skips = self.poison.skips

    async def _fill_gap(self, fold: Fold, end: int) -> bool:
        """Read what lies before `end`, decisions about it included; False if parked by them.

        A long gap is left to a restore, which is cheaper; once, in case it does not help.
        """
        if end - fold.next_offset > self.queue_max and self._restored_for != end:
            self._restored_for = end
            log.warning("journal partition %d: overtaken, restored again", self.number)
            raise OvertakenError
        await asyncio.to_thread(self.poison.read, fold.next_offset, None)
        fold.skips = self.poison.skips
        if self.poison.parked_at is not None:
            return False
        await self._read_gap(fold, end)
        return True

    async def _read_gap(self, fold: Fold, end: int) -> None:
        """Read what Faust has not delivered; may be nothing: transactions leave gaps in offsets."""
        outputs: list[Output] = []
        count = await self.in_thread(self._read, fold, end, outputs)
        if count:
            log.warning("journal partition %d: %d records read again", self.number, count)
        self._emit(outputs)

    def _new(self, record: Record, outputs: list[Output]) -> list[Output]:
        """Outputs of a record without an answer that another version has given."""
        if record.offset > self._answered:
            return outputs
        return [output for output in outputs if output.topic != "predictions"]

    def _emit(self, outputs: list[Output]) -> None:
        """Send outputs, and take them from the list."""
        writers = {
            "predictions": self._outputs.predictions,
            "dead-letters": self._outputs.dead_letters,
            "scores": self._outputs.scores,
        }
        for topic, key, value, headers in outputs:
            writers[topic].send(key, value, headers)
            if topic == "scores":
                event = orjson.loads(value or b"{}")
                what = (event["event"], event["stream"], event["detail"])
                log.warning("partition %d: %s: stream %s: %s", self.number, *what)
            if topic == "dead-letters":
                self._refusals.note(headers)
        outputs.clear()

    async def crashed(self, bug: FoldBugError) -> None:
        """Record the crash in the journal; the process ends unless this parks the partition."""
        log.critical("partition %d: %s", self.number, bug.report)
        self.send_event(EventKind.CRASHED, self.number, bug.offset, f"{bug.error} at {bug.place}")
        if not await self.poison.note(bug):
            raise bug

    # --- what can be seen from outside -----------------------------------------------------------

    def processed(self, topic: str) -> int:
        """The last journal record that is folded: what Faust has not delivered is read."""
        return self.next_offset - 1

    @property
    def restore_progress(self) -> tuple[Any, ...]:
        """Reading ahead for crashes and decisions is progress too."""
        return self.poison.next_offset, self.restored_records, self.next_offset

    def probes(self, ends: Ends) -> Iterable[Probe]:  # type: ignore[override]
        """No probes while parked: the partition waits for an operator."""
        return super().probes(ends) if self.poison.parked_at is None else ()

    def unready(self) -> list[str]:
        """Of a parked partition: the offset, and what to do."""
        if self.poison.parked_at is not None:
            return [self.poison.sentence]
        return super().unready()

    def health(self) -> dict[str, Any]:
        """With what is parked."""
        return super().health() | {"parked": self.poison.status()}

    async def status(self) -> dict[str, Any]:
        """Offsets, marks and counters of the fold."""
        about = self.health() | {
            "next_offset": self.next_offset,
            "snapshot_offset": self.saved_position,
        }
        fold = self.state
        if fold is not None:
            weights = await of_each(fold.streams, _weights)
            about |= {
                "marks": {topic: mark for (topic, _), mark in fold.marks.offsets.items()},
                "clock_ms": fold.clock_ms,
                "config": fold.config_digest,
                "streams": len(fold.streams),
                "weights": weights,
                "state_bytes": fold.streams.state_bytes,
                "label_skew_ms": fold.label_skew_ms,
                "counts": dict(fold.counts),
            }
        return about

    @property
    def counts(self) -> Mapping[str, int]:
        """The fold's counters, once it is where the journal ended at the start.

        Before that they are lower than what another process has shown, and a counter that goes
        down looks like a reset.
        """
        return self.state.counts if self.state is not None and self.ready.is_set() else {}

    def samples(self) -> Iterable[Sample]:
        """How far it is, and what its streams hold."""
        yield from super().samples()
        parked = self.poison.parked_at is not None
        yield from self.metrics.samples(parked, self.next_offset, self.waiting)
        if self.state is not None:
            yield from self.metrics.fold_samples(self.state)


def _weights(_: str, stream: StreamState) -> dict[str, Any]:
    """The weights of a stream's experts and of its guard."""
    return dict(zip(("experts", "guard"), stream.learner.combination.weights(), strict=True))


def _late(fold: Fold) -> dict[str, int]:
    """Labels that came too late, by the setting that decided it."""
    prefix = "labels/late/"
    return {
        name.removeprefix(prefix): count
        for name, count in fold.counts.items()
        if name.startswith(prefix)
    }
