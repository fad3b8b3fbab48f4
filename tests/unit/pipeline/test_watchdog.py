"""The watchdog: who stands still although there is work, by a clock that the test turns."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pipeline.engine import faustapp
from pipeline.engine.faustapp import unread
from pipeline.watchdog import BLINK_S, Sign, Vigil, Watchdog

LOOK_S = 5.0


def watched(dog: Watchdog, seconds: float, *signs: Sign, start: float = 0.0) -> float:
    """Look at the same signs for a while; the time afterwards."""
    now = start
    while now < start + seconds:
        now += LOOK_S
        dog.look(now, signs)
    return now


def test_work_without_a_step_is_said_first_and_ends_it_later() -> None:
    dog = Watchdog(stuck_s=60, give_up_s=300)
    stuck = Sign("nothing moves", True, 7)
    now = watched(dog, 60, stuck)
    assert dog.standing() == []  # the first look only learns what there is
    now = watched(dog, 5, stuck, start=now)
    assert dog.standing() == ["nothing moves for 60 s"]
    assert dog.verdict() is None
    watched(dog, 240, stuck, start=now)
    assert dog.verdict() == "nothing moves for 300 s"


def test_one_step_and_all_is_well_again() -> None:
    dog = Watchdog(stuck_s=60, give_up_s=300)
    now = watched(dog, 200, Sign("it moves", True, 7))
    assert dog.standing()
    dog.look(now + 1, [Sign("it moves", True, 8)])
    assert dog.standing() == []


def test_who_has_no_work_may_stand_still_for_ever() -> None:
    dog = Watchdog(stuck_s=60, give_up_s=300)
    now = watched(dog, 10_000, Sign("it idles", False, 7))
    assert dog.standing() == []
    now = watched(dog, 55, Sign("it idles", True, 7), start=now)  # work has just come
    assert dog.standing() == []


def test_what_is_gone_is_forgotten() -> None:
    dog = Watchdog(stuck_s=60, give_up_s=300)
    now = watched(dog, 200, Sign("partition 0: stands", True, 7))
    dog.look(now + 1, [])
    now = watched(dog, 50, Sign("partition 0: stands", True, 7), start=now)
    assert dog.standing() == []


def test_all_that_stands_is_named_the_longest_first() -> None:
    dog = Watchdog(stuck_s=60, give_up_s=300)
    first, second = Sign("first", True, 1), Sign("second", True, 1)
    now = watched(dog, 100, first)
    watched(dog, 205, first, second, start=now)
    assert dog.verdict() == "first for 300 s; second for 200 s"


def test_time_in_which_nobody_could_look_does_not_count() -> None:
    dog = Watchdog(stuck_s=60, give_up_s=300)
    now = watched(dog, 10, Sign("it was stopped", True, 7))
    dog.look(now + 100_000, [Sign("it was stopped", True, 7)])
    assert dog.stuck_s > BLINK_S
    assert dog.standing() == []


def test_a_cluster_that_never_answers_ends_it_even_without_work() -> None:
    said: list[str] = []
    vigil = Vigil(Watchdog(10, 30), {}, lambda _: [], list, said.append)
    for now in range(0, 40, 5):
        vigil.look(now)
    assert said[0].startswith("the cluster does not answer for 30 s: ended")
    assert vigil.standing == ["the cluster does not answer for 35 s"]


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> Any:
    """An app whose consumer has fetched to 10 of 10 and handed 9 out."""
    found = SimpleNamespace(position=10, heard=10, fetched=9)
    consumer = SimpleNamespace(last_fetched=lambda _: found.fetched)
    monkeypatch.setattr(faustapp, "progress", lambda *_: (found.position, found.heard))
    return SimpleNamespace(consumer=consumer, found=found)


def test_nothing_is_unread_at_the_end(app: Any) -> None:
    assert not unread(app, "features", 0, 9, None)
    assert not unread(app, "features", 0, 9, 10)


def test_records_that_only_the_broker_knows_of_are_unread(app: Any) -> None:
    """Faust #523, #532, #629: the consumer is silent, and what it last heard is old."""
    assert unread(app, "features", 0, 9, 12)


def test_records_that_were_fetched_and_not_received_are_unread(app: Any) -> None:
    assert unread(app, "features", 0, 8, 10)


def test_markers_of_transactions_at_the_end_are_no_work(app: Any) -> None:
    app.found.fetched = 7
    assert not unread(app, "features", 0, 7, 10)


def test_without_a_position_what_was_received_counts(
    app: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faustapp, "progress", lambda *_: None)
    app.found.fetched = -1
    assert unread(app, "features", 0, 9, 12)
    assert not unread(app, "features", 0, 9, None)
