"""Delay table: which instances wait for a label, whose label is due, which have expired.

In: instances as they arrive, labels as they arrive, in any order. Out: what became of each label,
and which instances are due. An instance keeps the vectors of its arrival and the numbers that the
experts want back with its label, so what is learnt later is exactly what was predicted from.
Everything is bounded.

Instances lie in blocks of 256 steps. A full block is never written again, so a snapshot store
that has it can skip it; a block goes when the last of its instances has been settled.
"""

import heapq
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dtgol_core.config import DelayConfig
from dtgol_core.ids import IdMemory, id_hash
from dtgol_core.state import ENTRY_BYTES, SnapshotError, pack_ids, subsection, unpack_ids
from dtgol_core.types import NO_VECTORS, LabelOutcome, Vectors

BLOCK_STEPS = 256
EXPIRE_STEP_MAX = 64
"""Instances that expire at one step; the others follow at the next ones. A clock that jumps must
not make one record cost as much as a whole table."""
EXPIRY_SETTINGS = ("expire_steps", "expire_ms", "pending_max", "pending_bytes_max")
"""The bounds by which an instance may leave without a label."""
# What the id memory keeps: 0 and 1 a label that was learnt, then the same for a default label that
# was learnt at expiry, then one number for each setting by which an instance expired unlearnt.
_DEFAULTED = 2
_EXPIRED = 4
_ERASED = _EXPIRED + len(EXPIRY_SETTINGS)
_GIVEN_UP = _ERASED + 1
SHARED_BOUND = "state_bytes_max"
"""The bound of several learners together, by which their keeper has instances given up."""
_ID_BYTES = 160
"""What a waiting id takes besides its own text: entries in dicts and sets, by measurement."""
_NO_TIME = np.iinfo(np.int64).min


class PendingInstance(NamedTuple):
    """An instance that waits for its label, as it was on arrival.

    What each of the ``numbers`` means is up to the caller.
    """

    id: str
    step: int
    vectors: Vectors
    numbers: Sequence[float]
    event_time_ms: int | None


class Departure(NamedTuple):
    """An instance that leaves before a label is due, and the setting that made it leave.

    ``label`` is what is to be learnt all the same: a label that was queued, or the default one
    (``defaulted``). None: it is forgotten.
    """

    instance: PendingInstance
    setting: str
    label: int | None
    defaulted: bool


