"""How far consumer groups are behind: the end of each partition against what is committed.

Asked without joining the group. Kafka knows offsets, not records: aborted records and the markers
of transactions take up offsets that nobody ever reads. A lag of up to `COUNT_MAX` offsets is
therefore counted record by record. A longer one is a number of offsets, since to count it would be
to read it: with a transaction for each record it is twice the number of records.

The learner commits the journal, and the evaluator everything, only with a snapshot: their lag
counts records since the last snapshot, not records unanswered.
"""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

from pipeline.kafka.clients import ClientSettings
from pipeline.kafka.reader import Reader, committed_offsets, read_range

COUNT_MAX = 1_000
"""Offsets of one partition; beyond it they are not read."""


@dataclass(frozen=True, slots=True)
class Lag:
    """One topic as one group sees it; ``behind`` is None if it has committed nothing there."""

    group: str
    topic: str
    records: int
    behind: int | None
    lost: int
    """Records past retention that were never read: committed below the first one kept."""


def _unread(client: ClientSettings, topic: str, partition: int, start: int, end: int) -> int:
    """Records from `start` to `end` that a reader of committed ones would get."""
    if not 0 < end - start <= COUNT_MAX:
        return max(0, end - start)
    return sum(1 for _ in read_range(client, topic, partition, start, end))


def group_lag(client: ClientSettings, group: str, topics: Sequence[str]) -> list[Lag]:
    """The group's lag on each of the topics that exist."""
    found = []
    with closing(Reader(client)) as reader:
        counts = reader.partition_counts()
        for topic in topics:
            numbers = range(counts.get(topic, 0))
            if not numbers:
                continue
            marks = {number: reader.watermarks(topic, number) for number in numbers}
            committed = committed_offsets(client, group, topic, numbers)
            known = {number: offset for number, offset in committed.items() if offset is not None}
            behind = sum(
                _unread(client, topic, n, known.get(n, marks[n].low), marks[n].high)
                for n in numbers
            )
            lost = sum(max(0, marks[number].low - offset) for number, offset in known.items())
            records = sum(high for _, high in marks.values())
            found.append(Lag(group, topic, records, behind if known else None, lost))
    return found
