"""The demo: synthetic streams, the processes that answer them, and what is shown of it."""

from pipeline.sandbox.demo.patients import patients
from pipeline.sandbox.demo.sensors import sensors
from pipeline.sandbox.demo.stories import DAY_MS, Story

ENDED_DAYS_AGO = 15
"""A story lies in the past, so that no label claims to come from the future."""
STORIES = {"patients": patients, "sensors": sensors}


def make_story(name: str, records: int, seed: int, now_ms: int) -> Story:
    """The story of that name with so many records."""
    return STORIES[name](records, seed, now_ms - ENDED_DAYS_AGO * DAY_MS)
