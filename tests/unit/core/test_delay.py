"""The delay table: each row of the label policy, expiry, bounds and blocks."""

import numpy as np
import pytest

from dtgol_core.config import DelayConfig
from dtgol_core.delay import BLOCK_STEPS, DelayTable, Ticket
from dtgol_core.types import LabelOutcome


def table_of(**settings: object) -> DelayTable:
    return DelayTable(DelayConfig(**settings))  # type: ignore[arg-type]


def ticket(id: str, step: int, time: int | None = None, columns: int = 2) -> Ticket:
    vector = np.full(columns, float(step))
    return Ticket(id, step, vector, -vector, 0.25, 0.75, time)


def fill(table: DelayTable, steps: range, time: int | None = None) -> None:
    for step in steps:
        table.open(ticket(f"{step}", step, time))


def settled(table: DelayTable, step: int) -> list[tuple[str, int]]:
    return [(taken.id, label) for taken, label in table.settle_due(step)]


def test_label_on_time_is_due_at_the_next_step() -> None:
    table = table_of()
    fill(table, range(1, 4))
    assert table.file("2", 1, 3) == (LabelOutcome.QUEUED, [])
    assert settled(table, 4) == [("2", 1)]
    assert settled(table, 5) == []
    assert len(table) == 2


def test_what_is_settled_is_what_was_opened() -> None:
    table = table_of()
    given = ticket("a", 1, time=77)
    table.open(given)
    given.latent.fill(9.0)
    table.file("a", 0, 1)
    ((taken, label),) = table.settle_due(2)
    assert (taken.id, taken.step, taken.event_time_ms, label) == ("a", 1, 77, 0)
    assert taken.latent.tolist() == [1.0, 1.0]
    assert taken.original.tolist() == [-1.0, -1.0]
    assert (taken.latent_said, taken.original_said) == (0.25, 0.75)


def test_due_labels_come_in_order_of_their_instances() -> None:
    table = table_of()
    fill(table, range(1, 6))
    for id in ("4", "1", "3"):
        table.file(id, 1, 5)
    assert [id for id, _ in settled(table, 6)] == ["1", "3", "4"]


def test_release_by_step_holds_a_label_until_its_delay_is_over() -> None:
    table = table_of(release="step", steps=3)
    fill(table, range(1, 3))
    table.file("2", 1, 2)
    table.file("1", 0, 2)
    assert settled(table, 3) == []
    assert settled(table, 4) == [("1", 0)]
    assert settled(table, 5) == [("2", 1)]


def test_early_label_waits_for_its_features() -> None:
    table = table_of()
    assert table.file("a", 1, 0) == (LabelOutcome.EARLY, [])
    assert table.held == 1
    assert not table.knows("a")
    table.open(ticket("a", 1))
    assert table.held == 0
    assert settled(table, 2) == [("a", 1)]


def test_early_label_is_given_up_after_so_many_steps() -> None:
    table = table_of(early_steps=2)
    table.file("a", 1, 3)
    table.file("b", 1, 4)
    assert table.give_up(5) == []
    assert table.give_up(6) == ["a"]
    assert table.give_up(9) == ["b"]
    assert table.held == 0


def test_early_labels_beyond_the_bound_push_out_the_oldest() -> None:
    table = table_of(early_max=2)
    for id in ("a", "b"):
        assert table.file(id, 1, 0) == (LabelOutcome.EARLY, [])
    assert table.file("c", 1, 0) == (LabelOutcome.EARLY, ["a"])
    assert table_of(early_max=0).file("x", 1, 0) == (LabelOutcome.EARLY, ["x"])


def test_late_label_finds_its_instance_expired() -> None:
    table = table_of(expire_steps=2)
    table.open(ticket("a", 1))
    assert table.expire(4, None) == [("a", 1)]
    assert table.file("a", 1, 4) == (LabelOutcome.LATE, [])


@pytest.mark.parametrize("corrected", ["first", "last"])
def test_repeated_label_is_ignored(corrected: str) -> None:
    table = table_of(corrected=corrected)
    table.file("early", 1, 0)
    assert table.file("early", 1, 0) == (LabelOutcome.REPEATED, [])
    table.open(ticket("a", 1))
    table.file("a", 1, 1)
    assert table.file("a", 1, 1) == (LabelOutcome.REPEATED, [])
    table.settle_due(2)
    assert table.file("a", 1, 2) == (LabelOutcome.REPEATED, [])
    assert settled(table, 3) == []


def test_corrected_label_is_ignored_when_the_first_counts() -> None:
    table = table_of(corrected="first")
    table.file("early", 1, 0)
    assert table.file("early", 0, 0) == (LabelOutcome.CORRECTED_IGNORED, [])
    table.open(ticket("early", 1))
    assert table.file("early", 0, 1) == (LabelOutcome.CORRECTED_IGNORED, [])
    assert settled(table, 2) == [("early", 1)]


def test_corrected_label_replaces_one_not_yet_learnt_when_the_last_counts() -> None:
    table = table_of(corrected="last")
    table.file("early", 1, 0)
    assert table.file("early", 0, 0) == (LabelOutcome.CORRECTED_REPLACED, [])
    table.open(ticket("early", 1))
    assert table.file("early", 1, 1) == (LabelOutcome.CORRECTED_REPLACED, [])
    assert settled(table, 2) == [("early", 1)]


