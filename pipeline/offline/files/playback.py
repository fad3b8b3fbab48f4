"""Rows of a file as a live stream: when each record and each label is due, and in which order.

`in_steps` and `in_time` yield what is to be sent next, at the moment it is due; they sleep, the
caller sends (`pipeline.offline.files.player`). Clock and sleep are handed in.
"""

import heapq
import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np

from pipeline.errors import InputError
from pipeline.offline.files.records import Row

_RANGE = re.compile(r"(\d+(?:\.\d+)?)\.\.(\d+(?:\.\d+)?)")


class Due(NamedTuple):
    """One thing to send now: the record of a row, or its label."""

    row: Row
    is_label: bool


class Clock(NamedTuple):
    """Time as the players see it, in seconds; tests hand in their own."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def wait_until(self, moment: float) -> None:
        """Sleep until then; not at all if it has passed."""
        left = moment - self.now()
        if left > 0:
            self.sleep(left)


class DelayTime(NamedTuple):
    """How late labels are, in milliseconds: exponential about a mean, or even between two bounds.

    >>> DelayTime.parse("200")
    DelayTime(low=0.0, high=None, mean=200.0)
    >>> DelayTime.parse("100..400")
    DelayTime(low=100.0, high=400.0, mean=250.0)
    """

    low: float
    high: float | None
    mean: float

    @staticmethod
    def parse(text: str) -> "DelayTime":
        """Read ``MEAN`` or ``MIN..MAX``."""
        bounds = _RANGE.fullmatch(text)
        if bounds is not None and float(bounds[1]) <= float(bounds[2]):
            low, high = float(bounds[1]), float(bounds[2])
            return DelayTime(low, high, (low + high) / 2)
        if re.fullmatch(r"\d+(\.\d+)?", text):
            return DelayTime(0.0, None, float(text))
        raise InputError(f"a delay in ms must be MEAN or MIN..MAX, not {text!r}")

    def draw(self, generator: np.random.Generator) -> float:
        """The delay of one label in milliseconds."""
        if self.high is None:
            return float(generator.exponential(self.mean))
        return float(generator.uniform(self.low, self.high))


def delay_generator(seed: int) -> np.random.Generator:
    """A generator independent of shuffle and mask, which use the first two children."""
    return np.random.default_rng(np.random.SeedSequence(seed).spawn(3)[2])


def in_steps(
    rows: Iterable[Row], steps: int, rate: float | None = None, clock: Clock | None = None
) -> Iterator[Due]:
    """Each record at its time; the label of step t − L just before the record of step t.

    That is the order of `dtgol backtest`; there too a delay of 0 is 1. What is left at the end
    follows at the same pace.
    """
    clock = clock or Clock()
    steps = max(1, steps)
    waiting: deque[Row] = deque()
    start = clock.now()
    sent = 0
    for sent, row in enumerate(rows, start=1):
        if rate is not None:
            clock.wait_until(start + (sent - 1) / rate)
        if len(waiting) == steps:
            yield from _label(waiting.popleft())
        yield Due(row, is_label=False)
        waiting.append(row)
    for late, row in enumerate(waiting):
        if rate is not None:
            clock.wait_until(start + (sent + late) / rate)
        yield from _label(row)


def in_time(
    rows: Iterable[Row],
    delay_ms: Callable[[], float],
    rate: float | None = None,
    clock: Clock | None = None,
) -> Iterator[Due]:
    """Each record at its time, each label its own delay after its record was sent.

    One delay is drawn per row, labelled or not, so that it depends on the seed and the place.
    """
    clock = clock or Clock()
    waiting: list[tuple[float, int, Row]] = []
    start = clock.now()
    for number, row in enumerate(rows):
        moment = clock.now() if rate is None else max(clock.now(), start + number / rate)
        while waiting and waiting[0][0] <= moment:
            yield from _when_due(waiting, clock)
        clock.wait_until(moment)
        yield Due(row, is_label=False)
        heapq.heappush(waiting, (clock.now() + delay_ms() / 1000, number, row))
    while waiting:
        yield from _when_due(waiting, clock)


def _when_due(waiting: list[tuple[float, int, Row]], clock: Clock) -> Iterator[Due]:
    moment, _, row = heapq.heappop(waiting)
    clock.wait_until(moment)
    yield from _label(row)


def _label(row: Row) -> Iterator[Due]:
    if row.label is not None:
        yield Due(row, is_label=True)
