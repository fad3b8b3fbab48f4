"""The timestamps that keep records and labels in the order in which they were sent."""

from hypothesis import given
from hypothesis import strategies as st

from pipeline.offline.files.player import AHEAD_MAX_MS, RecordTimes


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans())))
def test_stamps_never_tie_across_topics_and_never_go_back(sends: list[tuple[int, bool]]) -> None:
    now = [1_000]
    stamps = RecordTimes(lambda: now[0])
    before: tuple[int, bool] | None = None
    for passed, is_label in sends:
        now[0] += passed
        stamp = stamps.next(is_label)
        assert now[0] <= stamp <= now[0] + len(sends)
        if before is not None:
            assert stamp >= before[0] + (before[1] != is_label)
        before = stamp, is_label


def test_stamps_stay_near_the_clock() -> None:
    stamps = RecordTimes(lambda: 5)
    newest = max(stamps.next(bool(n % 2)) for n in range(AHEAD_MAX_MS + 100))
    assert newest == 5 + AHEAD_MAX_MS
