"""Snapshots of one partition: blobs first, a manifest last, the last three kept.

Every object carries the SHA-256 of its bytes in its name. A manifest is written when all it names
is durable, so a torn write is never a snapshot; an object that is damaged or missing makes its
manifest unusable, and an older one is taken. What a state consists of goes into blobs by content:
full blocks of the delay table are parts of their own, written once, so a snapshot costs what has
changed. Content depends on the journal prefix alone: a zombie writes the same thing. Only what was
written here, or read and found whole, counts as written: damage is never built upon.

Promise: `save` returns after the manifest is durable. Where objects lie is the `Store`'s matter.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from dtgol_core.delay import BLOCK_STEPS
from dtgol_core.state import Snapshot, SnapshotError, decode, encode

log = logging.getLogger(__name__)

VERSION = 1
KEPT = 3
_BLOCKS = ("delay/block/", "delay/settled/")
State = TypeVar("State")
Streams = dict[str, Snapshot]


class Store(Protocol):
    """Where objects lie. Names are safe as file names; objects are never changed."""

    def read(self, partition: int) -> Mapping[str, bytes]:
        """Every object of a partition, damaged ones too: who reads checks what the names say.

        Bytes may be loaded when they are asked for.
        """

    def write(self, partition: int, objects: Mapping[str, bytes]) -> None:
        """Write objects; durable on return. Raises `StoreError`."""

    def remove(self, partition: int, names: Iterable[str]) -> None:
        """Remove objects; one that is not there is no fault. Raises `StoreError`."""

    def discard(self, partition: int, names: Iterable[str]) -> None:
        """Give back the room of objects of a failed attempt, where room is scarce."""

    def written_ms(self, partition: int, name: str) -> int | None:
        """When an object was written, epoch milliseconds, as far as the last `read` saw it."""


class StoreError(RuntimeError):
    """The store could not write or read; the text says why. Nothing is lost by it."""


class RefusalError(RuntimeError):
    """This state must not be gone on with; one sentence for the operator. Ends the process."""


@dataclass(frozen=True, slots=True)
class Saved:
    """What a `save` did: the offset it holds, its name, and its cost.

    `digest` names the state by all its bits: two folds of the same prefix give the same one.
    """

    next_offset: int
    name: str
    digest: str
    objects_written: int
    bytes_written: int


@dataclass(frozen=True)
class Found:
    """A manifest in a store, whole or not, for those who only look."""

    name: str
    next_offset: int
    size: int
    damage: str | None
    state: Mapping[str, Any]
    streams: Mapping[str, Mapping[str, Any]]
    note: Mapping[str, Any]
    objects: Mapping[str, bytes]

    def assemble(self) -> Streams:
        """Its streams. Raises `SnapshotError`."""
        return {
            stream: _assemble(entry["objects"][0], self.objects)
            for stream, entry in self.streams.items()
        }

    def stream_bytes(self, stream: str) -> int:
        """What one stream weighs in the store."""
        return sum(len(self.objects[name]) for name in self.streams[stream]["objects"])


def find_snapshots(objects: Mapping[str, bytes]) -> list[Found]:
    """Every manifest among objects, the newest first; each object it names is checked."""
    names = sorted((name for name in objects if name.startswith("manifest.")), reverse=True)
    return [_find(name, objects) for name in names]


def _find(name: str, objects: Mapping[str, bytes]) -> Found:
    middle = name.split(".")[1]
    offset = int(middle) if middle.isdigit() else 0
    try:
        manifest = _read_manifest(name, objects)
    except (SnapshotError, RefusalError) as error:
        return Found(name, offset, 0, str(error), {}, {}, {}, objects)
    size, damage = len(objects[name]), None
    for each in sorted(_named(manifest)):
        try:
            size += len(_fetch(each, objects))
        except SnapshotError as error:
            damage = damage or str(error)
    state, streams, note = manifest["state"], manifest["streams"], manifest["note"]
    return Found(name, offset, size, damage, state, streams, note, objects)


class Shelf:
    """The snapshots of one partition.

    `identity` says which cluster and topics the state belongs to; a snapshot of others is refused.
    `note` is written beside it and never compared (the fingerprint of the machine).
    """

    def __init__(
        self,
        store: Store,
        partition: int,
        identity: Mapping[str, Any],
        note: Mapping[str, Any] | None = None,
    ) -> None:
        self._store = store
        self._partition = partition
        self._identity = dict(identity)
        self._note = dict(note or {})
        self._present: set[str] = set()
        self._whole: set[str] = set()
        self._manifests: dict[str, set[str]] = {}
        self._streams: dict[str, dict[str, Any]] = {}

    @property
    def stored(self) -> dict[str, int]:
        """The streams of the newest manifest and the offset up to which each is stored."""
        return {name: entry["next_offset"] for name, entry in self._streams.items()}

    def load(self, build: Callable[[dict[str, Any], Streams], State]) -> State | None:
        """The newest state that is whole, or None if there is none.

        `build` makes it from state and streams; its `SnapshotError` counts as damage too.
        """
        objects = self._store.read(self._partition)
        self._present, self._whole = set(objects), set()
        self._manifests, self._streams = {}, {}
        found: State | None = None
        for name in sorted(
            (name for name in objects if name.startswith("manifest.")), reverse=True
        ):
            try:
                manifest = _read_manifest(name, objects)
            except SnapshotError as error:
                log.warning("partition %d: %s is not used: %s", self._partition, name, error)
                continue
            self._check_identity(manifest["identity"])
            self._manifests[name] = _named(manifest)
            if found is None:
                found = self._try(name, manifest, objects, build)
        return found

    def _try(
        self,
        name: str,
        manifest: dict[str, Any],
        objects: Mapping[str, bytes],
        build: Callable[[dict[str, Any], Streams], State],
    ) -> State | None:
        try:
            streams = {
                stream: _assemble(entry["objects"][0], objects)
                for stream, entry in manifest["streams"].items()
            }
            state = build(manifest["state"], streams)
        except SnapshotError as error:
            log.warning("partition %d: %s is not used: %s", self._partition, name, error)
            del self._manifests[name]
            return None
        self._streams = manifest["streams"]
        self._whole = set(self._manifests[name])
        if manifest["note"] != self._note:
            # Bits are promised within one fingerprint; going on is right, comparing bits is not.
            log.warning("partition %d: saved on %s", self._partition, manifest["note"])
        return state

    def save(self, next_offset: int, state: Mapping[str, Any], changed: Streams) -> Saved:
        """Write what is new of a state, then its manifest, then remove what nobody names."""
        fresh: dict[str, bytes] = {}
        streams = {name: self._streams[name] for name in _names(state) if name not in changed}
        for stream, snapshot in changed.items():
            names = self._shelve(stream, snapshot, fresh)
            offset = snapshot.manifest.get("stream", {}).get("next_offset", next_offset)
            streams[stream] = {"next_offset": offset, "objects": names}
        manifest = {
            "version": VERSION,
            "next_offset": next_offset,
            "identity": self._identity,
            "note": self._note,
            "state": dict(state),
            "streams": {name: streams[name] for name in sorted(streams)},
        }
        data = json.dumps(manifest, separators=(",", ":"), allow_nan=False).encode()
        name = f"manifest.{next_offset:020d}.{_hash(data)}"
        self._write(fresh, name, data)
        self._manifests[name] = _named(manifest)
        self._streams = streams
        self._prune()
        written = sum(map(len, fresh.values())) + len(data)
        bits = json.dumps([manifest["state"], manifest["streams"]], separators=(",", ":"))
        return Saved(next_offset, name, _hash(bits.encode()), len(fresh) + 1, written)

    def _write(self, fresh: Mapping[str, bytes], name: str, manifest: bytes) -> None:
        """Blobs, then the manifest. A failed attempt leaves nothing: the next needs its room."""
        try:
            if fresh:
                self._store.write(self._partition, fresh)
            self._store.write(self._partition, {name: manifest})
        except StoreError:
            needed = set(self._manifests).union(*self._manifests.values())
            useless = [each for each in (name, *fresh) if each not in needed]
            self._store.discard(self._partition, useless)
            raise
        self._present |= {name, *fresh}
        self._whole |= fresh.keys()

    def _shelve(self, stream: str, snapshot: Snapshot, fresh: dict[str, bytes]) -> list[str]:
        """Names of a stream's objects, the blob first; those not there go into `fresh`."""
        rest = dict(snapshot.arrays)
        parts = []
        for prefix in _full_blocks(snapshot):
            block = {name: rest.pop(name) for name in list(rest) if name.startswith(prefix)}
            data = encode(Snapshot(block, {}))
            parts.append(f"part.{_hash(data)}")
            if parts[-1] not in self._whole:
                fresh[parts[-1]] = data
        data = encode(Snapshot(rest, snapshot.manifest | {"parts": parts}))
        blob = f"blob.{stream}.{_hash(data)}"
        if blob not in self._whole:
            fresh[blob] = data
        return [blob, *parts]

    def _prune(self) -> None:
        """Keep the last three manifests and what they name; the manifests go first."""
        kept = sorted(self._manifests)[-KEPT:]
        named = set(kept).union(*(self._manifests[name] for name in kept))
        useless = self._present - named
        manifests = {name for name in useless if name.startswith("manifest.")}
        if manifests:
            self._store.remove(self._partition, sorted(manifests))
        if useless - manifests:
            self._store.remove(self._partition, sorted(useless - manifests))
        self._present -= useless
        self._whole -= useless
        self._manifests = {name: self._manifests[name] for name in kept}

    def _check_identity(self, found: Mapping[str, Any]) -> None:
        for key, ours in self._identity.items():
            if found.get(key) != ours:
                raise RefusalError(
                    f"the snapshots of partition {self._partition} belong to another {key} "
                    f"({found.get(key)}, not {ours}): use the old one, another prefix, or an "
                    f"empty snapshot store"
                )