class PendingBlock:
    """The instances of 256 consecutive steps; rows are written once.

    Attributes
    ----------
    vectors : (256, 2, columns), latent and original
    scaled : (256, scales, columns), float32, the further scales that are kept
    numbers : (256, numbers)
    """

    ARRAYS = ("vectors", "scaled", "numbers", "times", "id_text", "id_lengths")

    def __init__(self, columns: int, numbers: int, scales: tuple[str, ...]) -> None:
        self._scales = tuple(Vectors._fields.index(scale) for scale in scales)
        self.ids: list[str] = []
        self.vectors = np.zeros((BLOCK_STEPS, 2, columns))
        self.scaled = np.zeros((BLOCK_STEPS, len(scales), columns), dtype=np.float32)
        self.numbers = np.zeros((BLOCK_STEPS, numbers))
        self.times = np.full(BLOCK_STEPS, _NO_TIME, dtype=np.int64)
        self.waiting: set[int] = set()
        self.id_bytes = 0
        self._full: dict[str, Any] | None = None

    def write(self, row: int, instance: PendingInstance) -> int:
        """Write the next row; the block widens with the feature space while it is open.

        Returns the bytes that it has grown by.
        """
        id, _, vectors, numbers, event_time_ms = instance
        grown, missing = self.add_id(id), len(vectors.latent) - self.vectors.shape[2]
        if missing:
            before = self.bytes
            wider = ((0, 0), (0, 0), (0, missing))
            self.vectors, self.scaled = np.pad(self.vectors, wider), np.pad(self.scaled, wider)
            grown += self.bytes - before
        self.vectors[row, 0] = vectors.latent
        self.vectors[row, 1] = vectors.original
        for place, scale in enumerate(self._scales):
            self.scaled[row, place] = vectors[scale]
        self.numbers[row] = numbers
        self.times[row] = _NO_TIME if event_time_ms is None else event_time_ms
        self.waiting.add(row)
        return grown

    def add_id(self, id: str) -> int:
        """The id of the next row; the bytes it takes."""
        self.ids.append(id)
        taken = _id_bytes(id)
        self.id_bytes += taken
        return taken

    def erase(self, row: int) -> None:
        """Blank a row. The block is another one for a store then."""
        self.id_bytes -= len(self.ids[row].encode("utf-8", "surrogatepass"))
        self.ids[row] = ""
        self._full = None
        for name in self.ARRAYS:
            array = getattr(self, name, None)
            if array is not None and name != "times":
                fresh = array.copy()
                fresh[row] = 0
                setattr(self, name, fresh)
        self.times = self.times.copy()
        self.times[row] = _NO_TIME

    @property
    def bytes(self) -> int:
        """What it takes in memory."""
        arrays = (self.vectors, self.scaled, self.numbers, self.times)
        return sum(array.nbytes for array in arrays) + self.id_bytes

    def copy(self) -> "PendingBlock":
        """An independent copy. The arrays of a full block are shared: they are never written again,
        and `erase` makes new ones."""
        other = object.__new__(PendingBlock)
        vars(other).update(vars(self))
        other.ids, other.waiting = self.ids.copy(), self.waiting.copy()
        if len(self.ids) < BLOCK_STEPS:
            for name in ("vectors", "scaled", "numbers", "times"):
                setattr(other, name, getattr(self, name).copy())
        return other

    def read(self, row: int, step: int) -> PendingInstance:
        """The instance in a row."""
        made: list[Any] = list(NO_VECTORS)
        made[0], made[1] = self.vectors[row, 0], self.vectors[row, 1]
        for place, scale in enumerate(self._scales):
            made[scale] = self.scaled[row, place]
        time = int(self.times[row])
        known = None if time == _NO_TIME else time
        numbers = self.numbers[row].tolist()
        return PendingInstance(self.ids[row], step, Vectors._make(made), numbers, known)

    def snapshot(self) -> dict[str, Any]:
        """The rows that are written. A full block is never written again: its arrays are shared."""
        if self._full is not None:
            return self._full
        rows = len(self.ids)
        text, lengths = pack_ids(self.ids)
        written = (self.vectors, self.scaled, self.numbers, self.times)
        if rows == BLOCK_STEPS:
            self._full = _shared(dict(zip(self.ARRAYS, (*written, text, lengths), strict=True)))
            return self._full
        copies = (array[:rows].copy() for array in written)
        return dict(zip(self.ARRAYS, (*copies, text, lengths), strict=True))

    @staticmethod
    def restore(
        snapshot: dict[str, Any], columns: int, numbers: int, scales: tuple[str, ...]
    ) -> "PendingBlock":
        """The block that `snapshot` described, of a stream that has so many columns by now."""
        ids = unpack_ids(snapshot["id_text"], snapshot["id_lengths"])
        rows, spaces, width = snapshot["vectors"].shape
        scaled = (rows, len(scales), width)
        if (spaces, rows) != (2, len(ids)) or snapshot["scaled"].shape != scaled or width > columns:
            raise SnapshotError("the snapshot does not fit together: vectors of the delay table")
        if snapshot["numbers"].shape != (rows, numbers):
            raise SnapshotError("the snapshot does not fit together: numbers of the delay table")
        block = PendingBlock(width, numbers, scales)
        block.ids = ids
        block.id_bytes = sum(map(_id_bytes, ids))
        for name in ("vectors", "scaled", "numbers", "times"):
            getattr(block, name)[:rows] = snapshot[name]
        return block


