"""Snapshots in a directory: one folder per partition, one file per object.

A file appears whole or not at all: written beside its name, synced, renamed, and the folder synced.
What a killed writer left half written is removed by the next writer of the partition. Files are
0600 in folders of 0700: they hold ids and values.
For the embedded broker and for workers that share a machine or a volume.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from pipeline.errors import StoreError

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
            _make_private(folder)
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
        """Unlink files of a failed attempt: the next one needs the space.

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
        """Before the first write. The write of a zombie may fail by it; it tries again."""
        if partition not in self._swept:
            self._swept.add(partition)
            with contextlib.suppress(PermissionError):
                self._folder(partition).chmod(0o700)  # an older version has made it for all
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
    """Write a file; returns its inode number."""
    beside = path.with_name(path.name + _OURS)
    try:
        with open(beside, "wb", opener=_private) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            inode = os.fstat(file.fileno()).st_ino
        beside.rename(path)
    except OSError:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        raise
    return inode


def _private(path: str, flags: int) -> int:
    """A file for its owner alone: a snapshot holds ids and values."""
    return os.open(path, flags, 0o600)


def _make_private(folder: Path) -> None:
    """Make a folder, and those above it that are missing, for their owner alone."""
    if not folder.is_dir():
        _make_private(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
