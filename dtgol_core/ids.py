"""Id memory: which instances have left the delay table, and what became of each.

In: ids as they are settled. Out: for any id, what became of it and at which step it was observed.
Kept as a log of fixed-size entries, so a million ids take about 33 MB and a snapshot costs what is
new: full chunks are never written again.
"""

from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from dtgol_core.state import ENTRY_BYTES, SnapshotError, require_int, require_shape
from dtgol_core.types import IntArray

CHUNK_IDS = 4096
ID_BYTES = 33
"""Of an id in a full chunk: hash, outcome and step, and its place in the index."""
_NO_TIME = np.iinfo(np.int64).min
_KEY = b"dtgol ids 1"
"""Makes the hash one of our own: a table of some other system's hashes of the same ids is of no use
here. It is no secret."""


class Settled(NamedTuple):
    """What is remembered of an id: a number for what became of it, and the step of its record."""

    outcome: int
    step: int


class _Chunk(NamedTuple):
    """Entries in the order in which they were settled; read-only once it is full."""

    hash: IntArray
    outcome: Any
    step: IntArray
    time: IntArray
    """Shape (1,): the stream's clock when the chunk became full."""


class IdMemory:
    """The newest `count_max` settled ids of a stream, by a 64-bit hash of each.

    Parameters
    ----------
    count_max
        Entries kept; beyond it the oldest go.
    age_max_ms
        Entries older than this, by the stream's own clock, go too, a whole chunk at a time: never
        too early, and at most `CHUNK_IDS` entries too late. None: never.

    Notes
    -----
    The hash is BLAKE2b, 8 bytes, keyed. Two ids with one hash are taken for one, so the error is
    always in one direction: a new id taken for one already seen, answered as a repeat and not
    learnt; never an id learnt twice. With a million ids remembered the chance is 5e-14 per record.

    An id that is remembered again moves to the end. Cost: O(log n) to find, O(1) amortised to
    remember. Memory: 33 bytes an id.

    >>> ids = IdMemory(count_max=2, age_max_ms=None)
    >>> for step, id in enumerate("abc", start=1):
    ...     ids.remember(id, outcome=1, step=step, clock_ms=None)
    >>> ids.find("a"), ids.find("c")
    (None, Settled(outcome=1, step=3))
    """

    ARRAYS = _Chunk._fields

    def __init__(self, count_max: int, age_max_ms: int | None) -> None:
        self._count_max = count_max
        self._age_max_ms = age_max_ms
        self._ever = 0
        self._first = 0
        self._chunks: dict[int, _Chunk] = {}
        self._open: list[tuple[int, int, int]] = []
        # Places by hash: a sorted index of most, and a dict of those since it was built.
        self._sorted: IntArray = np.zeros(0, dtype=np.int64)
        self._places: IntArray = np.zeros(0, dtype=np.int64)
        self._recent: dict[int, int] = {}

    def __len__(self) -> int:
        """Entries kept; an id that was remembered again counts for each time."""
        return self._ever - self._first

    @property
    def state_bytes(self) -> int:
        """Memory, about: 33 bytes an id, more for those that are not in a full chunk yet.

        By the bounds alone, since the index is another one after a restore.
        """
        entries = self._ever - self._first // CHUNK_IDS * CHUNK_IDS
        return ID_BYTES * entries + ENTRY_BYTES * (self._ever % CHUNK_IDS)

    def copy(self) -> "IdMemory":
        """An independent copy; what never changes is shared."""
        other = object.__new__(IdMemory)
        vars(other).update(vars(self))
        other._chunks, other._recent = self._chunks.copy(), self._recent.copy()
        other._open = self._open.copy()
        return other

    def find(self, id: str) -> Settled | None:
        """What became of an id; None if it was never settled, or too long ago."""
        return self.find_hash(id_hash(id))

    def find_hash(self, hash: int) -> Settled | None:
        """The same, by the hash of the id."""
        place = self._recent.get(hash, -1)
        if place < 0 and len(self._sorted):
            at = int(self._sorted.searchsorted(hash))
            if at < len(self._sorted) and int(self._sorted[at]) == hash:
                place = int(self._places[at])
        if place < self._first:
            return None
        number, row = divmod(place, CHUNK_IDS)
        chunk = self._chunks.get(number)
        if chunk is None:
            return Settled(*self._open[row][1:])
        return Settled(int(chunk.outcome[row]), int(chunk.step[row]))

    def remember(self, id: str, outcome: int, step: int, clock_ms: int | None) -> None:
        """Note what became of an id; the oldest entries go where a bound is reached."""
        hash = id_hash(id)
        self._recent[hash] = self._ever
        self._open.append((hash, outcome, step))
        self._ever += 1
        if len(self._open) == CHUNK_IDS:
            chunk = _pack(self._open, clock_ms)
            for array in chunk:
                array.flags.writeable = False
            self._chunks[(self._ever - 1) // CHUNK_IDS] = chunk
            self._open = []
        self._forget(clock_ms)
        if len(self._recent) > max(CHUNK_IDS, len(self._sorted) // 8):
            self._index()

    def _forget(self, clock_ms: int | None) -> None:
        self._first = max(self._first, self._ever - self._count_max)
        while (chunk := self._chunks.get(self._first // CHUNK_IDS)) is not None:
            time = int(chunk.time[0])
            if self._age_max_ms is None or clock_ms is None or time == _NO_TIME:
                break
            if time + self._age_max_ms >= clock_ms:
                break
            self._first = (self._first // CHUNK_IDS + 1) * CHUNK_IDS
        for number in list(self._chunks):
            if (number + 1) * CHUNK_IDS > self._first:
                break
            del self._chunks[number]

    @property
    def can_forget(self) -> bool:
        """Whether there is a full chunk: what is in the open one is never forgotten by request."""
        return bool(self._chunks)

    def forget_oldest(self) -> None:
        """Forget the ids of the oldest chunk."""
        number = min(self._chunks)
        del self._chunks[number]
        self._first = max(self._first, (number + 1) * CHUNK_IDS)

    def _index(self) -> None:
        """Move the newest places to the sorted index, and drop those that are forgotten."""
        fresh = np.array(sorted(self._recent), dtype=np.int64)
        places = np.array([self._recent[hash] for hash in fresh.tolist()], dtype=np.int64)
        keep = (self._places >= self._first) & ~np.isin(self._sorted, fresh, assume_unique=True)
        old, old_places = self._sorted[keep], self._places[keep]
        at = np.searchsorted(old, fresh)
        self._sorted = np.insert(old, at, fresh)
        self._places = np.insert(old_places, at, places)
        self._recent = {}

    def snapshot(self) -> dict[str, Any]:
        """Chunks by number, the open one last, and the bounds of what counts."""
        chunks = self._chunks
        if self._open:
            chunks = chunks | {self._ever // CHUNK_IDS: _pack(self._open, None)}
        arrays = {
            f"{number}/{name}": array
            for number, chunk in chunks.items()
            for name, array in zip(self.ARRAYS, chunk, strict=True)
        }
        return {**arrays, "ever": self._ever, "first": self._first}

    def immutable_parts(self) -> list[str]:
        """Prefixes of the arrays of a snapshot that will not change any more."""
        return [f"{number}/" for number in self._chunks]

    @staticmethod
    def restore(count_max: int, age_max_ms: int | None, snapshot: dict[str, Any]) -> "IdMemory":
        """The memory that `snapshot` described; the bounds may be others, and hold from the next
        id on."""
        ids = IdMemory(count_max, age_max_ms)
        ids._ever, ids._first = require_int(snapshot["ever"]), require_int(snapshot["first"])
        if not 0 <= ids._first <= ids._ever:
            raise SnapshotError("the snapshot does not fit together: bounds of the id memory")
        for number in range(ids._first // CHUNK_IDS, -(-ids._ever // CHUNK_IDS)):
            chunk = _Chunk(*(snapshot[f"{number}/{name}"].copy() for name in IdMemory.ARRAYS))
            rows = min(CHUNK_IDS, ids._ever - number * CHUNK_IDS)
            require_shape("time", chunk.time, (1,))
            for name, array in zip(IdMemory.ARRAYS[:3], chunk, strict=False):
                require_shape(name, array, (rows,))
            if rows == CHUNK_IDS:
                for array in chunk:
                    array.flags.writeable = False
                ids._chunks[number] = chunk
            else:
                ids._open = list(zip(*(each.tolist() for each in chunk[:3]), strict=True))
        # Where a hash stands more than once, the last place counts: the first of the reversed.
        first_place = ids._first // CHUNK_IDS * CHUNK_IDS
        hashes = [chunk.hash for chunk in ids._chunks.values()]
        hashes.append(np.array([hash for hash, *_ in ids._open], dtype=np.int64))
        backwards = np.concatenate(hashes)[::-1]
        ids._sorted, at = np.unique(backwards, return_index=True)
        ids._places = first_place + len(backwards) - 1 - at
        return ids


def id_hash(id: str) -> int:
    """The keyed 64-bit hash by which an id is remembered."""
    digest = blake2b(id.encode("utf-8", "surrogatepass"), digest_size=8, key=_KEY).digest()
    return int.from_bytes(digest, "little", signed=True)


def _pack(entries: list[tuple[int, int, int]], clock_ms: int | None) -> _Chunk:
    hashes, outcomes, steps = zip(*entries, strict=True)
    return _Chunk(
        np.array(hashes, dtype=np.int64),
        np.array(outcomes, dtype=np.int8),
        np.array(steps, dtype=np.int64),
        np.array([_NO_TIME if clock_ms is None else clock_ms], dtype=np.int64),
    )


def hash_text(id: str) -> str:
    """The hash of an id as 16 hex digits."""
    return f"{id_hash(id) % 2**64:016x}"


def signed_hash(text: str) -> int:
    """The hash that `hash_text` wrote."""
    unsigned = int(text, 16)
    return unsigned - 2**64 if unsigned >= 2**63 else unsigned
