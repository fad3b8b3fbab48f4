"""Where the objects of snapshots are kept: the port that every store implements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol


class Store(Protocol):
    """Named objects per partition. Names are safe as file names; objects are never changed."""

    def read(self, partition: int) -> Mapping[str, bytes]:
        """Every object of a partition, damaged ones too: the reader checks the hashes in the names.

        Bytes may be loaded when they are asked for.
        """

    def write(self, partition: int, objects: Mapping[str, bytes]) -> None:
        """Write objects; durable on return. Raises `StoreError`."""

    def remove(self, partition: int, names: Iterable[str]) -> None:
        """Remove objects; one that is not there is no error. Raises `StoreError`."""

    def discard(self, partition: int, names: Iterable[str]) -> None:
        """Free the space of objects of a failed attempt, where space is limited."""

    def written_ms(self, partition: int, name: str) -> int | None:
        """When an object was written, epoch milliseconds, as far as the last `read` saw it."""
