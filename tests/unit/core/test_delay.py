"""The delay table: each row of the label policy, expiry, bounds and blocks."""

import numpy as np
import pytest

from dtgol_core.config import DelayConfig
from dtgol_core.delay import (
    EXPIRE_STEP_MAX,
    SHARED_BOUND,
    DelayTable,
    Departure,
)
from dtgol_core.ids import Settled, id_hash
from dtgol_core.pending import BLOCK_STEPS, NO_TIME
from dtgol_core.state import SnapshotError, clone, combine, digest
from dtgol_core.types import LabelOutcome, Vectors
from tests.support.instances import let_in


def table_of(**settings: object) -> DelayTable:
    return DelayTable(DelayConfig(**settings), numbers=3)  # type: ignore[arg-type]


def wait(
    table: DelayTable, id: str, step: int, time: int | None = None, columns: int = 2
) -> list[Departure]:
    """Let an instance wait; what leaves because of it."""
    vector = np.full(columns, float(step))
    return let_in(table, id, step, Vectors.of(vector, -vector), [0.25, 0.75, step], time)


def knows(table: DelayTable, id: str) -> bool:
    return table.knows(id, id_hash(id))


def expired_by(table: DelayTable, id: str) -> str | None:
    return table.expired_by(id_hash(id))


def restored(table: DelayTable, config: DelayConfig | None = None) -> DelayTable:
    return DelayTable.restore(config or DelayConfig(), table.snapshot(), 3, columns=2)


def fill(table: DelayTable, steps: range, time: int | None = None) -> None:
    for step in steps:
        wait(table, f"{step}", step, time)


def gone(left: list[Departure]) -> list[tuple[str, int]]:
    return [(each.id, each.instance.step) for each in left]


def settled(table: DelayTable, step: int) -> list[tuple[str, int]]:
    return [(id, label) for id, _, label in table.settle_due(step)]


def test_label_on_time_is_due_at_the_next_step() -> None:
    table = table_of()
    fill(table, range(1, 4))
    assert table.add_label("2", 1, 3) == (LabelOutcome.QUEUED, [])
    assert settled(table, 4) == [("2", 1)]
    assert settled(table, 5) == []
    assert len(table) == 2


def test_what_is_settled_is_what_was_opened() -> None:
    table = table_of()
    wait(table, "a", 1, time=77)
    wait(table, "b", 2)
    table.add_label("a", 0, 1)
    assert table._blocks[0].times[[1, 2]].tolist() == [77, NO_TIME]
    ((id, taken, label),) = table.settle_due(2)
    assert (id, taken.step, label) == ("a", 1, 0)
    assert taken.vectors.latent.tolist() == [1.0, 1.0]
    assert taken.vectors.original.tolist() == [-1.0, -1.0]
    assert taken.numbers.tolist() == [0.25, 0.75, 1.0]


def test_due_labels_come_in_order_of_their_instances() -> None:
    table = table_of()
    fill(table, range(1, 6))
    for id in ("4", "1", "3"):
        table.add_label(id, 1, 5)
    assert [id for id, _ in settled(table, 6)] == ["1", "3", "4"]


def test_release_by_step_holds_a_label_until_its_delay_is_over() -> None:
    table = table_of(release="step", steps=3)
    fill(table, range(1, 3))
    table.add_label("2", 1, 2)
    table.add_label("1", 0, 2)
    assert settled(table, 3) == []
    assert settled(table, 4) == [("1", 0)]
    assert settled(table, 5) == [("2", 1)]


def test_early_label_waits_for_its_features() -> None:
    table = table_of()
    assert table.add_label("a", 1, 0) == (LabelOutcome.EARLY, [])
    assert table.early_labels == 1
    assert not knows(table, "a")
    wait(table, "a", 1)
    assert table.early_labels == 0
    assert settled(table, 2) == [("a", 1)]


def test_early_label_is_given_up_after_so_many_steps() -> None:
    table = table_of(early_steps=2)
    table.add_label("a", 1, 3)
    table.add_label("b", 1, 4)
    assert table.expire_early(5) == []
    assert table.expire_early(6) == ["a"]
    assert table.expire_early(9) == ["b"]
    assert table.early_labels == 0


def test_early_labels_beyond_the_bound_push_out_the_oldest() -> None:
    table = table_of(early_max=2)
    for id in ("a", "b"):
        assert table.add_label(id, 1, 0) == (LabelOutcome.EARLY, [])
    assert table.add_label("c", 1, 0) == (LabelOutcome.EARLY, ["a"])
    assert table_of(early_max=0).add_label("x", 1, 0) == (LabelOutcome.EARLY, ["x"])


