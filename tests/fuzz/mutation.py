"""How inputs are changed: bytes, JSON values inside them, and snapshots behind a right checksum.

Blind changes of bytes hardly ever get past a parser or a checksum, so half of the changes are made
to the value that the bytes stand for, and a blob is sealed again.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable
from math import inf, nan
from random import Random
from typing import Any

from dtgol_core.state import VERSION

HEAD = struct.Struct("<8sI32sQ")
MAGIC = b"DTGOLSNP"
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 3, 0.5, -0.0, 1e-320, 1e300, inf, nan),
    *(2**31, 2**63 - 1, 2**63, 2**64, 10**30, -(2**63)),
    *("", "a", "default", "\x00", "\ud800", "continuous", "<f8", "|O", "x" * 300),
    *([], [[]], {}, [0], [2**40, 0], [0, 2**40], [-1], [1, 1], {"a": 1}, [None], [0, 1, 2]),
)

Change = Callable[[bytes, Random], bytes]


def mutated(data: bytes, chance: Random, change_bytes: Change | None = None) -> bytes:
    """The input with something changed; `change_bytes` is the engine's own way, if it has one."""
    blind = change_bytes or any_bytes
    if data[:8] == MAGIC:
        return _blob(data, chance, blind)
    if chance.random() < 0.5:
        return blind(data, chance)
    return _lines(data, chance)


def any_bytes(data: bytes, chance: Random) -> bytes:
    """One to four changes of bytes, wherever."""
    changed = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(changed) + 1)
        what = chance.randrange(5)
        if what == 0:
            changed[at:at] = chance.randbytes(chance.randint(1, 4))
        elif what == 1:
            del changed[at : at + chance.randint(1, 8)]
        elif what == 2:
            piece = changed[at : at + chance.randint(1, 16)]
            changed[at:at] = piece * chance.randint(1, 3)
        elif what == 3 and at < len(changed):
            changed[at] ^= 1 << chance.randrange(8)
        else:
            changed[at : at + 1] = chance.choice((b'"', b"{", b"[", b"\n", b"\\u0000", b"-", b"9"))
    return bytes(changed)


def _lines(data: bytes, chance: Random) -> bytes:
    """One line's JSON is changed, wherever in the line it begins."""
    lines = data.split(b"\n")
    at = chance.randrange(len(lines))
    start = min((found for found in map(lines[at].find, (b"{", b"[")) if found >= 0), default=0)
    try:
        value = json.loads(lines[at][start:])
    except (ValueError, RecursionError):
        return any_bytes(data, chance)
    lines[at] = lines[at][:start] + written(changed(value, chance))
    if chance.random() < 0.2:
        lines.insert(chance.randrange(len(lines) + 1), chance.choice(lines))
    return b"\n".join(lines)


def written(value: Any) -> bytes:
    """JSON as we write it; lone surrogates included."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode(
        "utf-8", "surrogatepass"
    )


def changed(value: Any, chance: Random) -> Any:
    """The value with one place in it replaced, removed, doubled or renamed."""
    if not isinstance(value, dict | list) or not value or chance.random() < 0.1:
        return _other(value, chance)
    if isinstance(value, dict):
        key = chance.choice(list(value))
        what = chance.random()
        if what < 0.1:
            return {name: each for name, each in value.items() if name != key}
        if what < 0.2:
            return {**value, chance.choice(("", "a", key + "x", "version")): value[key]}
        return {**value, key: changed(value[key], chance)}
    at, what = chance.randrange(len(value)), chance.random()
    if what < 0.1:
        return value[:at] + value[at + 1 :]
    if what < 0.2:
        return value[:at] + [value[at]] * 2 + value[at + 1 :]
    return [*value[:at], changed(value[at], chance), *value[at + 1 :]]


def _other(value: Any, chance: Random) -> Any:
    if isinstance(value, int | float) and chance.random() < 0.5:
        return value + chance.choice((-1, 1, 7, 10**6, 0.5))
    return chance.choice(VALUES)


def _blob(data: bytes, chance: Random, blind: Change) -> bytes:
    """A snapshot with another header or other arrays, and mostly a checksum that is right."""
    if chance.random() < 0.05 or len(data) < HEAD.size:
        return blind(data, chance)
    *_, length = HEAD.unpack_from(data)
    body = data[HEAD.size :]
    header, arrays = body[:length], body[length:]
    what = chance.random()
    if what < 0.7:
        try:
            header = written(changed(json.loads(header.decode("utf-8", "surrogatepass")), chance))
        except (ValueError, RecursionError):
            header = blind(header, chance)
    elif what < 0.95:
        spot = chance.randrange(len(arrays) + 1)
        piece = arrays[spot : spot + 8]
        extreme = chance.choice((b"\xff" * 8, b"\0" * 8, struct.pack("<q", 2**40), b"\x7f" * 8))
        arrays = arrays[:spot] + extreme[: len(piece)] + arrays[spot + 8 :]
    else:
        header = blind(header, chance)
    return sealed(header, arrays)


def sealed(header: bytes, arrays: bytes = b"", version: int = VERSION) -> bytes:
    """A blob with the right magic and the right checksum, whatever is in it."""
    body = header + arrays
    return HEAD.pack(MAGIC, version, hashlib.sha256(body).digest(), len(header)) + body
