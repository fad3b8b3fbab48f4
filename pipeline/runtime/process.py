"""A worker or evaluator process: a Faust app and the partitions that are assigned to it.

Partitions that a rebalance leaves assigned go on undisturbed. Whatever fails here ends the process:
what a restart needs is durable, and the next process begins where this one was.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, NoReturn, Protocol

from faust.types import TP

from pipeline.errors import FAILED, REFUSED, exit_now, exit_on_error
from pipeline.faust_ext.app import FaustApp, assigned_partitions
from pipeline.kafka.auth import Security
from pipeline.kafka.clients import SEE_RIGHTS
from pipeline.kafka.cluster import Cluster, gap_at, topic_faults
from pipeline.kafka.reader import Reader, Watermarks, watermarks
from pipeline.kafka.writer import Outbox
from pipeline.runtime.events import EventWriter
from pipeline.runtime.fingerprint import fingerprint
from pipeline.runtime.metrics import Sample, StateCollector, make_registry
from pipeline.runtime.verdict import verdict
from pipeline.runtime.watchdog import Ends, Probe, Watchdog, WatchdogThread
from pipeline.settings import Settings
from pipeline.web.server import Views, WebServer
from topics.catalog import COPARTITIONED, HEADROOM_BYTES

log = logging.getLogger(__name__)


class PartitionPart(Protocol):
    """Something that works on one assigned partition: a learner, a sequencer, an evaluator."""

    async def run(self) -> None: ...
    def rejoined(self) -> None: ...
    def stop_reading(self) -> None: ...
    def abandon(self) -> None: ...
    async def finish(self) -> None: ...
    def probes(self, ends: Ends) -> Iterable[Probe]: ...
    def unready(self) -> list[str]: ...
    def health(self) -> dict[str, Any]: ...
    async def status(self) -> dict[str, Any]: ...
    @property
    def counts(self) -> Mapping[str, int]: ...
    def samples(self) -> Iterable[Sample]: ...


async def _nothing_more(stream: str | None, partition: int | None) -> dict[str, Any]:
    """What a role adds to the live page that has nothing to add."""
    return {}


@dataclass(frozen=True)
class AssignedPartition:
    """One partition at work; its parts run side by side."""

    parts: Sequence[PartitionPart]
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def start(self) -> None:
        """Start a task per part."""
        self.tasks.extend(asyncio.create_task(exit_on_error(part.run())) for part in self.parts)

    def cancel(self) -> None:
        """Cancel all tasks."""
        for task in self.tasks:
            task.cancel()


@dataclass(frozen=True)
class Role:
    """What makes a process a worker or an evaluator."""

    name: str
    metrics: str
    """The subsystem in the names of its counters: ``dtgol_<metrics>_…``."""
    topics: Sequence[str]
    """Full names of the topics it follows, which have the same partitions."""
    open: Callable[[Process, int], Sequence[PartitionPart]]
    """Makes the parts of one partition."""
    close: Callable[[int], None] = lambda _: None
    """Drops the parts of a partition that was revoked."""
    background: Sequence[Callable[[Process], Coroutine[Any, Any, None]]] = ()
    """Tasks of the process besides its partitions."""
    last: Callable[[Process], Coroutine[Any, Any, None]] | None = None
    """Last step of an orderly shutdown."""
    on_gap: Callable[[Process, TP, int, Watermarks, str], bool] = lambda *_: False
    """Handles an offset whose record the broker has deleted; False leaves it to the process."""
    status: Mapping[str, Any] = field(default_factory=dict)
    """More for `/status`."""
    page: Callable[[str | None, int | None], Awaitable[dict[str, Any]]] = _nothing_more
    """More for the live page, which may ask for a stream of a partition."""


class Process:
    """The app of a role, its partitions, and what can be seen of them from outside."""

    def __init__(
        self, settings: Settings, security: Security, cluster: Cluster, role: Role, accept_gap: bool
    ) -> None:
        self.settings = settings
        self.cluster = cluster
        self.role = role
        self.accept_gap = accept_gap
        self.client = security.librdkafka() | settings.kafka.timeouts
        self.app = FaustApp(settings, security, role.name)
        # A topic's limit is that of a batch: librdkafka would fill one with small records up to a
        # megabyte, whatever the topic takes.
        batch_bytes = settings.limits.record_bytes_max + HEADROOM_BYTES
        self.outbox = Outbox(self.client, **{"batch.size": batch_bytes})
        self.events = EventWriter(self.client, settings, role.name)
        self.partitions: dict[int, AssignedPartition] = {}
        self.in_group = False
        self.closing = False
        registry = make_registry(StateCollector(role.metrics, self._counts, self._samples))
        self.web = WebServer(settings.web, Views(self.unready, self.status, self.page, registry))
        self._topics = {
            settings.topic(name): count if name in COPARTITIONED else None
            for name, count in cluster.counts.items()
        }
        watchdog = Watchdog(settings.worker.stuck_ms / 1000, settings.worker.give_up_ms / 1000)
        self.watchdog = WatchdogThread(
            watchdog,
            self.client,
            self._probes,
            self._followed,
            lambda why: exit_now(FAILED, why, stuck=True),
            self._topics,
        )
        self.app.on_start(self._start)
        self.app.on_assigned(self.assigned)
        self.app.on_closing(self._close)
        self.app.on_out_of_range = self._out_of_range

    def _start(self) -> Iterator[Coroutine[Any, Any, None]]:
        self.watchdog.start()
        yield self.web.start()
        yield self.outbox.pump()
        yield self.events.pump()
        yield from (work(self) for work in self.role.background)

    # --- assignment ------------------------------------------------------------------------------

    async def assigned(self, assigned: set[TP]) -> None:
        """Revoked partitions are abandoned, new ones opened, the others go on."""
        if self.closing:
            return
        ours = assigned_partitions(assigned, self.role.topics)
        if ours is None or max(ours, default=-1) >= self.cluster.partitions:
            await self._assigned_differently(assigned)
        for number in set(self.partitions) - ours:
            gone = self.partitions.pop(number)
            for part in gone.parts:
                part.abandon()
            gone.cancel()
            self.role.close(number)
        for number in ours:
            if number in self.partitions:
                for part in self.partitions[number].parts:
                    part.rejoined()
            else:
                self.partitions[number] = AssignedPartition(self.role.open(self, number))
                self.partitions[number].start()
        self.in_group = True
        log.info("partitions: %s", sorted(self.partitions))

    async def _assigned_differently(self, assigned: set[TP]) -> NoReturn:
        """End: topics have grown or are gone, or are out of sight for a moment."""

        def look() -> list[str]:
            with closing(Reader(self.client)) as reader:
                return topic_faults(self._topics, reader.partition_counts())

        faults = await asyncio.to_thread(look)
        if faults:
            exit_now(REFUSED, "; ".join(faults))
        listed = ", ".join(f"{tp.topic}[{tp.partition}]" for tp in sorted(assigned))
        why = f"a topic is not visible, for now or for good: {SEE_RIGHTS}"
        exit_now(FAILED, f"partitions were assigned differently ({listed}); {why}")

    async def _close(self) -> None:
        """Orderly shutdown: stop, a last checkpoint of every partition, the last commits."""
        self.closing = True
        for partition in self.partitions.values():
            for part in partition.parts:
                part.stop_reading()
            partition.cancel()
        for partition in self.partitions.values():
            await asyncio.gather(*partition.tasks, return_exceptions=True)
            for part in partition.parts:
                await part.finish()
        if self.role.last is not None:
            await self.role.last(self)
        await self.events.finish()
        await self.web.stop()

    async def _out_of_range(self, place: TP, offset: int) -> None:
        """The next records to read were deleted: end, unless `--accept-gap` allows it."""
        there = await asyncio.to_thread(watermarks, self.client, place.topic, place.partition)
        gap = gap_at(place.topic, place.partition, offset, there)
        if gap is None or self.role.on_gap(self, place, offset, there, gap):
            return
        if not self.accept_gap:
            exit_now(REFUSED, f"{gap}; --accept-gap goes on without them")
        log.warning("accepted: %s", gap)

    # --- what can be seen from outside -----------------------------------------------------------

    def _followed(self) -> list[tuple[str, int]]:
        return [(topic, number) for number in list(self.partitions) for topic in self.role.topics]

    def _parts(self) -> Iterator[tuple[int, PartitionPart]]:
        """All parts; partitions may come and go meanwhile."""
        for number, partition in sorted(self.partitions.items()):
            for part in partition.parts:
                yield number, part

    def _probes(self, ends: Ends) -> Iterator[Probe]:
        yield Probe("the process has not joined its group", not self.in_group, None)
        what = "records were sent and none is acknowledged"
        yield Probe(what, self.outbox.waiting > 0, self.outbox.delivered)
        for _, part in self._parts():
            yield from part.probes(ends)

    def unready(self) -> list[str]:
        """Why this process is not ready; empty when it is. It may have no partition."""
        if not self.in_group:
            return ["it has not joined its group yet"]
        parts = [
            f"partition {number}: {why}" for number, part in self._parts() for why in part.unready()
        ]
        return [*self.watchdog.stalled, *self.watchdog.topic_faults, *parts]

    async def status(self) -> dict[str, Any]:
        """What `/status` shows."""
        partitions: dict[str, dict[str, Any]] = {}
        for number, part in list(self._parts()):
            partitions.setdefault(str(number), {}).update(await part.status())
        return {
            "role": self.role.name,
            "group": self.settings.group(self.role.name),
            "cluster": self.cluster.id,
            "topic_ids": dict(self.cluster.topic_ids),
            **self.role.status,
            "fingerprint": fingerprint(),
            "unready": self.unready(),
            "outbox": {"waiting": self.outbox.waiting},
            "partitions": partitions,
        }

    async def page(self, stream: str | None, partition: int | None) -> dict[str, Any]:
        """What the live page shows."""
        partitions: dict[int, dict[str, Any]] = {}
        counts: Counter[str] = Counter()
        for number, part in self._parts():
            partitions.setdefault(number, {"partition": number}).update(part.health())
            counts.update(part.counts)
        healths = list(partitions.values())
        return {
            "role": self.role.name,
            "group": self.settings.group(self.role.name),
            "verdict": verdict(self.in_group, self.unready(), healths),
            "partitions": healths,
            "counts": dict(counts),
            **await self.role.page(stream, partition),
        }

    def _counts(self) -> Mapping[int, Mapping[str, int]]:
        return {number: part.counts for number, part in self._parts() if part.counts}

    def _samples(self) -> Iterator[Sample]:
        libraries = [(name, fingerprint()[name]) for name in ("python", "numpy", "numba")]
        yield Sample("dtgol_build_info", 1, (("version", version("dtgol")), *libraries))
        yield Sample(f"dtgol_{self.role.name}_ready", float(not self.unready()))
        yield Sample("dtgol_outbox_waiting_records", self.outbox.waiting)
        for number, part in self._parts():
            at = ("partition", str(number))
            for sample in part.samples():
                yield sample._replace(labels=(at, *sample.labels))