class DelayTable:
    """Instances, held labels and the memory of settled ids.

    Parameters
    ----------
    config
        `release` and `steps`: when a label is due; `expire_steps`, `expire_ms`, `pending_max`,
        `pending_bytes_max`, `early_max`, `early_steps`, `settled_max`, `settled_ms`: bounds;
        `expired`: what is learnt of an instance that reaches one; `corrected`: which of two values
        counts.
    numbers
        How many floats are kept with each instance, besides its vectors.
    scales
        Names of the further fields of `Vectors`, besides latent and original, that are kept.

    Notes
    -----
    Cost: O(1) per call, O(log n) per label with ``release = "step"`` and per instance with
    ``expire_ms``. Memory: at most ``pending_max`` instances and, beyond the newest block,
    ``pending_bytes_max`` bytes; a block of 256 stays as long as one of its instances waits. At most
    `EXPIRE_STEP_MAX` instances leave at once, so a bound may be exceeded for some steps.

    Attributes
    ----------
    clock_ms
        The clock of the stream, kept up to date by the caller: ids are remembered by it.
    """

    def __init__(self, config: DelayConfig, numbers: int, scales: tuple[str, ...] = ()) -> None:
        self._config = config
        self._numbers = numbers
        self._scales = scales
        self._blocks: dict[int, PendingBlock] = {}
        self._steps: dict[str, int] = {}
        self._oldest = 1
        self._labels: dict[int, int] = {}
        self._queue: list[int] = []
        self._by_time: list[tuple[int, int]] = []
        self._early: OrderedDict[str, tuple[int, int]] = OrderedDict()
        self._bytes = 0
        self.settled = IdMemory(config.settled_max, config.settled_ms)
        self.clock_ms: int | None = None

    def __len__(self) -> int:
        return len(self._steps)

    @property
    def state_bytes(self) -> int:
        """Memory of all of it, about; the same after a restore. O(1)."""
        entries = len(self._labels) + len(self._queue) + len(self._early)
        return self._bytes + ENTRY_BYTES * entries + self.settled.state_bytes

    @property
    def pending_bytes(self) -> int:
        """Memory of the instances that wait, which ``pending_bytes_max`` bounds. O(1)."""
        return self._bytes

    @property
    def early_labels(self) -> int:
        """Labels that arrived before their features."""
        return len(self._early)

    def waits(self, id: str) -> bool:
        """Whether an instance of this id waits for its label."""
        return id in self._steps

    def knows(self, id: str) -> bool:
        """Whether features of this id were answered before, as far as is remembered."""
        return id in self._steps or self.settled.find(id) is not None

    def expired_by(self, id: str) -> str | None:
        """The setting by which an id left without a label; None for any other id."""
        settled = self.settled.find(id)
        if settled is None:
            return None
        if settled.outcome == _GIVEN_UP:
            return SHARED_BOUND
        if not _EXPIRED <= settled.outcome < _ERASED:
            return None
        return EXPIRY_SETTINGS[settled.outcome - _EXPIRED]

    def open(self, instance: PendingInstance) -> list[Departure]:
        """Let an instance wait. Returns those that leave because the table is full."""
        number, row = divmod(instance.step, BLOCK_STEPS)
        block = self._blocks.get(number)
        if block is None:
            columns = len(instance.vectors.latent)
            block = self._blocks[number] = PendingBlock(columns, self._numbers, self._scales)
            self._bytes += block.bytes
        while len(block.ids) < row:  # only step 0 of block 0, which does not exist
            self._bytes += block.add_id("")
        self._bytes += block.write(row, instance)
        if not self._steps:
            self._oldest = instance.step
        self._steps[instance.id] = instance.step
        if self._config.expire_ms is not None and instance.event_time_ms is not None:
            heapq.heappush(self._by_time, (instance.event_time_ms, instance.step))
            if len(self._by_time) > 2 * len(self._steps) + BLOCK_STEPS:
                self._by_time = [entry for entry in self._by_time if self._waits(entry[1])]
                heapq.heapify(self._by_time)
        early = self._early.pop(instance.id, None)
        if early is not None:
            self._enqueue(instance.step, early[0])
        left: list[Departure] = []
        while len(left) < EXPIRE_STEP_MAX:
            if len(self._steps) > self._config.pending_max:
                left.append(self._leave(self._oldest_waiting(), "pending_max"))
            elif self._bytes > self._config.pending_bytes_max:
                oldest = self._oldest_waiting()
                if oldest // BLOCK_STEPS == number:
                    break
                left.append(self._leave(oldest, "pending_bytes_max"))
            else:
                break
        return left

    def add_label(self, id: str, label: int, step: int) -> tuple[LabelOutcome, list[str]]:
        """Take in a label. Returns what became of it, and ids of held labels given up for it."""
        waiting = self._steps.get(id)
        if waiting is not None:
            known = self._labels.get(waiting)
            if known is None:
                self._enqueue(waiting, label)
                return LabelOutcome.QUEUED, []
            outcome = self._again(known, label)
            if outcome is LabelOutcome.CORRECTED_REPLACED:
                self._labels[waiting] = label
            return outcome, []
        settled = self.settled.find(id)
        if settled is not None:
            return self._again_settled(id, *settled, label), []
        early = self._early.get(id)
        if early is not None:
            outcome = self._again(early[0], label)
            if outcome is LabelOutcome.CORRECTED_REPLACED:
                self._early[id] = (label, early[1])
            return outcome, []
        self._early[id] = (label, step)
        orphans = []
        while len(self._early) > self._config.early_max:
            orphans.append(self._early.popitem(last=False)[0])
        return LabelOutcome.EARLY, orphans

    def _again(self, known: int, label: int) -> LabelOutcome:
        if known == label:
            return LabelOutcome.REPEATED
        first = self._config.corrected == "first"
        return LabelOutcome.CORRECTED_IGNORED if first else LabelOutcome.CORRECTED_REPLACED

    def settle_due(self, step: int) -> list[tuple[PendingInstance, int]]:
        """Take out the instances whose labels are due at `step`, in order of their steps."""
        due = []
        lag = self._config.steps if self._config.release == "step" else 0
        while self._queue and self._queue[0] + lag <= step:
            ready = heapq.heappop(self._queue)
            instance = self._take(ready).read(ready % BLOCK_STEPS, ready)
            label = self._labels.pop(ready)
            self._remember(instance, label)
            due.append((instance, label))
        return due

    def oldest(self, steps: range, most: int) -> tuple[list[PendingInstance], int]:
        """The oldest instances of these steps that wait, and the step after the last one looked at.

        So many at most. Nothing changes.
        """
        found: list[PendingInstance] = []
        for number, block in self._blocks.items():
            if (number + 1) * BLOCK_STEPS <= steps.start:
                continue
            for row in sorted(block.waiting):
                step = number * BLOCK_STEPS + row
                if step in steps:
                    found.append(block.read(row, step))
                    if len(found) == most:
                        return found, step + 1
        return found, steps.stop

    def expire(self, step: int, clock_ms: int | None) -> list[Departure]:
        """Take out instances that have waited too long, in order of their steps."""
        left: list[Departure] = []
        steps, ms = self._config.expire_steps, self._config.expire_ms
        while steps is not None and self._steps and len(left) < EXPIRE_STEP_MAX:
            oldest = self._oldest_waiting()
            if oldest + steps >= step:
                break
            left.append(self._leave(oldest, "expire_steps"))
        if ms is not None and clock_ms is not None:
            late: list[int] = []
            while self._by_time and self._by_time[0][0] + ms < clock_ms:
                if len(left) + len(late) >= EXPIRE_STEP_MAX:
                    break
                _, old = heapq.heappop(self._by_time)
                if self._waits(old) and old not in self._labels:
                    late.append(old)
            left += [self._leave(old, "expire_ms") for old in sorted(late)]
        return left

    @property
    def can_give_up(self) -> bool:
        """Whether giving up instances frees memory: they are in another block than the newest."""
        return bool(self._steps) and self._oldest_waiting() // BLOCK_STEPS < max(self._blocks)

    def give_up_oldest(self) -> list[Departure]:
        """Take out the oldest instances, so many at most as may leave at one step.

        This is not the deadline of the stream, so what has no label is forgotten, whatever
        ``expired`` says.
        """
        left: list[Departure] = []
        while len(left) < EXPIRE_STEP_MAX and self.can_give_up:
            step = self._oldest_waiting()
            if step in self._labels:
                left.append(self._leave(step, SHARED_BOUND))
                continue
            instance = self._take(step).read(step % BLOCK_STEPS, step)
            self._remember(instance, _GIVEN_UP)
            left.append(Departure(instance, SHARED_BOUND, None, defaulted=False))
        return left

    def expire_early(self, step: int) -> list[str]:
        """Ids of labels held for too long without their features."""
        orphans = []
        while self._early:
            id, (_, since) = next(iter(self._early.items()))
            if step - since <= self._config.early_steps:
                break
            del self._early[id]
            orphans.append(id)
        return orphans

    def drop_oldest_early(self) -> str:
        """Give up the label that was held longest; its id."""
        return self._early.popitem(last=False)[0]

    def erase(self, hash: int) -> list[tuple[str, int]]:
        """Remove all that is kept under the id with this hash; only the hash is remembered.

        Returns the id as (id, step) for every instance of it that was found here, with the step 0
        for a held label.
        """
        found = []
        for id in [id for id in self._early if id_hash(id) == hash]:
            del self._early[id]
            found.append((id, 0))
        for number, block in list(self._blocks.items()):
            for row in [row for row, id in enumerate(block.ids) if id and id_hash(id) == hash]:
                id, step = block.ids[row], number * BLOCK_STEPS + row
                if row in block.waiting:
                    self._take(step)
                    if self._labels.pop(step, None) is not None:
                        self._queue.remove(step)
                        heapq.heapify(self._queue)
                self.settled.remember(id, _ERASED, step, self.clock_ms)
                before = block.bytes
                block.erase(row)
                if number in self._blocks:  # else it went with its last instance
                    self._bytes += block.bytes - before
                found.append((id, step))
        return found

    def _enqueue(self, step: int, label: int) -> None:
        self._labels[step] = label
        heapq.heappush(self._queue, step)

    def _waits(self, step: int) -> bool:
        block = self._blocks.get(step // BLOCK_STEPS)
        return block is not None and step % BLOCK_STEPS in block.waiting

    def _oldest_waiting(self) -> int:
        while not self._waits(self._oldest):
            skip = self._oldest // BLOCK_STEPS not in self._blocks
            self._oldest += BLOCK_STEPS - self._oldest % BLOCK_STEPS if skip else 1
        return self._oldest

    def _take(self, step: int) -> PendingBlock:
        """Take an instance out; its block goes when it is full and no instance waits in it."""
        number, row = divmod(step, BLOCK_STEPS)
        block = self._blocks[number]
        block.waiting.remove(row)
        del self._steps[block.ids[row]]
        if len(block.ids) == BLOCK_STEPS and not block.waiting:
            del self._blocks[number]
            self._bytes -= block.bytes
        return block

    def _leave(self, step: int, setting: str) -> Departure:
        """Take out an instance by a setting, and decide what is learnt of it."""
        instance = self._take(step).read(step % BLOCK_STEPS, step)
        label = self._labels.pop(step, None)
        if label is not None:
            self._queue.remove(step)
            heapq.heapify(self._queue)
            self._remember(instance, label)
            return Departure(instance, setting, label, defaulted=False)
        if self._config.expired != "drop":
            self._remember(instance, _DEFAULTED + self._config.expired)
            return Departure(instance, setting, self._config.expired, defaulted=True)
        self._remember(instance, _EXPIRED + EXPIRY_SETTINGS.index(setting))
        return Departure(instance, setting, None, defaulted=False)

    def _again_settled(self, id: str, outcome: int, step: int, label: int) -> LabelOutcome:
        """A label of an instance that has left; from here on the newest value is remembered."""
        if outcome == _ERASED:
            return LabelOutcome.ERASED
        if outcome >= _EXPIRED:
            return LabelOutcome.LATE
        known, defaulted = outcome % _DEFAULTED, outcome >= _DEFAULTED
        if known == label and not defaulted:
            return LabelOutcome.REPEATED
        if known != label and not defaulted and self._config.corrected == "first":
            return LabelOutcome.CORRECTED_IGNORED
        self.settled.remember(id, label, step, self.clock_ms)
        return LabelOutcome.CONFIRMED if known == label else LabelOutcome.CORRECTION_TOO_LATE

    def _remember(self, instance: PendingInstance, outcome: int) -> None:
        self.settled.remember(instance.id, outcome, instance.step, self.clock_ms)

    def snapshot(self) -> dict[str, Any]:
        """Blocks, and what changes: waiting steps, queued labels, held labels, settled ids."""
        arrays: dict[str, Any] = {}
        for number, block in self._blocks.items():
            arrays |= {f"block/{number}/{name}": each for name, each in block.snapshot().items()}
        arrays |= {f"settled/{name}": each for name, each in self.settled.snapshot().items()}
        text, lengths = pack_ids(list(self._early))
        queued = sorted(self._labels)
        return arrays | {
            "waiting": np.array(sorted(self._steps.values()), dtype=np.int64),
            "queued_step": np.array(queued, dtype=np.int64),
            "queued_label": np.array([self._labels[step] for step in queued], dtype=np.int8),
            "early_text": text,
            "early_lengths": lengths,
            "early_label": np.array([label for label, _ in self._early.values()], dtype=np.int8),
            "early_step": np.array([step for _, step in self._early.values()], dtype=np.int64),
            "blocks": sorted(self._blocks),
        }

    def immutable_parts(self) -> list[str]:
        """Prefixes of the arrays of a snapshot that will not change any more: full blocks."""
        full = [number for number, block in self._blocks.items() if len(block.ids) == BLOCK_STEPS]
        return sorted(
            [f"block/{number}/" for number in full]
            + [f"settled/{part}" for part in self.settled.immutable_parts()]
        )

    @staticmethod
    def restore(
        config: DelayConfig,
        snapshot: dict[str, Any],
        numbers: int,
        columns: int,
        scales: tuple[str, ...] = (),
    ) -> "DelayTable":
        """The table that `snapshot` described, of a stream that has so many columns."""
        table = DelayTable(config, numbers, scales)
        for number in snapshot["blocks"]:
            arrays = {name: snapshot[f"block/{number}/{name}"] for name in PendingBlock.ARRAYS}
            table._blocks[number] = PendingBlock.restore(arrays, columns, numbers, scales)
        waiting = snapshot["waiting"].tolist()
        for step in waiting:
            number, row = divmod(step, BLOCK_STEPS)
            block = table._blocks[number]
            block.waiting.add(row)
            table._steps[block.ids[row]] = step
            if config.expire_ms is not None and block.times[row] != _NO_TIME:
                table._by_time.append((int(block.times[row]), step))
        heapq.heapify(table._by_time)
        table._oldest = waiting[0] if waiting else 1
        table._queue = snapshot["queued_step"].tolist()
        table._labels = dict(zip(table._queue, snapshot["queued_label"].tolist(), strict=True))
        early = unpack_ids(snapshot["early_text"], snapshot["early_lengths"])
        held = zip(snapshot["early_label"].tolist(), snapshot["early_step"].tolist(), strict=True)
        table._early = OrderedDict(zip(early, held, strict=True))
        table._bytes = sum(block.bytes for block in table._blocks.values())
        settled = subsection(snapshot, "settled")
        table.settled = IdMemory.restore(config.settled_max, config.settled_ms, settled)
        return table


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