def test_late_label_finds_its_instance_expired() -> None:
    table = table_of(expire_steps=2)
    wait(table, "a", 1)
    assert gone(table.expire(4, None)) == [("a", 1)]
    assert table.add_label("a", 1, 4) == (LabelOutcome.LATE, [])


@pytest.mark.parametrize("corrected", ["first", "last"])
def test_repeated_label_is_ignored(corrected: str) -> None:
    table = table_of(corrected=corrected)
    table.add_label("early", 1, 0)
    assert table.add_label("early", 1, 0) == (LabelOutcome.REPEATED, [])
    wait(table, "a", 1)
    table.add_label("a", 1, 1)
    assert table.add_label("a", 1, 1) == (LabelOutcome.REPEATED, [])
    table.settle_due(2)
    assert table.add_label("a", 1, 2) == (LabelOutcome.REPEATED, [])
    assert settled(table, 3) == []


def test_corrected_label_is_ignored_when_the_first_counts() -> None:
    table = table_of(corrected="first")
    table.add_label("early", 1, 0)
    assert table.add_label("early", 0, 0) == (LabelOutcome.CORRECTED_IGNORED, [])
    wait(table, "early", 1)
    assert table.add_label("early", 0, 1) == (LabelOutcome.CORRECTED_IGNORED, [])
    assert settled(table, 2) == [("early", 1)]


def test_corrected_label_replaces_one_not_yet_learnt_when_the_last_counts() -> None:
    table = table_of(corrected="last")
    table.add_label("early", 1, 0)
    assert table.add_label("early", 0, 0) == (LabelOutcome.CORRECTED_REPLACED, [])
    wait(table, "early", 1)
    assert table.add_label("early", 1, 1) == (LabelOutcome.CORRECTED_REPLACED, [])
    assert settled(table, 2) == [("early", 1)]


@pytest.mark.parametrize(
    ("corrected", "outcome"),
    [("first", LabelOutcome.CORRECTED_IGNORED), ("last", LabelOutcome.CORRECTION_TOO_LATE)],
)
def test_label_already_learnt_is_never_learnt_again(corrected: str, outcome: LabelOutcome) -> None:
    table = table_of(corrected=corrected)
    wait(table, "a", 1)
    table.add_label("a", 1, 1)
    table.settle_due(2)
    assert table.add_label("a", 0, 2) == (outcome, [])
    assert settled(table, 3) == []
    again = LabelOutcome.REPEATED if corrected == "last" else LabelOutcome.CORRECTED_IGNORED
    assert table.add_label("a", 0, 3) == (again, []), "the newest truth is the known one"


def test_late_label_says_which_bound_its_instance_met() -> None:
    by_steps, by_time = table_of(expire_steps=2), table_of(expire_ms=5)
    wait(by_steps, "a", 1)
    wait(by_time, "a", 1, time=0)
    by_count = table_of(pending_max=1)
    fill(by_count, range(1, 3))
    by_steps.expire(4, None)
    by_time.expire(4, 6)
    assert expired_by(by_steps, "a") == "expire_steps"
    assert expired_by(by_time, "a") == "expire_ms"
    assert expired_by(by_count, "1") == "pending_max"
    assert expired_by(by_count, "2") is None


