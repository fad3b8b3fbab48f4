"""What a journal has lost: what to copy again, what to refuse, where a chain goes on."""

from __future__ import annotations

import pytest

from pipeline.fold import Fold, JournalRecord, Place
from pipeline.mending import Link, link
from pipeline.snapshots import RefusalError
from topics.headers import write_headers
from topics.journal import NO_OFFSET, Kind, Source

PLACE = Place("jid", "journal", 0, "features", "labels")


@pytest.mark.parametrize(
    ("mark", "committed"),
    [(NO_OFFSET, 0), (9, 10), (15, 10)],
    ids=["nothing yet", "all there", "copied, not yet committed"],
)
def test_a_whole_journal_goes_on_behind_what_was_committed(mark: int, committed: int) -> None:
    found = link("features", mark, committed, 0, False)
    assert (found.prev, found.lost) == (committed - 1, False)


def test_a_lost_tail_is_copied_again_behind_the_mark() -> None:
    assert link("features", 4, 10, 2, False) == Link(prev=4, start=5, end=10)
    assert link("features", NO_OFFSET, 10, 0, False) == Link(NO_OFFSET, 0, 10)


def test_what_the_source_has_lost_too_is_refused_unless_accepted() -> None:
    with pytest.raises(RefusalError, match=r"lost records 5 to 9.*begins at 7.*--accept-gap"):
        link("features partition 0", 4, 10, 7, False)
    assert link("features", 4, 10, 7, True) == Link(NO_OFFSET, 7, 10)
    assert link("features", 4, 10, 30, True).lost is False


def test_a_source_that_begins_behind_the_mark_is_refused_though_nothing_is_committed() -> None:
    """The group's offsets have expired, or the worker was killed before its first commit."""
    with pytest.raises(RefusalError, match=r"ends at 99 and the source begins at 500.*accept-gap"):
        link("features partition 0", 99, 0, 500, False)
    assert link("features", 99, 0, 500, True).prev == NO_OFFSET
    assert not link("features", 99, 0, 100, False).lost


def test_a_source_that_may_break_its_chain_is_not_mended() -> None:
    assert not link("features", None, 10, 0, False).lost


def test_a_journal_that_was_given_up_is_not_copied_from_the_start_of_time() -> None:
    found = link("features", NO_OFFSET, 10, 0, True)
    assert (found.prev, found.lost) == (NO_OFFSET, False)


def test_the_fold_applies_what_was_lost_and_what_comes_behind_it() -> None:
    """The tail of features 2 to 4 is gone; without mending 5 would wait for ever."""
    fold = Fold(PLACE)
    journal: list[JournalRecord] = []

    def copy(offset: int, prev: int) -> None:
        source = Source(Kind.COPY, "features", "fid", 0, offset, prev, 1_700_000_000_000)
        value = b'{"id":"%d","x":{"v":1}}' % offset
        at = len(journal)
        journal.append(JournalRecord(at, 0, b"key", value, write_headers(source)))
        fold.apply(journal[-1])

    copy(0, NO_OFFSET)
    copy(1, 0)
    copy(5, 4)
    assert fold.counts["records/broken"] == 1
    again = link("features", fold.mark("features", "fid"), 5, 0, False)
    prev = again.prev
    for offset in range(again.start, again.end):
        copy(offset, prev)
        prev = offset
    copy(5, prev)
    assert fold.mark("features", "fid") == 5
    assert fold.counts["features/answered"] == 6
