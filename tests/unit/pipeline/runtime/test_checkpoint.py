"""Checkpoints: the four steps in their order, and what a failure leaves undone."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from dtgol_core.state import Snapshot
from pipeline.errors import StoreError
from pipeline.runtime.checkpoint import Checkpoint, Checkpointer
from pipeline.snapshots.repository import SnapshotRepository, StateSnapshot
from tests.support.fake_kafka import MemoryStore

EVERY_RECORDS, EVERY_S = 10, 1_000.0


class Steps:
    """A checkpointer that writes down what it does."""

    def __init__(self, store: MemoryStore | None = None) -> None:
        self.log: list[str] = []
        self.store = store or MemoryStore(lambda names: self.log.append(names[0].split(".")[0]))
        repository = SnapshotRepository(self.store, 0, {})
        outputs: Any = [self, self]
        self.checkpoints = Checkpointer(0, repository, outputs, self.commit, EVERY_RECORDS, EVERY_S)

    async def settled(self) -> None:
        self.log.append("outputs")

    async def commit(self, offsets: Mapping[str, int]) -> bool:
        self.log.append(f"commit {dict(offsets)}")
        return True

    def write(self, offset: int) -> None:
        asyncio.run(self.checkpoints.write(checkpoint(offset)))


def checkpoint(offset: int) -> Checkpoint:
    state = StateSnapshot(offset, {}, {"b": offset}, {"b": Snapshot({}, {"at": offset})})
    return Checkpoint({"journal": offset}, lambda: state)


def test_outputs_then_blobs_then_manifest_then_offsets() -> None:
    steps = Steps()
    steps.write(5)
    assert steps.log == ["outputs", "outputs", "blob", "manifest", "commit {'journal': 5}"]
    assert steps.checkpoints.result is not None
    assert steps.checkpoints.result.next_offset == 5


class FullStore(MemoryStore):
    """A store on a full volume."""

    def write(self, partition: int, objects: Mapping[str, bytes]) -> None:
        raise StoreError("no space left")


def test_nothing_is_committed_without_a_snapshot() -> None:
    steps = Steps(FullStore())
    steps.write(5)
    assert steps.log == ["outputs", "outputs"]
    assert steps.checkpoints.failure == "no space left"
    assert steps.checkpoints.result is None


def test_a_checkpoint_is_due_after_so_many_records_or_so_long() -> None:
    checkpoints = Steps().checkpoints
    assert not checkpoints.due(EVERY_RECORDS - 1)
    assert checkpoints.due(EVERY_RECORDS)
    checkpoints._finished_at -= EVERY_S
    assert checkpoints.due(1)
    assert not checkpoints.due(0)


def test_after_a_slow_snapshot_the_next_waits_ten_times_as_long_but_never_beyond_its_time() -> None:
    checkpoints = Steps().checkpoints
    checkpoints._last_s = 5.0
    checkpoints._finished_at -= 49.0
    assert not checkpoints.due(EVERY_RECORDS)
    checkpoints._finished_at -= 2.0
    assert checkpoints.due(EVERY_RECORDS)
    checkpoints._last_s = EVERY_S
    checkpoints._finished_at -= EVERY_S
    assert checkpoints.due(1)


def test_after_a_failure_the_next_waits_for_its_time() -> None:
    steps = Steps(FullStore())
    steps.write(5)
    assert not steps.checkpoints.due(EVERY_RECORDS)


def test_one_at_a_time() -> None:
    async def work() -> None:
        steps = Steps()
        gate = asyncio.Event()

        async def settled() -> None:
            await gate.wait()

        steps.settled = settled  # type: ignore[method-assign]
        steps.checkpoints.start(checkpoint(1))
        await asyncio.sleep(0)
        assert not steps.checkpoints.due(10**6)
        gate.set()
        await steps.checkpoints.finish()
        steps.checkpoints._last_s = 0.0
        assert steps.checkpoints.due(10**6)

    asyncio.run(work())


def test_a_partition_that_went_commits_nothing_any_more() -> None:
    async def work() -> None:
        steps = Steps()
        steps.checkpoints.start(checkpoint(1))
        steps.checkpoints.cancel()
        await asyncio.sleep(0.01)
        assert steps.log == []

    asyncio.run(work())
