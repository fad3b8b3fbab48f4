"""The predictions and labels of a partition in memory, packed: about 400 bytes for a scored pair.

No id is kept, only a 64-bit hash of stream and id: whatever completes a pair, a label or the
prediction itself, brings the id along. Two ids of one hash would be taken for one; with a million
in memory the chance is 5e-14 per record. Rows are `bytes`, which Python's garbage collector does
not look at, and a copy of all of them shares them (`SlicedDict`).
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from dtgol_core.ids import id_hash
from dtgol_core.state import SnapshotError, pack_ids, unpack_ids
from pipeline.evaluation.sliced import SlicedDict

PAIR_BYTES = 400
"""Memory of one prediction with its label: both rows, their places in two dicts, and the heap by
which the oldest goes. Measured by a test: 330 without a label, 390 with one."""
CHUNK_OFFSETS = 16_384
"""Journal offsets whose pairs are one part of a snapshot: parts without changes are not written
again."""
SETS = ((), (0,), (1,), (0, 1))
"""The classes left open, by the number that is kept: bit y is set if class y is."""

_ROW = struct.Struct("<qqqqdddIB")
_ROW_TYPE = np.dtype(
    [
        *((name, "<i8") for name in ("key", "step", "ts", "labels_offset")),
        *((name, "<f8") for name in ("p", "naive", "threshold")),
        ("name", "<u4"),
        ("set", "u1"),
    ]
)
_LABELS_OFFSET_AT = 24
_INSTANCE = struct.Struct("<bqqqbqqq")
_INSTANCE_ROW = struct.Struct("<9q")
"""An instance in a snapshot: its key, and what `_INSTANCE` holds."""
_ARRAYS = {
    "numbers": ("<i8", 5),
    "probabilities": ("<f8", 3),
    "name": ("<i4", None),
    "set": ("|u1", None),
    "instances": ("<i8", 9),
    "names_text": ("|u1", None),
    "names_lengths": ("<i4", None),
}
UNMATCHED = "unmatched"


def pair_key(stream: str, hash: int) -> int:
    """The key of an instance: from its stream and the hash of its id."""
    return int.from_bytes(
        blake2b(_stream_bytes(stream), digest_size=8, salt=struct.pack("<q", hash)).digest(),
        "little",
        signed=True,
    )


def key_of(stream: str, id: str) -> int:
    """The key of an instance by its id."""
    return pair_key(stream, id_hash(id))


@lru_cache(maxsize=4096)
def _stream_bytes(stream: str) -> bytes:
    return stream.encode("utf-8", "surrogatepass")


class StoredPrediction(NamedTuple):
    """A prediction as it was made."""

    stream: str
    model: str
    key: int
    step: int
    ts: int
    labels_offset: int
    p: float
    naive: float
    threshold: float
    set: tuple[int, ...]


class Truth(NamedTuple):
    """What a prediction is scored with; `offset` is the label's, -1 for a default label."""

    y: int
    ts: int
    offset: int


NO_TRUTH = Truth(-1, 0, -1)


@dataclass(slots=True)
class PairedInstance:
    """One id: its newest label, and the journal offsets of its predictions.

    `label` is the first of those that say the same, `newest` the offset of the last one. `default`
    is about predictions before the journal offset `default_at`; `first` is the offset of the first
    prediction, also when that is forgotten.
    """

    label: Truth | None = None
    newest: int = -1
    default: Truth | None = None
    default_at: int = -1
    first: int = -1
    offsets: list[int] = field(default_factory=list)

    @property
    def plain(self) -> bool:
        """Whether there is nothing to know of it but one prediction."""
        alone = len(self.offsets) == 1 and self.offsets[0] == self.first
        return alone and self.newest < 0 and self.default_at < 0

    def row(self) -> tuple[int, ...]:
        """Its numbers but for the offsets."""
        y, ts, offset = self.label or NO_TRUTH
        default_y, default_ts, _ = self.default or NO_TRUTH
        return y, ts, offset, self.newest, default_y, default_ts, self.default_at, self.first

    @staticmethod
    def of(row: Sequence[int], offsets: list[int]) -> PairedInstance:
        """The instance of a row."""
        y, ts, offset, newest, default_y, default_ts, default_at, first = row
        return PairedInstance(
            None if y < 0 else Truth(y, ts, offset),
            newest,
            None if default_y < 0 else Truth(default_y, default_ts, -1),
            default_at,
            first,
            offsets,
        )


