"""How old records are when they come: a producer's slow clock adds to every one of them.

The merge goes by these timestamps, so labels that are stamped too early come before their features.
"""

from __future__ import annotations

import logging

log = logging.getLogger(__name__)

AGE_RECORDS = 500
"""After so many a record no longer counts for the least age."""
SLOW_MAX_MS = 60_000
"""A network delays a record by less."""
SEEN_MIN = 20
"""A single old record says nothing about a clock."""
REPORT_MS = 3_600_000


class LeastAge:
    """The least age of the last records when they came.

    Of the last `AGE_RECORDS` to twice as many; negative if a producer's clock is ahead.
    """

    def __init__(self) -> None:
        self._count = 0
        self._now: float | None = None
        self._before: float | None = None
        self._reported_ms = -float(REPORT_MS)

    def add(self, age_ms: float) -> None:
        """One more record."""
        if self._count == AGE_RECORDS:
            self._count, self._before, self._now = 0, self._now, None
        self._count += 1
        self._now = age_ms if self._now is None else min(self._now, age_ms)

    @property
    def least_ms(self) -> float | None:
        """The least age; None before the first record."""
        known = [age for age in (self._now, self._before) if age is not None]
        return min(known, default=None)

    def report(self, where: str, now_ms: float) -> None:
        """Log, at most once an hour, that all records are old. Not while there is a backlog."""
        least = self.least_ms
        if least is None or least < SLOW_MAX_MS or now_ms - self._reported_ms < REPORT_MS:
            return
        if self._before is not None or self._count >= SEEN_MIN:
            self._reported_ms = now_ms
            log.warning(
                "%s: every record of late is stamped %.0f s or more in the past: the clock of a "
                "producer is slow, or it sends old records; see Clocks in docs/guide-operations.md",
                where,
                least / 1000,
            )