def test_instances_wait_until_the_table_is_full_in_bytes() -> None:
    bound = 2**20
    table = table_of(pending_bytes_max=bound)
    steps = 40 * BLOCK_STEPS
    wide = 8
    for step in range(1, steps):
        left = wait(table, f"{step}", step, columns=wide)
        assert len(left) <= EXPIRE_STEP_MAX
        newest = table._blocks[step // BLOCK_STEPS]
        assert table._bytes <= bound + newest.bytes
        assert table._bytes == sum(block.bytes for block in table._blocks.values())
    assert expired_by(table, "1") == "pending_bytes_max"
    assert len(table) > 4 * BLOCK_STEPS
    again = DelayTable.restore(DelayConfig(), table.snapshot(), 3, columns=wide)
    assert again._bytes == table._bytes


def test_one_block_is_kept_whatever_the_bound() -> None:
    table = table_of(pending_bytes_max=2**16)
    for step in range(1, BLOCK_STEPS):
        assert wait(table, f"{step}", step, columns=100) == []


def test_instance_pushed_out_with_a_label_that_is_not_due_is_learnt_then() -> None:
    table = table_of(release="step", steps=100_000, pending_bytes_max=2**16)
    wait(table, "a", 1, columns=100)
    table.add_label("a", 1, 1)
    left: list[Departure] = []
    step = 1
    while not left:
        step += 1
        left = wait(table, f"{step}", step, columns=100)
    assert (left[0].id, left[0].label, left[0].defaulted) == ("a", 1, False)
    assert settled(table, 200_000) == []
    assert table.add_label("a", 1, step) == (LabelOutcome.REPEATED, [])


@pytest.mark.parametrize("default", [0, 1])
def test_default_label_is_learnt_at_expiry_and_gives_way_to_the_true_one(default: int) -> None:
    table = table_of(expire_steps=2, expired=default, corrected="first")
    fill(table, range(1, 3))
    left = table.expire(5, None)
    assert [(each.id, each.label, each.defaulted) for each in left] == [
        ("1", default, True),
        ("2", default, True),
    ]
    assert table.add_label("1", default, 5) == (LabelOutcome.CONFIRMED, [])
    assert table.add_label("1", default, 5) == (LabelOutcome.REPEATED, [])
    assert table.add_label("2", 1 - default, 5) == (LabelOutcome.CORRECTION_TOO_LATE, [])
    assert table.add_label("2", default, 5) == (LabelOutcome.CORRECTED_IGNORED, [])


def test_the_step_of_a_learnt_label_is_remembered() -> None:
    table = table_of()
    for step, id in enumerate("abc", start=1):
        wait(table, id, step)
    table.add_label("b", 1, 3)
    table.settle_due(4)
    assert table.settled.find(id_hash("b")) == Settled(1, 2)
    assert table.settled.find(id_hash("a")) is None


def test_instance_never_answered_expires_by_steps() -> None:
    table = table_of(expire_steps=5)
    fill(table, range(1, 4))
    assert gone(table.expire(6, None)) == []
    assert gone(table.expire(7, None)) == [("1", 1)]
    assert gone(table.expire(20, None)) == [("2", 2), ("3", 3)]
    assert len(table) == 0


def test_instance_never_answered_expires_by_event_time() -> None:
    table = table_of(expire_ms=100)
    for step, time in enumerate([50, 0, None, 20], start=1):
        wait(table, f"{step}", step, time)
    assert gone(table.expire(5, None)) == []
    assert gone(table.expire(5, 100)) == []
    assert gone(table.expire(5, 101)) == [("2", 2)]
    assert gone(table.expire(6, 10_000)) == [("1", 1), ("4", 4)], "in order of steps, not of times"
    assert len(table) == 1, "an instance without a time waits on"


def test_instance_with_a_queued_label_does_not_expire_by_event_time() -> None:
    table = table_of(release="step", steps=5, expire_ms=100)
    wait(table, "a", 1, time=0)
    table.add_label("a", 1, 1)
    assert gone(table.expire(2, 10_000)) == []
    assert settled(table, 6) == [("a", 1)]


def test_full_table_pushes_out_the_oldest() -> None:
    table = table_of(pending_max=2)
    fill(table, range(1, 3))
    assert gone(wait(table, "3", 3)) == [("1", 1)]
    table.add_label("2", 1, 3)
    table.settle_due(4)
    assert gone(wait(table, "4", 4)) == []
    assert gone(wait(table, "5", 5)) == [("3", 3)]
    assert table.add_label("1", 1, 5)[0] == LabelOutcome.LATE


def test_settled_ids_are_remembered_up_to_a_bound() -> None:
    table = table_of(settled_max=2)
    fill(table, range(1, 4))
    for id in ("1", "2", "3"):
        table.add_label(id, 1, 3)
    table.settle_due(4)
    assert [knows(table, id) for id in ("1", "2", "3")] == [False, True, True]
    assert table.add_label("1", 1, 4)[0] == LabelOutcome.EARLY, "forgotten, so it looks early"
    assert table.add_label("2", 1, 4)[0] == LabelOutcome.REPEATED


def test_id_that_waits_or_was_answered_is_known() -> None:
    table = table_of()
    wait(table, "a", 1)
    assert knows(table, "a")
    table.add_label("a", 1, 1)
    table.settle_due(2)
    assert knows(table, "a")
    assert not knows(table, "b")


def test_block_goes_when_the_last_of_its_instances_is_settled() -> None:
    table = table_of(settled_max=0, expire_steps=10_000)
    fill(table, range(1, 2 * BLOCK_STEPS + 10))
    assert sorted(table._blocks) == [0, 1, 2]
    for step in range(1, BLOCK_STEPS):
        table.add_label(f"{step}", 1, 600)
    table.settle_due(600)
    assert sorted(table._blocks) == [1, 2]
    left = gone(table.expire(20_000, None))
    assert left[0] == (f"{BLOCK_STEPS}", BLOCK_STEPS)
    assert len(left) == EXPIRE_STEP_MAX, "the others follow at the next steps"
    while table.expire(20_000, None):
        pass
    assert sorted(table._blocks) == [2], "the open block stays"


def test_instances_of_one_block_may_have_more_columns_than_before() -> None:
    table = table_of()
    wait(table, "a", 1, columns=2)
    wait(table, "b", 2, columns=4)
    for id in ("a", "b"):
        table.add_label(id, 1, 2)
    narrow, wide = (taken for _, taken, _ in table.settle_due(3))
    assert narrow.vectors.latent.tolist() == [1.0, 1.0, 0.0, 0.0]
    assert wide.vectors.latent.tolist() == [2.0] * 4
    assert wide.vectors.original.tolist() == [-2.0] * 4


def test_restored_table_expires_the_same_by_event_time() -> None:
    config = DelayConfig(expire_ms=100)
    table = table_of(expire_ms=100)
    for step, time in enumerate([50, 0, None, 20], start=1):
        wait(table, f"{step}", step, time)
    again = restored(table, config)
    assert gone(again.expire(5, 121)) == gone(table.expire(5, 121)) == [("2", 2), ("4", 4)]
    assert gone(again.expire(6, 151)) == gone(table.expire(6, 151)) == [("1", 1)]


@pytest.mark.parametrize("id", ["", "ü", "\ud800", "x" * 256, "a\nb\0c"])
def test_any_string_is_an_id_and_survives_a_snapshot(id: str) -> None:
    table = table_of(settled_max=5)
    wait(table, id, 1)
    again = restored(table)
    assert knows(again, id)
    assert again.add_label(id, 1, 1)[0] == LabelOutcome.QUEUED
    assert settled(again, 2) == [(id, 1)]
    assert knows(restored(again), id)


@pytest.mark.parametrize(
    ("numbers", "columns"), [(2, 2), (4, 2), (3, 1)], ids=["few numbers", "more", "few columns"]
)
def test_a_table_of_another_layout_is_refused(numbers: int, columns: int) -> None:
    table = table_of()
    fill(table, range(1, 4))
    DelayTable.restore(DelayConfig(), table.snapshot(), 3, columns=5)
    with pytest.raises(SnapshotError, match="does not fit together"):
        DelayTable.restore(DelayConfig(), table.snapshot(), numbers, columns)


@pytest.mark.parametrize("expired", ["drop", 1])
def test_instances_are_given_up_for_other_tables_but_for_those_of_the_newest_block(
    expired: object,
) -> None:
    table = table_of(expired=expired)
    fill(table, range(1, 2 * BLOCK_STEPS + 10))
    table.add_label("3", 1, 5)
    held = table.pending_bytes
    left = table.give_up_oldest()
    assert [each.instance.step for each in left] == list(range(1, EXPIRE_STEP_MAX + 1))
    assert [(each.instance.step, each.label) for each in left if each.label is not None] == [(3, 1)]
    assert not any(each.defaulted for each in left)
    assert expired_by(table, "1") == SHARED_BOUND
    assert table.add_label("1", 1, 600)[0] is LabelOutcome.LATE
    assert table.add_label("3", 1, 600)[0] is LabelOutcome.REPEATED
    while table.can_give_up:
        assert table.give_up_oldest()
    assert len(table) == 10
    assert table.pending_bytes < held / 2
    assert table.give_up_oldest() == []
    again = restored(table)
    assert (expired_by(again, "2"), again.pending_bytes) == (SHARED_BOUND, table.pending_bytes)


def test_an_empty_table_has_nothing_to_give_up() -> None:
    assert table_of().give_up_oldest() == []


def test_a_copy_shares_full_blocks_and_nothing_that_changes() -> None:
    """A look runs on a copy of the learner: it must not copy all that waits, nor change it."""
    table = table_of()
    fill(table, range(1, 301))
    before = digest(combine({"delay": table.snapshot()}))
    other = clone(table)
    assert other._blocks[0].spaces is table._blocks[0].spaces
    assert other._blocks[1].spaces is not table._blocks[1].spaces
    other.add_label(table._blocks[0].ids[7], 1, 300)
    other.settle_due(301)
    wait(other, "new", 301)
    assert len(other) == len(table)
    assert not knows(table, "new")
    assert digest(combine({"delay": table.snapshot()})) == before
