"""The watchdog: who stands still although there is work, by a clock that the test turns."""

from __future__ import annotations

from pipeline.runtime.watchdog import UNWATCHED_S, Probe, Watchdog, WatchdogThread

LOOK_S = 5.0


def watched(dog: Watchdog, seconds: float, *probes: Probe, start: float = 0.0) -> float:
    """Look at the same probes for a while; the time afterwards."""
    now = start
    while now < start + seconds:
        now += LOOK_S
        dog.check(now, probes)
    return now


def test_work_without_a_step_is_said_first_and_ends_it_later() -> None:
    dog = Watchdog(stuck_s=60, give_up_s=300)
    stuck = Probe("nothing moves", True, 7)
    now = watched(dog, 60, stuck)
    assert dog.stalled() == []  # the first look only learns what there is
    now = watched(dog, 5, stuck, start=now)
    assert dog.stalled() == ["nothing moves for 60 s"]
    assert dog.reason_to_exit() is None
    watched(dog, 240, stuck, start=now)
    assert dog.reason_to_exit() == "nothing moves for 300 s"


def test_one_step_and_all_is_well_again() -> None:
    dog = Watchdog(stuck_s=60, give_up_s=300)
    now = watched(dog, 200, Probe("it moves", True, 7))
    assert dog.stalled()
    dog.check(now + 1, [Probe("it moves", True, 8)])
    assert dog.stalled() == []


def test_who_has_no_work_may_stand_still_for_ever() -> None:
    dog = Watchdog(stuck_s=60, give_up_s=300)
    now = watched(dog, 10_000, Probe("it idles", False, 7))
    assert dog.stalled() == []
    now = watched(dog, 55, Probe("it idles", True, 7), start=now)  # work has just come
    assert dog.stalled() == []


def test_what_is_gone_is_forgotten() -> None:
    dog = Watchdog(stuck_s=60, give_up_s=300)
    now = watched(dog, 200, Probe("partition 0: stands", True, 7))
    dog.check(now + 1, [])
    now = watched(dog, 50, Probe("partition 0: stands", True, 7), start=now)
    assert dog.stalled() == []


def test_all_that_stands_is_named_the_longest_first() -> None:
    dog = Watchdog(stuck_s=60, give_up_s=300)
    first, second = Probe("first", True, 1), Probe("second", True, 1)
    now = watched(dog, 100, first)
    watched(dog, 205, first, second, start=now)
    assert dog.reason_to_exit() == "first for 300 s; second for 200 s"


def test_time_in_which_nobody_could_look_does_not_count() -> None:
    dog = Watchdog(stuck_s=60, give_up_s=300)
    now = watched(dog, 10, Probe("it was stopped", True, 7))
    dog.check(now + 100_000, [Probe("it was stopped", True, 7)])
    assert dog.stuck_s > UNWATCHED_S
    assert dog.stalled() == []


def test_a_cluster_that_never_answers_ends_it_even_without_work() -> None:
    reasons: list[str] = []
    watchdog = WatchdogThread(Watchdog(10, 30), {}, lambda _: [], list, reasons.append)
    for now in range(0, 40, 5):
        watchdog.check(now)
    assert reasons[0].startswith("the cluster does not answer for 30 s: ended")
    assert watchdog.stalled == ["the cluster does not answer for 35 s"]
