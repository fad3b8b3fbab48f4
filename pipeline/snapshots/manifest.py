"""Manifests: which objects make up a state, each known by the SHA-256 of its bytes.

A manifest is JSON. Its ``blobs`` give, by name, a version and the names of the blob's objects; the
first object holds the blob, the others are immutable parts of it that several snapshots share.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dtgol_core.state import Snapshot, SnapshotError, decode
from pipeline.errors import RefusalError

VERSION = 2
PREFIX = "manifest."


@dataclass(frozen=True)
class ManifestInfo:
    """A manifest in a store, whole or damaged, for inspection."""

    name: str
    next_offset: int
    size: int
    damage: str | None
    state: Mapping[str, Any]
    blobs: Mapping[str, Mapping[str, Any]]
    environment: Mapping[str, Any]
    objects: Mapping[str, bytes]

    def assemble(self) -> dict[str, Snapshot]:
        """Its blobs. Raises `SnapshotError`."""
        return assemble_all(self.blobs, self.objects)

    def blob_bytes(self, name: str) -> int:
        """The size of one blob in the store."""
        return sum(len(self.objects[each]) for each in self.blobs[name]["objects"])


def manifest_names(objects: Mapping[str, bytes]) -> list[str]:
    """The manifests among objects, the newest first."""
    return sorted((name for name in objects if name.startswith(PREFIX)), reverse=True)


def find_snapshots(objects: Mapping[str, bytes]) -> list[ManifestInfo]:
    """Every manifest among objects, the newest first; each object it names is checked."""
    return [_inspect(name, objects) for name in manifest_names(objects)]


def _inspect(name: str, objects: Mapping[str, bytes]) -> ManifestInfo:
    middle = name.split(".")[1]
    offset = int(middle) if middle.isdigit() else 0
    try:
        manifest = read_manifest(name, objects)
    except (SnapshotError, RefusalError) as error:
        return ManifestInfo(name, offset, 0, str(error), {}, {}, {}, objects)
    size, damage = len(objects[name]), None
    for each in sorted(object_names(manifest)):
        try:
            size += len(fetch(each, objects))
        except SnapshotError as error:
            damage = damage or str(error)
    state, blobs, environment = (manifest[key] for key in ("state", "blobs", "environment"))
    return ManifestInfo(name, offset, size, damage, state, blobs, environment, objects)


def object_names(manifest: Mapping[str, Any]) -> set[str]:
    """All objects that a manifest names."""
    return {name for entry in manifest["blobs"].values() for name in entry["objects"]}


def read_manifest(name: str, objects: Mapping[str, bytes]) -> dict[str, Any]:
    """A manifest, its form checked. Raises `SnapshotError`; `RefusalError` for a newer format."""
    try:
        manifest = json.loads(fetch(name, objects))
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
    if type(version) is int and version < VERSION:
        raise SnapshotError(f"{name} has the old format {version}, which is not read any more")
    if not _is_well_formed(manifest):
        raise SnapshotError(f"{name} is damaged: something is missing in it")
    return dict(manifest)


def _is_well_formed(manifest: Any) -> bool:
    """Whether everything is there that is looked for before the state itself is built."""
    return (
        isinstance(manifest, dict)
        and manifest.get("version") == VERSION
        and all(isinstance(manifest.get(name), dict) for name in ("identity", "state", "blobs"))
        and "environment" in manifest
        and all(_is_entry(entry) for entry in manifest["blobs"].values())
    )


def _is_entry(entry: Any) -> bool:
    if not isinstance(entry, dict) or type(entry.get("version")) is not int:
        return False
    names = entry.get("objects")
    return isinstance(names, list) and bool(names) and all(isinstance(each, str) for each in names)


def assemble_all(
    blobs: Mapping[str, Mapping[str, Any]], objects: Mapping[str, bytes]
) -> dict[str, Snapshot]:
    """All blobs, each from its objects. Raises `SnapshotError`."""
    return {name: _assemble(entry["objects"][0], objects) for name, entry in blobs.items()}


def _assemble(blob: str, objects: Mapping[str, bytes]) -> Snapshot:
    main = decode(fetch(blob, objects))
    parts = main.manifest.pop("parts", None)
    if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
        raise SnapshotError(f"{blob} is damaged: it does not name its parts")
    for part in parts:
        main.arrays.update(decode(fetch(part, objects)).arrays)
    return main


def fetch(name: str, objects: Mapping[str, bytes]) -> bytes:
    """The bytes of an object, checked against the hash in its name."""
    try:
        data = objects[name]
    except (KeyError, OSError):
        raise SnapshotError(f"{name} is missing") from None
    if content_hash(data) != name.rpartition(".")[2]:
        raise SnapshotError(f"{name} is damaged: its checksum does not match")
    return data


def content_hash(data: bytes) -> str:
    """SHA-256 in hex."""
    return hashlib.sha256(data).hexdigest()