def _names(state: Mapping[str, Any]) -> list[str]:
    return [name for name, _ in state["streams"]]


def _named(manifest: Mapping[str, Any]) -> set[str]:
    return {name for entry in manifest["streams"].values() for name in entry["objects"]}


def _full_blocks(snapshot: Snapshot) -> list[str]:
    """Prefixes of the blocks that will not be written again, in the order of their names."""
    ending = "id_lengths"
    return [
        name.removesuffix(ending)
        for name in sorted(snapshot.arrays)
        if name.startswith(_BLOCKS)
        and name.endswith("/" + ending)
        and len(snapshot.arrays[name]) == BLOCK_STEPS
    ]


def _read_manifest(name: str, objects: Mapping[str, bytes]) -> dict[str, Any]:
    try:
        manifest = json.loads(_fetch(name, objects))
    except (ValueError, RecursionError) as error:
        if isinstance(error, SnapshotError):
            raise
        raise SnapshotError(f"{name} is damaged: it is not JSON") from None
    version = manifest.get("version") if isinstance(manifest, dict) else None
    if type(version) is int and version > VERSION:
        raise RefusalError(
            f"{name} has format {version} and this version reads up to {VERSION}: "
            f"upgrade before going on"
        )
    if not _well_formed(manifest):
        raise SnapshotError(f"{name} is damaged: something is missing in it")
    return dict(manifest)


