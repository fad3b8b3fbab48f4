"""Records that the journal has lost: found by comparing offsets, read again from their source.

A source offset is committed when its record is durable in the journal. If the journal's fold ends
before what was committed, the journal has lost its tail (an unclean leader election, a restored
disk), and what follows would never be applied: its chain is broken. Most often the source still has
those records. They are copied again, in order of time, before anything new.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pipeline.errors import RefusalError
from pipeline.runtime.port import PartitionKafka
from pipeline.sequencing.merge import SourceRecord
from topics.journal import NO_OFFSET


@dataclass(frozen=True)
class ResumePoint:
    """Where a source goes on: the record before, and what must be copied again first."""

    prev: int
    start: int
    end: int

    @property
    def lost(self) -> bool:
        """Whether anything must be copied again."""
        return self.start < self.end


def resume_point(
    where: str, mark: int | None, committed: int, low: int, accept_gap: bool
) -> ResumePoint:
    """Compare a fold's `mark` with what was committed of a source that begins at `low`.

    Raises `RefusalError` if the records between are gone from the source too. A group without an
    offset has committed 0, so no other check would notice that the source begins behind the mark.
    """
    if mark is not None and mark >= 0 and low > max(mark + 1, committed) and not accept_gap:
        raise RefusalError(
            f"{where}: what was learnt ends at {mark} and the source begins at {low}: records "
            f"between are gone; --accept-gap goes on without them"
        )
    nothing = ResumePoint(NO_OFFSET if accept_gap else committed - 1, committed, committed)
    if mark is None or mark + 1 >= committed or (accept_gap and mark == NO_OFFSET):
        return nothing
    if low <= mark + 1:
        return ResumePoint(mark, mark + 1, committed)
    if not accept_gap:
        raise RefusalError(
            f"{where}: the journal has lost records {mark + 1} to {committed - 1}, and the source "
            f"begins at {low}: they cannot be copied again; --accept-gap goes on without them"
        )
    return ResumePoint(NO_OFFSET, min(low, committed), committed)


def source_offsets(kafka: PartitionKafka, topics: Sequence[str]) -> list[tuple[int, int]]:
    """Of each source: what the group has committed, and the first record that is still there."""
    return [(kafka.committed(topic) or 0, kafka.watermarks(topic).low) for topic in topics]


def read_lost(
    kafka: PartitionKafka, topics: Sequence[str], points: Sequence[ResumePoint]
) -> Iterator[SourceRecord]:
    """The lost records of all sources, the earlier timestamp first, features before labels."""

    def of(side: int) -> Iterator[SourceRecord]:
        point = points[side]
        if point.lost:
            for record in kafka.read_source(topics[side], point.start, point.end):
                yield SourceRecord(side, record)

    sides = map(of, range(len(topics)))
    return heapq.merge(*sides, key=lambda source: source.record.timestamp_ms)
