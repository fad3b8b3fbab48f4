"""A worker that stands still at a chosen point: `python -m tests.support.held POINT N FOLDER …`.

The program is the real one; a function of it is wrapped, and the Nth time it is reached the wrapper
writes the file `reached` into FOLDER and waits for a file `release` there, or to be killed. So a
test can hit exactly the moment it means, with no hook in the product. The rest of the command line
goes to `dtgol`. Only the thread that reached the point stands still, unless it is the event loop's.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

from pipeline.environment import prepare

prepare()  # as the entry point does, before anything imports numpy

from pipeline import cli  # noqa: E402
from pipeline.agents import evaluator as evaluator_agent  # noqa: E402
from pipeline.agents import learner as learner_agent  # noqa: E402
from pipeline.engine.consumer import SteadyConsumer  # noqa: E402
from pipeline.fold import Fold  # noqa: E402
from pipeline.outbox import Outbox  # noqa: E402
from pipeline.snapshots import Shelf  # noqa: E402
from pipeline.stores import directory, topic  # noqa: E402

LOOK_S = 0.01
POINTS = ("blob", "manifest", "commit", "load", "replay", "fold", "fetch", "report")


class Hold:
    """Counts how often its point was reached, and stands still the Nth time."""

    def __init__(self, number: int, folder: Path) -> None:
        self._number = number
        self._folder = folder
        self._reached = itertools.count(1)

    def due(self) -> bool:
        return next(self._reached) == self._number

    def stand(self) -> None:
        """Say so, and wait: the test kills this process, or lets it go on."""
        self.say()
        while not self.released:
            time.sleep(LOOK_S)

    def say(self) -> None:
        (self._folder / "reached").touch()

    @property
    def released(self) -> bool:
        return (self._folder / "release").exists()


def hold_blob(hold: Hold) -> None:
    """Half of an object is on its way: half a file, or a chunk without what follows it."""
    whole_file, whole_object = directory._write, topic.TopicStore._put

    def half_a_file(path: Path, data: bytes) -> int:
        if hold.due():
            beside = path.with_name(f"{path.name}.0{directory.UNFINISHED}")
            beside.write_bytes(data[: len(data) // 2])
            hold.stand()
        return whole_file(path, data)

    def no_more_objects(self: Any, partition: int, name: str, data: bytes, report: Any) -> None:
        whole_object(self, partition, name, data, report)
        if hold.due():
            self._producer.flush(30)
            hold.stand()

    patch.object(directory, "_write", half_a_file).start()
    patch.object(topic.TopicStore, "_put", no_more_objects).start()


def hold_manifest(hold: Hold) -> None:
    """All blobs are durable; the manifest is not written yet."""

    def wrap(write: Callable[..., None]) -> Callable[..., None]:
        def late(self: Any, partition: int, objects: Mapping[str, bytes]) -> None:
            if any(name.startswith("manifest.") for name in objects) and hold.due():
                hold.stand()
            write(self, partition, objects)

        return late

    for store in (directory.DirectoryStore, topic.TopicStore):
        patch.object(store, "write", wrap(store.write)).start()


def hold_commit(hold: Hold) -> None:
    """The manifest is durable; the offset is not committed yet."""
    save = Shelf.save

    def slow(self: Shelf, *args: Any) -> Any:
        saved = save(self, *args)
        if hold.due():
            hold.stand()
        return saved

    patch.object(Shelf, "save", slow).start()


def hold_load(hold: Hold) -> None:
    """The snapshot is read; nothing is made of it yet."""
    load = Shelf.load

    def slow(self: Shelf, build: Any) -> Any:
        loaded = load(self, build)
        if hold.due():
            hold.stand()
        return loaded

    patch.object(Shelf, "load", slow).start()


def hold_replay(hold: Hold) -> None:
    """So many records of a restore are folded."""
    for agent in (learner_agent, evaluator_agent):
        read = agent.__dict__["read_range"]

        def slow(*args: Any, read: Any = read) -> Iterator[Any]:
            for message in read(*args):
                yield message
                if hold.due():
                    hold.stand()

        patch.object(agent, "read_range", slow).start()


def hold_fold(hold: Hold) -> None:
    """A record never comes to an end; it is the event loop that stands still."""
    apply = Fold.apply

    def slow(self: Fold, record: Any) -> Any:
        if hold.due():
            hold.stand()
        return apply(self, record)

    Fold.apply = slow  # type: ignore[method-assign]


def hold_fetch(hold: Hold) -> None:
    """The consumer has brought so many batches and then no more, and does not say so."""
    fetch: Any = SteadyConsumer._getmany
    silent = False

    async def silenced(self: SteadyConsumer, active_partitions: Any, timeout: float) -> Any:
        nonlocal silent
        if silent:
            await asyncio.sleep(timeout or LOOK_S)
            return {}
        records = await fetch(self, active_partitions, timeout)
        silent = bool(records) and hold.due()
        return records

    SteadyConsumer._getmany = silenced  # type: ignore[method-assign]


def hold_report(hold: Hold) -> None:
    """Records have been sent, and no word comes about them any more."""
    poll = Outbox.poll
    silent = False

    def silenced(self: Outbox) -> None:
        nonlocal silent
        if not silent and self.waiting and hold.due():
            silent = True
            hold.say()
        if not silent or hold.released:
            poll(self)

    Outbox.poll = silenced  # type: ignore[method-assign]


def main() -> None:
    point, number, folder = sys.argv[1:4]
    del sys.argv[1:4]
    assert point in POINTS, point
    globals()[f"hold_{point}"](Hold(int(number), Path(folder)))
    cli.main()


if __name__ == "__main__":
    main()
