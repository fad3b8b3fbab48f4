"""Delay table: who waits for a label, whose label is due, who has expired.

In: instances as they arrive, labels as they arrive, in any order. Out: what became of each label,
and which instances are due. An instance keeps the vectors and the persistent predictions of its
arrival; what is learnt later is exactly what was predicted from. Everything is bounded.

Instances lie in blocks of 256 steps. A full block is never written again, so a snapshot store
that has it can skip it; a block goes when the last of its instances has been settled.
"""

import heapq
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Any

import numpy as np

from dtgol_core.config import DelayConfig
from dtgol_core.state import pack_ids, unpack_ids
from dtgol_core.types import FloatArray, LabelOutcome

BLOCK_STEPS = 256
EXPIRED = 2
"""Remembered in place of a label for an instance that left unanswered."""
_NO_TIME = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True)
class Ticket:
    """An instance that waits: what was computed and said when it arrived."""

    id: str
    step: int
    latent: FloatArray
    original: FloatArray
    latent_said: float
    original_said: float
    event_time_ms: int | None


class Block:
    """The instances of 256 consecutive steps; rows are written once."""

    def __init__(self, columns: int) -> None:
        self.ids: list[str] = []
        self.latent = np.zeros((BLOCK_STEPS, columns))
        self.original = np.zeros((BLOCK_STEPS, columns))
        self.said = np.zeros((BLOCK_STEPS, 2))
        self.times = np.full(BLOCK_STEPS, _NO_TIME, dtype=np.int64)
        self.waiting: set[int] = set()
        self._full: dict[str, Any] | None = None

    def snapshot(self) -> dict[str, Any]:
        """The rows that are written. A full block is never written again: its arrays are shared."""
        if self._full is not None:
            return self._full
        rows = len(self.ids)
        text, lengths = pack_ids(self.ids)
        arrays = {
            "latent": self.latent,
            "original": self.original,
            "said": self.said,
            "times": self.times,
        }
        if rows == BLOCK_STEPS:
            self._full = _shared({**arrays, "id_text": text, "id_lengths": lengths})
            return self._full
        parts = {name: array[:rows].copy() for name, array in arrays.items()}
        return {**parts, "id_text": text, "id_lengths": lengths}

    def write(self, row: int, ticket: Ticket) -> None:
        """Write the next row; the block widens with the feature space while it is open."""
        missing = len(ticket.latent) - self.latent.shape[1]
        if missing:
            fresh = np.zeros((BLOCK_STEPS, missing))
            self.latent = np.concatenate([self.latent, fresh], axis=1)
            self.original = np.concatenate([self.original, fresh], axis=1)
        self.ids.append(ticket.id)
        self.latent[row] = ticket.latent
        self.original[row] = ticket.original
        self.said[row] = ticket.latent_said, ticket.original_said
        self.times[row] = _NO_TIME if ticket.event_time_ms is None else ticket.event_time_ms
        self.waiting.add(row)


