"""The fault suite's table: what must be zero fails the test, and the rows line up."""

from dataclasses import replace

import pytest

from tests.faults.rows import HEADINGS, Row, as_markdown, as_text

ROW = Row("kill -9", "worker", "topic", 1, 100, 3, 0, 7, 0, 0, True, (1.0, 4.0, 2.0))


def test_copies_and_seconds_are_figures_and_no_fault() -> None:
    ROW.check()
    assert ROW.cells()[-1] == "2.0/4.0"


@pytest.mark.parametrize(
    "wrong",
    [
        {"lost": 1},
        {"differing": 1},
        {"twice": 1},
        {"equal": False},
        {"inputs": 0},
        {"remarks": ["committed beyond the journal's end"]},
    ],
)
def test_what_must_not_be_fails_the_trial(wrong: dict[str, object]) -> None:
    with pytest.raises(AssertionError):
        replace(ROW, **wrong).check()  # type: ignore[arg-type]


def test_the_table_has_a_line_per_row_and_equal_widths() -> None:
    lines = as_text([ROW, replace(ROW, fault="SIGSTOP, expelled, SIGCONT")]).splitlines()[:3]
    assert len({len(line) for line in lines}) == 1
    assert as_markdown([ROW]).splitlines()[2].count("|") == len(HEADINGS) + 1
