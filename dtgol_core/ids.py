"""Id memory: which instances have left the delay table, and what became of each.

In: ids as they are settled. Out: for any id, what became of it and at which step it was observed.
Kept as a log of fixed-size entries, so a million ids take about 33 MB and a snapshot costs what is
new: full chunks are never written again. Beside it an index from hashes to places in the log, which
is not stored: it follows from the log.
"""

from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from dtgol_core.compiled import in_place
from dtgol_core.state import ENTRY_BYTES, SnapshotError, require_count, require_shape
from dtgol_core.types import IntArray

CHUNK_IDS = 4096
ID_BYTES = 33
"""Of an id in a full chunk: hash, outcome and step, and its place in the index."""
BUCKETS = 256
MERGE_ENTRIES = CHUNK_IDS // BUCKETS
"""Entries after which another bucket is merged: all are before the next chunk is full."""
_BUCKET_SHIFT = 56
_EMPTY: IntArray = np.zeros(0, dtype=np.int64)
_NO_TIME = np.iinfo(np.int64).min
_KEYED = blake2b(digest_size=8, key=b"dtgol ids 1")
"""The key makes the hash one of our own: a table of some other system's hashes of the same ids is
of no use here. It is no secret. Copied for every id, for to take in the key takes longest."""


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


_TYPES = (np.int64, np.int8, np.int64, np.int64)


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

    An id that is remembered again moves to the end. Cost: O(log n) to find; to remember O(n/256) at
    every sixteenth call, a sort of 4,096 at every 4,096th, else O(1). Memory: 33 bytes an id.

    >>> ids = IdMemory(count_max=2, age_max_ms=None)
    >>> for step, id in enumerate("abc", start=1):
    ...     ids.remember(id_hash(id), outcome=1, step=step, clock_ms=None)
    >>> ids.find(id_hash("a")), ids.find(id_hash("c"))
    (None, Settled(outcome=1, step=3))
    """

    ARRAYS = _Chunk._fields

    def __init__(self, count_max: int, age_max_ms: int | None) -> None:
        self._count_max = count_max
        self._age_max_ms = age_max_ms
        self._ever = 0
        self._first = 0
        self._chunks: dict[int, _Chunk] = {}
        self._open: list[list[int]] = [[], [], []]
        """Hash, outcome and step of the entries since the last full chunk."""
        self._index = HashIndex()

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
        other._chunks = self._chunks.copy()
        other._open = [each.copy() for each in self._open]
        other._index = self._index.copy()
        return other

    def find(self, hash: int) -> Settled | None:
        """What became of the id with this hash; None if it was never settled, or too long ago."""
        place = self._index.find(hash)
        if place < self._first:
            return None
        number, row = divmod(place, CHUNK_IDS)
        chunk = self._chunks.get(number)
        if chunk is None:
            return Settled(self._open[1][row], self._open[2][row])
        return Settled(int(chunk.outcome[row]), int(chunk.step[row]))

    def remember(self, hash: int, outcome: int, step: int, clock_ms: int | None) -> None:
        """Note what became of an id; the oldest entries go where a bound is reached."""
        self._index.add(hash, self._ever, self._first)
        hashes, outcomes, steps = self._open
        hashes.append(hash)
        outcomes.append(outcome)
        steps.append(step)
        self._ever += 1
        if len(hashes) == CHUNK_IDS:
            chunk = _pack(self._open, clock_ms)
            for array in chunk:
                array.flags.writeable = False
            self._chunks[(self._ever - 1) // CHUNK_IDS] = chunk
            self._open = [[], [], []]
        if self._chunks or self._ever - self._first > self._count_max:
            self._forget(clock_ms)

    def _forget(self, clock_ms: int | None) -> None:
        first = self._first // CHUNK_IDS
        self._first = max(self._first, self._ever - self._count_max)
        while (chunk := self._chunks.get(self._first // CHUNK_IDS)) is not None:
            if self._age_max_ms is None or clock_ms is None:
                break
            time = int(chunk.time[0])
            if time == _NO_TIME or time + self._age_max_ms >= clock_ms:
                break
            self._first = (self._first // CHUNK_IDS + 1) * CHUNK_IDS
        for number in range(first, self._first // CHUNK_IDS):
            self._chunks.pop(number, None)

    @property
    def can_forget(self) -> bool:
        """Whether there is a full chunk: what is in the open one is never forgotten by request."""
        return bool(self._chunks)

    def forget_oldest(self) -> None:
        """Forget the ids of the oldest chunk."""
        number = min(self._chunks)
        del self._chunks[number]
        self._first = max(self._first, (number + 1) * CHUNK_IDS)

    def snapshot(self) -> dict[str, Any]:
        """Chunks by number, the open one last, and the bounds of what counts."""
        chunks = self._chunks
        if self._open[0]:
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
        ids._ever, ids._first = require_count(snapshot["ever"]), require_count(snapshot["first"])
        if ids._first > ids._ever:
            raise SnapshotError("the snapshot does not fit together: bounds of the id memory")
        for number in range(ids._first // CHUNK_IDS, -(-ids._ever // CHUNK_IDS)):
            chunk = _Chunk(*(snapshot[f"{number}/{name}"].copy() for name in IdMemory.ARRAYS))
            rows = min(CHUNK_IDS, ids._ever - number * CHUNK_IDS)
            require_shape("time", chunk.time, (1,))
            for name, array, like in zip(IdMemory.ARRAYS, chunk, _TYPES, strict=True):
                if name != "time":
                    require_shape(name, array, (rows,))
                if array.dtype != like:
                    raise SnapshotError(f"the snapshot is damaged: {name} of the id memory")
            if rows == CHUNK_IDS:
                for array in chunk:
                    array.flags.writeable = False
                ids._chunks[number] = chunk
            else:
                ids._open = [each.tolist() for each in chunk[:3]]
        # Where a hash stands more than once, the last place counts: the first of the reversed.
        first_place = ids._first // CHUNK_IDS * CHUNK_IDS
        hashes = [chunk.hash for chunk in ids._chunks.values()]
        hashes.append(np.array(ids._open[0], dtype=np.int64))
        backwards = np.concatenate(hashes)[::-1]
        unique, at = np.unique(backwards, return_index=True)
        ids._index.fill(unique, first_place + len(backwards) - 1 - at)
        return ids


class HashIndex:
    """The newest place of each hash.

    The newest entries are in a dict. Every 4,096 of them are sorted and then merged into 256 sorted
    buckets, by the highest byte of the hash, one bucket at every sixteenth entry: no call takes
    long, however many hashes there are. Arrays are replaced and never changed, so copies share
    them. Cost: O(log n) to find, O(n/256) for every sixteenth entry. Memory: 16 bytes a hash.
    """

    def __init__(self) -> None:
        self._buckets: list[tuple[IntArray, IntArray]] = [(_EMPTY, _EMPTY)] * BUCKETS
        self._recent: dict[int, int] = {}
        self._fresh, self._fresh_places = _EMPTY, _EMPTY
        """Sorted, and in the buckets before `_merged` already."""
        self._merged = BUCKETS

    def copy(self) -> "HashIndex":
        """An independent copy."""
        other = object.__new__(HashIndex)
        vars(other).update(vars(self))
        other._buckets, other._recent = self._buckets.copy(), self._recent.copy()
        return other

    def find(self, hash: int) -> int:
        """The place of a hash; -1 if it has none."""
        place = self._recent.get(hash, -1)
        if place >= 0:
            return place
        bucket = self._buckets[(hash >> _BUCKET_SHIFT) + BUCKETS // 2]
        return _find(self._fresh, self._fresh_places, *bucket, hash)

    def add(self, hash: int, place: int, first: int) -> None:
        """Note the place of a hash; entries whose place is before `first` may be dropped."""
        self._recent[hash] = place
        if len(self._recent) >= CHUNK_IDS:
            while self._merged < BUCKETS:
                self._merge_next(first)
            hashes = np.fromiter(self._recent.keys(), dtype=np.int64, count=len(self._recent))
            places = np.fromiter(self._recent.values(), dtype=np.int64, count=len(self._recent))
            order = hashes.argsort()
            self._fresh, self._fresh_places = hashes[order], places[order]
            self._recent, self._merged = {}, 0
        elif self._merged < BUCKETS and len(self._recent) % MERGE_ENTRIES == 0:
            self._merge_next(first)

    def fill(self, hashes: IntArray, places: IntArray) -> None:
        """Begin with these, which are sorted by hash and all different."""
        if len(hashes) < CHUNK_IDS:
            self._recent = dict(zip(hashes.tolist(), places.tolist(), strict=True))
            return
        bounds = [(number - BUCKETS // 2) << _BUCKET_SHIFT for number in range(BUCKETS)]
        starts = np.append(np.searchsorted(hashes, bounds), len(hashes)).tolist()
        for number in range(BUCKETS):
            part = slice(starts[number], starts[number + 1])
            self._buckets[number] = hashes[part].copy(), places[part].copy()

    def _merge_next(self, first: int) -> None:
        hashes, places = self._buckets[self._merged]
        merged = np.empty((2, len(hashes) + len(self._fresh)), dtype=np.int64)
        fresh, fresh_places = self._fresh, self._fresh_places
        count = _merge(hashes, places, fresh, fresh_places, self._merged, first, merged)
        self._buckets[self._merged] = merged[0, :count].copy(), merged[1, :count].copy()
        self._merged += 1
        if self._merged == BUCKETS:
            self._fresh, self._fresh_places = _EMPTY, _EMPTY


@in_place
def _bucket(hash: int) -> int:
    return (hash >> _BUCKET_SHIFT) + BUCKETS // 2


@in_place
def _search(hashes: IntArray, hash: int) -> int:
    """The first place in sorted hashes that is not below one."""
    low, high = 0, len(hashes)
    while low < high:
        middle = (low + high) // 2
        if hashes[middle] < hash:
            low = middle + 1
        else:
            high = middle
    return low


@in_place
def _find(
    fresh: IntArray, fresh_places: IntArray, hashes: IntArray, places: IntArray, hash: int
) -> int:
    at = _search(fresh, hash)
    if at < len(fresh) and fresh[at] == hash:
        return int(fresh_places[at])
    at = _search(hashes, hash)
    return int(places[at]) if at < len(hashes) and hashes[at] == hash else -1


@in_place
def _merge(
    hashes: IntArray,
    places: IntArray,
    fresh: IntArray,
    fresh_places: IntArray,
    bucket: int,
    first: int,
    merged: IntArray,
) -> int:
    """A bucket with its fresh entries, to the front of `merged`; how many they are.

    Of a hash that is in both, the fresh one counts.
    """
    count, old, new = 0, 0, 0
    while new < len(fresh) and _bucket(fresh[new]) < bucket:
        new += 1
    while old < len(hashes) or (new < len(fresh) and _bucket(fresh[new]) == bucket):
        takes_new = new < len(fresh) and _bucket(fresh[new]) == bucket
        if takes_new and old < len(hashes) and hashes[old] <= fresh[new]:
            takes_new = hashes[old] == fresh[new]
            old += takes_new
        hash = fresh[new] if takes_new else hashes[old]
        place = fresh_places[new] if takes_new else places[old]
        new += takes_new
        old += not takes_new
        merged[0, count], merged[1, count] = hash, place
        count += place >= first
    return count


def id_hash(id: str) -> int:
    """The keyed 64-bit hash by which an id is remembered."""
    keyed = _KEYED.copy()
    keyed.update(id.encode("utf-8", "surrogatepass"))
    return int.from_bytes(keyed.digest(), "little", signed=True)


def _pack(entries: list[list[int]], clock_ms: int | None) -> _Chunk:
    hashes, outcomes, steps = entries
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
