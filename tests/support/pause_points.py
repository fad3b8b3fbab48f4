"""A command that pauses at a chosen point: `python -m tests.support.pause_points POINT N FOLDER …`.

The program is the real one; a function of it is wrapped, and the Nth time it is reached the wrapper
writes the file `reached` into FOLDER and waits for a file `release` there, or to be killed. So a
test can hit exactly the moment it means, with no hook in the product. The rest of the command line
goes to `dtgol`. Only the thread that reached the point stands still, unless it is the event loop's.
"""

from __future__ import annotations

import asyncio
import itertools
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

from pipeline.runtime.environment import prepare

prepare()  # as the entry point does, before anything imports numpy

from pipeline import cli  # noqa: E402
from pipeline.faust_ext.consumer import SafeConsumer  # noqa: E402
from pipeline.kafka.record import Record  # noqa: E402
from pipeline.kafka.writer import CheckedProducer, Outbox  # noqa: E402
from pipeline.learning.fold import Fold  # noqa: E402
from pipeline.learning.poison import PoisonGuard  # noqa: E402
from pipeline.offline.files.player import Player  # noqa: E402
from pipeline.ops.dead_letters import Redrive  # noqa: E402
from pipeline.ops.journal_archive import JournalArchive  # noqa: E402
from pipeline.runtime.port import LiveKafka  # noqa: E402
from pipeline.snapshots import directory, topic  # noqa: E402
from pipeline.snapshots.manifest import PREFIX  # noqa: E402
from pipeline.snapshots.repository import SnapshotRepository  # noqa: E402

LOOK_S = 0.01


class Pause:
    """Counts how often its point was reached, and stands still the Nth time."""

    def __init__(self, number: int, folder: Path) -> None:
        self._number = number
        self._folder = folder
        self._reached = itertools.count(1)

    def due(self) -> bool:
        return next(self._reached) == self._number

    def stand(self) -> None:
        """Report it, and wait: the test kills this process, or lets it go on."""
        self.report()
        while not self.released:
            time.sleep(LOOK_S)

    def report(self) -> None:
        (self._folder / "reached").touch()

    @property
    def released(self) -> bool:
        return (self._folder / "release").exists()


def at_blob(pause: Pause) -> None:
    """Half of an object is on its way: half a file, or a chunk without what follows it."""
    write_file, put = directory._write, topic.TopicStore._put

    def half_a_file(path: Path, data: bytes) -> int:
        if pause.due():
            beside = path.with_name(f"{path.name}.0{directory.UNFINISHED}")
            beside.write_bytes(data[: len(data) // 2])
            pause.stand()
        return write_file(path, data)

    def no_more_objects(
        self: topic.TopicStore, producer: CheckedProducer, partition: int, name: str, data: bytes
    ) -> None:
        put(self, producer, partition, name, data)
        if pause.due():
            producer.flush()
            pause.stand()

    patch.object(directory, "_write", half_a_file).start()
    patch.object(topic.TopicStore, "_put", no_more_objects).start()


def at_manifest(pause: Pause) -> None:
    """All blobs are durable; the manifest is not written yet."""

    def wrap(write: Callable[..., None]) -> Callable[..., None]:
        def late(self: Any, partition: int, objects: Mapping[str, bytes]) -> None:
            if any(name.startswith(PREFIX) for name in objects) and pause.due():
                pause.stand()
            write(self, partition, objects)

        return late

    for store in (directory.DirectoryStore, topic.TopicStore):
        patch.object(store, "write", wrap(store.write)).start()


def at_commit(pause: Pause) -> None:
    """The manifest is durable; the offset is not committed yet."""
    save = SnapshotRepository.save

    def slow(self: SnapshotRepository, *args: Any) -> Any:
        saved = save(self, *args)
        if pause.due():
            pause.stand()
        return saved

    patch.object(SnapshotRepository, "save", slow).start()


def at_load(pause: Pause) -> None:
    """The snapshot is read; nothing is made of it yet."""
    load = SnapshotRepository.load

    def slow(self: SnapshotRepository, build: Any) -> Any:
        loaded = load(self, build)
        if pause.due():
            pause.stand()
        return loaded

    patch.object(SnapshotRepository, "load", slow).start()


def at_replay(pause: Pause) -> None:
    """So many records of a restore are folded; those that are only read ahead do not count."""
    read, read_ahead = LiveKafka.read, PoisonGuard._read
    thread = threading.local()

    def slow(self: LiveKafka, topic: str, start: int, end: int | None = None) -> Iterator[Record]:
        counts = not getattr(thread, "reads_ahead", False)
        for record in read(self, topic, start, end):
            yield record
            if counts and pause.due():
                pause.stand()

    def uncounted(self: PoisonGuard, start: int, end: int | None) -> None:
        thread.reads_ahead = True
        try:
            read_ahead(self, start, end)
        finally:
            thread.reads_ahead = False

    patch.object(LiveKafka, "read", slow).start()
    patch.object(PoisonGuard, "_read", uncounted).start()


def at_fold(pause: Pause) -> None:
    """A record never comes to an end; it is the event loop that stands still."""
    apply = Fold.apply

    def slow(self: Fold, record: Record) -> Any:
        if pause.due():
            pause.stand()
        return apply(self, record)

    patch.object(Fold, "apply", slow).start()


def at_fetch(pause: Pause) -> None:
    """The consumer has brought so many batches and then brings no more, without an error."""
    fetch: Any = SafeConsumer._getmany
    silent = False

    async def silenced(self: SafeConsumer, active_partitions: Any, timeout: float) -> Any:
        nonlocal silent
        if silent:
            await asyncio.sleep(timeout or LOOK_S)
            return {}
        records = await fetch(self, active_partitions, timeout)
        silent = bool(records) and pause.due()
        if silent:
            pause.report()
        return records

    patch.object(SafeConsumer, "_getmany", silenced).start()


def at_report(pause: Pause) -> None:
    """Records have been sent, and no report about them comes any more."""
    poll = Outbox.poll
    silent = False

    def silenced(self: Outbox) -> None:
        nonlocal silent
        if not silent and self.waiting and pause.due():
            silent = True
            pause.report()
        if not silent or pause.released:
            poll(self)

    patch.object(Outbox, "poll", silenced).start()


def before(owner: Any, name: str) -> Callable[[Pause], None]:
    """A method is about to be called."""

    def install(pause: Pause) -> None:
        method = getattr(owner, name)

        def slow(*arguments: Any) -> Any:
            if pause.due():
                pause.stand()
            return method(*arguments)

        patch.object(owner, name, slow).start()

    return install


POINTS: Mapping[str, Callable[[Pause], None]] = {
    "blob": at_blob,
    "manifest": at_manifest,
    "commit": at_commit,
    "load": at_load,
    "replay": at_replay,
    "fold": at_fold,
    "fetch": at_fetch,
    "report": at_report,
    "archive": before(JournalArchive, "_write"),
    "redrive": before(Redrive, "_put"),
    "produce": before(Player, "send"),
}


def main() -> None:
    point, number, folder = sys.argv[1:4]
    del sys.argv[1:4]
    # Whoever is started in the background of a shell without jobs has it ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    POINTS[point](Pause(int(number), Path(folder)))
    cli.main()


if __name__ == "__main__":
    main()
