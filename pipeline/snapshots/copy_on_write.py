"""A state in parts that one thread copies for a snapshot while another goes on changing it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from threading import Lock
from typing import Generic, Protocol, TypeVar

Copied = TypeVar("Copied", covariant=True)
Copy = TypeVar("Copy")


class Part(Protocol[Copied]):
    """A part of a state: a stream, a scoreboard."""

    def snapshot(self) -> Copied:
        """A copy of it as it is now."""


class CopyOnWrite(Mapping[str, Copy], Generic[Copy]):
    """Parts as they were at one moment, each copied once: when it is taken, or before it changes.

    Who changes the state calls `keep` before it touches a part, the writer of a snapshot takes
    items from another thread; the lock is held for the copy of one part. A part stays listed until
    its copy is whole: `keep` looks without the lock, and must wait for a copy that is being made.
    """

    def __init__(self, parts: Mapping[str, Part[Copy]]) -> None:
        self._parts = dict(parts)
        self._copies: dict[str, Copy] = {}
        self._names = tuple(parts)
        self._lock = Lock()

    def keep(self, name: str) -> None:
        """The part is about to change."""
        if name in self._parts:
            with self._lock:
                part = self._parts.get(name)
                if part is not None:
                    self._copies[name] = part.snapshot()
                    del self._parts[name]

    def __getitem__(self, name: str) -> Copy:
        with self._lock:
            part = self._parts.get(name)
            if part is None:
                return self._copies.pop(name)
            copy = part.snapshot()
            del self._parts[name]
            return copy

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
