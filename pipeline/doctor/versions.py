"""Which requests a broker understands, asked with Kafka's own ApiVersions request.

Neither client tells, so the request is made here: it is the one that needs no login, and its first
version has not changed in ten years. From the answer follow what Faust's client and librdkafka
can use, and about which Kafka it is.
"""

import socket
import ssl
import struct
from collections.abc import Mapping
from typing import NamedTuple

from pipeline.doctor.findings import Finding, fine, note, problem

CHECK = "broker version"
ANSWER_S = 5.0
ANSWER_BYTES_MAX = 65_536
_API_VERSIONS = 18
_NAMES = {
    0: "Produce",
    1: "Fetch",
    2: "ListOffsets",
    3: "Metadata",
    8: "OffsetCommit",
    9: "OffsetFetch",
    11: "JoinGroup",
    14: "SyncGroup",
    22: "InitProducerId",
}
NEEDED = {
    0: (3, 8),
    1: (4, 11),
    2: (1, 5),
    3: (1, 5),
    8: (2, 3),
    9: (1, 3),
    11: (1, 5),
    14: (0, 3),
    22: (0, 1),
}
"""Lowest version that does what is needed (headers, read committed, idempotence), and the highest
that aiokafka 0.14 speaks: a broker must understand one of them."""
_FETCH_TELLS = ((18, "4.1"), (17, "3.9"), (16, "3.7"), (15, "3.5"), (13, "3.1"), (12, "2.7"))
"""The highest Fetch version a broker knows, and the first Kafka that had it."""


class Spoken(NamedTuple):
    """The lowest and the highest version of one request."""

    low: int
    high: int


def ask_versions(host: str, port: int, tls: ssl.SSLContext | None = None) -> dict[int, Spoken]:
    """What one broker understands, by request number; OSError if it does not answer."""
    header = struct.pack(">hhih", _API_VERSIONS, 0, 1, -1)
    with (
        socket.create_connection((host, port), ANSWER_S) as plain,
        tls.wrap_socket(plain, server_hostname=host) if tls else plain as wire,
    ):
        wire.settimeout(ANSWER_S)
        wire.sendall(struct.pack(">i", len(header)) + header)
        (size,) = struct.unpack(">i", _exactly(wire, 4))
        if not 10 <= size <= ANSWER_BYTES_MAX:
            raise OSError("that is not an answer of a Kafka broker")
        answer = _exactly(wire, size)
    _, error, count = struct.unpack_from(">ihi", answer)
    if error or 10 + 6 * count > size:
        raise OSError(f"the broker refused to say (error {error})")
    rows = (struct.unpack_from(">hhh", answer, 10 + 6 * each) for each in range(count))
    return {key: Spoken(low, high) for key, low, high in rows}


def judge_versions(spoken: Mapping[int, Spoken]) -> Finding:
    """Whether both clients can work with such a broker."""
    lacking = []
    for key, (low, high) in NEEDED.items():
        has = spoken.get(key)
        if has is None or has.low > high or has.high < low:
            heard = "not at all" if has is None else f"versions {has.low} to {has.high}"
            lacking.append(f"{_NAMES[key]} {heard}, needed {low} to {high}")
    if lacking:
        return problem(
            CHECK,
            f"the broker cannot be used: {'; '.join(lacking)}",
            "use a Kafka from 2.1 to the version in deploy/kafka/pom.xml",
        )
    highest = spoken[1].high
    since = next((kafka for version, kafka in _FETCH_TELLS if highest >= version), None)
    if since is None:
        return note(CHECK, "Kafka older than 2.7: it works, and no longer gets repairs")
    return fine(CHECK, f"Kafka {since} or newer (Fetch up to {highest}); both clients can use it")


def _exactly(wire: socket.socket, size: int) -> bytes:
    parts = b""
    while len(parts) < size:
        part = wire.recv(size - len(parts))
        if not part:
            raise OSError("the broker closed the connection")
        parts += part
    return parts
