"""Delay table: which instances wait for a label, whose label is due, which have expired.

In: instances as they arrive, labels as they arrive, in any order. Out: what became of each label,
and which instances are due. An instance keeps the vectors of its arrival and the numbers that the
experts want back with its label, so what is learnt later is exactly what was predicted from.
Everything is bounded.

Instances lie in blocks of 256 steps (`pending`); a block goes when the last of its instances has
been settled.
"""

import heapq
from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np

from dtgol_core.config import DelayConfig
from dtgol_core.ids import IdMemory, id_hash
from dtgol_core.pending import BLOCK_STEPS, NO_TIME, PendingBlock
from dtgol_core.state import (
    COUNT_MAX,
    ENTRY_BYTES,
    SnapshotError,
    pack_ids,
    require_count,
    subsection,
    unpack_ids,
)
from dtgol_core.types import Instance, LabelOutcome

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
_SETTLED = {"outcome": (0, _GIVEN_UP), "step": (1, COUNT_MAX)}
"""What the id memory may hold."""
SHARED_BOUND = "state_bytes_max"
"""The bound of several learners together, by which their keeper has instances given up."""


class Departure(NamedTuple):
    """An instance that leaves before a label is due, and the setting that made it leave.

    ``label`` is what is to be learnt all the same: a label that was queued, or the default one
    (``defaulted``). None: it is forgotten.
    """

    id: str
    instance: Instance
    setting: str
    label: int | None
    defaulted: bool


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
    scores
        How many of the scores of `Vectors` are kept.

    Notes
    -----
    An instance is let in by two calls: `reserve` gives its row, into which the caller writes, and
    `open` lets it wait. Cost: O(1) per call, O(log n) per label with ``release = "step"`` and per
    instance with ``expire_ms``. Memory: at most ``pending_max`` instances and, beyond the newest
    block, ``pending_bytes_max`` bytes; a block of 256 stays as long as one of its instances waits.
    At most `EXPIRE_STEP_MAX` instances leave at once, so a bound may be exceeded for some steps.

    Attributes
    ----------
    clock_ms
        The clock of the stream, kept up to date by the caller: ids are remembered by it.
    """

    def __init__(self, config: DelayConfig, numbers: int, scores: int = 0) -> None:
        self._config = config
        self._numbers = numbers
        self._scores = scores
        self._columns = 0
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
        if self._config.expire_ms is not None:
            entries += len(self._steps)  # of what is in order of time
        return self._bytes + ENTRY_BYTES * entries + self.settled.state_bytes

    @property
    def pending_bytes(self) -> int:
        """Memory of the instances that wait, which ``pending_bytes_max`` bounds. O(1)."""
        return self._bytes

    @property
    def early_labels(self) -> int:
        """Labels that arrived before their features."""
        return len(self._early)

    def knows(self, id: str, hash: int) -> bool:
        """Whether features of this id were answered before, as far as is remembered."""
        return id in self._steps or self.settled.find(hash) is not None

    def expired_by(self, hash: int) -> str | None:
        """The setting by which an id left without a label; None for any other id."""
        settled = self.settled.find(hash)
        if settled is None:
            return None
        if settled.outcome == _GIVEN_UP:
            return SHARED_BOUND
        if not _EXPIRED <= settled.outcome < _ERASED:
            return None
        return EXPIRY_SETTINGS[settled.outcome - _EXPIRED]

    def reserve(self, step: int, columns: int) -> Instance:
        """The row of the instance of a step, the next one, to be written before it is let in."""
        number, row = divmod(step, BLOCK_STEPS)
        block = self._blocks.get(number)
        if block is None:
            block = self._blocks[number] = PendingBlock(columns, self._numbers, self._scores)
            self._bytes += block.bytes
        if not block.ids and row:  # step 0, which does not exist
            self._bytes += block.add_id("", 0)
        if block.spaces.shape[2] < columns:
            self._bytes -= block.bytes
            block.widen(columns - block.spaces.shape[2])
            self._bytes += block.bytes
        self._columns = columns
        return block.read(row, step, columns)

    def open(self, id: str, hash: int, step: int, event_time_ms: int | None) -> list[Departure]:
        """Let an instance wait, whose row has been reserved and written.

        Returns those that leave because the table is full.
        """
        number, row = divmod(step, BLOCK_STEPS)
        block = self._blocks[number]
        self._bytes += block.add_id(id, hash)
        block.waiting.add(row)
        if not self._steps:
            self._oldest = step
        self._steps[id] = step
        if event_time_ms is not None:
            block.times[row] = event_time_ms
            if self._config.expire_ms is not None:
                self._expire_later(event_time_ms, step)
        early = self._early.pop(id, None) if self._early else None
        if early is not None:
            self._enqueue(step, early[0])
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

    def _expire_later(self, event_time_ms: int, step: int) -> None:
        heapq.heappush(self._by_time, (event_time_ms, step))
        if len(self._by_time) > 2 * len(self._steps) + BLOCK_STEPS:
            self._by_time = [entry for entry in self._by_time if self._waits(entry[1])]
            heapq.heapify(self._by_time)

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
        hash = id_hash(id)
        settled = self.settled.find(hash)
        if settled is not None:
            return self._again_settled(hash, *settled, label), []
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

    def settle_due(self, step: int) -> list[tuple[str, Instance, int]]:
        """Take out the instances whose labels are due at `step`, in order of their steps.

        Each as its id, itself and the label.
        """
        due = []
        lag = self._config.steps if self._config.release == "step" else 0
        while self._queue and self._queue[0] + lag <= step:
            ready = heapq.heappop(self._queue)
            label = self._labels.pop(ready)
            due.append((*self._settle(ready, label), label))
        return due

    def oldest(self, steps: range, most: int) -> tuple[list[Instance], int]:
        """The oldest instances of these steps that wait, and the step after the last one looked at.

        So many at most. Nothing changes.
        """
        found: list[Instance] = []
        for number, block in self._blocks.items():
            if (number + 1) * BLOCK_STEPS <= steps.start:
                continue
            for row in sorted(block.waiting):
                step = number * BLOCK_STEPS + row
                if step in steps:
                    found.append(block.read(row, step, self._columns))
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
            gone = self._settle(step, _GIVEN_UP)
            left.append(Departure(*gone, SHARED_BOUND, None, defaulted=False))
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
            hashes = block.hashes[: len(block.ids)]
            for row in [row for row in np.flatnonzero(hashes == hash).tolist() if block.ids[row]]:
                id, step = block.ids[row], number * BLOCK_STEPS + row
                if row in block.waiting:
                    self._take(step)
                    if self._labels.pop(step, None) is not None:
                        self._queue.remove(step)
                        heapq.heapify(self._queue)
                self.settled.remember(hash, _ERASED, step, self.clock_ms)
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

    def _settle(self, step: int, outcome: int) -> tuple[str, Instance]:
        """Take an instance out, its id and itself, and remember what became of it."""
        row, block = step % BLOCK_STEPS, self._take(step)
        self.settled.remember(int(block.hashes[row]), outcome, step, self.clock_ms)
        return block.ids[row], block.read(row, step, self._columns)

    def _leave(self, step: int, setting: str) -> Departure:
        """Take out an instance by a setting, and decide what is learnt of it."""
        label = self._labels.pop(step, None)
        if label is not None:  # the oldest of all then, and so of the queue
            heapq.heappop(self._queue)
            return Departure(*self._settle(step, label), setting, label, defaulted=False)
        default = self._config.expired
        if default != "drop":
            gone = self._settle(step, _DEFAULTED + default)
            return Departure(*gone, setting, default, defaulted=True)
        gone = self._settle(step, _EXPIRED + EXPIRY_SETTINGS.index(setting))
        return Departure(*gone, setting, None, defaulted=False)

    def _again_settled(self, hash: int, outcome: int, step: int, label: int) -> LabelOutcome:
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
        self.settled.remember(hash, label, step, self.clock_ms)
        return LabelOutcome.CONFIRMED if known == label else LabelOutcome.CORRECTION_TOO_LATE

    def ends_at(self, step: int) -> bool:
        """Whether the rows are those of all steps up to this one, so that the next one fits.

        A block that is not full is there even if nothing in it waits.
        """
        number, row = divmod(step, BLOCK_STEPS)
        there = step == 0 or row == BLOCK_STEPS - 1 or number in self._blocks
        return there and all(
            len(block.ids) == min(BLOCK_STEPS, step + 1 - number * BLOCK_STEPS)
            for number, block in self._blocks.items()
        )

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
        scores: int = 0,
    ) -> "DelayTable":
        """The table that `snapshot` described, of a stream that has so many columns.

        The compiled loops of the experts take labels and steps as they come: both are checked here.
        """
        table = DelayTable(config, numbers, scores)
        table._columns = columns
        for number in map(require_count, snapshot["blocks"]):
            arrays = {name: snapshot[f"block/{number}/{name}"] for name in PendingBlock.ARRAYS}
            table._blocks[number] = PendingBlock.restore(arrays, columns, numbers, scores)
        _check_steps(snapshot)
        waiting = snapshot["waiting"].tolist()
        for step in waiting:
            number, row = divmod(step, BLOCK_STEPS)
            block = table._blocks[number]
            block.waiting.add(row)
            table._steps[block.ids[row]] = step
            if config.expire_ms is not None and block.times[row] != NO_TIME:
                table._by_time.append((int(block.times[row]), step))
        if len(table._steps) < len(waiting):
            raise SnapshotError("the snapshot does not fit together: an id that waits twice")
        heapq.heapify(table._by_time)
        table._oldest = waiting[0] if waiting else 1
        table._queue = snapshot["queued_step"].tolist()
        table._labels = dict(zip(table._queue, snapshot["queued_label"].tolist(), strict=True))
        early = unpack_ids(snapshot["early_text"], snapshot["early_lengths"])
        held = zip(snapshot["early_label"].tolist(), snapshot["early_step"].tolist(), strict=True)
        table._early = OrderedDict(zip(early, held, strict=True))
        table._bytes = sum(block.bytes for block in table._blocks.values())
        settled = subsection(snapshot, "settled")
        for name, array in settled.items():
            low, high = _SETTLED.get(name.rpartition("/")[2], (None, None))
            if low is not None and not ((array >= low) & (array <= high)).all():
                raise SnapshotError(f"the snapshot is damaged: settled/{name}")
        table.settled = IdMemory.restore(config.settled_max, config.settled_ms, settled)
        return table


def _check_steps(snapshot: dict[str, Any]) -> None:
    """Refuse labels that are none, and steps out of order or without an instance that waits."""
    waiting, queued = snapshot["waiting"], snapshot["queued_step"]
    labels = np.concatenate([snapshot["queued_label"], snapshot["early_label"]])
    in_order = (np.diff(waiting) > 0).all() and (np.diff(queued) > 0).all()
    exist = (waiting >= 1).all() and np.isin(queued, waiting).all()
    if not (in_order and exist and np.isin(labels, (0, 1)).all()):
        raise SnapshotError("the snapshot is damaged: steps or labels of the delay table")
