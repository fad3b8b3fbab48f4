"""Decisions read ahead of the fold, and what parks a partition."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pipeline.errors import FoldBugError
from pipeline.learning.fold import Fold
from pipeline.learning.poison import CrashLog, PoisonGuard, apply_or_report
from tests.support.fake_kafka import FakeKafka, FakeWriter
from tests.support.journal import REF, Journal, fold_all, letters, predictions
from topics.journal import Crash, Retry, Skip

SECRET = "never shown"


def crashed(times: int) -> Journal:
    """Three records, and so many crashes noted at the second."""
    journal = Journal()
    for id in "abc":
        journal.features(id, {"v": 1}, stream="s")
    for _ in range(times):
        journal.control(Crash(1, "ZeroDivisionError", "graph.py:1"))
    return journal


@pytest.mark.parametrize(("times", "parked"), [(0, None), (2, None), (3, 1), (4, 1)])
def test_three_crashes_at_one_record_park(times: int, parked: int | None) -> None:
    assert CrashLog.of(crashed(times).records).parked_at(0) == parked


def test_crashes_at_different_records_do_not_add_up() -> None:
    journal = crashed(2)
    journal.control(Crash(0))
    assert CrashLog.of(journal.records).parked_at(0) is None


def test_a_record_that_was_passed_parks_nobody() -> None:
    assert CrashLog.of(crashed(3).records).parked_at(2) is None


def test_a_skip_counts_only_where_the_partition_is_parked() -> None:
    early = crashed(2)
    early.control(Skip(1, "too soon"))
    early.control(Crash(1))
    assert CrashLog.of(early.records).skips == frozenset()
    assert CrashLog.of(early.records).parked_at(0) == 1
    late = crashed(3)
    late.control(Skip(1, "right"))
    assert CrashLog.of(late.records).skips == {1}
    assert CrashLog.of(late.records).parked_at(0) is None


def test_a_retry_forgets_the_crashes_and_a_skip_stays() -> None:
    journal = crashed(3)
    journal.control(Retry(1))
    assert CrashLog.of(journal.records).parked_at(0) is None
    journal.control(Skip(1))
    assert CrashLog.of(journal.records).skips == frozenset()
    decided = crashed(3)
    decided.control(Skip(1))
    decided.control(Retry(1))
    assert CrashLog.of(decided.records).skips == {1}


def test_nobody_decides_about_a_record_that_is_not_there_yet() -> None:
    journal = Journal()
    for _ in range(3):
        journal.control(Crash(7))
    journal.control(Skip(7))
    for _ in range(6):
        journal.features("x", {"v": 1})
    assert CrashLog.of(journal.records).skips == frozenset()
    assert CrashLog.of(journal.records).parked_at(0) is None


def test_whoever_starts_at_or_before_the_record_finds_the_same() -> None:
    journal = crashed(3)
    journal.control(Skip(1))
    for start in (0, 1):
        log = CrashLog(start)
        log.read(journal.records[start:])
        assert log.skips == {1}
        assert log.next_offset == len(journal.records)


def test_a_producer_cannot_decide_by_its_headers() -> None:
    journal = crashed(3)
    forged = journal.control(Skip(1))
    journal.records.pop()
    journal.copy("features", forged.value, b"key", forged.headers)
    journal.append(b"key", forged.value, forged.headers)
    assert CrashLog.of(journal.records).skips == frozenset()


def test_what_follows_a_skipped_record_at_its_source_is_applied() -> None:
    journal = crashed(3)
    journal.control(Skip(1, "why"))
    journal.label("c", 1, stream="s")
    journal.features("d", {"v": 2}, stream="s")
    skips = CrashLog.of(journal.records).skips
    fold, outputs = fold_all(journal.records, Fold(REF, skips=skips))
    assert [each["id"] for each in predictions(outputs)] == ["a", "c", "d"]
    assert fold.counts["records/broken"] == 0
    ((letter, output),) = letters(outputs)
    assert (letter.reason, letter.topic, letter.offset) == ("skipped", "features", 1)
    assert (output.key, output.value) == (journal.records[1].key, journal.records[1].value)
    assert fold.counts["records/crash"] == 3
    assert fold.counts["records/skipped"] == fold.counts["refusals/skipped"] == 1


def test_a_skipped_record_that_comes_again_is_a_duplicate() -> None:
    journal = crashed(3)
    journal.control(Skip(1))
    journal.again(journal.records[1])
    skips = CrashLog.of(journal.records).skips
    fold, outputs = fold_all(journal.records, Fold(REF, skips=skips))
    assert fold.counts["records/duplicate"] == 1
    assert len(letters(outputs)) == 1


def test_a_skipped_control_record_is_a_dead_letter_of_the_journal() -> None:
    journal = Journal()
    journal.append(None, b"{}", [("dtgol-kind", b"config")])
    _, outputs = fold_all(journal.records, Fold(REF, skips=frozenset([0])))
    ((letter, _),) = letters(outputs)
    assert (letter.reason, letter.topic) == ("skipped", "journal")


def test_a_restored_fold_with_the_same_skips_ends_in_the_same_state() -> None:
    journal = crashed(3)
    journal.control(Skip(1))
    journal.features("d", {"v": 2}, stream="s")
    skips = CrashLog.of(journal.records).skips
    whole, _ = fold_all(journal.records, Fold(REF, skips=skips))
    part, _ = fold_all(journal.records[:1])
    taken = part.snapshot()
    again = Fold.restore(REF, taken.state, taken.changed, skips)
    fold_all(journal.records[1:], again)
    assert again.digest() == whole.digest()


class Broken(Fold):
    """A fold with a bug."""

    def apply(self, record: object) -> list[object]:  # type: ignore[override]
        raise KeyError(SECRET)


def bug() -> FoldBugError:
    record = Journal().features("a")
    with pytest.raises(FoldBugError) as caught:
        apply_or_report(Broken(REF), record)
    return caught.value


def test_a_bug_says_where_and_nothing_of_the_record() -> None:
    error = bug()
    assert error.offset == 0
    assert error.error == "KeyError"
    assert error.place.startswith("learning/test_poison.py:")
    assert "in apply" in error.report
    assert SECRET not in str(error) + error.report


def note(crashes: int, answers: bool = True) -> tuple[bool, FakeWriter]:
    """Note one more crash at a record; whether that parks."""
    journal, writer = Journal(), FakeWriter(answers)
    journal.features("a")
    for _ in range(crashes):
        journal.control(Crash(0))
    kafka: Any = FakeKafka({REF.journal: journal.records})
    guard = PoisonGuard(REF, kafka, writer)  # type: ignore[arg-type]
    guard.note_s = 0.01
    guard.read(0, None)
    return asyncio.run(guard.note(bug())), writer


@pytest.mark.parametrize(("crashes", "parks"), [(0, False), (1, False), (2, True)])
def test_the_third_note_parks(crashes: int, parks: bool) -> None:
    parked, writer = note(crashes)
    assert parked is parks
    assert len(writer.sent) == 1


def test_a_note_that_is_not_durable_parks_nobody() -> None:
    parked, _ = note(2, answers=False)
    assert not parked