@pytest.mark.parametrize("corrected", ["first", "last"])
def test_label_already_learnt_is_never_learnt_again(corrected: str) -> None:
    table = table_of(corrected=corrected)
    table.open(ticket("a", 1))
    table.file("a", 1, 1)
    table.settle_due(2)
    assert table.file("a", 0, 2) == (LabelOutcome.CORRECTED_IGNORED, [])
    assert settled(table, 3) == []


def test_instance_never_answered_expires_by_steps() -> None:
    table = table_of(expire_steps=5)
    fill(table, range(1, 4))
    assert table.expire(6, None) == []
    assert table.expire(7, None) == [("1", 1)]
    assert table.expire(20, None) == [("2", 2), ("3", 3)]
    assert len(table) == 0


def test_instance_never_answered_expires_by_event_time() -> None:
    table = table_of(expire_ms=100)
    for step, time in enumerate([50, 0, None, 20], start=1):
        table.open(ticket(f"{step}", step, time))
    assert table.expire(5, None) == []
    assert table.expire(5, 100) == []
    assert table.expire(5, 101) == [("2", 2)]
    assert table.expire(6, 10_000) == [("1", 1), ("4", 4)], "in order of steps, not of times"
    assert len(table) == 1, "an instance without a time waits on"


def test_instance_with_a_queued_label_does_not_expire_by_event_time() -> None:
    table = table_of(release="step", steps=5, expire_ms=100)
    table.open(ticket("a", 1, time=0))
    table.file("a", 1, 1)
    assert table.expire(2, 10_000) == []
    assert settled(table, 6) == [("a", 1)]


def test_full_table_pushes_out_the_oldest() -> None:
    table = table_of(pending_max=2)
    fill(table, range(1, 3))
    assert table.open(ticket("3", 3)) == [("1", 1)]
    table.file("2", 1, 3)
    table.settle_due(4)
    assert table.open(ticket("4", 4)) == []
    assert table.open(ticket("5", 5)) == [("3", 3)]
    assert table.file("1", 1, 5)[0] == LabelOutcome.LATE


def test_settled_ids_are_remembered_up_to_a_bound() -> None:
    table = table_of(settled_max=2)
    fill(table, range(1, 4))
    for id in ("1", "2", "3"):
        table.file(id, 1, 3)
    table.settle_due(4)
    assert [table.knows(id) for id in ("1", "2", "3")] == [False, True, True]
    assert table.file("1", 1, 4)[0] == LabelOutcome.EARLY, "forgotten, so it looks early"
    assert table.file("2", 1, 4)[0] == LabelOutcome.REPEATED


def test_id_that_waits_or_was_answered_is_known() -> None:
    table = table_of()
    table.open(ticket("a", 1))
    assert table.knows("a")
    table.file("a", 1, 1)
    table.settle_due(2)
    assert table.knows("a")
    assert not table.knows("b")


def test_block_goes_when_the_last_of_its_instances_is_settled() -> None:
    table = table_of(settled_max=0)
    fill(table, range(1, 2 * BLOCK_STEPS + 10))
    assert sorted(table._blocks) == [0, 1, 2]
    for step in range(1, BLOCK_STEPS):
        table.file(f"{step}", 1, 600)
    table.settle_due(600)
    assert sorted(table._blocks) == [1, 2]
    assert table.expire(20_000, None)[0] == (f"{BLOCK_STEPS}", BLOCK_STEPS)
    assert sorted(table._blocks) == [2], "the open block stays"


def test_instances_of_one_block_may_have_more_columns_than_before() -> None:
    table = table_of()
    table.open(ticket("a", 1, columns=2))
    table.open(ticket("b", 2, columns=4))
    for id in ("a", "b"):
        table.file(id, 1, 2)
    narrow, wide = (taken for taken, _ in table.settle_due(3))
    assert narrow.latent.tolist() == [1.0, 1.0, 0.0, 0.0]
    assert wide.latent.tolist() == [2.0] * 4


def test_restored_table_expires_the_same_by_event_time() -> None:
    config = DelayConfig(expire_ms=100)
    table = DelayTable(config)
    for step, time in enumerate([50, 0, None, 20], start=1):
        table.open(ticket(f"{step}", step, time))
    again = DelayTable.restore(config, table.snapshot())
    assert again.expire(5, 121) == table.expire(5, 121) == [("2", 2), ("4", 4)]
    assert again.expire(6, 151) == table.expire(6, 151) == [("1", 1)]


@pytest.mark.parametrize("id", ["", "ü", "\ud800", "x" * 256, "a\nb\0c"])
def test_any_string_is_an_id_and_survives_a_snapshot(id: str) -> None:
    table = table_of(settled_max=5)
    table.open(ticket(id, 1))
    again = DelayTable.restore(DelayConfig(), table.snapshot())
    assert again.knows(id)
    assert again.file(id, 1, 1)[0] == LabelOutcome.QUEUED
    assert settled(again, 2) == [(id, 1)]
    assert DelayTable.restore(DelayConfig(), again.snapshot()).knows(id)
