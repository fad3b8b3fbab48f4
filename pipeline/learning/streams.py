"""The streams of one partition, and the copies of them that a snapshot takes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from dtgol_core.delay import DelayTable
from dtgol_core.state import Snapshot, SnapshotError
from pipeline.learning.early import UNOPENED, EarlyLabel, UnopenedLabels
from pipeline.learning.fold_config import Lineage
from pipeline.learning.stream import StreamState
from pipeline.snapshots.copy_on_write import CopyOnWrite

WAITING_SHARE, IDS_SHARE = 2, 4
"""Of the memory of a partition's learners, a half is the most for instances that wait for their
labels, a quarter for ids that are remembered: so one stream can have both at their defaults, and
whatever waits there is always room for streams."""


class History(NamedTuple):
    """Memory of what a stream keeps of the past: waiting instances, and ids."""

    waiting: int
    ids: int


class Streams(Mapping[str, StreamState]):
    """The open streams, in the order in which their last records came: the longest idle first.

    Looking at a stream is by mapping; `change` must be called before one is changed.

    Attributes
    ----------
    unopened
        Labels of streams of which no features have come; in snapshots under a name of its own.
    state_bytes
        Memory of all learners, as last measured.
    """

    def __init__(self) -> None:
        self._streams: OrderedDict[str, StreamState] = OrderedDict()
        self._unsaved: CopyOnWrite[Snapshot] = CopyOnWrite({})
        self.unopened = UnopenedLabels()
        self.state_bytes = 0
        self._changed: set[str] = set()
        self._history: dict[str, History] = {}
        self._history_bytes = History(0, 0)

    def __getitem__(self, name: str) -> StreamState:
        return self._streams[name]

    def __contains__(self, name: object) -> bool:
        return name in self._streams

    def __iter__(self) -> Iterator[str]:
        return iter(self._streams)

    def __len__(self) -> int:
        return len(self._streams)

    def add(self, name: str, stream: StreamState) -> None:
        """Open a stream."""
        self._streams[name] = stream
        self._changed.add(name)
        self.state_bytes += stream.learner_bytes

    def change(self, name: str, next_offset: int) -> StreamState:
        """The stream, for a change by the record before `next_offset`."""
        self._unsaved.keep(name)
        self._changed.add(name)
        stream = self._streams[name]
        stream.next_offset = next_offset
        return stream

    def touch(self, name: str, next_offset: int, append_ms: int) -> StreamState:
        """The stream, for a change by a record of its own: it is now the least idle."""
        stream = self.change(name, next_offset)
        stream.touched_ms = append_ms
        self._streams.move_to_end(name)
        return stream

    def change_unopened(self, next_offset: int) -> UnopenedLabels:
        """The labels of streams without features, for a change by the record before that offset."""
        self._unsaved.keep(UNOPENED)
        self.unopened.next_offset = next_offset
        return self.unopened

    @property
    def early_bytes(self) -> int:
        """Memory of all labels that wait for their features."""
        early = sum(stream.early_bytes for stream in self._streams.values())
        return early + self.unopened.early_bytes

    def shed_early(self, bytes_max: int, next_offset: int) -> list[EarlyLabel]:
        """Remove the oldest early labels of the stream that holds most, until all fit.

        Returns those removed.
        """
        shed: list[EarlyLabel] = []
        excess = self.early_bytes - bytes_max
        while excess > 0:
            sizes = {name: stream.early_bytes for name, stream in self._streams.items()}
            name = max(sizes, key=sizes.__getitem__, default=UNOPENED)
            if sizes.get(name, 0) <= self.unopened.early_bytes:
                shed.append(self.change_unopened(next_offset).drop_oldest_early())
            else:
                shed.append(self.change(name, next_offset).drop_oldest_early())
            excess -= shed[-1].size
        return shed

    @property
    def history_bytes(self) -> History:
        """Of all streams, exactly; looks only at those that have changed since the last time."""
        if not self._changed:
            return self._history_bytes
        waiting, ids = self._history_bytes
        for name in self._changed:
            before, stream = self._history.pop(name, None), self._streams.get(name)
            if before is not None:
                waiting, ids = waiting - before[0], ids - before[1]
            if stream is not None:
                delay = stream.learner.delay
                now = self._history[name] = History(delay.pending_bytes, delay.settled.state_bytes)
                waiting, ids = waiting + now[0], ids + now[1]
        self._changed.clear()
        self._history_bytes = History(waiting, ids)
        return self._history_bytes

    def shed_history(self, bytes_max: int, next_offset: int) -> tuple[int, int]:
        """Where all that waits, or all ids, are over their share: who has most loses its oldest.

        Some instances at a time, as many as may expire at one step, so the share may be exceeded
        for some records. Returns how many instances were learnt and how many forgotten.
        """
        counts = 0, 0
        waiting, ids = self.history_bytes
        if waiting > bytes_max // WAITING_SHARE:
            name = self._most(lambda held: held.waiting, lambda delay: delay.can_give_up)
            if name is not None:
                stream = self.change(name, next_offset)
                counts = stream.learner.give_up_oldest()
                self.state_bytes += stream.measure(anew=True)
        if ids > bytes_max // IDS_SHARE:
            name = self._most(lambda held: held.ids, lambda delay: delay.settled.can_forget)
            if name is not None:
                stream = self.change(name, next_offset)
                stream.learner.delay.settled.forget_oldest()
                self.state_bytes += stream.measure(anew=True)
        return counts

    def _most(
        self, held: Callable[[History], int], can_shed: Callable[[DelayTable], bool]
    ) -> str | None:
        """The stream that has most, of those that can give something up; by name of equals."""
        streams = self._streams
        able = (name for name in self._history if can_shed(streams[name].learner.delay))
        return min(able, key=lambda name: (-held(self._history[name]), name), default=None)

    def measure(self, stream: StreamState) -> None:
        """Count what the learner of a stream has grown by."""
        self.state_bytes += stream.measure()

    def remove(self, name: str) -> StreamState:
        """Close a stream."""
        self._unsaved.keep(name)
        self._changed.add(name)
        stream = self._streams.pop(name)
        self.state_bytes -= stream.learner_bytes
        return stream

    def idle(self, touched_before_ms: int) -> Iterable[str]:
        """The streams whose last record was appended before that time, longest idle first."""
        names = []
        for name, stream in self._streams.items():
            if stream.touched_ms >= touched_before_ms:
                break
            names.append(name)
        return names

    @property
    def _parts(self) -> dict[str, StreamState | UnopenedLabels]:
        """What a snapshot is made of, by name."""
        unopened = {UNOPENED: self.unopened} if self.unopened else {}
        return {**self._streams, **unopened}

    @property
    def versions(self) -> dict[str, int]:
        """One past the last record that changed each part of a snapshot."""
        return {name: part.next_offset for name, part in self._parts.items()}

    def copies(self) -> dict[str, Snapshot]:
        """All parts, copied now."""
        return {name: part.snapshot() for name, part in self._parts.items()}

    def changed_since(self, stored: Mapping[str, int]) -> CopyOnWrite[Snapshot]:
        """The parts as they are now, without those `stored` with the same `next_offset`.

        A part is copied when it is asked for, once, from any thread, or before it changes; so a
        snapshot does not take the memory of a second state. Only the newest result may be used.
        """
        parts = self._parts.items()
        self._unsaved = CopyOnWrite(
            {name: p for name, p in parts if stored.get(name) != p.next_offset}
        )
        return self._unsaved

    @staticmethod
    def restore(
        listed: Mapping[str, int], snapshots: Mapping[str, Snapshot], lineage: Lineage
    ) -> Streams:
        """The streams, and the labels without one, that a snapshot `listed` with their offsets."""
        streams = Streams()
        for name, next_offset in listed.items():
            part: StreamState | UnopenedLabels
            if name == UNOPENED:
                part = streams.unopened = UnopenedLabels.restore(snapshots[name])
            else:
                part = StreamState.restore(snapshots[name], lineage)
                streams.add(name, part)
            if part.next_offset != next_offset:
                raise SnapshotError(f"the snapshot of stream {name} is of another offset")
        return streams
