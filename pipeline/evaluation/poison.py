"""Records on which the evaluator fails: each is tried three times, then left out.

An exception at a record does not end the process: the state, which may be half changed, is restored
and the record tried again. A process that dies without an exception has left its position in a file
(`pipeline.runtime.positions`); the next start on this machine writes a small file for each such
death, and they count with the exceptions. The third failure has the record left out, logged and
counted (`failed`). Nobody has to decide anything, unlike for the learner: what is lost is the
score of one pair, and everything behind the record goes on.
"""

from __future__ import annotations

import logging
import os
import secrets
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from pipeline.runtime.positions import PositionFile

log = logging.getLogger(__name__)

FAILURES_MAX = 3
SUFFIX = ".death"
DEATHS_MAX = 64
"""Files of deaths that are kept; the oldest go."""


class Place(NamedTuple):
    """A record of a topic that the evaluator follows, by the topic's plain name."""

    topic: str
    partition: int
    offset: int


class FailureLog:
    """How often each record has failed: exceptions of this process, and deaths before it."""

    def __init__(self) -> None:
        self._failures: Counter[Place] = Counter()

    def gives_up(self, place: Place) -> bool:
        """Whether a record is to be left out."""
        return self._failures[place] >= FAILURES_MAX

    def note(self, place: Place) -> int:
        """One more failure; how many there are now."""
        self._failures[place] += 1
        return self._failures[place]

    @contextmanager
    def position(self, place: Place) -> Iterator[None]:
        """Around the work on a record."""
        yield


class FailureFiles(FailureLog):
    """... with a position file, so that deaths without an exception count too.

    `name` is of this evaluator's topics, `topics` their plain names.
    """

    def __init__(self, folder: Path, name: str, topics: Sequence[str], partitions: int) -> None:
        super().__init__()
        name = quote(name, safe="")  # as the position file does: a topic's id may have a slash
        self._topics = list(topics)
        self._positions = PositionFile(folder, name, partitions * len(topics))
        for slot, offset in self._positions.of_dead_processes():
            # Before the position file goes: a death in between is counted twice, and costs one try.
            with suppress(OSError):
                path = folder / f"{name}.{slot}.{offset}.{secrets.token_hex(4)}{SUFFIX}"
                os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o600))
        self._read(folder, name)

    def _read(self, folder: Path, name: str) -> None:
        with suppress(OSError, ValueError):
            files = sorted(folder.glob(f"{name}.*{SUFFIX}"), key=lambda path: path.stat().st_mtime)
            for path in files[:-DEATHS_MAX]:
                path.unlink(missing_ok=True)
            for path in files[-DEATHS_MAX:]:
                slot, offset, _ = path.name.removeprefix(f"{name}.").split(".", 2)
                partition, topic = divmod(int(slot), len(self._topics))
                place = Place(self._topics[topic], partition, int(offset))
                log.error("a process died at %s, death %d", place, self.note(place))

    @contextmanager
    def position(self, place: Place) -> Iterator[None]:
        """Around the work on a record: its position is in the file meanwhile."""
        slot = place.partition * len(self._topics) + self._topics.index(place.topic)
        self._positions.enter(slot, place.offset)
        try:
            yield
        finally:
            self._positions.leave(slot)
