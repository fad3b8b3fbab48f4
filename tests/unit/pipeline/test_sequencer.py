"""The sequencer's patience: what a label waits for, and what nobody waits for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pipeline.agents import sequencer
from pipeline.agents.sequencer import HOLD_MS, Route, Sequence
from pipeline.merge import FEATURES, LABELS
from topics.headers import Header, read_headers
from topics.journal import Source


class World:
    """What the consumer and the clock say; both topics are read to their end."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ms = 1_000_000.0
        self.heard_ms = 0
        clock = SimpleNamespace(time=lambda: self.now_ms / 1000, monotonic=lambda: 0.0)
        monkeypatch.setattr(sequencer, "time", clock)
        monkeypatch.setattr(sequencer, "heard_ms", lambda *_: self.heard_ms)
        monkeypatch.setattr(sequencer, "progress", lambda *_: (0, 0))
        monkeypatch.setattr(sequencer, "committed", lambda *_: 0)
        monkeypatch.setattr(sequencer, "lost_before", lambda *_: False)
        self.copied: list[int] = []
        route = Route({}, "group", 0, ("features", "labels"), ("f", "l"), 1_000, 30_000, 10, 10)
        self.sent: list[list[Header]] = []
        lane: Any = SimpleNamespace(send=lambda *record: self.sent.append(record[2]))
        outbox: Any = SimpleNamespace(full=False)
        self.outbox = outbox
        app: Any = SimpleNamespace()
        self.sequence = Sequence(app, route, outbox, lane, lane)

    def put(self, side: int, *headers: Header) -> None:
        topic = ("features", "labels")[side]
        message = SimpleNamespace(
            topic=topic, partition=0, offset=0, timestamp=1.0, key=b"k", value=b"v", headers=headers
        )
        self.sequence.put(message)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_a_label_waits_until_features_were_asked_for_after_it_came(world: World) -> None:
    world.heard_ms = 999_990  # before the label came
    world.put(LABELS)
    assert world.sequence._burst() == 0
    world.heard_ms = 1_000_020
    assert world.sequence._burst() == 1


def test_a_label_does_not_wait_for_ever(world: World) -> None:
    world.put(LABELS)
    world.now_ms += HOLD_MS - 1
    assert world.sequence._burst() == 0
    world.now_ms += 1
    assert world.sequence._burst() == 1


def test_a_clock_that_was_set_back_holds_no_label_up(world: World) -> None:
    world.put(LABELS)
    world.now_ms -= 3_600_000
    assert world.sequence._burst() == 1


def test_features_wait_for_nobody_who_is_caught_up(world: World) -> None:
    world.put(FEATURES)
    assert world.sequence._burst() == 1


@pytest.mark.parametrize("name", ["dtgol-length", "dtgol-sha256", "dtgol-offset"])
def test_headers_that_look_like_ours_are_left_behind(world: World, name: str) -> None:
    """An unreadable one would make the copy look like no copy, and break its chain for good."""
    world.put(FEATURES, ("own", b"1"), (name, b"\xff"))
    assert world.sequence._burst() == 1
    (sent,) = world.sent
    assert isinstance(read_headers(Source, sent), Source)
    assert ("own", b"1") in sent
    assert (name, b"\xff") not in sent


def test_nothing_is_copied_while_the_outbox_is_full(world: World) -> None:
    world.put(FEATURES)
    world.outbox.full = True
    assert world.sequence._burst() == 0
    world.outbox.full = False
    assert world.sequence._burst() == 1
