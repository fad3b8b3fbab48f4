"""The fine buffer: the instances among which labels travel.

It holds the unverified window (the newest records without a learnt label), the verified instances
that arrived last, and the present record. Each lives in a numbered slot, with its latent and its
original vector as computed on arrival; graph, soft labels and tracks work on these arrays. An
instance that leaves the window does not come back to it; it still waits in the delay table.
"""

from typing import Any, TypeAlias

import numpy as np

from dtgol_core.compiled import compiled, in_place
from dtgol_core.config import GraphConfig
from dtgol_core.state import SnapshotError, require_shape
from dtgol_core.types import FloatArray, IntArray, Vectors

UNVERIFIED = -1
NOBODY = -1
LABEL, STEP = range(2)
"""Rows of `FineBuffer.nodes`."""
WINDOW, VERIFIED, FREE = range(3)
"""Rows of `FineBuffer.lists`."""
_SLOTS_START = 32

BufferState: TypeAlias = tuple[FloatArray, FloatArray, IntArray, IntArray]
"""Vectors, columns, nodes and lists, as the compiled loops take them."""


class FineBuffer:
    """Slots for at most ``unverified + verified + 1`` instances.

    Parameters
    ----------
    config
        `unverified` and `verified`: how many of each are kept.

    Attributes
    ----------
    vectors : (2, slots, columns)
        Latent and original ones.
    columns : (2, columns, slots)
        The same: sums over columns of many slots run through these, sums over slots through those.
    nodes : (2, slots)
        The label, 0 or 1 or `UNVERIFIED`, and the step of the instance, -1 for a free slot.
    lists : (3, slots + 1)
        The window, oldest first; the verified ones, oldest first; the free slots. Each begins with
        its length.

    Notes
    -----
    The methods from `find` to `leave` run one stage alone, for tests and for looking at it; the
    experts use of them `correct`.
    """

    def __init__(self, config: GraphConfig) -> None:
        self._config = config
        self.vectors = np.zeros((2, 0, 0))
        self.columns = np.zeros((2, 0, 0))
        self.nodes = np.zeros((2, 0), dtype=np.int64)
        self.lists = np.zeros((3, 1), dtype=np.int64)

    def __len__(self) -> int:
        return len(self.steps) - len(self.free)

    @property
    def state(self) -> BufferState:
        """What the compiled loops take."""
        return self.vectors, self.columns, self.nodes, self.lists

    @property
    def latent(self) -> FloatArray:
        """Latent vectors by slot, shape (slots, columns)."""
        latent: FloatArray = self.vectors[0]
        return latent

    @property
    def original(self) -> FloatArray:
        """Original vectors by slot, shape (slots, columns)."""
        original: FloatArray = self.vectors[1]
        return original

    @property
    def label(self) -> IntArray:
        """Labels by slot; those of free slots mean nothing."""
        label: IntArray = self.nodes[LABEL]
        return label

    @property
    def steps(self) -> IntArray:
        """Steps by slot, -1 where it is free."""
        steps: IntArray = self.nodes[STEP]
        return steps

    @property
    def window(self) -> IntArray:
        """Slots of the unverified window, oldest first; the present record joins last."""
        return members(self.lists[WINDOW])

    @property
    def verified(self) -> IntArray:
        """Slots of verified instances, oldest first."""
        return members(self.lists[VERIFIED])

    @property
    def free(self) -> IntArray:
        """Free slots; the last one is taken next."""
        return members(self.lists[FREE])

    def grow(self, columns: int) -> None:
        """Add columns; vectors already here are 0 in them."""
        self.vectors = _widened(self.vectors, 2, columns, 0.0)
        self.columns = _widened(self.columns, 1, columns, 0.0)

    def find(self, step: int) -> int | None:
        """The slot of the instance of a step, if it is here."""
        slot = find(self.nodes, step)
        return None if slot == NOBODY else slot

    def enter(self, step: int, vectors: Vectors) -> int:
        """Give an instance a slot; it belongs to neither the window nor the verified set yet."""
        self.make_room()
        return enter(self.state, step, vectors.spaces)

    def join_window(self, slot: int) -> list[int]:
        """The present record joins the window. Returns the slots that must be left for it."""
        pushed_out = join_window(self.lists, slot, self._config.unverified)
        return [] if pushed_out == NOBODY else [pushed_out]

    def verify(self, slot: int, label: int) -> list[int]:
        """An instance is now verified. Returns the slots that must be left for it."""
        pushed_out = verify(self.nodes, self.lists, slot, label, self._config.verified)
        return [] if pushed_out == NOBODY else [pushed_out]

    def correct(self, step: int, label: int) -> bool:
        """Replace the label of a verified instance. Returns whether it is here."""
        slot = self.find(step)
        if slot is None or self.label[slot] == UNVERIFIED:
            return False
        self.label[slot] = label
        return True

    def admits(self, step: int) -> bool:
        """Whether an instance of that step would stay if it were verified now."""
        return admits(self.nodes, self.lists, step, self._config.verified)

    def leave(self, slot: int) -> None:
        """Free a slot."""
        leave(self.state, slot)

    def make_room(self) -> None:
        """If no slot is free, double the slots, up to what can ever be needed."""
        if len(self.free):
            return
        old = len(self.steps)
        most = self._config.unverified + self._config.verified + 2
        new = min(max(_SLOTS_START, 2 * old), most)
        self.vectors = _widened(self.vectors, 1, new - old, 0.0)
        self.columns = _widened(self.columns, 2, new - old, 0.0)
        self.nodes = _widened(self.nodes, 1, new - old, -1)
        self.lists = _widened(self.lists, 1, new - old, NOBODY)
        self.lists[FREE, 0] = new - old
        self.free[:] = range(new - 1, old - 1, -1)

    def snapshot(self) -> dict[str, Any]:
        """Slots as they lie in memory: sums run over slots, so their order is part of the bits."""
        return {
            "latent": self.latent.copy(),
            "original": self.original.copy(),
            "label": self.label.astype(np.int8),
            "steps": self.steps.copy(),
            "window": self.window.copy(),
            "free": self.free.copy(),
        }

    @staticmethod
    def restore(config: GraphConfig, snapshot: dict[str, Any], columns: int) -> "FineBuffer":
        """The buffer that `snapshot` described, over so many columns."""
        buffer = FineBuffer(config)
        slots = len(snapshot["steps"])
        for name in ("latent", "original"):
            require_shape(name, snapshot[name], (slots, columns))
        require_shape("label", snapshot["label"], (slots,))
        buffer.vectors = np.array([snapshot["latent"], snapshot["original"]])
        buffer.columns = np.ascontiguousarray(buffer.vectors.transpose(0, 2, 1))
        buffer.nodes = np.array([snapshot["label"], snapshot["steps"]], dtype=np.int64)
        taken = np.flatnonzero(buffer.steps >= 0)
        verified = taken[buffer.label[taken] != UNVERIFIED]
        verified = verified[np.argsort(buffer.steps[verified])]
        window, free = snapshot["window"], snapshot["free"]
        used = sorted([*window.tolist(), *verified.tolist()])
        fits = used == taken.tolist() and len(set(buffer.steps[taken].tolist())) == len(taken)
        fits &= len(window) <= config.unverified and len(verified) <= config.verified
        fits &= bool(np.isin(buffer.label, (UNVERIFIED, 0, 1)).all())
        if not fits or sorted([*free.tolist(), *used]) != list(range(slots)):
            raise SnapshotError("the snapshot does not fit together: slots of the fine buffer")
        buffer.lists = np.full((3, slots + 1), NOBODY, dtype=np.int64)
        for row, listed in ((WINDOW, window), (VERIFIED, verified), (FREE, free)):
            buffer.lists[row, 0] = len(listed)
            buffer.lists[row, 1 : len(listed) + 1] = listed
        return buffer


