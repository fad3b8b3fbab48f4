"""What a journal has lost: what to copy again, what to refuse, where a chain goes on."""

from __future__ import annotations

import pytest

from pipeline.errors import RefusalError
from pipeline.kafka.record import Record
from pipeline.learning.fold import Fold
from pipeline.learning.outputs import PartitionRef
from pipeline.sequencing.journal_repair import ResumePoint, resume_point
from topics.headers import write_headers
from topics.journal import NO_OFFSET, RecordKind, Source

REF = PartitionRef("jid", "journal", 0, "features", "labels")


@pytest.mark.parametrize(
    ("mark", "committed"),
    [(NO_OFFSET, 0), (9, 10), (15, 10)],
    ids=["nothing yet", "all there", "copied, not yet committed"],
)
def test_a_whole_journal_goes_on_behind_what_was_committed(mark: int, committed: int) -> None:
    found = resume_point("features", mark, committed, 0, False)
    assert (found.prev, found.lost) == (committed - 1, False)


def test_a_lost_tail_is_copied_again_behind_the_mark() -> None:
    assert resume_point("features", 4, 10, 2, False) == ResumePoint(prev=4, start=5, end=10)
    assert resume_point("features", NO_OFFSET, 10, 0, False) == ResumePoint(NO_OFFSET, 0, 10)


def test_what_the_source_has_lost_too_is_refused_unless_accepted() -> None:
    with pytest.raises(RefusalError, match=r"lost records 5 to 9.*begins at 7.*--accept-gap"):
        resume_point("features partition 0", 4, 10, 7, False)
    assert resume_point("features", 4, 10, 7, True) == ResumePoint(NO_OFFSET, 7, 10)
    assert resume_point("features", 4, 10, 30, True).lost is False


def test_a_source_that_begins_behind_the_mark_is_refused_though_nothing_is_committed() -> None:
    """The group's offsets have expired, or the worker was killed before its first commit."""
    with pytest.raises(RefusalError, match=r"ends at 99 and the source begins at 500.*accept-gap"):
        resume_point("features partition 0", 99, 0, 500, False)
    assert resume_point("features", 99, 0, 500, True).prev == NO_OFFSET
    assert not resume_point("features", 99, 0, 100, False).lost


def test_a_source_that_may_break_its_chain_is_not_repaired() -> None:
    assert not resume_point("features", None, 10, 0, False).lost


def test_a_journal_that_was_given_up_is_not_copied_from_the_start_of_time() -> None:
    found = resume_point("features", NO_OFFSET, 10, 0, True)
    assert (found.prev, found.lost) == (NO_OFFSET, False)


def test_the_fold_applies_what_was_lost_and_what_comes_behind_it() -> None:
    """The tail of features 2 to 4 is gone; without a repair 5 would wait for ever."""
    fold = Fold(REF)
    journal: list[Record] = []

    def copy(offset: int, prev: int) -> None:
        source = Source(RecordKind.COPY, "features", "fid", 0, offset, prev, 1_700_000_000_000)
        value = b'{"id":"%d","x":{"v":1}}' % offset
        at = len(journal)
        journal.append(Record("journal", 0, at, 0, b"key", value, write_headers(source)))
        fold.apply(journal[-1])

    copy(0, NO_OFFSET)
    copy(1, 0)
    copy(5, 4)
    assert fold.counts["records/broken"] == 1
    again = resume_point("features", fold.marks.last("features", "fid"), 5, 0, False)
    prev = again.prev
    for offset in range(again.start, again.end):
        copy(offset, prev)
        prev = offset
    copy(5, prev)
    assert fold.marks.last("features", "fid") == 5
    assert fold.counts["features/answered"] == 6
