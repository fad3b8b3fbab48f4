"""The watchdog: a process that stands still although there is work says so, then ends.

In: signs, each a thing that may stand still, whether it has work, and a value that changes with
every step. Out: what stands still and for how long. Time is handed in; time in which nobody could
look (a stopped process, a sleeping machine) does not count. `Vigil` looks from a thread of its own,
so an event loop that hangs is seen too, and asks the broker itself how far its topics go: a
consumer that has gone silent does not know.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaException, TopicPartition

from pipeline.reader import open_reader

log = logging.getLogger(__name__)

BLINK_S = 30.0
"""The longest time between two looks that counts as watched."""
ANSWER_S = 10.0
"""Patience with one question to the cluster, where the settings do not ask for less."""
Place = tuple[str, int]
Ends = Mapping[Place, int]


class Sign(NamedTuple):
    """One thing that may stand still; `what` is said with `for … s` behind it."""

    what: str
    works: bool
    step: Any
    """Whatever changes with progress."""


class Watchdog:
    """Who stands still, and since when."""

    def __init__(self, stuck_s: float, give_up_s: float) -> None:
        self.stuck_s = stuck_s
        self.give_up_s = give_up_s
        self._clock = 0.0
        self._looked: float | None = None
        self._seen: dict[str, tuple[Any, float]] = {}

    def look(self, now: float, signs: Iterable[Sign]) -> None:
        """Take in how things are."""
        if self._looked is not None:
            self._clock += min(now - self._looked, BLINK_S)
        self._looked = now
        seen = {}
        for sign in signs:
            step, since = self._seen.get(sign.what, (None, self._clock))
            stands = sign.works and sign.what in self._seen and step == sign.step
            seen[sign.what] = (sign.step, since if stands else self._clock)
        self._seen = seen

    def standing(self) -> list[str]:
        """What has been standing still for too long to be ready, the longest first."""
        stood = [(self._clock - since, what) for what, (_, since) in self._seen.items()]
        late = sorted((each for each in stood if each[0] >= self.stuck_s), reverse=True)
        return [f"{what} for {seconds:.0f} s" for seconds, what in late]

    def verdict(self) -> str | None:
        """Why the process must end, in one sentence; None while it may go on."""
        longest = max((self._clock - since for _, since in self._seen.values()), default=0.0)
        return "; ".join(self.standing()) if longest >= self.give_up_s else None


class Vigil:
    """Looks again and again, from a thread; `end` is told when it is time to give up."""

    def __init__(
        self,
        dog: Watchdog,
        client: Mapping[str, Any],
        signs: Callable[[Ends], Iterable[Sign]],
        places: Callable[[], Iterable[Place]],
        end: Callable[[str], None],
    ) -> None:
        self.dog = dog
        self._client = {**client, "log_level": 0}
        self._signs = signs
        self._places = places
        self._end = end
        self._ends: dict[Place, int] = {}
        self._answers = 0
        self._standing: list[str] = []

    @property
    def standing(self) -> list[str]:
        """What stood still at the last look."""
        return self._standing

    def start(self) -> None:
        """Watch until the process ends."""
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def _watch(self) -> None:
        every_s = min(max(self.dog.stuck_s / 10, 0.2), 5.0)
        consumer, asked = open_reader(self._client), 0.0
        while True:
            try:
                if time.monotonic() - asked >= self.dog.stuck_s / 4:
                    self._ask(consumer)
                    asked = time.monotonic()
                self.look(time.monotonic())
            except Exception:
                # A look from another thread may meet a state between two lines: look again.
                log.warning("the watchdog could not look, and looks again", exc_info=True)
            time.sleep(every_s)

    def look(self, now: float) -> None:
        """Look once; gives up if it is time to."""
        cluster = Sign("the cluster does not answer", True, self._answers)
        self.dog.look(now, [cluster, *self._signs(self._ends)])
        self._standing = self.dog.standing()
        verdict = self.dog.verdict()
        if verdict is not None:
            self._end(f"{verdict}: ended, to be started again; nothing is lost")

    def _ask(self, consumer: Consumer) -> None:
        """How far the topics go, by the brokers; what cannot be learnt now is left out."""
        ends, patience_s = {}, min(ANSWER_S, max(1.0, self.dog.stuck_s / 4))
        try:
            consumer.list_topics(timeout=patience_s)
            self._answers += 1
            for topic, partition in list(self._places()):
                place = TopicPartition(topic, partition)
                _, high = consumer.get_watermark_offsets(place, timeout=patience_s)
                ends[topic, partition] = high
        except KafkaException as error:
            log.debug("the watchdog could not ask: %s", error.args[0].str())
        self._ends = ends
