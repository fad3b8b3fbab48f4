"""Waiting for a condition, with a limit: the only place in the tests that sleeps."""

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")

LOOK_EVERY_S = 0.05


def wait_until(
    look: Callable[[], Found],
    what: str,
    limit_s: float = 60,
    alive: Callable[[], bool] | None = None,
) -> Found:
    """The first true thing that `look` returns; fails after the limit, or once nothing is alive."""
    until = time.monotonic() + limit_s
    while True:
        if found := look():
            return found
        if alive is not None and not alive():
            raise AssertionError(f"its process ended while waiting for: {what}")
        if time.monotonic() > until:
            raise AssertionError(f"not within {limit_s:g} s: {what}; last seen: {found!r}")
        time.sleep(LOOK_EVERY_S)
