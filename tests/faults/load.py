"""The load of a trial: features and late labels, paced from a thread, until it is finished.

Several streams, sharded by key over the partitions. A record's label comes some records later, or
before its features, twice, with a correction, or never; now and then a record is of no use and must
become a dead letter. What comes when, is drawn from the seed.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from tests.support.stage import Stage
from tests.support.waiting import wait_until
from topics.partitioner import partition_for

LIMIT_S = 180
"""Within this a moment must have come; the load itself never waits for a worker."""


@dataclass(frozen=True)
class Flow:
    """What is sent, and how fast."""

    per_s: int = 40
    records_min: int = 300
    keys: int = 12
    """Rounded up to as many on every partition."""
    streams: int = 2
    late_max: int = 40


class Load:
    """Sends until `finish`; what it has sent is on the source topics, where the checks read it."""

    def __init__(self, stage: Stage, flow: Flow, seed: int) -> None:
        self._stage = stage
        self._flow = flow
        self._chance = random.Random(seed)
        self._keys = _spread(flow.keys, stage.partitions)
        self._later: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self._failure: BaseException | None = None
        self.sent = 0

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        """Send what is still to come, at least the minimum; all of it is on the broker then."""
        self._ending.set()
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive(), "the load did not end"
        self.check()
        self._stage.flush()

    def check(self) -> None:
        """Raise what ended the thread, if anything did."""
        if self._failure is not None:
            raise AssertionError("the load could not be sent") from self._failure

    def more(self, records: int) -> None:
        """Wait until so many more records have been sent: moments are counted in records."""
        goal = self.sent + records
        wait_until(lambda: self.sent >= goal, f"{records} more records", LIMIT_S, self._flows)

    def _flows(self) -> bool:
        return self._failure is None

    def _run(self) -> None:
        try:
            start = time.monotonic()
            while not self._ending.is_set() or self.sent < self._flow.records_min:
                due = start + self.sent / self._flow.per_s
                self._ending.wait(max(0.0, due - time.monotonic()))
                self._send(self.sent)
                self.sent += 1
            for number in sorted(self._later):
                self._labels(number)
        except BaseException as failure:
            self._failure = failure

    def _send(self, number: int) -> None:
        chance = self._chance
        key, stream = chance.choice(self._keys), f"s{chance.randrange(self._flow.streams)}"
        a, b = chance.gauss(0, 1), chance.gauss(0, 1)
        y = int(a + 0.5 * b + chance.gauss(0, 0.3) > 0)
        x: dict[str, Any] = {"a": a, "b": b, "n": chance.randrange(5), "c": chance.choice("XYZ")}
        for name in [name for name in x if chance.random() < 0.15]:
            del x[name]
        early = self._plan(number, f"r{number}", y, key, stream)
        if early:
            self._stage.label(f"r{number}", y, key, stream=stream)
        self._stage.features(f"r{number}", x, key, stream=stream)
        if chance.random() < 0.03:
            self._stage.send("features", b'{"id":"bad-%d","x":7}' % number, key.encode())
        self._labels(number)

    def _plan(self, number: int, id: str, y: int, key: str, stream: str) -> bool:
        """Decide when the label comes; True if before its features."""
        chance, late = self._chance, number + self._chance.randint(1, self._flow.late_max)
        fate = chance.random()
        label = (id, y, key, stream)
        if fate < 0.06:
            return False  # never
        if fate > 0.10:
            self._later[late].append(label)
        if fate > 0.94:
            again = y if fate > 0.97 else 1 - y  # repeated, or corrected
            self._later[late + chance.randint(1, 20)].append((id, again, key, stream))
        return fate <= 0.10

    def _labels(self, number: int) -> None:
        for id, y, key, stream in self._later.pop(number, ()):
            self._stage.label(id, y, key, stream=stream)


def _spread(count: int, partitions: int) -> list[str]:
    """Keys of which every partition has the same number: none is left without load."""
    shares: dict[int, list[str]] = {number: [] for number in range(partitions)}
    wanted = -(-count // partitions)
    for name in (f"unit-{number}" for number in itertools.count()):
        share = shares[partition_for(name.encode(), partitions)]
        if len(share) < wanted:
            share.append(name)
        if all(len(each) == wanted for each in shares.values()):
            return [name for each in shares.values() for name in each]
    raise AssertionError("unreachable")
