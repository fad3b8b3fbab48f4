"""Which journal record each partition of a process is folding now, in a file that outlives it.

A process that dies without an exception (killed by the kernel for its memory, a fault in compiled
code, `abort`) cannot note where. The number of the record is written to a memory-mapped file before
the record is folded and taken back after it: a quarter of a microsecond, and the kernel keeps the
page whatever becomes of the process. The next start on this machine finds what a dead process
has left and notes it in the journal as a crash (`pipeline.learning.poison`). A process that is
killed between two records leaves nothing, nor does one that ends itself.

The file is locked for as long as its process lives, so workers that share a folder leave those of
the living alone.
"""

from __future__ import annotations

import atexit
import fcntl
import logging
import mmap
import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from pipeline import errors
from pipeline.settings import Settings

log = logging.getLogger(__name__)

SUFFIX = ".position"
_SLOT_BYTES = 8


class FatalRecord(NamedTuple):
    """What a dead process was folding."""

    partition: int
    offset: int


def positions_folder(settings: Settings) -> Path:
    """Where the files are: a setting, else beside the snapshots, else the machine's own folder."""
    if settings.worker.state_directory:
        return Path(settings.worker.state_directory)
    if settings.snapshots.store == "directory":
        return Path(settings.snapshots.directory) / ".positions"
    return Path(tempfile.gettempdir()) / f"dtgol-{os.geteuid()}"


class PositionFile:
    """The positions of one process. `name` is that of the journal and its id."""

    def __init__(self, folder: Path, name: str, partitions: int) -> None:
        # librdkafka writes ids in base64, whose digits are / and + too.
        self._folder, self._name = folder, quote(name, safe="")
        self._path = folder / f"{self._name}.{secrets.token_hex(8)}{SUFFIX}"
        self._slots = memoryview(bytearray(_SLOT_BYTES * partitions)).cast("q")
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if folder.stat().st_uid != os.geteuid():
                raise PermissionError(0, "it belongs to another user")
            self._open(_SLOT_BYTES * partitions)
        except OSError as error:
            why = error.strerror
            log.warning("%s: %s; a death without an exception is not counted", folder, why)
        errors.before_exit.append(self.close)
        atexit.register(self.close)

    def _open(self, size: int) -> None:
        """Create, lock, then give it its name: nobody finds it without its lock."""
        unnamed = self._path.with_suffix(".new")
        handle = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        fcntl.flock(handle, fcntl.LOCK_EX)
        try:
            # Real blocks: a write to a page that a full volume cannot hold ends a process (SIGBUS).
            os.posix_fallocate(handle, 0, size)
        except OSError:
            os.close(handle)
            unnamed.unlink()
            raise
        self._slots = memoryview(mmap.mmap(handle, size)).cast("q")
        unnamed.rename(self._path)  # the lock ends with the process: the handle stays open

    def enter(self, partition: int, offset: int) -> None:
        """A record is about to be folded."""
        self._slots[partition] = offset + 1

    def leave(self, partition: int) -> None:
        """It is folded, or has failed by an exception."""
        self._slots[partition] = 0

    def close(self) -> None:
        """The process ends by itself: whatever is being folded is not why."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)

    def of_dead_processes(self) -> Iterator[FatalRecord]:
        """What processes that live no more were folding; each file goes once that is dealt with."""
        for path in sorted(self._folder.glob(f"{self._name}.*{SUFFIX}")):
            if path == self._path:
                continue
            with suppress(OSError), path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # fails while its process lives
                data = file.read()
                slots = memoryview(data[: len(data) // _SLOT_BYTES * _SLOT_BYTES]).cast("q")
                for partition, after in enumerate(slots):
                    if after > 0:
                        yield FatalRecord(partition, after - 1)
                path.unlink(missing_ok=True)
