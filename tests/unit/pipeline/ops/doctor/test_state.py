"""What the newest snapshots show."""

from dtgol_core.config import Config
from pipeline.learning.fold import Fold
from pipeline.learning.fold_config import FoldConfig
from pipeline.ops.doctor.findings import Finding, Status
from pipeline.ops.doctor.state import PartitionState, check_state
from tests.support.journal import REF, START_MS, Journal

HOUR_MS = 3_600_000


def judged(fold: Fold, *, written_ms: int = START_MS, now_ms: int = START_MS) -> dict[str, Finding]:
    states = [PartitionState(fold, written_ms, fold.next_offset + 5_000)]
    return {each.check: each for each in check_state(states, 60_000, 1_000, now_ms)}


def test_a_small_healthy_fold_is_fine() -> None:
    journal, fold = Journal(), Fold(REF)
    fold.apply(journal.features("a", {"v": 1}))
    assert {each.status for each in judged(fold).values()} == {Status.OK}


def test_no_snapshot_is_worth_knowing() -> None:
    assert [each.status for each in check_state([], 1, 1, 0)] == [Status.NOTE]


def test_a_snapshot_that_is_long_overdue_is_a_problem() -> None:
    found = judged(Fold(REF), now_ms=START_MS + HOUR_MS)["snapshot age"]
    assert found.status is Status.PROBLEM
    assert "3600 s, 5000 records ago" in found.text


def test_held_labels_are_judged_by_when_they_came() -> None:
    """Seen: a mis-keyed label was healthy once it had left the sample."""
    journal, fold = Journal(), Fold(REF)
    fold.apply(journal.features("a", {"v": 1}))
    fold.apply(journal.label("nobody", 1, ts=START_MS))
    young = judged(fold, now_ms=START_MS + 6_000)["held labels"]
    assert (young.status, young.text) == (
        Status.NOTE,
        "1 labels wait for their features, the oldest for 5 s",
    )
    old = judged(fold, now_ms=START_MS + 2 * HOUR_MS)["held labels"]
    assert old.status is Status.PROBLEM
    assert "under the key, stream and id of its features" in old.advice


def test_held_labels_of_a_backfill_are_as_young_as_they_are() -> None:
    """Seen: a backfill of last year's labels was a problem before its features could come."""
    journal, fold = Journal(), Fold(REF)
    fold.apply(journal.features("a", {"v": 1}))
    long_ago = START_MS - 300 * 24 * HOUR_MS
    fold.apply(journal.label("b", 1, ts=long_ago))
    fold.apply(journal.label("c", 1, ts=long_ago, stream="unopened"))
    found = judged(fold, now_ms=START_MS + 11_000)["held labels"]
    assert (found.status, found.text) == (
        Status.NOTE,
        "2 labels wait for their features, the oldest for 10 s",
    )
    ahead = judged(fold, now_ms=START_MS - 5_000)["held labels"]
    assert ahead.text.endswith("the oldest for 0 s"), "a clock that is slower than the brokers'"


def test_a_feature_whose_cells_are_of_another_kind_is_a_problem() -> None:
    journal, fold = Journal(), Fold(REF)
    for number in range(60):
        fold.apply(journal.features(f"{number}", {"v": "unknown" if number < 30 else number}))
    problems = [
        each
        for each in check_state([PartitionState(fold, START_MS, 60)], 60_000, 1_000, START_MS)
        if each.status is Status.PROBLEM
    ]
    (found,) = problems
    assert found.text == "v of stream default: 30 cells of another kind"
    assert "retype --stream default --feature v" in found.advice


def test_a_bound_that_is_nearly_reached_is_a_problem() -> None:
    journal, fold = Journal(), Fold(REF, FoldConfig(streams_max=2))
    for stream in ("one", "two"):
        fold.apply(journal.features("a", {"v": 1}, stream=stream))
    found = judged(fold)["bounds"]
    assert found.status is Status.PROBLEM
    assert found.text == "2 of 2 streams (partition 0)"


def test_memory_near_its_bound_is_a_problem() -> None:
    journal, fold = Journal(), Fold(REF, FoldConfig(state_bytes_max=2**20))
    fold.apply(journal.features("a", {f"f{n}": 1.5 for n in range(200)}))
    found = judged(fold)["bounds"]
    assert found.status is Status.PROBLEM
    assert found.text == f"{fold.streams.state_bytes} of {2**20} bytes of learners (partition 0)"


def test_what_only_forgets_the_oldest_is_worth_knowing() -> None:
    """Instances that wait by count and by bytes, and remembered ids."""
    delay = {"pending_max": 10, "pending_bytes_max": 2**16, "settled_max": 8}
    learner = Config.read({"delay": delay})
    journal, fold = Journal(), Fold(REF, FoldConfig(learner=learner))
    for number in range(600):
        fold.apply(journal.features(f"{number}", {f"f{n}": 1.5 for n in range(30)}))
    states = [PartitionState(fold, START_MS, fold.next_offset)]
    found = [each for each in check_state(states, 60_000, 1_000, START_MS)
             if each.check == "bounds"]  # fmt: skip
    assert {each.status for each in found} == {Status.NOTE}
    pending = fold.streams["default"].learner.delay.pending_bytes
    assert [each.text for each in found] == [
        "10 of 10 instances without a label (partition 0, stream default)",
        f"{pending} of 65536 bytes of these instances (partition 0, stream default)",
        "8 of 8 remembered ids (partition 0, stream default)",
    ]
    assert [each.advice.split(":")[0] for each in found] == [
        "raise delay.pending_max", "raise delay.pending_bytes_max", "raise delay.settled_max",
    ]  # fmt: skip


def test_late_labels_are_judged_with_their_setting() -> None:
    """Seen: labels came too late for ever, and the doctor was content."""
    config = FoldConfig(learner=Config.read({"delay": {"expire_steps": 1}}))
    journal, fold = Journal(), Fold(REF, config)
    for number in range(5):
        fold.apply(journal.features(f"{number}", {"v": 1}))
    fold.apply(journal.label("0", 1))
    found = judged(fold)["late labels"]
    assert found.status is Status.PROBLEM
    assert found.text.endswith("by setting: delay.expire_steps 1")
    assert found.advice.startswith("raise delay.expire_steps")


def test_labels_that_are_stamped_before_their_features_are_a_slow_clock() -> None:
    journal, fold = Journal(), Fold(REF)
    fold.apply(journal.label("a", 1, ts=START_MS - HOUR_MS))
    held = judged(fold, now_ms=START_MS + 2 * HOUR_MS)["held labels"]
    assert held.text == "1 labels wait for their features, the oldest for 7200 s"
    fold.apply(journal.features("a", {"v": 1}, ts=START_MS))
    found = judged(fold)["clocks of labels"]
    assert found.status is Status.PROBLEM
    assert found.text == "1 labels were stamped before their features, the newest by 3600 s"
