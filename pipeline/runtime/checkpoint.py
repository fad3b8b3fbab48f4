"""Checkpoints: outputs, blobs, manifest, offsets become durable in this order and no other.

A checkpoint is taken as copies between two records; the four steps run in the background,
one checkpoint at a time. After a failure the next one tries again; no offset is committed without.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from pipeline.errors import StoreError
from pipeline.kafka.writer import PartitionWriter
from pipeline.runtime.metrics import Sample, StageTime
from pipeline.snapshots.repository import SaveResult, SnapshotRepository, StateSnapshot

log = logging.getLogger(__name__)

PAUSES = 10.0
"""After a snapshot that took so long, the next one by the number of records waits ten times as
long: where a snapshot of many streams is slow, it must not take the processor from the records."""


class Checkpoint(NamedTuple):
    """A copied state: the offsets it reaches, and the function that makes its snapshot."""

    offsets: Mapping[str, int]
    make_snapshot: Callable[[], StateSnapshot]


class Checkpointer:
    """The checkpoints of one partition.

    Parameters
    ----------
    outputs
        What must be durable before a snapshot is.
    commit
        Moves the group's offsets, by topic.
    every_records, every_s
        A checkpoint is due after so many records, or so long if there is any.
    """

    def __init__(
        self,
        partition: int,
        repository: SnapshotRepository,
        outputs: Sequence[PartitionWriter],
        commit: Callable[[Mapping[str, int]], Awaitable[bool]],
        every_records: int,
        every_s: float,
    ) -> None:
        self._partition = partition
        self.repository = repository
        self._outputs = outputs
        self._commit = commit
        self._every_records = every_records
        self._every_s = every_s
        self._task: asyncio.Task[None] | None = None
        self._finished_at = time.monotonic()
        self._saved_at = self._finished_at
        self._last_s = 0.0
        """How long the last snapshot took to write."""
        self._stage = StageTime("snapshot")
        self.result: SaveResult | None = None
        self.failure: str | None = None
        self.on_saved: Callable[[SaveResult], None] = lambda _: None
        self.on_failed: Callable[[], None] = lambda: None

    @property
    def age_s(self) -> float | None:
        """Seconds since the last snapshot of this process; None before its first."""
        return None if self.result is None else time.monotonic() - self._saved_at

    def due(self, fresh: int) -> bool:
        """Whether a checkpoint should be taken; `fresh` counts records since the last one.

        After a failure the number of records does not count: the next one waits for its time. Nor
        does it right after a snapshot that took long (`PAUSES`).
        """
        if self._task is not None:
            if not self._task.done():
                return False
            self._task.result()
            self._task = None
        since_s = time.monotonic() - self._finished_at
        rested = since_s >= PAUSES * self._last_s
        many = fresh >= self._every_records and self.failure is None and rested
        return many or (fresh > 0 and since_s >= self._every_s)

    def start(self, checkpoint: Checkpoint) -> None:
        """Run the steps as a background task."""
        self._task = asyncio.create_task(self.write(checkpoint))

    async def write(self, checkpoint: Checkpoint) -> None:
        """The four steps."""
        for output in self._outputs:
            await output.settled()  # 1. all outputs sent before the copy are durable
        begun = time.monotonic()
        try:
            # 2. and 3. blobs, then the manifest
            result = await asyncio.to_thread(
                lambda: self.repository.save(checkpoint.make_snapshot())
            )
        except StoreError as error:
            self.failure = str(error)
            log.error("partition %d: no snapshot: %s", self._partition, error)
            self.on_failed()
        else:
            self.result, self.failure, self._saved_at = result, None, time.monotonic()
            self._last_s = self._saved_at - begun
            self._stage.seconds += self._last_s
            self._stage.records += 1
            self.on_saved(result)
            await self._commit(checkpoint.offsets)  # 4. only now the group's offsets move
        self._finished_at = time.monotonic()

    async def finish(self) -> None:
        """Wait for the checkpoint that is under way, if any."""
        if self._task is not None:
            await self._task
            self._task = None

    def cancel(self) -> None:
        """The partition was revoked: no further step is begun."""
        if self._task is not None:
            self._task.cancel()

    def samples(self) -> Iterator[Sample]:
        """Its series: age, size and time of snapshots, and whether the last one failed."""
        yield Sample("dtgol_snapshot_age_seconds", time.monotonic() - self._saved_at)
        if self.result is not None:
            yield Sample("dtgol_snapshot_written_bytes", self.result.bytes_written)
        yield Sample("dtgol_snapshot_failed", float(self.failure is not None))
        yield from self._stage.samples()
