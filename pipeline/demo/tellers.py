"""The stories by their names."""

from pipeline.demo.patients import patients
from pipeline.demo.sensors import sensors
from pipeline.demo.stories import DAY_MS, Story

ENDED_DAYS_AGO = 15
"""A story lies in the past, so that no label claims to come from the future."""
_TELLERS = {"patients": patients, "sensors": sensors}


def tell(name: str, records: int, seed: int, now_ms: int) -> Story:
    """The story of that name with so many records."""
    return _TELLERS[name](records, seed, now_ms - ENDED_DAYS_AGO * DAY_MS)
