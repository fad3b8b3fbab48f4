"""Snapshot format: a learner's state as a value, on its way out and in.

A `Snapshot` is a manifest of plain JSON values and a set of named arrays. `encode` makes one blob
of it: magic, version, SHA-256, header, arrays. `decode` gives it back or refuses with a
`SnapshotError` that says why: truncated, altered, written by a newer version. No pickle.
"""

import hashlib
import json
import math
import struct
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

VERSION = 1
_MAGIC = b"DTGOLSNP"
_PREFIX = struct.Struct("<8sI32sQ")  # magic, version, digest of all that follows, header length
_DTYPES = ("<f8", "<i8", "<i4", "|i1", "|u1", "|b1")
_EMPTY_SIDE_MAX = 1 << 20
"""Rows that an array without columns may have: nothing else would bound them."""

Array = npt.NDArray[Any]
DAMAGE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What code may raise that builds a state from values that are not what they should be."""


class SnapshotError(ValueError):
    """A snapshot that cannot be used; the message says why."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of a learner: named arrays (copies, not views) and a manifest of JSON values."""

    arrays: dict[str, Array]
    manifest: dict[str, Any]


def encode(snapshot: Snapshot) -> bytes:
    """One blob; the same state gives the same bytes.

    >>> blob = encode(Snapshot({"weights": np.array([0.5])}, {"step": 1}))
    >>> decode(blob).arrays["weights"].tolist()
    [0.5]
    >>> decode(blob[:-1])
    Traceback (most recent call last):
        ...
    dtgol_core.state.SnapshotError: the snapshot is damaged: its checksum does not match
    """
    table = []
    parts = []
    for name in sorted(snapshot.arrays):
        # Not ascontiguousarray, which gives an array without sides one.
        array = np.asarray(snapshot.arrays[name], order="C")
        if array.dtype.str not in _DTYPES:
            raise SnapshotError(f"array {name} has type {array.dtype}, which is not stored")
        table.append({"name": name, "dtype": array.dtype.str, "shape": list(array.shape)})
        parts.append(array.tobytes())
    text = json.dumps(
        {"arrays": table, "manifest": snapshot.manifest},
        sort_keys=True,
        separators=(",", ":"),
        allow_nan=False,
    )
    header = text.encode("utf-8", "surrogatepass")
    body = b"".join([header, *parts])
    prefix = _PREFIX.pack(_MAGIC, VERSION, hashlib.sha256(body).digest(), len(header))
    return prefix + body


def decode(blob: bytes) -> Snapshot:
    """The snapshot in a blob, every byte of it checked."""
    if len(blob) < _PREFIX.size:
        raise SnapshotError(f"the snapshot is cut off: {len(blob)} bytes are not even its head")
    magic, version, digest, header_length = _PREFIX.unpack_from(blob)
    if magic != _MAGIC:
        raise SnapshotError("this is not a snapshot: it does not begin like one")
    if version > VERSION:
        raise SnapshotError(
            f"the snapshot has format {version} and this version reads up to {VERSION}: "
            f"upgrade before restoring it"
        )
    body = memoryview(blob)[_PREFIX.size :]
    if version < 1 or hashlib.sha256(body).digest() != digest:
        raise SnapshotError("the snapshot is damaged: its checksum does not match")
    try:
        header = json.loads(
            bytes(body[:header_length]).decode("utf-8", "surrogatepass"),
            parse_float=_finite,
            parse_constant=_finite,
        )
        arrays = {}
        offset = header_length
        for entry in header["arrays"]:
            if not isinstance(entry["name"], str):
                raise SnapshotError("the snapshot is damaged: an array has no name")
            if entry["dtype"] not in _DTYPES:
                raise SnapshotError(f"array {entry['name']} has an unknown type")
            dtype, shape = np.dtype(entry["dtype"]), tuple(entry["shape"])
            if not all(type(extent) is int and extent >= 0 for extent in shape):
                raise SnapshotError(f"array {entry['name']} has no shape")
            count = math.prod(shape)
            if count == 0 and max(shape) > _EMPTY_SIDE_MAX:
                raise SnapshotError(f"array {entry['name']} is empty and claims to be huge")
            flat = np.frombuffer(body, dtype=dtype, count=count, offset=offset)
            arrays[entry["name"]] = flat.reshape(shape).copy()
            offset += count * dtype.itemsize
        if offset != len(body):
            raise SnapshotError("the snapshot is damaged: it is longer than its arrays")
        if not isinstance(header["manifest"], dict):
            raise SnapshotError("the snapshot is damaged: it has no manifest")
        return Snapshot(arrays, header["manifest"])
    except DAMAGE as error:
        if isinstance(error, SnapshotError):
            raise
        raise SnapshotError(f"the snapshot is damaged: {error}") from error


