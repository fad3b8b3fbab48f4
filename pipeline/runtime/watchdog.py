"""The watchdog: a process that makes no progress although there is work reports it, then exits.

In: probes, each with whether there is work and a value that changes with every step. Out: what is
stalled and for how long. Work is what is known to wait: in our queues, in flight, at the broker; an
idle stream and a parked partition have none. Time is handed in; time in which the process itself
did not run (SIGSTOP, a suspended machine) does not count.

`WatchdogThread` checks from its own thread, so a hanging event loop is noticed too, and asks the
broker itself where its topics end: a consumer that has gone silent does not know.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from typing import Any, NamedTuple

from confluent_kafka import KafkaException

from pipeline.errors import ClusterError, RequestError
from pipeline.kafka.clients import ClientSettings
from pipeline.kafka.cluster import topic_faults
from pipeline.kafka.reader import Reader

log = logging.getLogger(__name__)

UNWATCHED_S = 30.0
"""Of a longer pause between two checks only this much counts as time without progress."""
ASK_EVERY_S = 5.0
"""How often the cluster is asked: a topic that is gone or has grown is to be seen in seconds."""
ANSWER_S = 10.0
"""How long one request to the cluster may take, where the settings do not ask for less."""
Ends = Mapping[tuple[str, int], int]
"""Where topic partitions end, by the broker's own answer."""


class Probe(NamedTuple):
    """One thing that may stall; `what` is shown as `<what> for … s`."""

    what: str
    has_work: bool
    progress: Any
    """Whatever changes with progress."""


class Watchdog:
    """What is stalled, and since when."""

    def __init__(self, stuck_s: float, give_up_s: float) -> None:
        self.stuck_s = stuck_s
        self.give_up_s = give_up_s
        self._clock = 0.0
        self._checked_at: float | None = None
        self._seen: dict[str, tuple[Any, float]] = {}

    def check(self, now: float, probes: Iterable[Probe]) -> None:
        """Compare the probes with those of the check before."""
        if self._checked_at is not None:
            self._clock += min(now - self._checked_at, UNWATCHED_S)
        self._checked_at = now
        seen = {}
        for probe in probes:
            progress, since = self._seen.get(probe.what, (None, self._clock))
            stalled = probe.has_work and probe.what in self._seen and progress == probe.progress
            seen[probe.what] = (probe.progress, since if stalled else self._clock)
        self._seen = seen

    def stalled(self) -> list[str]:
        """What has been stalled for at least `stuck_s`, the longest first."""
        waits = [(self._clock - since, what) for what, (_, since) in self._seen.items()]
        late = sorted((each for each in waits if each[0] >= self.stuck_s), reverse=True)
        return [f"{what} for {seconds:.0f} s" for seconds, what in late]

    def reason_to_exit(self) -> str | None:
        """Why the process must end, in one sentence; None while it may go on."""
        longest = max((self._clock - since for _, since in self._seen.values()), default=0.0)
        return "; ".join(self.stalled()) if longest >= self.give_up_s else None


class WatchdogThread:
    """Checks periodically from a thread; calls `give_up` after `give_up_s` without progress."""

    def __init__(
        self,
        watchdog: Watchdog,
        client: ClientSettings,
        probes: Callable[[Ends], Iterable[Probe]],
        partitions: Callable[[], Iterable[tuple[str, int]]],
        give_up: Callable[[str], None],
        topics: Mapping[str, int | None] | None = None,
    ) -> None:
        self._topics = topics or {}
        self.watchdog = watchdog
        self._client = client
        self._probes = probes
        self._partitions = partitions
        self._give_up = give_up
        self._ends: dict[tuple[str, int], int] = {}
        self._answers = 0
        self.stalled: list[str] = []
        """What was stalled at the last check."""
        self.topic_faults: list[str] = []
        """Topics that are not as they were at the start, at the last check."""

    def start(self) -> None:
        """Watch until the process ends."""
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def _watch(self) -> None:
        every_s = min(max(self.watchdog.stuck_s / 10, 0.2), 5.0)
        asked_at = 0.0
        with closing(Reader(self._client, log_level=0)) as reader:
            while True:
                try:
                    if time.monotonic() - asked_at >= min(self.watchdog.stuck_s / 4, ASK_EVERY_S):
                        self._ask(reader)
                        asked_at = time.monotonic()
                    self.check(time.monotonic())
                except Exception:
                    # The state may be read in the middle of a change, from this thread: try again.
                    log.warning("the watchdog could not check, and tries again", exc_info=True)
                time.sleep(every_s)

    def check(self, now: float) -> None:
        """Check once; calls `give_up` if it is time to."""
        cluster = Probe("the cluster does not answer", True, self._answers)
        self.watchdog.check(now, [cluster, *self._probes(self._ends)])
        self.stalled = self.watchdog.stalled()
        reason = self.watchdog.reason_to_exit()
        if reason is not None:
            self._give_up(f"{reason}: ended, to be started again; nothing is lost")

    def _ask(self, reader: Reader) -> None:
        """Ask the brokers where the topics end; what they do not answer is left out."""
        limit_s = min(ANSWER_S, max(1.0, self.watchdog.stuck_s / 4))
        ends = {}
        try:
            found = reader.metadata(limit_s).topics
            self._answers += 1
            counts = {name: len(each.partitions) for name, each in found.items()}
            self.topic_faults = topic_faults(self._topics, counts)
            for topic, partition in list(self._partitions()):
                ends[topic, partition] = reader.watermarks(topic, partition, limit_s).high
        except (ClusterError, RequestError, KafkaException) as error:
            log.debug("the watchdog got no answer: %s", error)
        self._ends = ends