def _widened(array: Any, axis: int, more: int, value: float) -> Any:
    """The array with so many more numbers, all of one value, at the end of an axis."""
    shape = [more if place == axis else extent for place, extent in enumerate(array.shape)]
    return np.concatenate([array, np.full(shape, value, dtype=array.dtype)], axis=axis)


@compiled
def members(listed: IntArray) -> IntArray:
    """The slots of a list that begins with its length."""
    return listed[1 : listed[0] + 1]


@in_place
def _append(listed: IntArray, slot: int) -> None:
    listed[0] += 1
    listed[listed[0]] = slot


@in_place
def _take_out(listed: IntArray, slot: int) -> None:
    """Remove a slot from a list; nearly always it is the first."""
    found = 0
    for place in range(1, listed[0] + 1):
        if found:
            listed[place - 1] = listed[place]
        elif listed[place] == slot:
            found = place
    if found:
        listed[0] -= 1


@in_place
def find(nodes: IntArray, step: int) -> int:
    """The slot of the instance of a step, or `NOBODY`."""
    steps = nodes[STEP]
    for slot in range(len(steps)):
        if steps[slot] == step:
            return slot if step >= 0 else NOBODY
    return NOBODY


@in_place
def enter(buffer: BufferState, step: int, spaces: FloatArray) -> int:
    """Write an instance to the last free slot, of which there must be one."""
    vectors, columns, nodes, lists = buffer
    free = lists[FREE]
    slot: int = free[free[0]]
    free[0] -= 1
    for space in range(2):
        for column in range(vectors.shape[2]):
            vectors[space, slot, column] = spaces[space, column]
            columns[space, column, slot] = spaces[space, column]
    nodes[LABEL, slot], nodes[STEP, slot] = UNVERIFIED, step
    return slot


@in_place
def join_window(lists: IntArray, slot: int, most: int) -> int:
    """Append a slot to the window; the slot that must be left for it, or `NOBODY`."""
    window = lists[WINDOW]
    _append(window, slot)
    return window[1] if window[0] > most else NOBODY


@in_place
def verify(nodes: IntArray, lists: IntArray, slot: int, label: int, most: int) -> int:
    """Move a slot to the verified ones; the slot that must be left for it, or `NOBODY`.

    One that is verified already keeps its place.
    """
    verified, steps = lists[VERIFIED], nodes[STEP]
    was = nodes[LABEL, slot]
    nodes[LABEL, slot] = label
    if was != UNVERIFIED:
        return NOBODY
    _take_out(lists[WINDOW], slot)
    _append(verified, slot)
    place = verified[0]
    while place > 1 and steps[verified[place - 1]] > steps[slot]:
        verified[place] = verified[place - 1]
        place -= 1
    verified[place] = slot
    return verified[1] if verified[0] > most else NOBODY


@in_place
def admits(nodes: IntArray, lists: IntArray, step: int, most: int) -> bool:
    """Whether the verified ones are not full, or some are older than the instance of a step."""
    verified = lists[VERIFIED]
    admitted: bool = verified[0] < most or step > nodes[STEP, verified[1]]
    return admitted


@in_place
def leave(buffer: BufferState, slot: int) -> None:
    """Free a slot; nothing of the instance stays in it."""
    vectors, columns, nodes, lists = buffer
    for space in range(2):
        for column in range(vectors.shape[2]):
            vectors[space, slot, column] = columns[space, column, slot] = 0.0
    _take_out(lists[WINDOW if nodes[LABEL, slot] == UNVERIFIED else VERIFIED], slot)
    nodes[STEP, slot] = NOBODY
    _append(lists[FREE], slot)
