"""The fine buffer: who is in the window, who is verified, whose slot is free."""

import numpy as np
import pytest

from dtgol_core.buffer import FineBuffer
from dtgol_core.config import GraphConfig
from dtgol_core.state import SnapshotError
from dtgol_core.types import Vectors


def buffer_of(unverified: int = 3, verified: int = 2, columns: int = 2) -> FineBuffer:
    buffer = FineBuffer(GraphConfig(unverified=unverified, verified=verified))
    buffer.grow(columns)
    return buffer


def arrive(buffer: FineBuffer, step: int) -> int:
    """A record joins the window; whoever must leave for it leaves."""
    vector = np.full(buffer.latent.shape[1], float(step))
    slot = buffer.enter(step, Vectors.of(vector, -vector))
    for left in buffer.join_window(slot):
        buffer.leave(left)
    return slot


def verify(buffer: FineBuffer, step: int, label: int) -> None:
    slot = buffer.find(step)
    assert slot is not None
    for left in buffer.verify(slot, label):
        buffer.leave(left)


def window(buffer: FineBuffer) -> list[int]:
    return [int(step) for step in buffer.steps[buffer.window]]


def verified(buffer: FineBuffer) -> list[int]:
    return [int(step) for step in buffer.steps[buffer.verified]]


def test_window_keeps_the_newest() -> None:
    buffer = buffer_of()
    for step in range(1, 6):
        arrive(buffer, step)
    assert window(buffer) == [3, 4, 5]
    assert buffer.find(2) is None
    assert len(buffer) == 3


def test_verified_instance_leaves_the_window_and_keeps_its_slot() -> None:
    buffer = buffer_of()
    slots = [arrive(buffer, step) for step in (1, 2, 3)]
    verify(buffer, 2, 1)
    assert window(buffer) == [1, 3]
    assert buffer.verified.tolist() == [slots[1]]
    assert buffer.label[slots[1]] == 1
    assert buffer.latent[slots[1]].tolist() == [2.0, 2.0]


def test_verified_set_keeps_those_that_arrived_last_whatever_the_order_of_labels() -> None:
    buffer = buffer_of()
    for step in (1, 2, 3):
        arrive(buffer, step)
    for step in (3, 1, 2):
        verify(buffer, step, 0)
    assert verified(buffer) == [2, 3]
    assert buffer.find(1) is None


def test_instance_older_than_all_verified_is_not_admitted_when_they_are_full() -> None:
    buffer = buffer_of()
    for step in (5, 6, 7):
        arrive(buffer, step)
    assert buffer.admits(1)
    verify(buffer, 6, 0)
    verify(buffer, 7, 1)
    assert not buffer.admits(5)
    assert buffer.admits(8)


def test_instance_that_had_left_may_come_back_verified() -> None:
    buffer = buffer_of()
    slot = buffer.enter(4, Vectors.of(np.ones(2), np.zeros(2)))
    assert buffer.verify(slot, 1) == []
    assert window(buffer) == []
    assert verified(buffer) == [4]


def test_slots_are_used_again_and_never_exceed_what_is_needed() -> None:
    buffer = buffer_of(unverified=40, verified=20)
    for step in range(1, 400):
        arrive(buffer, step)
        if step > 10:
            verify(buffer, step - 10, step % 2)
        assert len(buffer.steps) <= 40 + 20 + 2
        taken = buffer.steps[buffer.steps >= 0].tolist()
        assert sorted(taken) == sorted([*window(buffer), *verified(buffer)])


def test_new_columns_are_zero_in_what_is_here() -> None:
    buffer = buffer_of()
    slot = arrive(buffer, 1)
    buffer.grow(1)
    assert buffer.latent[slot].tolist() == [1.0, 1.0, 0.0]
    assert buffer.original[slot].tolist() == [-1.0, -1.0, 0.0]
    newer = arrive(buffer, 2)
    assert buffer.latent[newer].tolist() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize("records", [0, 1, 5, 50])
def test_restored_buffer_gives_out_the_same_slots(records: int) -> None:
    buffer = buffer_of(5, 3)
    for step in range(1, records + 1):
        arrive(buffer, step)
        if step % 2:
            verify(buffer, step, 1)
    again = FineBuffer.restore(GraphConfig(unverified=5, verified=3), buffer.snapshot(), 2)
    assert again.verified.tolist() == buffer.verified.tolist()
    for step in range(records + 1, records + 9):
        assert arrive(again, step) == arrive(buffer, step)


@pytest.mark.parametrize(
    ("name", "spoilt"),
    [
        ("latent", np.zeros((32, 3))),
        ("original", np.zeros((31, 2))),
        ("label", np.zeros(31, dtype=np.int8)),
        ("label", np.array([-1, 7, *[-1] * 30], dtype=np.int8)),
        ("window", np.array([0, 99])),
        ("window", np.array([0, 1, 2])),
        ("free", np.arange(30)),
        ("steps", np.full(32, -1)),
        ("steps", np.full(32, 7)),
    ],
)
def test_slots_that_do_not_fit_together_are_refused(name: str, spoilt: np.ndarray) -> None:
    buffer = buffer_of()
    for step in (1, 2, 3):
        arrive(buffer, step)
    verify(buffer, 2, 1)
    config = GraphConfig(unverified=3, verified=2)
    FineBuffer.restore(config, buffer.snapshot(), 2)
    with pytest.raises(SnapshotError, match="does not fit together"):
        FineBuffer.restore(config, {**buffer.snapshot(), name: spoilt}, 2)
