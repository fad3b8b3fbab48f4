"""A log that stays readable in an outage: what a library repeats passes now and then.

While a broker is away aiokafka logs it seventy times a second (measured): an hour of it would hide
everything else. The first of a kind always passes, later ones with the number of those left out.
"""

from __future__ import annotations

import logging

EVERY_S = 10.0


class RepeatFilter(logging.Filter):
    """For a handler: limits repeated lines of one library; those of others pass."""

    def __init__(self, library: str, every_s: float = EVERY_S) -> None:
        super().__init__(library)
        self._every_s = every_s
        self._passed: dict[tuple[str, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record passes; one of a kind per interval does."""
        if not super().filter(record):
            return True
        kind = (record.name, str(record.msg))
        last, held = self._passed.get(kind, (record.created - self._every_s, 0))
        if record.created - last < self._every_s:
            self._passed[kind] = last, held + 1
            return False
        self._passed[kind] = record.created, 0
        if held:
            record.msg, record.args = f"{record.getMessage()} ({held} more like it)", None
        return True
