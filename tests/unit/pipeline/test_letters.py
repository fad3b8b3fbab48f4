"""Which dead letters, and which of them can be sent back."""

from __future__ import annotations

import time

import pytest

from pipeline.cli import BadInput
from pipeline.cli.dead_letters import _moment
from pipeline.operators.board import Board
from pipeline.operators.letters import Filter, Refused, why_not
from topics.deadletters import DeadLetter, Redriven
from topics.headers import write_headers

SOURCES = {"features": 2, "labels": 2}


def letter(reason: str = "not-json", time_ms: int = 1_000, **more: object) -> Refused:
    about: dict[str, object] = {"topic": "features", "partition": 1, "offset": 5, **more}
    return Refused(0, 9, time_ms, DeadLetter(reason=reason, detail="", **about), 10)  # type: ignore[arg-type]


def test_letters_are_chosen_by_reason_and_by_time() -> None:
    assert Filter().takes(letter())
    assert Filter(["not-json"]).takes(letter())
    assert not Filter(["label-late"]).takes(letter())
    assert Filter(since_ms=1_000).takes(letter())
    assert not Filter(since_ms=1_001).takes(letter())
    assert Filter(until_ms=1_001).takes(letter())
    assert not Filter(until_ms=1_000).takes(letter())


@pytest.mark.parametrize(
    ("refused", "why"),
    [
        (letter(), None),
        (letter("too-large"), "was cut"),
        (letter("not-json", length=7, sha256="00"), "was cut"),
        (letter(topic="journal"), "nobody but dtgol writes"),
        (letter(partition=2), "does not have"),
    ],
)
def test_what_cannot_be_sent_back_says_why(refused: Refused, why: str | None) -> None:
    found = why_not(refused, SOURCES)
    assert found is None if why is None else why in (found or "")


def test_a_time_is_a_moment_or_so_long_ago() -> None:
    assert _moment("--since", None) is None
    assert _moment("--since", "2026-03-01T12:00") == 1_772_366_400_000
    assert _moment("--since", "2026-03-01T13:00+01:00") == 1_772_366_400_000
    now = time.time_ns() // 1_000_000
    assert abs((_moment("--since", "2h") or 0) - (now - 7_200_000)) < 60_000
    with pytest.raises(BadInput, match="--since yesterday"):
        _moment("--since", "yesterday")


def test_the_board_does_not_take_a_marker_for_a_letter() -> None:
    board = Board()
    board.refused(write_headers(letter().letter))
    board.refused(write_headers(Redriven("features", 1, 5, "0/9")))
    assert board.view().dead_letters == {"not-json": 1}
