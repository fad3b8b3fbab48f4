"""A log that stays readable in an outage: what a library repeats is let through now and then.

While a broker is away aiokafka says so seventy times a second (measured): an hour of it would bury
everything else. The first of a kind always passes, later ones with the number of those held back.
"""

from __future__ import annotations

import logging

EVERY_S = 10.0


class Repeats(logging.Filter):
    """For a handler: thins out the records of one library; those of others pass."""

    def __init__(self, library: str, every_s: float = EVERY_S) -> None:
        super().__init__(library)
        self._every_s = every_s
        self._said: dict[tuple[str, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record passes; one of a kind per interval does."""
        if not super().filter(record):
            return True
        kind = (record.name, str(record.msg))
        last, held = self._said.get(kind, (record.created - self._every_s, 0))
        if record.created - last < self._every_s:
            self._said[kind] = last, held + 1
            return False
        self._said[kind] = record.created, 0
        if held:
            record.msg, record.args = f"{record.getMessage()} ({held} more like it)", None
        return True
