"""Decisions read ahead of the fold, and a partition that is parked."""

from __future__ import annotations

import asyncio

import pytest

from pipeline.agents import parking
from pipeline.agents.parking import Parking
from pipeline.decisions import Ahead, BugError, applied, decisions
from pipeline.fold import Fold
from tests.support.journal import PLACE, Journal, fold_all, letters, predictions
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
    assert decisions(crashed(times).records).parked(0) == parked


def test_crashes_at_different_records_do_not_add_up() -> None:
    journal = crashed(2)
    journal.control(Crash(0))
    assert decisions(journal.records).parked(0) is None


def test_a_record_that_was_passed_parks_nobody() -> None:
    assert decisions(crashed(3).records).parked(2) is None


def test_a_skip_counts_only_where_the_partition_is_parked() -> None:
    early = crashed(2)
    early.control(Skip(1, "too soon"))
    early.control(Crash(1))
    assert decisions(early.records).skips == frozenset()
    assert decisions(early.records).parked(0) == 1
    late = crashed(3)
    late.control(Skip(1, "right"))
    assert decisions(late.records).skips == {1}
    assert decisions(late.records).parked(0) is None


def test_a_retry_forgets_the_crashes_and_a_skip_stays() -> None:
    journal = crashed(3)
    journal.control(Retry(1))
    assert decisions(journal.records).parked(0) is None
    journal.control(Skip(1))
    assert decisions(journal.records).skips == frozenset()
    decided = crashed(3)
    decided.control(Skip(1))
    decided.control(Retry(1))
    assert decisions(decided.records).skips == {1}


def test_nobody_decides_about_a_record_that_is_not_there_yet() -> None:
    journal = Journal()
    for _ in range(3):
        journal.control(Crash(7))
    journal.control(Skip(7))
    for _ in range(6):
        journal.features("x", {"v": 1})
    assert decisions(journal.records).skips == frozenset()
    assert decisions(journal.records).parked(0) is None


def test_whoever_starts_at_or_before_the_record_finds_the_same() -> None:
    journal = crashed(3)
    journal.control(Skip(1))
    for start in (0, 1):
        ahead = Ahead(start)
        for record in journal.records[start:]:
            ahead.take(record)
        assert ahead.skips == {1}
        assert ahead.next_offset == len(journal.records)


def test_a_producer_cannot_decide_by_its_headers() -> None:
    journal = crashed(3)
    forged = journal.control(Skip(1))
    journal.records.pop()
    journal.copy("features", forged.value, b"key", forged.headers)
    journal.append(b"key", forged.value, forged.headers)
    assert decisions(journal.records).skips == frozenset()


def test_what_follows_a_skipped_record_at_its_source_is_applied() -> None:
    journal = crashed(3)
    journal.control(Skip(1, "why"))
    journal.label("c", 1, stream="s")
    journal.features("d", {"v": 2}, stream="s")
    skips = decisions(journal.records).skips
    fold, outputs = fold_all(journal.records, Fold(PLACE, skips=skips))
    assert [said["id"] for said in predictions(outputs)] == ["a", "c", "d"]
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
    skips = decisions(journal.records).skips
    fold, outputs = fold_all(journal.records, Fold(PLACE, skips=skips))
    assert fold.counts["records/duplicate"] == 1
    assert len(letters(outputs)) == 1


def test_a_skipped_control_record_is_a_dead_letter_of_the_journal() -> None:
    journal = Journal()
    journal.append(None, b"{}", [("dtgol-kind", b"config")])
    _, outputs = fold_all(journal.records, Fold(PLACE, skips=frozenset([0])))
    ((letter, _),) = letters(outputs)
    assert (letter.reason, letter.topic) == ("skipped", "journal")


def test_a_restored_fold_with_the_same_skips_ends_in_the_same_state() -> None:
    journal = crashed(3)
    journal.control(Skip(1))
    journal.features("d", {"v": 2}, stream="s")
    skips = decisions(journal.records).skips
    whole, _ = fold_all(journal.records, Fold(PLACE, skips=skips))
    part, _ = fold_all(journal.records[:1])
    taken = part.snapshot()
    again = Fold.restore(PLACE, taken.state, taken.streams, skips)
    fold_all(journal.records[1:], again)
    assert again.digest() == whole.digest()


class Broken(Fold):
    """A fold with a bug."""

    def apply(self, record: object) -> list[object]:  # type: ignore[override]
        raise KeyError(SECRET)


def bug() -> BugError:
    record = Journal().features("a")
    with pytest.raises(BugError) as caught:
        applied(Broken(PLACE), record)
    return caught.value


def test_a_bug_says_where_and_nothing_of_the_record() -> None:
    error = bug()
    assert error.offset == 0
    assert error.crash.error == "KeyError"
    assert error.crash.place.startswith("pipeline/test_decisions.py:")
    assert "in apply" in error.report
    assert SECRET not in str(error) + error.report


class Wire:
    """A lane that keeps what is sent, and acknowledges it or never does."""

    def __init__(self, answers: bool) -> None:
        self.answers = answers
        self.sent: list[object] = []

    def send(self, *record: object) -> None:
        self.sent.append(record)

    async def settled(self) -> None:
        if not self.answers:
            await asyncio.Event().wait()


def park(answers: bool, crashes: int) -> tuple[bool, Wire]:
    """Note one more crash; whether that parks."""
    lane = Wire(answers)
    place: Parking = Parking(PLACE, {}, lane)  # type: ignore[arg-type]
    for offset in range(crashes):
        record = Journal().control(Crash(0))
        place._ahead.take(record._replace(offset=offset + 1))
    return asyncio.run(place.note(bug())), lane


@pytest.mark.parametrize(("crashes", "parks"), [(0, False), (1, False), (2, True)])
def test_the_third_note_parks(crashes: int, parks: bool) -> None:
    parked, lane = park(True, crashes)
    assert parked is parks
    assert len(lane.sent) == 1


def test_a_note_that_is_not_durable_parks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parking, "NOTE_S", 0.01)
    parked, _ = park(False, 2)
    assert not parked
