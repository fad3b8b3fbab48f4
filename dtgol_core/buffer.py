"""The fine buffer: the instances among which labels travel.

It holds the unverified window (the newest records without a learnt label), the verified instances
that arrived last, and the present record. Each lives in a numbered slot, with its latent and its
original vector as computed on arrival; graph, soft labels and tracks work on these arrays. An
instance that leaves the window does not come back to it; it still waits in the delay table.
"""

from bisect import insort
from typing import Any

import numpy as np
import numpy.typing as npt

from dtgol_core.config import GraphConfig
from dtgol_core.state import SnapshotError, require_shape
from dtgol_core.types import FloatArray, Vectors

UNVERIFIED = -1
_SLOTS_START = 32


class FineBuffer:
    """Slots for at most ``unverified + verified + 1`` instances.

    Parameters
    ----------
    config
        `unverified` and `verified`: how many of each are kept.

    Attributes
    ----------
    latent, original : (slots, columns)
    label : (slots,), 0 or 1, or `UNVERIFIED`
    steps : (slots,), the step of the instance, -1 for a free slot
    """

    def __init__(self, config: GraphConfig) -> None:
        self._config = config
        self.latent = np.zeros((0, 0))
        self.original = np.zeros((0, 0))
        self.label = np.zeros(0, dtype=np.int8)
        self.steps = np.zeros(0, dtype=np.int64)
        self.window = np.zeros(0, dtype=np.int64)
        """Slots of the unverified window, oldest first; the present record joins last."""
        self.verified: list[tuple[int, int]] = []
        """(step, slot) of verified instances, oldest first."""
        self._slot_of: dict[int, int] = {}
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self._slot_of)

    def grow(self, columns: int) -> None:
        """Add columns; vectors already here are 0 in them."""
        fresh = np.zeros((len(self.steps), columns))
        self.latent = np.concatenate([self.latent, fresh], axis=1)
        self.original = np.concatenate([self.original, fresh], axis=1)

    def find(self, step: int) -> int | None:
        """The slot of the instance of a step, if it is here."""
        return self._slot_of.get(step)

    def enter(self, step: int, vectors: Vectors, label: int) -> int:
        """Give an instance a slot; it belongs to neither the window nor the verified set yet."""
        if not self._free:
            self._extend()
        slot = self._free.pop()
        self.latent[slot] = vectors.latent
        self.original[slot] = vectors.original
        self.label[slot] = label
        self.steps[slot] = step
        self._slot_of[step] = slot
        return slot

    def join_window(self, slot: int) -> list[int]:
        """The present record joins the window. Returns the slots that must be left for it."""
        size = len(self.window)
        joined = np.empty(size + 1, dtype=np.int64)
        joined[:size] = self.window
        joined[size] = slot
        self.window = joined
        return [int(self.window[0])] if len(self.window) > self._config.unverified else []

    def verify(self, step: int, slot: int, label: int) -> list[int]:
        """An instance is now verified. Returns the slots that must be left for it."""
        if self.label[slot] == UNVERIFIED:
            self._leave_window(slot)
        self.label[slot] = label
        insort(self.verified, (step, slot))
        return [self.verified[0][1]] if len(self.verified) > self._config.verified else []

    def correct(self, step: int, label: int) -> bool:
        """Replace the label of a verified instance. Returns whether it is here."""
        slot = self._slot_of.get(step)
        if slot is None or self.label[slot] == UNVERIFIED:
            return False
        self.label[slot] = label
        return True

    def admits(self, step: int) -> bool:
        """Whether an instance of that step would stay if it were verified now."""
        full = len(self.verified) >= self._config.verified
        return not full or step > self.verified[0][0]

    def leave(self, slot: int) -> None:
        """Free a slot."""
        step = int(self.steps[slot])
        if self.label[slot] == UNVERIFIED:
            self._leave_window(slot)
        else:
            self.verified.remove((step, slot))
        del self._slot_of[step]
        self.steps[slot] = -1
        self._free.append(slot)

    def _leave_window(self, slot: int) -> None:
        if self.window[0] == slot:  # nearly always: the oldest label comes first
            self.window = self.window[1:]
        else:
            self.window = self.window[self.window != slot]

    def _extend(self) -> None:
        """Double the slots, up to what can ever be needed."""
        old = len(self.steps)
        most = self._config.unverified + self._config.verified + 2
        new = min(max(_SLOTS_START, 2 * old), most)
        columns = self.latent.shape[1]
        self.latent = _taller(self.latent, (new, columns))
        self.original = _taller(self.original, (new, columns))
        self.label = np.concatenate([self.label, np.full(new - old, UNVERIFIED, dtype=np.int8)])
        self.steps = np.concatenate([self.steps, np.full(new - old, -1, dtype=np.int64)])
        self._free.extend(range(new - 1, old - 1, -1))

    def snapshot(self) -> dict[str, Any]:
        """Slots as they lie in memory: sums run over slots, so their order is part of the bits."""
        return {
            "latent": self.latent.copy(),
            "original": self.original.copy(),
            "label": self.label.copy(),
            "steps": self.steps.copy(),
            "window": self.window.copy(),
            "free": np.array(self._free, dtype=np.int64),
        }

    @staticmethod
    def restore(config: GraphConfig, snapshot: dict[str, Any], columns: int) -> "FineBuffer":
        """The buffer that `snapshot` described, over so many columns."""
        buffer = FineBuffer(config)
        slots = len(snapshot["steps"])
        require_shape("latent", snapshot["latent"], (slots, columns))
        require_shape("original", snapshot["original"], (slots, columns))
        require_shape("label", snapshot["label"], (slots,))
        buffer.latent = snapshot["latent"].copy()
        buffer.original = snapshot["original"].copy()
        buffer.label = snapshot["label"].copy()
        buffer.steps = snapshot["steps"].copy()
        buffer.window = snapshot["window"].copy()
        buffer._free = snapshot["free"].tolist()
        taken = [(step, slot) for slot, step in enumerate(buffer.steps.tolist()) if step >= 0]
        buffer._slot_of = dict(taken)
        buffer.verified = sorted(
            (step, slot) for step, slot in taken if buffer.label[slot] != UNVERIFIED
        )
        used = sorted([*buffer.window.tolist(), *(slot for _, slot in buffer.verified)])
        fits = used == [slot for _, slot in taken] and len(buffer) == len(used)
        if not fits or sorted([*buffer._free, *used]) != list(range(slots)):
            raise SnapshotError("the snapshot does not fit together: slots of the fine buffer")
        return buffer


def _taller(array: FloatArray, shape: tuple[int, int]) -> npt.NDArray[np.float64]:
    wider = np.zeros(shape)
    wider[: len(array)] = array
    return wider