def check_types(given: Snapshot, fresh: Snapshot) -> None:
    """Refuse arrays and values of other types than in a snapshot of the same thing, fresh.

    What a fresh one does not have, or has as null, is not looked at.
    """
    for name, like in fresh.arrays.items():
        array = given.arrays.get(name, like)
        if array.dtype != like.dtype or array.ndim != like.ndim:
            raise SnapshotError(f"the snapshot is damaged: array {name} is of another type")
    for room, values in fresh.manifest.items():
        section = given.manifest.get(room, values)
        if not isinstance(section, dict):
            raise SnapshotError(f"the snapshot has no section {room}")
        for name, value in values.items():
            if not _alike(section.get(name, value), value):
                raise SnapshotError(f"the snapshot is damaged: {room}.{name} is of another type")


def whole(value: Any) -> int:
    """The value, if it is a whole number; JSON may have given anything."""
    if type(value) is not int:
        raise TypeError(f"a {type(value).__name__} where a whole number should be")
    return value


def text(value: Any) -> str:
    """The value, if it is a text."""
    if type(value) is not str:
        raise TypeError(f"a {type(value).__name__} where a text should be")
    return value


def _finite(written: str) -> float:
    number = float(written)
    if not math.isfinite(number):
        raise ValueError(f"{written} is no finite number")
    return number


def _alike(given: object, like: object) -> bool:
    if like is None or type(given) is type(like):
        return True
    return isinstance(like, float) and type(given) is int


def digest(snapshot: Snapshot) -> str:
    """SHA-256 of the state: equal for two learners exactly when all their bits are."""
    return hashlib.sha256(encode(snapshot)).hexdigest()


def gather(rooms: dict[str, dict[str, Any]]) -> Snapshot:
    """One snapshot from those of the rooms: arrays by ``room/name``, the rest in the manifest."""
    arrays: dict[str, Array] = {}
    manifest: dict[str, Any] = {}
    for room, values in rooms.items():
        plain = {}
        for name, value in values.items():
            if isinstance(value, np.ndarray):
                arrays[f"{room}/{name}"] = value
            else:
                plain[name] = value
        manifest[room] = plain
    return Snapshot(arrays, manifest)


def part(snapshot: Snapshot, room: str) -> dict[str, Any]:
    """What `gather` was given for a room."""
    if not isinstance(snapshot.manifest.get(room), dict):
        raise SnapshotError(f"the snapshot has no section {room}")
    prefix = f"{room}/"
    arrays = {
        name.removeprefix(prefix): array
        for name, array in snapshot.arrays.items()
        if name.startswith(prefix)
    }
    return {**snapshot.manifest[room], **arrays}


def pack_ids(ids: list[str]) -> tuple[Array, Array]:
    """Ids as two arrays: their UTF-8 bytes one after the other, and their lengths."""
    encoded = [id.encode("utf-8", "surrogatepass") for id in ids]
    text = np.frombuffer(b"".join(encoded), dtype=np.uint8)
    return text, np.array([len(each) for each in encoded], dtype=np.int32)


def unpack_ids(text: Array, lengths: Array) -> list[str]:
    """The ids that `pack_ids` packed."""
    raw = text.tobytes()
    ids = []
    start = 0
    for length in lengths.tolist():
        ids.append(raw[start : start + length].decode("utf-8", "surrogatepass"))
        start += length
    return ids


Value = TypeVar("Value")


def clone(value: Value) -> Value:
    """A copy that shares nothing that can change: arrays, containers and rooms are copied."""
    if hasattr(value, "copy"):
        copied: Value = value.copy()
        if isinstance(copied, dict) and hasattr(next(iter(copied.values()), None), "__dict__"):
            copied.update({key: clone(held) for key, held in copied.items()})
        return copied
    if hasattr(value, "__dict__"):
        twin = object.__new__(type(value))
        for name, held in vars(value).items():
            setattr(twin, name, clone(held))
        return twin
    return value
