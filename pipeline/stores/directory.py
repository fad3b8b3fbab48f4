"""Snapshots in a directory: one folder per partition, one file per object.

A file appears whole or not at all: written beside its name, synced, renamed, and the folder synced.
What a killed writer left half written is swept away by the next writer of the partition.
For the embedded broker and for workers that share a machine or a volume.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from pipeline.snapshots import StoreError

UNFINISHED = ".unfinished"
_OURS = f".{secrets.token_hex(8)}{UNFINISHED}"
"""No two processes write to one file: in containers they would have the same process id."""


class DirectoryStore:
    """Objects as files below `root`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._swept: set[int] = set()
        self._written: dict[Path, int] = {}

    def read(self, partition: int) -> Mapping[str, bytes]:
        """The files of a partition; each is read when it is asked for."""
        return _Folder(self._folder(partition))

    def write(self, partition: int, objects: Mapping[str, bytes]) -> None:
        """Write files; synced on return. Two writers of one name write the same bytes."""
        folder = self._folder(partition)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._sweep(partition)
            for name, data in objects.items():
                self._written[folder / name] = _write(folder / name, data)
            _sync_folder(folder)
        except OSError as error:
            raise StoreError(f"cannot write snapshots to {folder}: {error.strerror}") from error

    def remove(self, partition: int, names: Iterable[str]) -> None:
        """Unlink files."""
        folder = self._folder(partition)
        try:
            for name in names:
                (folder / name).unlink(missing_ok=True)
                self._written.pop(folder / name, None)
        except OSError as error:
            raise StoreError(f"cannot tidy snapshots in {folder}: {error.strerror}") from error

    def discard(self, partition: int, names: Iterable[str]) -> None:
        """Unlink files of a failed attempt: the next needs their room.

        Only those that are still the ones written here: another writer may have put the same
        content there since, and counts on it.
        """
        for path in (self._folder(partition) / name for name in names):
            with contextlib.suppress(OSError):
                if path.stat().st_ino == self._written.pop(path, None):
                    path.unlink()

    def written_ms(self, partition: int, name: str) -> int | None:
        """The file's own time."""
        try:
            return (self._folder(partition) / name).stat().st_mtime_ns // 1_000_000
        except OSError:
            return None

    def _sweep(self, partition: int) -> None:
        """Before the first write. A zombie may still be at it: its write fails and is repeated."""
        if partition not in self._swept:
            self._swept.add(partition)
            for left in self._folder(partition).glob(f"*{UNFINISHED}"):
                left.unlink(missing_ok=True)

    def _folder(self, partition: int) -> Path:
        return self._root / str(partition)


class _Folder(Mapping[str, bytes]):
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        listed = os.listdir(folder) if folder.is_dir() else []
        self._names = frozenset(name for name in listed if not name.endswith(UNFINISHED))

    def __getitem__(self, name: str) -> bytes:
        if name not in self._names:
            raise KeyError(name)
        return (self._folder / name).read_bytes()

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _write(path: Path, data: bytes) -> int:
    """Write a file; the number by which the file system knows it."""
    beside = path.with_name(path.name + _OURS)
    try:
        with beside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            number = os.fstat(file.fileno()).st_ino
        beside.rename(path)
    except OSError:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        raise
    return number


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
