"""The snapshots topic: learners and manifests in chunks, compacted. Internal.

The key names the object and the part of it, so that compaction keeps the newest of each and a
tombstone removes it. A manifest is written last and names its blobs by content; a blob of which
a part is missing or whose hash differs does not exist.
"""

from dataclasses import dataclass, field
from enum import StrEnum

from topics.wire import wire

CHUNK_BYTES_MAX = 900_000
"""With key and headers below every broker's default limit of a message (1 MiB)."""
VERSION = 1


class SnapshotKind(StrEnum):
    """What a chunk is part of."""

    BLOB = "blob"
    MANIFEST = "manifest"


@dataclass(frozen=True, slots=True)
class Chunk:
    """Headers of one chunk."""

    version: int = field(metadata=wire("Version of the container format.", minimum=1))
    kind: SnapshotKind = field(metadata=wire("What this is part of."))
    name: str = field(metadata=wire("Name of the blob or manifest in its partition."))
    part: int = field(metadata=wire("Number of this chunk, from 0.", minimum=0))
    parts: int = field(metadata=wire("Chunks in the whole.", minimum=1))
    length: int = field(metadata=wire("Bytes of the whole.", minimum=0))
    sha256: str = field(metadata=wire("Hash of the whole in hex."))


def chunk_key(kind: SnapshotKind, name: str, part: int) -> bytes:
    """The compaction key of a chunk: ``blob/ward-3@1207/0``. Unique within its partition."""
    return f"{kind}/{name}/{part}".encode()
