"""What was answered so far, by the predictions: where another version, or a journal that has lost
its tail, must not answer again.

A prediction's `at` names the journal offset of its record. No `at` may stand for two answers.
"""

from __future__ import annotations

import logging

from pipeline.errors import RefusalError
from pipeline.learning.outputs import PartitionRef
from pipeline.runtime.port import PartitionKafka
from topics.codec import read_prediction
from topics.journal import NO_OFFSET
from topics.predictions import Prediction

log = logging.getLogger(__name__)

TAIL_RECORDS = 100_000
"""How far back the newest answer of another version is looked for: they are written in order, and
what is sent again begins at most one checkpoint further back."""
RECENT_RECORDS = 20_000
"""The same at every start: four times what is sent again with default settings."""
LOST_MAX = 1_000_000
"""So many offsets that were answered and lost are taken up; more is another journal."""


def last_answered(kafka: PartitionKafka, topic: str, ref: PartitionRef, most: int) -> int:
    """The largest journal offset among the last `most` predictions; NO_OFFSET for none. Blocks."""
    answered = NO_OFFSET
    low, high = kafka.watermarks(topic)
    start = max(low, high - most)
    for record in kafka.read(topic, start, high) if start < high else ():
        prediction = read_prediction(record.value)
        if isinstance(prediction, Prediction) and prediction.at.journal == ref.journal_id:
            answered = max(answered, prediction.at.offset)
    return answered


def lost_offsets(kafka: PartitionKafka, topic: str, ref: PartitionRef, end: int) -> int:
    """How many offsets from the `end` of the journal on were answered: it has lost its tail.

    What is appended next would get them again. The sequencer takes them up before it copies
    anything. Raises `RefusalError` if there are too many. Blocks.
    """
    answered = last_answered(kafka, topic, ref, RECENT_RECORDS)
    lost = max(0, answered + 1 - end)
    where = f"partition {ref.partition} of {ref.journal}"
    if lost > LOST_MAX:
        raise RefusalError(
            f"{where} ends at {end} and records up to {answered} were answered: it is not the "
            f"journal that was folded; restore it, or use another prefix"
        )
    if lost:
        log.warning(
            "%s ends at %d and records up to %d were answered: it has lost its tail; these offsets "
            "are not used again",
            *(where, end, answered),
        )
    return lost
