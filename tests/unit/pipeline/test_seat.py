"""The learner's seat when others have gone on while it was away, without a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline.agents.learner import QUEUE_MAX, Desk, Lanes, Seat
from pipeline.agents.parking import Parking
from pipeline.fold import Fold
from pipeline.rules import Rules
from tests.support.journal import PLACE, Journal


class World:
    """A seat whose restores, journal and decisions the test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.restores: list[Fold] = []
        self.looks: list[int] = []
        self.read: list[tuple[int, int]] = []
        self.parked: int | None = None
        monkeypatch.setattr(Seat, "_restore", lambda *_: self.restores.pop(0))
        monkeypatch.setattr(Seat, "_read", self._read)
        monkeypatch.setattr(Parking, "look", self._look)
        lane: Any = SimpleNamespace(send=lambda *_: None)
        outbox: Any = SimpleNamespace(room=lambda: asyncio.sleep(0), poll=lambda: None)
        shelf: Any = None
        valve: Any = SimpleNamespace(open=lambda: None, close=lambda: None)
        desk = Desk({}, "group", Rules(), 10**9, 10**9)
        self.seat = Seat(PLACE, desk, outbox, Lanes(lane, lane, lane), shelf, valve)

    def _read(self, fold: Fold, end: int, _: Any) -> int:
        self.read.append((fold.next_offset, end))
        fold.next_offset = end
        return 1

    def _look(self, start: int, end: int | None, _: Any) -> None:
        self.looks.append(start)
        self.seat.parking.offset = self.parked

    def put(self, offset: int) -> None:
        record = Journal().features("a")
        headers = record.headers
        self.seat.put(
            SimpleNamespace(
                offset=offset, timestamp=1.0, key=b"k", value=record.value, headers=headers
            )
        )

    def run(self, until: Callable[[], bool]) -> None:
        async def work() -> None:
            task = asyncio.create_task(self.seat.run(lambda _: asyncio.sleep(0, True)))
            async with asyncio.timeout(10):
                while not until():
                    await asyncio.sleep(0.01)
            task.cancel()

        asyncio.run(work())


def at(offset: int) -> Fold:
    fold = Fold(PLACE, Rules())
    fold.next_offset = offset
    return fold


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_a_short_gap_is_read_with_the_decisions_about_it(world: World) -> None:
    world.restores = [at(10)]
    world.put(15)
    world.run(lambda: world.seat.next_offset == 16)
    assert (world.looks, world.read) == ([10], [(10, 15)])


def test_a_seat_that_was_overtaken_by_far_restores_again(world: World) -> None:
    far = 11 + QUEUE_MAX
    world.restores = [at(10), at(far)]
    world.put(far)
    world.run(lambda: world.seat.next_offset == far + 1)
    assert (world.looks, world.read) == ([], [])


def test_a_gap_that_a_restore_does_not_fill_is_read(world: World) -> None:
    far = 11 + QUEUE_MAX
    world.restores = [at(10), at(10)]
    world.put(far)
    world.run(lambda: world.seat.next_offset == far + 1)
    assert world.read == [(10, far)]


def test_a_seat_that_finds_itself_parked_in_a_gap_stops_there(world: World) -> None:
    world.restores, world.parked = [at(10)], 12
    world.put(15)
    world.run(lambda: world.seat.next_offset == 12)
    assert world.seat.waiting == 1
