"""Blocks of waiting instances: the rows in which records lie from their arrival to their label.

A block has the instances of 256 consecutive steps. A full one is never written again, so a snapshot
store that has it can skip it, and copies share it.
"""

from typing import Any

import numpy as np

from dtgol_core.ids import id_hash
from dtgol_core.state import SnapshotError, pack_ids, unpack_ids
from dtgol_core.types import Instance, Vectors

BLOCK_STEPS = 256
NO_TIME = np.iinfo(np.int64).min
"""In place of the event time of a record that has none."""
SCORE_MAX = 1e6
"""Of a standardised value, by far: those of a snapshot are checked by it."""
_ID_BYTES = 160
"""What a waiting id takes besides its own text: entries in dicts and sets, by measurement."""


class PendingBlock:
    """The instances of 256 consecutive steps; rows are written once.

    Attributes
    ----------
    spaces, scores : (256, 2 or scores, columns)
        The arrays of their `Vectors`.
    numbers : (256, numbers)
    hashes : (256,)
        Those of the ids, which are remembered once the instances have left.
    """

    STORED = ("spaces", "scores", "numbers", "times")
    ARRAYS = (*STORED, "id_text", "id_lengths")

    def __init__(self, columns: int, numbers: int, scores: int) -> None:
        self.ids: list[str] = []
        self.spaces = np.zeros((BLOCK_STEPS, 2, columns))
        self.scores = np.zeros((BLOCK_STEPS, scores, columns), dtype=np.float32)
        self.numbers = np.zeros((BLOCK_STEPS, numbers))
        self.times = np.full(BLOCK_STEPS, NO_TIME, dtype=np.int64)
        self.hashes = np.zeros(BLOCK_STEPS, dtype=np.int64)
        self.waiting: set[int] = set()
        self.id_bytes = 0
        self._full: dict[str, Any] | None = None

    def widen(self, columns: int) -> None:
        """Add columns, 0 in the rows so far: the feature space has grown."""
        wider = ((0, 0), (0, 0), (0, columns))
        self.spaces, self.scores = np.pad(self.spaces, wider), np.pad(self.scores, wider)

    def add_id(self, id: str, hash: int) -> int:
        """The id of the next row; the bytes it takes."""
        self.hashes[len(self.ids)] = hash
        self.ids.append(id)
        taken = _id_bytes(id)
        self.id_bytes += taken
        return taken

    def erase(self, row: int) -> None:
        """Blank a row. The block is another one for a store then."""
        self.id_bytes -= len(self.ids[row].encode("utf-8", "surrogatepass"))
        self.ids[row] = ""
        self._full = None
        for name in (*self.STORED, "hashes"):
            fresh = getattr(self, name).copy()
            fresh[row] = NO_TIME if name == "times" else 0
            setattr(self, name, fresh)

    @property
    def bytes(self) -> int:
        """What it takes in memory."""
        arrays = (self.spaces, self.scores, self.numbers, self.times, self.hashes)
        return sum(array.nbytes for array in arrays) + self.id_bytes

    def copy(self) -> "PendingBlock":
        """An independent copy. The arrays of a full block are shared: they are never written again,
        and `erase` makes new ones."""
        other = object.__new__(PendingBlock)
        vars(other).update(vars(self))
        other.ids, other.waiting = self.ids.copy(), self.waiting.copy()
        if len(self.ids) < BLOCK_STEPS:
            for name in (*self.STORED, "hashes"):
                setattr(other, name, getattr(self, name).copy())
        return other

    def read(self, row: int, step: int, columns: int) -> Instance:
        """The instance in a row, of a stream that has so many columns by now."""
        vectors = Vectors(self.spaces[row], self.scores[row])
        if self.spaces.shape[2] < columns:
            vectors = vectors.padded(columns)
        return Instance(step, vectors, self.numbers[row])

    def snapshot(self) -> dict[str, Any]:
        """The rows that are written. A full block is never written again: its arrays are shared."""
        if self._full is not None:
            return self._full
        rows = len(self.ids)
        text, lengths = pack_ids(self.ids)
        written = [getattr(self, name) for name in self.STORED]
        if rows == BLOCK_STEPS:
            self._full = _shared(dict(zip(self.ARRAYS, (*written, text, lengths), strict=True)))
            return self._full
        copies = (array[:rows].copy() for array in written)
        return dict(zip(self.ARRAYS, (*copies, text, lengths), strict=True))

    @staticmethod
    def restore(
        snapshot: dict[str, Any], columns: int, numbers: int, scores: int
    ) -> "PendingBlock":
        """The block that `snapshot` described, of a stream that has so many columns by now."""
        ids = unpack_ids(snapshot["id_text"], snapshot["id_lengths"])
        rows, spaces, width = snapshot["spaces"].shape
        fits = (spaces, rows) == (2, len(ids)) and width <= columns
        if not fits or snapshot["scores"].shape != (rows, scores, width):
            raise SnapshotError("the snapshot does not fit together: vectors of the delay table")
        if snapshot["numbers"].shape != (rows, numbers):
            raise SnapshotError("the snapshot does not fit together: numbers of the delay table")
        for name in ("spaces", "scores"):
            if np.abs(snapshot[name]).max(initial=0.0) > SCORE_MAX:
                raise SnapshotError(f"the snapshot is damaged: {name} of the delay table")
        block = PendingBlock(width, numbers, scores)
        for id in ids:
            block.add_id(id, id_hash(id))
        for name in PendingBlock.STORED:
            getattr(block, name)[:rows] = snapshot[name]
        return block


def _shared(arrays: dict[str, Any]) -> dict[str, Any]:
    """Read-only views of arrays that state and snapshots have in common.

    The state's own stay writable: to Numba a read-only array is of another type, for which it would
    compile every loop anew, seconds long and inside of a serving worker.
    """
    views = {name: array.view() for name, array in arrays.items()}
    for view in views.values():
        view.flags.writeable = False
    return views


def _id_bytes(id: str) -> int:
    return len(id.encode("utf-8", "surrogatepass")) + _ID_BYTES
