"""The streams of one partition, and the copies of them that a snapshot takes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from threading import Lock

from dtgol_core.state import Snapshot, SnapshotError
from pipeline.learning.fold_config import Lineage
from pipeline.learning.stream import StreamState


class Cut(Mapping[str, Snapshot]):
    """Streams as they were at one moment, each copied once: when it is taken, or before it changes.

    The fold calls `keep` before it touches a stream, the writer of a snapshot takes items from
    another thread; the lock is held for the copy of one stream.
    """

    def __init__(self, streams: dict[str, StreamState]) -> None:
        self._streams = streams
        self._copies: dict[str, Snapshot] = {}
        self._names = tuple(streams)
        self._lock = Lock()

    def keep(self, name: str) -> None:
        """The stream is about to change."""
        if name in self._streams:
            with self._lock:
                stream = self._streams.pop(name, None)
                if stream is not None:
                    self._copies[name] = stream.snapshot()

    def __getitem__(self, name: str) -> Snapshot:
        with self._lock:
            stream = self._streams.pop(name, None)
            return self._copies.pop(name) if stream is None else stream.snapshot()

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class Streams(Mapping[str, StreamState]):
    """The open streams, in the order in which their last records came: the idlest first.

    Looking at a stream is by mapping; `change` must be called before one is changed.

    Attributes
    ----------
    state_bytes
        Memory of all learners, as last measured.
    """

    def __init__(self) -> None:
        self._streams: OrderedDict[str, StreamState] = OrderedDict()
        self._cut = Cut({})
        self.state_bytes = 0

    def __getitem__(self, name: str) -> StreamState:
        return self._streams[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._streams)

    def __len__(self) -> int:
        return len(self._streams)

    def add(self, name: str, stream: StreamState) -> None:
        """Open a stream."""
        self._streams[name] = stream
        self.state_bytes += stream.learner_bytes

    def change(self, name: str, next_offset: int) -> StreamState:
        """The stream, for a change by the record before `next_offset`."""
        self._cut.keep(name)
        stream = self._streams[name]
        stream.next_offset = next_offset
        return stream

    def touch(self, name: str, next_offset: int, append_ms: int) -> StreamState:
        """The stream, for a change by a record of its own: it is now the least idle."""
        stream = self.change(name, next_offset)
        stream.touched_ms = append_ms
        self._streams.move_to_end(name)
        return stream

    def measure(self, stream: StreamState) -> None:
        """Count what the learner of a stream has grown by."""
        self.state_bytes += stream.measure()

    def remove(self, name: str) -> StreamState:
        """Close a stream."""
        self._cut.keep(name)
        stream = self._streams.pop(name)
        self.state_bytes -= stream.learner_bytes
        return stream

    def idle(self, touched_before_ms: int) -> Iterable[str]:
        """The streams whose last record was appended before that time, idlest first."""
        names = []
        for name, stream in self._streams.items():
            if stream.touched_ms >= touched_before_ms:
                break
            names.append(name)
        return names

    @property
    def versions(self) -> dict[str, int]:
        """One past the last record that changed each stream."""
        return {name: stream.next_offset for name, stream in self._streams.items()}

    def copies(self) -> dict[str, Snapshot]:
        """All streams, copied now."""
        return {name: stream.snapshot() for name, stream in self._streams.items()}

    def cut(self, stored: Mapping[str, int]) -> Cut:
        """The streams as they are now, without those `stored` with the same `next_offset`.

        A stream is copied when it is asked for, once, from any thread, or before it changes; so a
        snapshot does not take the memory of a second state. Only the newest cut may be used.
        """
        changed = {
            name: stream
            for name, stream in self._streams.items()
            if stored.get(name) != stream.next_offset
        }
        self._cut = Cut(changed)
        return self._cut

    @staticmethod
    def restore(
        listed: Iterable[tuple[str, int]], snapshots: Mapping[str, Snapshot], lineage: Lineage
    ) -> Streams:
        """The streams that a snapshot `listed` with their offsets."""
        streams = Streams()
        for name, next_offset in listed:
            stream = StreamState.restore(snapshots[name], lineage)
            if stream.next_offset != next_offset:
                raise SnapshotError(f"the snapshot of stream {name} is of another offset")
            streams.add(name, stream)
        return streams
