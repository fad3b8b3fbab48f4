"""When records and labels are due, on a clock of our own."""

from collections.abc import Callable

import numpy as np
import pytest

from pipeline.errors import InputError
from pipeline.offline.files.playback import Clock, DelayTime, delay_generator, in_steps, in_time
from pipeline.offline.files.records import Row


class FakeTime:
    def __init__(self) -> None:
        self.now = 100.0

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds

    @property
    def clock(self) -> Clock:
        return Clock(lambda: self.now, self.sleep)


def rows(count: int, unlabelled: tuple[int, ...] = ()) -> list[Row]:
    return [Row(n, {"a": n}, None if n in unlabelled else n % 2, str(n), "k") for n in range(count)]


def names(dues: object) -> list[str]:
    return [f"{'y' if due.is_label else 'x'}{due.row.number}" for due in dues]  # type: ignore[attr-defined]


def test_the_label_of_step_t_minus_l_comes_just_before_record_t() -> None:
    assert names(in_steps(rows(4), 2)) == ["x0", "x1", "y0", "x2", "y1", "x3", "y2", "y3"]


def test_a_delay_of_nothing_is_one_step() -> None:
    assert names(in_steps(rows(2), 0)) == names(in_steps(rows(2), 1)) == ["x0", "y0", "x1", "y1"]


def test_a_row_without_a_label_takes_its_turn_in_silence() -> None:
    assert names(in_steps(rows(3, unlabelled=(0,)), 1)) == ["x0", "x1", "y1", "x2", "y2"]


def test_records_and_the_labels_left_over_keep_the_pace() -> None:
    time = FakeTime()
    moments = [(round(time.now, 3), due.is_label) for due in in_steps(rows(3), 2, 10.0, time.clock)]
    assert moments == [
        (100.0, False),
        (100.1, False),
        (100.2, True),
        (100.2, False),
        (100.3, True),
        (100.4, True),
    ]


def test_labels_come_their_own_delay_after_their_record() -> None:
    time = FakeTime()
    delays = iter([250.0, 50.0, 10.0])
    moments = [
        (due.row.number, due.is_label, round(time.now - 100, 3))
        for due in in_time(rows(3), lambda: next(delays), 10.0, time.clock)
    ]
    assert moments == [
        (0, False, 0.0),
        (1, False, 0.1),
        (1, True, 0.15),
        (2, False, 0.2),
        (2, True, 0.21),
        (0, True, 0.25),
    ]


def test_the_delay_of_a_row_does_not_depend_on_who_has_a_label() -> None:
    def spread(gone: tuple[int, ...]) -> dict[int, float]:
        time, generator = FakeTime(), delay_generator(3)
        draw: Callable[[], float] = lambda: DelayTime.parse("100..900").draw(generator)  # noqa: E731
        dues = in_time(rows(5, gone), draw, 10.0, time.clock)
        return {due.row.number: time.now for due in dues if due.is_label}

    everyone, fewer = spread(()), spread((1, 2))
    assert fewer == {number: when for number, when in everyone.items() if number not in (1, 2)}


@pytest.mark.parametrize("text", ["", "x", "-1", "5..1", "1..", "nan", "1e9..2"])
def test_a_delay_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"MEAN or MIN\.\.MAX"):
        DelayTime.parse(text)


def test_delays_are_drawn_as_asked() -> None:
    generator = np.random.default_rng(0)
    even = [DelayTime.parse("100..400").draw(generator) for _ in range(2000)]
    assert 100 <= min(even) < 110
    assert 390 < max(even) <= 400
    mean = np.mean([DelayTime.parse("200").draw(generator) for _ in range(5000)])
    assert mean == pytest.approx(200, rel=0.1)