class DelayTable:
    """Instances, held labels and the memory of settled ids.

    Parameters
    ----------
    config
        `release` and `steps`: when a label is due; `expire_steps`, `expire_ms`, `pending_max`,
        `early_max`, `early_steps`, `settled_max`: bounds; `corrected`: which of two values counts.

    Notes
    -----
    Cost: O(1) per call, O(log n) per label with ``release = "step"`` and per instance with
    ``expire_ms``. Memory: at most ``pending_max`` instances; a block of 256 stays as long as one of
    its instances waits.
    """

    def __init__(self, config: DelayConfig) -> None:
        self._config = config
        self._blocks: dict[int, Block] = {}
        self._steps: dict[str, int] = {}
        self._oldest = 1
        self._labels: dict[int, int] = {}
        self._queue: list[int] = []
        self._by_time: list[tuple[int, int]] = []
        self._early: OrderedDict[str, tuple[int, int]] = OrderedDict()
        self._settled: dict[str, int] = {}
        self._settled_order: deque[str] = deque()
        self._settled_ever = 0
        self._packed: dict[int, dict[str, Any]] = {}

    def __len__(self) -> int:
        return len(self._steps)

    @property
    def held(self) -> int:
        """Labels that arrived before their features."""
        return len(self._early)

    def knows(self, id: str) -> bool:
        """Whether features of this id were answered before, as far as is remembered."""
        return id in self._steps or id in self._settled

    def open(self, ticket: Ticket) -> list[tuple[str, int]]:
        """Let an instance wait. Returns (id, step) of those that expire as the table is full."""
        number, row = divmod(ticket.step, BLOCK_STEPS)
        block = self._blocks.get(number)
        if block is None:
            block = self._blocks[number] = Block(len(ticket.latent))
        while len(block.ids) < row:  # only step 0 of block 0, which does not exist
            block.ids.append("")
        block.write(row, ticket)
        if not self._steps:
            self._oldest = ticket.step
        self._steps[ticket.id] = ticket.step
        if self._config.expire_ms is not None and ticket.event_time_ms is not None:
            heapq.heappush(self._by_time, (ticket.event_time_ms, ticket.step))
            if len(self._by_time) > 2 * len(self._steps) + BLOCK_STEPS:
                self._by_time = [entry for entry in self._by_time if self._waits(entry[1])]
                heapq.heapify(self._by_time)
        early = self._early.pop(ticket.id, None)
        if early is not None:
            self._enqueue(ticket.step, early[0])
        expired = []
        while len(self._steps) > self._config.pending_max:
            oldest = self._oldest_waiting()
            expired.append((self._expire(oldest), oldest))
        return expired

    def file(self, id: str, label: int, step: int) -> tuple[LabelOutcome, list[str]]:
        """Take in a label. Returns what became of it, and ids of held labels given up for it."""
        waiting = self._steps.get(id)
        if waiting is not None:
            known = self._labels.get(waiting)
            if known is None:
                self._enqueue(waiting, label)
                return LabelOutcome.QUEUED, []
            if known == label or self._config.corrected == "first":
                return _again(known, label), []
            self._labels[waiting] = label
            return LabelOutcome.CORRECTED_REPLACED, []
        settled = self._settled.get(id)
        if settled is not None:
            return (LabelOutcome.LATE if settled == EXPIRED else _again(settled, label)), []
        early = self._early.get(id)
        if early is not None:
            if early[0] == label or self._config.corrected == "first":
                return _again(early[0], label), []
            self._early[id] = (label, early[1])
            return LabelOutcome.CORRECTED_REPLACED, []
        self._early[id] = (label, step)
        orphans = []
        while len(self._early) > self._config.early_max:
            orphans.append(self._early.popitem(last=False)[0])
        return LabelOutcome.EARLY, orphans

    def settle_due(self, step: int) -> list[tuple[Ticket, int]]:
        """Take out the instances whose labels are due at `step`, in order of their steps."""
        due = []
        lag = self._config.steps if self._config.release == "step" else 0
        while self._queue and self._queue[0] + lag <= step:
            ready = heapq.heappop(self._queue)
            ticket = self._take(ready)
            label = self._labels.pop(ready)
            self._remember(ticket.id, label)
            due.append((ticket, label))
        return due

    def expire(self, step: int, clock_ms: int | None) -> list[tuple[str, int]]:
        """Take out (id, step) of instances that have waited too long, in order of their steps."""
        expired = []
        while self._steps:
            oldest = self._oldest_waiting()
            if oldest + self._config.expire_steps >= step:
                break
            expired.append((self._expire(oldest), oldest))
        if self._config.expire_ms is not None and clock_ms is not None:
            late = []
            while self._by_time and self._by_time[0][0] + self._config.expire_ms < clock_ms:
                _, old = heapq.heappop(self._by_time)
                if self._waits(old) and old not in self._labels:
                    late.append(old)
            expired += [(self._expire(old), old) for old in sorted(late)]
        return expired

    def give_up(self, step: int) -> list[str]:
        """Ids of labels held for too long without their features."""
        orphans = []
        while self._early:
            id, (_, since) = next(iter(self._early.items()))
            if step - since <= self._config.early_steps:
                break
            del self._early[id]
            orphans.append(id)
        return orphans

    def drop_held(self) -> str:
        """Give up the label that was held longest; its id."""
        return self._early.popitem(last=False)[0]

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

    def _take(self, step: int) -> Ticket:
        """Take an instance out; its block goes when it is full and nobody waits in it."""
        number, row = divmod(step, BLOCK_STEPS)
        block = self._blocks[number]
        block.waiting.remove(row)
        del self._steps[block.ids[row]]
        if len(block.ids) == BLOCK_STEPS and not block.waiting:
            del self._blocks[number]
        time = int(block.times[row])
        return Ticket(
            id=block.ids[row],
            step=step,
            latent=block.latent[row],
            original=block.original[row],
            latent_said=float(block.said[row, 0]),
            original_said=float(block.said[row, 1]),
            event_time_ms=None if time == _NO_TIME else time,
        )

    def _expire(self, step: int) -> str:
        ticket = self._take(step)
        self._remember(ticket.id, EXPIRED)
        return ticket.id

    def _remember(self, id: str, label: int) -> None:
        self._settled[id] = label
        self._settled_order.append(id)
        self._settled_ever += 1
        while len(self._settled_order) > self._config.settled_max:
            del self._settled[self._settled_order.popleft()]

    def snapshot(self) -> dict[str, Any]:
        """Blocks, and what changes: who waits, queued labels, held labels, settled ids."""
        arrays: dict[str, Any] = {}
        for number, block in self._blocks.items():
            arrays |= {f"block/{number}/{name}": each for name, each in block.snapshot().items()}
        for number, chunk in self._settled_chunks().items():
            arrays |= {f"settled/{number}/{name}": each for name, each in chunk.items()}
        first = self._settled_ever - len(self._settled_order)
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
            "settled_ever": self._settled_ever,
            "settled_first": first,
        }

    def _settled_chunks(self) -> dict[int, dict[str, Any]]:
        """Settled ids, 256 at a time; a full chunk is packed once and shared after that."""
        order = list(self._settled_order)
        first = self._settled_ever - len(order)
        chunks, full = {}, {}
        for start in range(first - first % BLOCK_STEPS, self._settled_ever, BLOCK_STEPS):
            number = start // BLOCK_STEPS
            ids = order[max(start - first, 0) : start - first + BLOCK_STEPS]
            whole = len(ids) == BLOCK_STEPS
            chunk = self._packed.get(number) if whole else None
            if chunk is None:
                text, lengths = pack_ids(ids)
                labels = np.array([self._settled[id] for id in ids], dtype=np.int8)
                chunk = {"id_text": text, "id_lengths": lengths, "label": labels}
            chunks[number] = chunk
            if whole:
                full[number] = _shared(chunk)
        self._packed = full
        return chunks

    @staticmethod
    def restore(config: DelayConfig, snapshot: dict[str, Any]) -> "DelayTable":
        """The table that `snapshot` described."""
        table = DelayTable(config)
        for number in snapshot["blocks"]:
            part = f"block/{number}"
            latent = snapshot[f"{part}/latent"]
            block = Block(latent.shape[1])
            block.ids = unpack_ids(snapshot[f"{part}/id_text"], snapshot[f"{part}/id_lengths"])
            rows = len(block.ids)
            block.latent[:rows] = latent
            block.original[:rows] = snapshot[f"{part}/original"]
            block.said[:rows] = snapshot[f"{part}/said"]
            block.times[:rows] = snapshot[f"{part}/times"]
            table._blocks[number] = block
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
        table._settled_ever = snapshot["settled_ever"]
        first = snapshot["settled_first"] // BLOCK_STEPS
        last = (table._settled_ever - 1) // BLOCK_STEPS
        if snapshot["settled_first"] < table._settled_ever:
            for number in range(first, last + 1):
                part = f"settled/{number}"
                ids = unpack_ids(snapshot[f"{part}/id_text"], snapshot[f"{part}/id_lengths"])
                table._settled_order.extend(ids)
                labels = snapshot[f"{part}/label"].tolist()
                table._settled.update(zip(ids, labels, strict=True))
        return table


def _shared(arrays: dict[str, Any]) -> dict[str, Any]:
    """Arrays that state and snapshots have together: nobody may write to them any more."""
    for array in arrays.values():
        array.flags.writeable = False
    return arrays


def _again(known: int, label: int) -> LabelOutcome:
    return LabelOutcome.REPEATED if known == label else LabelOutcome.CORRECTED_IGNORED
