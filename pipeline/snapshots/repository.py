"""The snapshots of one partition: blobs first, a manifest last, the last three kept, and archived
ones.

A state hands over named blobs and says which parts of them are immutable; nothing else is known of
it here. Every object carries the SHA-256 of its bytes in its name. A manifest is written when all
it names is durable, so a torn write is never a snapshot; an object that is damaged or missing makes
its manifest unusable, and an older one is taken. Immutable parts are objects of their own, written
once, so a snapshot costs what has changed. Content depends on the journal prefix alone: a zombie
writes the same bytes. Only objects that this process wrote, or read and checked, count as stored,
so a new manifest never names a damaged object.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from dtgol_core.state import NewerSnapshotError, Snapshot, SnapshotError, encode
from pipeline.errors import RefusalError, StoreError
from pipeline.kafka.cluster import PARTITION_COUNT, SEE_GROWTH
from pipeline.snapshots.manifest import (
    PREFIX,
    VERSION,
    assemble_all,
    content_hash,
    manifest_names,
    object_names,
    read_manifest,
)
from pipeline.snapshots.store import Store

log = logging.getLogger(__name__)

KEPT = 3
BATCH_BYTES = 4 << 20
"""Objects are written so many bytes at a time: a snapshot is never in memory as a whole."""


class Archive(NamedTuple):
    """Which older snapshots stay: the first of every `every_ms`, the last `kept` of these."""

    every_ms: int
    kept: int


State = TypeVar("State")
Blobs = Mapping[str, Snapshot]


class StateSnapshot(NamedTuple):
    """A state between two records.

    `next_offset` orders the snapshots of a partition. `state` is plain JSON. `versions` names every
    blob of the state; `changed` holds those that are not stored in that version yet. `time_ms` is
    how far the state is in time, by the brokers' clock; 0 if it does not know.
    """

    next_offset: int
    state: dict[str, Any]
    versions: Mapping[str, int]
    changed: Blobs
    time_ms: int = 0


@dataclass(frozen=True, slots=True)
class SaveResult:
    """What a `save` did: the offset it holds, its name, and its cost.

    `digest` names the state by all its bits: two folds of the same prefix give the same one.
    """

    next_offset: int
    name: str
    digest: str
    objects_written: int
    bytes_written: int


class SnapshotRepository:
    """The snapshots of one partition in a store.

    `identity` says which cluster and topics the state belongs to; a snapshot of others is refused.
    `environment` is written beside it and never compared (the fingerprint of the machine).
    """

    def __init__(
        self,
        store: Store,
        partition: int,
        identity: Mapping[str, Any],
        environment: Mapping[str, Any] | None = None,
        archive: Archive | None = None,
    ) -> None:
        self._store = store
        self._partition = partition
        self._identity = dict(identity)
        self._environment = dict(environment or {})
        self._archive = archive
        self._times: dict[str, int] = {}
        self._present: set[str] = set()
        self._whole: set[str] = set()
        self._manifests: dict[str, set[str]] = {}
        self._blobs: dict[str, dict[str, Any]] = {}

    @property
    def stored(self) -> dict[str, int]:
        """The blobs of the newest manifest, and the version in which each is stored."""
        return {name: entry["version"] for name, entry in self._blobs.items()}

    def load(self, build: Callable[[dict[str, Any], Blobs], State]) -> State | None:
        """The newest state that is whole, or None if there is none.

        `build` makes it from state and blobs; its `SnapshotError` counts as damage too. A newer
        format is not damage: it is refused, and nothing of it is overwritten or removed.
        """
        objects = self._store.read(self._partition)
        self._present, self._whole = set(objects), set()
        self._manifests, self._blobs = {}, {}
        found: State | None = None
        for name in manifest_names(objects):
            try:
                manifest = read_manifest(name, objects)
            except SnapshotError as error:
                self._warn(name, error)
                continue
            self._check_identity(manifest["identity"])
            self._manifests[name] = object_names(manifest)
            self._times[name] = manifest.get("time_ms", 0)
            if found is None:
                found = self._build(name, manifest, objects, build)
        return found

    def _build(
        self,
        name: str,
        manifest: dict[str, Any],
        objects: Mapping[str, bytes],
        build: Callable[[dict[str, Any], Blobs], State],
    ) -> State | None:
        try:
            state = build(manifest["state"], assemble_all(manifest["blobs"], objects))
        except NewerSnapshotError as error:
            raise RefusalError(f"partition {self._partition}: {name}: {error}") from None
        except SnapshotError as error:
            self._warn(name, error)
            del self._manifests[name]
            return None
        self._blobs = manifest["blobs"]
        self._whole = set(self._manifests[name])
        if manifest["environment"] != self._environment:
            # Bits are promised within one fingerprint; going on is right, comparing bits is not.
            log.warning("partition %d: saved on %s", self._partition, manifest["environment"])
        return state

    def _warn(self, name: str, error: SnapshotError) -> None:
        log.warning("partition %d: %s is not used: %s", self._partition, name, error)

    def save(self, snapshot: StateSnapshot) -> SaveResult:
        """Write what is new of a state, then its manifest, then remove what no manifest names.

        Returns after the manifest is durable. Raises `StoreError`.
        """
        fresh: dict[str, bytes] = {}
        written: dict[str, int] = {}
        blobs = {}
        for name, version in sorted(snapshot.versions.items()):
            changed = snapshot.changed.get(name)
            if changed is None:
                blobs[name] = self._blobs[name]
            else:
                blobs[name] = {"version": version, "objects": self._split(name, changed, fresh)}
            del changed
            if sum(map(len, fresh.values())) >= BATCH_BYTES:
                self._write(fresh, written)
        manifest = {
            "version": VERSION,
            "next_offset": snapshot.next_offset,
            "time_ms": snapshot.time_ms,
            "identity": self._identity,
            "environment": self._environment,
            "state": snapshot.state,
            "blobs": blobs,
        }
        data = json.dumps(manifest, separators=(",", ":"), allow_nan=False).encode()
        name = f"{PREFIX}{snapshot.next_offset:020d}.{content_hash(data)}"
        self._write(fresh, written)
        self._write({name: data}, written)
        self._manifests[name] = object_names(manifest)
        self._times[name] = snapshot.time_ms
        self._blobs = blobs
        self._prune()
        bits = json.dumps([snapshot.state, blobs], separators=(",", ":")).encode()
        size = sum(written.values())
        return SaveResult(snapshot.next_offset, name, content_hash(bits), len(written), size)

    def _split(self, name: str, snapshot: Snapshot, fresh: dict[str, bytes]) -> list[str]:
        """Names of a blob's objects, the blob first; those not stored go into `fresh`."""
        rest = dict(snapshot.arrays)
        parts = []
        for prefix in snapshot.immutable:
            block = {each: rest.pop(each) for each in list(rest) if each.startswith(prefix)}
            data = encode(Snapshot(block, {}))
            parts.append(f"part.{content_hash(data)}")
            if parts[-1] not in self._whole:
                fresh[parts[-1]] = data
        data = encode(Snapshot(rest, snapshot.manifest | {"parts": parts}))
        blob = f"blob.{name}.{content_hash(data)}"
        if blob not in self._whole:
            fresh[blob] = data
        return [blob, *parts]

    def _write(self, fresh: dict[str, bytes], written: dict[str, int]) -> None:
        """Some objects of a snapshot, which `written` counts; `fresh` is empty afterwards.

        A failed attempt leaves nothing: the next needs the space.
        """
        try:
            if fresh:
                self._store.write(self._partition, fresh)
        except StoreError:
            needed = set(self._manifests).union(*self._manifests.values())
            unused = [each for each in (*fresh, *written) if each not in needed]
            self._store.discard(self._partition, unused)
            self._whole -= set(unused)
            raise
        self._present |= fresh.keys()
        self._whole |= fresh.keys()
        written |= {name: len(data) for name, data in fresh.items()}
        fresh.clear()

    def _prune(self) -> None:
        """Keep the last three manifests, archived ones, and what they name; manifests go first."""
        kept = sorted({*sorted(self._manifests)[-KEPT:], *self._archived()})
        named = set(kept).union(*(self._manifests[name] for name in kept))
        unused = self._present - named
        manifests = {name for name in unused if name.startswith(PREFIX)}
        if manifests:
            self._store.remove(self._partition, sorted(manifests))
        if unused - manifests:
            self._store.remove(self._partition, sorted(unused - manifests))
        self._present -= unused
        self._whole -= unused
        self._manifests = {name: self._manifests[name] for name in kept}

    def _archived(self) -> list[str]:
        """The first manifest of each of the last periods: as later ones come, it stays the first.

        Periods go by the time of the state, so every process chooses the same ones.
        """
        if self._archive is None:
            return []
        first: dict[int, str] = {}
        for name in sorted(self._manifests):
            first.setdefault(self._times[name] // self._archive.every_ms, name)
        return [first[period] for period in sorted(first)[-self._archive.kept :]]

    def _check_identity(self, found: Mapping[str, Any]) -> None:
        for key, ours in self._identity.items():
            if found.get(key) == ours:
                continue
            where = f"the snapshots of partition {self._partition} belong to another {key}"
            differ = f"{where} ({found.get(key)}, not {ours})"
            if key == PARTITION_COUNT:
                raise RefusalError(f"{differ}: {SEE_GROWTH}")
            raise RefusalError(
                f"{differ}: use the old one, another prefix, or an empty snapshot store"
            )