class Names:
    """Streams and models by number, for as long as a prediction has them."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, str], int] = {}
        self._used: list[int] = []
        self._free: list[int] = []
        self.names: list[tuple[str, str]] = []

    def take(self, stream: str, model: str) -> int:
        """The number of a stream and a model, for one more prediction."""
        number = self._numbers.get((stream, model))
        if number is None:
            if self._free:
                number = self._free.pop()
                self.names[number] = (stream, model)
            else:
                number = len(self.names)
                self.names.append((stream, model))
                self._used.append(0)
            self._numbers[stream, model] = number
        self._used[number] += 1
        return number

    def release(self, number: int) -> None:
        """One prediction less has it."""
        self._used[number] -= 1
        if not self._used[number]:
            del self._numbers[self.names[number]]
            self._free.append(number)


class PairMemory:
    """Predictions by journal offset, instances by key."""

    def __init__(self) -> None:
        self._names = Names()
        self._predictions: SlicedDict[bytes] = SlicedDict()
        self._instances: SlicedDict[int | bytes] = SlicedDict()

    def __len__(self) -> int:
        """Predictions."""
        return len(self._predictions)

    def __contains__(self, offset: int) -> bool:
        return offset in self._predictions

    def offsets(self) -> list[int]:
        """Journal offsets of the predictions, sorted."""
        return list(self._predictions.in_order())

    def instance_keys(self) -> list[int]:
        """Keys of the instances."""
        return list(self._instances)

    def add(self, offset: int, each: StoredPrediction) -> None:
        """Keep a prediction."""
        mask = sum(1 << y for y in (0, 1) if y in each.set)
        name = self._names.take(each.stream, each.model)
        self._predictions[offset] = _ROW.pack(*each[2:9], name, mask)

    def get(self, offset: int) -> StoredPrediction:
        """A prediction; KeyError if there is none."""
        *numbers, name, mask = _ROW.unpack(self._predictions[offset])
        return StoredPrediction._make((*self._names.names[name], *numbers, SETS[mask]))

    def labels_offset(self, offset: int) -> int:
        """That of a prediction, without unpacking the rest."""
        found: int = struct.unpack_from("<q", self._predictions[offset], _LABELS_OFFSET_AT)[0]
        return found

    def pop(self, offset: int) -> StoredPrediction:
        """Forget a prediction."""
        found = self.get(offset)
        self._names.release(_ROW.unpack(self._predictions.pop(offset))[7])
        return found

    def instance(self, key: int) -> PairedInstance | None:
        """An instance, as a copy: `keep` puts it back."""
        kept = self._instances.get(key)
        if kept is None:
            return None
        if isinstance(kept, int):
            return PairedInstance(first=kept, offsets=[kept])
        size = _INSTANCE.size
        offsets = list(struct.unpack_from(f"<{(len(kept) - size) // 8}q", kept, size))
        return PairedInstance.of(_INSTANCE.unpack_from(kept), offsets)

    def keep(self, key: int, instance: PairedInstance) -> None:
        """Remember an instance as it is now."""
        if instance.plain:
            self._instances[key] = instance.first
        else:
            offsets = instance.offsets
            tail = struct.pack(f"<{len(offsets)}q", *offsets)
            self._instances[key] = _INSTANCE.pack(*instance.row()) + tail

    def drop(self, key: int) -> None:
        """Forget an instance."""
        self._instances.pop(key)

    def copy(self) -> PairCopy:
        """As it is now, copied quickly: rows are never changed."""
        copies = self._predictions.copy(), self._instances.copy()
        return PairCopy(list(self._names.names), *copies)

    def fill(self, arrays: Mapping[str, Any]) -> None:
        """Read what `PairCopy.arrays` has written; `SnapshotError` if it does not fit."""
        rows: list[list[int]] = _array(arrays, UNMATCHED, "<i8", 9).tolist()
        offsets: defaultdict[int, list[int]] = defaultdict(list)
        for chunk in sorted({name.split("/")[1] for name in arrays if name.startswith("chunk/")}):
            part = {
                name: _array(arrays, f"chunk/{chunk}/{name}", *kind)
                for name, kind in _ARRAYS.items()
            }
            for offset, each in _predictions_of(part):
                if offset < 0 or offset in self._predictions:
                    raise SnapshotError(f"the snapshot is damaged: offset {offset}")
                self.add(offset, each)
                offsets[each.key].append(offset)
            rows += part["instances"].tolist()
        for key, *row in rows:
            if not {row[0], row[4]} <= {-1, 0, 1}:
                raise SnapshotError("the snapshot is damaged: a label is neither 0 nor 1")
            self.keep(key, PairedInstance.of(row, sorted(offsets.pop(key, ()))))
        for key, alone in offsets.items():
            if len(alone) > 1:
                raise SnapshotError("the snapshot is damaged: an instance is missing")
            self._instances[key] = alone[0]


class PairCopy(NamedTuple):
    """References to all rows of a `PairMemory`, between two records."""

    names: list[tuple[str, str]]
    predictions: SlicedDict[bytes]
    instances: SlicedDict[int | bytes]

    def arrays(self) -> dict[str, Any]:
        """For a snapshot: equal memories give equal arrays, whatever their order was."""
        chunks: defaultdict[int, list[int]] = defaultdict(list)
        for offset in self.predictions.in_order():
            chunks[offset // CHUNK_OFFSETS].append(offset)
        instances: defaultdict[int | None, list[bytes]] = defaultdict(list)
        for key in self.instances.in_order():
            kept = self.instances[key]
            if isinstance(kept, bytes):
                size = _INSTANCE.size
                offsets = struct.unpack_from(f"<{(len(kept) - size) // 8}q", kept, size)
                chunk = min(offsets) // CHUNK_OFFSETS if offsets else None
                instances[chunk].append(_INSTANCE_ROW.pack(key, *_INSTANCE.unpack_from(kept)))
        arrays = {UNMATCHED: _table(instances[None])}
        for chunk, offsets_of in chunks.items():
            for name, array in self._chunk(offsets_of).items():
                arrays[f"chunk/{chunk:015d}/{name}"] = array
            arrays[f"chunk/{chunk:015d}/instances"] = _table(instances[chunk])
        return arrays

    def _chunk(self, offsets: list[int]) -> dict[str, Any]:
        rows = b"".join(self.predictions[offset] for offset in offsets)
        packed = np.frombuffer(rows, dtype=_ROW_TYPE)
        numbers = [np.array(offsets, dtype=np.int64)]
        numbers += [packed[name] for name in ("key", "step", "ts", "labels_offset")]
        used = sorted({self.names[number] for number in np.unique(packed["name"]).tolist()})
        places = {pair: place for place, pair in enumerate(used)}
        name = [places[self.names[number]] for number in packed["name"].tolist()]
        text, lengths = pack_ids([each for pair in used for each in pair])
        return {
            "numbers": np.stack(numbers, axis=1),
            "probabilities": np.stack(
                [packed[each] for each in ("p", "naive", "threshold")], axis=1
            ),
            "name": np.array(name, dtype=np.int32),
            "set": packed["set"].copy(),
            "names_text": text,
            "names_lengths": lengths,
        }

    @staticmethod
    def parts(arrays: Mapping[str, Any]) -> tuple[str, ...]:
        """Prefixes of the arrays that are stored as objects of their own."""
        return tuple(sorted({f"chunk/{n.split('/')[1]}/" for n in arrays if n[:6] == "chunk/"}))


def _table(rows: list[bytes]) -> Any:
    return np.frombuffer(bytearray().join(rows), dtype="<i8").reshape(-1, 9)


def _array(arrays: Mapping[str, Any], name: str, dtype: str, columns: int | None) -> Any:
    array = arrays[name]
    shape = (len(array),) if columns is None else (len(array), columns)
    if array.dtype.str != dtype or array.shape != shape:
        raise SnapshotError(f"the snapshot is damaged: array {name} is of another type")
    return array


def _predictions_of(part: Mapping[str, Any]) -> Iterator[tuple[int, StoredPrediction]]:
    texts = unpack_ids(part["names_text"], part["names_lengths"])
    names = list(zip(texts[0::2], texts[1::2], strict=True))
    inside = (part["probabilities"] >= 0.0) & (part["probabilities"] <= 1.0)
    if not inside.all() or (part["name"] < 0).any():
        raise SnapshotError("the snapshot is damaged: a probability or a name")
    columns = (part[name].tolist() for name in ("numbers", "probabilities", "name", "set"))
    for (offset, *numbers), probabilities, name, mask in zip(*columns, strict=True):
        row = *names[name], *numbers, *probabilities, SETS[mask]
        yield offset, StoredPrediction._make(row)
