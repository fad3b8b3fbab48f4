"""Snapshot format: a learner's state as a value, written to bytes and read back.

A `Snapshot` is a manifest of plain JSON values and a set of named arrays. `encode` makes one blob
of it: magic, version, SHA-256, header, arrays. `decode` gives it back or refuses with a
`SnapshotError` that names the reason: truncated, altered, of another format. No pickle.
"""

import hashlib
import json
import math
import struct
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

VERSION = 5
"""Formats 1 (before there was a list of experts), 2 (before the id memory), 3 (before conformal
sets) and 4 (before state was laid out for one loop per expert) were never released and are not
read."""
_MAGIC = b"DTGOLSNP"
_PREFIX = struct.Struct("<8sI32sQ")  # magic, version, digest of all that follows, header length
_DTYPES = ("<f8", "<f4", "<i8", "<i4", "<i2", "|i1", "|u1", "|b1")
COUNT_MAX = 1 << 53
"""What is counted stays below it, for floats count too."""
_MANY = 256
_json = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode
_EMPTY_SIDE_MAX = 1 << 20
"""Rows that an array without columns may have: nothing else would bound them."""

Array = npt.NDArray[Any]
CORRUPTION_ERRORS = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What code may raise that builds a state from values that are not what they should be."""


class SnapshotError(ValueError):
    """A snapshot that cannot be used; the message gives the reason."""


class NewerSnapshotError(SnapshotError):
    """A snapshot in a format of a later version: not damaged, so nothing may take its place."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of a learner: named arrays (copies, not views) and a manifest of JSON values.

    ``immutable`` are prefixes of array names: what begins so will be the same in every later
    snapshot that has it, so a store may keep it once.
    """

    arrays: dict[str, Array]
    manifest: dict[str, Any]
    immutable: tuple[str, ...] = ()


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
    parts: list[bytes] = []
    for name in sorted(snapshot.arrays):
        # Not ascontiguousarray, which gives an array without sides one.
        array = np.asarray(snapshot.arrays[name], order="C")
        if array.dtype.str not in _DTYPES:
            raise SnapshotError(f"array {name} has type {array.dtype}, which is not stored")
        table.append({"name": name, "dtype": array.dtype.str, "shape": list(array.shape)})
        parts.append(array.tobytes())  # bytes of many are joined without the interpreter's lock
    manifest = (
        f"{_json(name)}:{_section(each)}" for name, each in sorted(snapshot.manifest.items())
    )
    text = f'{{"arrays":{_json(table)},"manifest":{{{",".join(manifest)}}}}}'
    header = text.encode("utf-8", "surrogatepass")
    digest = hashlib.sha256(header)
    for part in parts:
        digest.update(part)
    prefix = _PREFIX.pack(_MAGIC, VERSION, digest.digest(), len(header))
    return b"".join([prefix, header, *parts])


def _section(values: Any) -> str:
    """A section of a manifest as JSON; many values one at a time.

    Whoever writes a snapshot in a thread would hold all others up meanwhile: 10,000 boards of an
    evaluator took 24 ms.
    """
    if not isinstance(values, dict) or len(values) < _MANY:
        return _json(values)
    each = (f"{_json(name)}:{_json(values[name])}" for name in sorted(values))
    return f"{{{','.join(each)}}}"


def decode(blob: bytes) -> Snapshot:
    """The snapshot in a blob, every byte of it checked."""
    if len(blob) < _PREFIX.size:
        raise SnapshotError(f"the snapshot is cut off: {len(blob)} bytes are not even its head")
    magic, version, digest, header_length = _PREFIX.unpack_from(blob)
    if magic != _MAGIC:
        raise SnapshotError("this is not a snapshot: it does not begin like one")
    refuse_newer(version, VERSION)
    if 1 <= version < VERSION:
        raise SnapshotError(
            f"the snapshot has format {version}, which was never released and is not read: "
            f"start anew"
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
    except CORRUPTION_ERRORS as error:
        if isinstance(error, SnapshotError):
            raise
        raise SnapshotError(f"the snapshot is damaged: {error}") from error


def refuse_newer(found: Any, known: int) -> None:
    """Refuse a format that a later version has written."""
    if type(found) is int and found > known:
        raise NewerSnapshotError(
            f"the snapshot has format {found} and this version reads up to {known}: "
            f"upgrade before restoring it"
        )


def check_types(given: Snapshot, fresh: Snapshot) -> None:
    """Refuse arrays and values of other types than in a snapshot of the same thing, fresh.

    What a fresh one does not have, or has as null, is not checked.
    """
    for name, like in fresh.arrays.items():
        array = given.arrays.get(name, like)
        if array.dtype != like.dtype or array.ndim != like.ndim:
            raise SnapshotError(f"the snapshot is damaged: array {name} is of another type")
    for name, values in fresh.manifest.items():
        found = given.manifest.get(name, values)
        if not isinstance(found, dict):
            raise SnapshotError(f"the snapshot has no section {name}")
        for key, value in values.items():
            if not _alike(found.get(key, value), value):
                raise SnapshotError(f"the snapshot is damaged: {name}.{key} is of another type")


def check_values(given: Snapshot, may_be_missing: str, step: int) -> None:
    """Refuse numbers that are not finite, and steps that have not been.

    NaN means missing in one array alone; arrays of steps are called so, and -1 in them is none.
    """
    for name, array in given.arrays.items():
        if array.dtype.kind == "f":
            finite = np.isfinite(array)
            if not finite.all() and not (
                name == may_be_missing and (finite | (array != array)).all()
            ):
                raise SnapshotError(f"the snapshot is damaged: {name} is not finite")
        elif name.endswith(("step", "steps")) and ((array < -1) | (array > step)).any():
            raise SnapshotError(f"the snapshot is damaged: {name} has a step that has not been")


def require_shape(name: str, array: Array, shape: tuple[int, ...]) -> None:
    """Refuse an array of another shape than what it belongs to."""
    if array.shape != shape:
        raise SnapshotError(
            f"the snapshot does not fit together: {name} has shape {array.shape}, not {shape}"
        )


def require_int(value: Any) -> int:
    """The value, if it is a whole number; JSON may have given anything."""
    if type(value) is not int:
        raise TypeError(f"a {type(value).__name__} where a whole number should be")
    return value


def require_count(value: Any) -> int:
    """The value, if it is a whole number that may count something."""
    if not 0 <= require_int(value) < COUNT_MAX:
        raise ValueError(f"{value} is no count")
    return int(value)


def require_str(value: Any) -> str:
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


def combine(sections: Mapping[str, Mapping[str, Any]]) -> Snapshot:
    """One snapshot from its sections: arrays by ``section/name``, the rest in the manifest."""
    manifest = {
        section: {name: each for name, each in values.items() if not isinstance(each, np.ndarray)}
        for section, values in sections.items()
    }
    flat = flatten(sections)
    arrays = {name: each for name, each in flat.items() if isinstance(each, np.ndarray)}
    return Snapshot(arrays, manifest)


def section(snapshot: Snapshot, name: str) -> dict[str, Any]:
    """The values that `combine` was given for a section."""
    if not isinstance(snapshot.manifest.get(name), dict):
        raise SnapshotError(f"the snapshot has no section {name}")
    return {**snapshot.manifest[name], **subsection(snapshot.arrays, name)}


def flatten(parts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """One section from those of its parts; the names become ``part/name``."""
    return {
        f"{part}/{name}": each for part, values in parts.items() for name, each in values.items()
    }


def subsection(section: Mapping[str, Any], part: str) -> dict[str, Any]:
    """The values that `flatten` was given for a part."""
    prefix = f"{part}/"
    skip = len(prefix)
    return {name[skip:]: each for name, each in section.items() if name[:skip] == prefix}


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


ENTRY_BYTES = 100
"""An entry of a dict, list or set, with the short text or number in it; about, on CPython."""


def held_bytes(value: Any) -> int:
    """Memory of a state: its arrays, and the entries of its containers.

    The same for a state and for the one restored from its snapshot, so that decisions may rest on
    it. So attributes that are no state are left out: a class names them in ``CACHES``; one whose
    arrays have spare room says itself what it holds, in ``state_bytes``. Counters are few, and an
    entry of 0 is not in a snapshot. Cost: by the number of containers, not of what they hold.
    """
    if isinstance(value, np.ndarray):
        return int(value.nbytes)
    if isinstance(value, Counter):
        return 0
    if isinstance(value, dict):
        first = next(iter(value.values()), None)
        nested = isinstance(first, np.ndarray | dict | list) or hasattr(first, "__dict__")
        held = sum(map(held_bytes, value.values())) if nested else 0
        return held + ENTRY_BYTES * len(value)
    if isinstance(value, list | tuple | set | frozenset | deque):
        first = value[0] if value and isinstance(value, list | tuple) else None
        nested = isinstance(first, np.ndarray) or hasattr(first, "__dict__")
        held = sum(map(held_bytes, value)) if nested else 0
        return held + ENTRY_BYTES * len(value)
    if not hasattr(value, "__dict__"):
        return 0
    own = getattr(value, "state_bytes", None)
    if own is not None:
        return int(own)
    caches = getattr(value, "CACHES", ())
    return sum(held_bytes(held) for name, held in vars(value).items() if name not in caches)


Copied = TypeVar("Copied")


def clone(value: Copied) -> Copied:
    """A copy that shares nothing that can change: objects and what they hold are copied.

    Of containers only a dict may hold objects; arrays inside of containers stay shared, so that
    they must be read-only there.
    """
    if hasattr(value, "copy"):
        copied: Copied = value.copy()
        if isinstance(copied, dict) and hasattr(next(iter(copied.values()), None), "__dict__"):
            copied.update({key: clone(held) for key, held in copied.items()})
        return copied
    if hasattr(value, "__dict__"):
        other = object.__new__(type(value))
        for name, held in vars(value).items():
            setattr(other, name, clone(held))
        return other
    return value
