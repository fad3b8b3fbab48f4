"""Which dead letters, and which of them can be sent back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from pipeline.kafka.record import Record
from pipeline.ops import dead_letters
from pipeline.ops.dead_letters import DeadLetterEntry, Filter, why_not
from topics.dead_letters import DeadLetter, Redriven
from topics.headers import write_headers

SOURCES = {"features": 2, "labels": 2}


def letter(reason: str = "not-json", time_ms: int = 1_000, **more: object) -> DeadLetterEntry:
    about: dict[str, object] = {"topic": "features", "partition": 1, "offset": 5, **more}
    return DeadLetterEntry(0, 9, time_ms, DeadLetter(reason=reason, detail="", **about), 10)  # type: ignore[arg-type]


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
        (letter("too-large"), "was truncated"),
        (letter("not-json", length=7, sha256="00"), "was truncated"),
        (letter(topic="journal"), "only dtgol writes"),
        (letter(partition=2), "does not have"),
        (replace(letter(), refused_again=True), "refused for the same reason"),
    ],
)
def test_what_cannot_be_sent_back_says_why(refused: DeadLetterEntry, why: str | None) -> None:
    found = why_not(refused, SOURCES)
    assert found is None if why is None else why in (found or "")


def listed(monkeypatch: pytest.MonkeyPatch, *headers: DeadLetter | Redriven) -> list[Any]:
    """Letters and markers in this order, one a second, all of the same bytes."""

    def records(*_: Any) -> Iterator[Record]:
        for number, each in enumerate(headers):
            key = value = None
            if isinstance(each, DeadLetter):
                key, value = b"k", b"{oops"
            place = "dead-letters", 0, number, 1_000 * number
            yield Record(*place, key, value, write_headers(each))

    monkeypatch.setattr(dead_letters, "_records", records)
    topic: Any = None
    return dead_letters.read_dead_letters(topic)


def refusal(offset: int, reason: str = "not-json", topic_id: str = "one") -> DeadLetter:
    return DeadLetter("features", 0, offset, reason, "", topic_id=topic_id)


def test_what_is_refused_again_for_the_same_reason_is_not_sent_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A redrive in a loop sent the same record for ever."""
    same = refusal(1)
    marker = Redriven("features", 0, 1, "0/0", "one")
    found = listed(monkeypatch, same, marker, refusal(7), refusal(8, "too-many-streams"))
    assert [each.redriven for each in found] == [True, False, False]
    assert [each.refused_again for each in found] == [False, True, False]
    assert "--again" in (why_not(found[1], SOURCES) or "")
    assert why_not(found[1], SOURCES, again=True) is None
    assert why_not(found[2], SOURCES) is None


def test_an_equal_record_that_was_refused_before_is_another_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    marker = Redriven("features", 0, 1, "0/0", "one")
    _, other = listed(monkeypatch, refusal(1), refusal(2), marker)
    assert why_not(other, SOURCES) is None


def test_a_topic_that_was_created_anew_has_letters_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Markers of the deleted topic hid what was refused on the new one."""
    marker = Redriven("features", 0, 1, "0/0", "one")
    found = listed(monkeypatch, refusal(1), marker, refusal(1, "stream-name", topic_id="two"))
    assert [each.redriven for each in found] == [True, False]
