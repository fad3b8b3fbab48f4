"""A state in parts that one thread copies for a snapshot while another goes on changing it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from threading import Lock
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from dtgol_core.state import Snapshot

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

    Copies of learners that wait for the writer keep their JSON values as text: those of a thousand
    streams are 80,000 lists and dicts, for which the garbage collector held the event loop 20 ms.
    """

    def __init__(self, parts: Mapping[str, Part[Copy]]) -> None:
        self._parts = dict(parts)
        self._copies: dict[str, Any] = {}
        self._names = tuple(parts)
        self._lock = Lock()

    def keep(self, name: str) -> None:
        """The part is about to change."""
        if name in self._parts:
            with self._lock:
                part = self._parts.get(name)
                if part is not None:
                    self._copies[name] = _pack(part.snapshot())
                    del self._parts[name]

    def __getitem__(self, name: str) -> Copy:
        with self._lock:
            part = self._parts.get(name)
            if part is not None:
                copy = part.snapshot()
                del self._parts[name]
                return copy
            packed = self._copies.pop(name)
        copied: Copy = _unpack(packed)
        return copied

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class Packed(NamedTuple):
    """A snapshot as it waits: its JSON values as text, and the rest of it."""

    manifest: str
    rest: Snapshot


def _pack(copy: Any) -> Any:
    """A copy as it waits."""
    if isinstance(copy, Snapshot):
        return Packed(json.dumps(copy.manifest), replace(copy, manifest={}))
    return copy


def _unpack(packed: Any) -> Any:
    """What `_pack` was given."""
    if isinstance(packed, Packed):
        return replace(packed.rest, manifest=json.loads(packed.manifest))
    return packed
