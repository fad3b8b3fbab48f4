"""Records that the journal has lost: found by comparing offsets, read again from their source.

A source offset is committed when its record is durable in the journal. If the journal's fold ends
before what was committed, the journal has lost its tail (an unclean leader election, a restored
disk), and what follows would never be applied: its chain is broken. Most often the source still has
those records. They are copied again, in order of time, before anything new.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.cluster import offsets_of_group
from pipeline.merge import SourceRecord
from pipeline.reader import look_at, read_range
from pipeline.snapshots import RefusalError
from topics.journal import NO_OFFSET


@dataclass(frozen=True)
class Link:
    """Where a source goes on: the record before, and what must be copied again first."""

    prev: int
    start: int
    end: int

    @property
    def lost(self) -> bool:
        """Whether anything must be copied again."""
        return self.start < self.end


def link(where: str, mark: int | None, committed: int, low: int, accept_gap: bool) -> Link:
    """Compare a fold's `mark` with what was committed of a source that begins at `low`.

    Raises `RefusalError` if the records between are gone from the source too. A group without an
    offset has committed 0: nobody else would notice that the source begins behind the mark.
    """
    if mark is not None and mark >= 0 and low > max(mark + 1, committed) and not accept_gap:
        raise RefusalError(
            f"{where}: what was learnt ends at {mark} and the source begins at {low}: records "
            f"between are gone; --accept-gap goes on without them"
        )
    nothing = Link(NO_OFFSET if accept_gap else committed - 1, committed, committed)
    if mark is None or mark + 1 >= committed or (accept_gap and mark == NO_OFFSET):
        return nothing
    if low <= mark + 1:
        return Link(mark, mark + 1, committed)
    if not accept_gap:
        raise RefusalError(
            f"{where}: the journal has lost records {mark + 1} to {committed - 1}, and the source "
            f"begins at {low}: they cannot be copied again; --accept-gap goes on without them"
        )
    return Link(NO_OFFSET, min(low, committed), committed)


def ask_sources(
    client: Mapping[str, Any], group: str, topics: Sequence[str], partition: int
) -> list[tuple[int, int]]:
    """Of each source: what the group has committed, and the first record that is still there."""
    told = []
    for topic in topics:
        committed = offsets_of_group(client, group, topic, [partition])[partition]
        told.append((committed or 0, look_at(client, topic, partition)[0]))
    return told


def read_lost(
    client: Mapping[str, Any],
    topics: Sequence[str],
    partition: int,
    links: Sequence[Link],
    abandoned: Callable[[], bool],
) -> Iterator[SourceRecord]:
    """The lost records of all sources, the earlier timestamp first, features before labels."""

    def of(side: int) -> Iterator[SourceRecord]:
        each = links[side]
        if each.lost:
            for message in read_range(
                client, topics[side], partition, each.start, each.end, abandoned
            ):
                headers: Any = message.headers() or []
                key, value, offset = message.key(), message.value(), message.offset()
                assert not isinstance(key, str)
                assert not isinstance(value, str)
                assert offset is not None
                yield SourceRecord(side, offset, message.timestamp()[1], key, value, headers)

    return heapq.merge(*map(of, range(len(topics))), key=lambda record: record.timestamp_ms)