def _well_formed(manifest: Any) -> bool:
    """Whether everything is there that is looked for before the state itself is built."""
    return (
        isinstance(manifest, dict)
        and manifest.get("version") == VERSION
        and all(isinstance(manifest.get(name), dict) for name in ("identity", "state", "streams"))
        and "note" in manifest
        and all(_is_entry(entry) for entry in manifest["streams"].values())
    )


def _is_entry(entry: Any) -> bool:
    if not isinstance(entry, dict) or type(entry.get("next_offset")) is not int:
        return False
    names = entry.get("objects")
    return isinstance(names, list) and bool(names) and all(isinstance(each, str) for each in names)


def _assemble(blob: str, objects: Mapping[str, bytes]) -> Snapshot:
    main = decode(_fetch(blob, objects))
    parts = main.manifest.pop("parts", None)
    if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
        raise SnapshotError(f"{blob} is damaged: it does not name its parts")
    for part in parts:
        main.arrays.update(decode(_fetch(part, objects)).arrays)
    return main


def _fetch(name: str, objects: Mapping[str, bytes]) -> bytes:
    """The bytes of an object, checked against the hash in its name."""
    try:
        data = objects[name]
    except (KeyError, OSError):
        raise SnapshotError(f"{name} is missing") from None
    if _hash(data) != name.rpartition(".")[2]:
        raise SnapshotError(f"{name} is damaged: its checksum does not match")
    return data


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
