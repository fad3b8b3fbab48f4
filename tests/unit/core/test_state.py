"""The snapshot format: what goes out comes in, or is refused with a sentence."""

import hashlib
import json
import pickle
import struct
from typing import Any

import numpy as np
import pytest

from dtgol_core.state import (
    VERSION,
    Snapshot,
    SnapshotError,
    clone,
    combine,
    decode,
    digest,
    encode,
    flatten,
    pack_ids,
    section,
    subsection,
    unpack_ids,
)

SNAPSHOT = Snapshot(
    {"b/weights": np.array([0.5, -0.0, np.nan, np.inf]), "a/steps": np.arange(6).reshape(2, 3)},
    {"a": {"name": "grün", "none": None, "list": [1, 2.5, True]}, "b": {}},
)


def sealed(header: object, arrays: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    seal = hashlib.sha256(text + arrays).digest()
    return struct.pack("<8sI32sQ", b"DTGOLSNP", VERSION, seal, len(text)) + text + arrays


def test_snapshot_comes_back_bit_for_bit() -> None:
    again = decode(encode(SNAPSHOT))
    assert again.manifest == SNAPSHOT.manifest
    for name, array in SNAPSHOT.arrays.items():
        assert again.arrays[name].tobytes() == array.tobytes()
        assert again.arrays[name].shape == array.shape
        assert again.arrays[name].flags.writeable


def test_same_state_gives_the_same_bytes_whatever_the_order_of_names() -> None:
    turned = Snapshot(
        dict(reversed(SNAPSHOT.arrays.items())), dict(reversed(SNAPSHOT.manifest.items()))
    )
    assert encode(turned) == encode(SNAPSHOT)
    assert digest(turned) == digest(SNAPSHOT)


def test_layout_in_memory_does_not_show() -> None:
    array = np.arange(12.0).reshape(3, 4)
    plain = encode(Snapshot({"x": array}, {}))
    assert encode(Snapshot({"x": np.asfortranarray(array)}, {})) == plain
    assert encode(Snapshot({"x": np.arange(24.0).reshape(3, 8)[:, ::2] / 2}, {})) == plain


def test_a_section_of_many_values_is_the_same_json() -> None:
    """They are written one at a time, so that a thread that does it holds nobody up."""
    boards = {f"stream {n} \ud800": {"b": n / 7, "a": [n, None, "ü"]} for n in range(1_000)}
    manifest = {"boards": boards, "few": {"x": 1}, "none": {}, "list": [1]}
    blob = encode(Snapshot({}, manifest))
    text = json.dumps(
        {"arrays": [], "manifest": manifest}, sort_keys=True, separators=(",", ":")
    ).encode()
    assert blob.endswith(text)
    assert decode(blob).manifest == manifest


def test_blob_begins_with_its_name_and_version() -> None:
    blob = encode(SNAPSHOT)
    assert blob[:8] == b"DTGOLSNP"
    assert struct.unpack_from("<I", blob, 8) == (VERSION,)


def test_no_pickle_goes_out_or_in() -> None:
    with pytest.raises(SnapshotError, match="array x has type object"):
        encode(Snapshot({"x": np.array([object()])}, {}))
    with pytest.raises(SnapshotError, match="not a snapshot"):
        decode(pickle.dumps(SNAPSHOT.manifest) * 3)
    forged = {"arrays": [{"name": "x", "dtype": "|O", "shape": [1]}], "manifest": {}}
    with pytest.raises(SnapshotError, match="array x has an unknown type"):
        decode(sealed(forged, b"\0" * 8))


@pytest.mark.parametrize("dtype", ["float16", "complex128", ">f8", "U3"])
def test_array_of_a_type_that_is_not_stored_is_refused_by_name(dtype: str) -> None:
    with pytest.raises(SnapshotError, match="array odd has type"):
        encode(Snapshot({"odd": np.zeros(2, dtype=dtype)}, {}))


def test_manifest_holds_no_nan() -> None:
    with pytest.raises(ValueError, match="Out of range float"):
        encode(Snapshot({}, {"x": float("nan")}))


@pytest.mark.parametrize(
    ("blob", "message"),
    [
        (b"", "cut off: 0 bytes are not even its head"),
        (b"DTGOLSNP", "cut off: 8 bytes"),
        (b"X" * 100, "not a snapshot"),
        (encode(SNAPSHOT)[:-1], "its checksum does not match"),
        (encode(SNAPSHOT) + b"x", "its checksum does not match"),
        (sealed({"arrays": [], "manifest": {}}, b"more"), "longer than its arrays"),
        (sealed({"arrays": []}), "the snapshot is damaged"),
        (sealed({"arrays": [], "manifest": []}), "no manifest"),
        (sealed([]), "the snapshot is damaged"),
        (sealed({"arrays": 7, "manifest": {}}), "the snapshot is damaged"),
        (
            sealed({"arrays": [{"name": "x", "dtype": "<f8", "shape": [9]}], "manifest": {}}),
            "the snapshot is damaged",
        ),
        (
            sealed({"arrays": [{"name": "x", "dtype": "<f8", "shape": [2**80]}], "manifest": {}}),
            "the snapshot is damaged",
        ),
    ],
)
def test_what_cannot_be_a_snapshot_is_refused(blob: bytes, message: str) -> None:
    with pytest.raises(SnapshotError, match=message):
        decode(blob)


def test_newer_format_asks_for_an_upgrade() -> None:
    newer = bytearray(encode(SNAPSHOT))
    newer[8:12] = struct.pack("<I", VERSION + 1)
    with pytest.raises(SnapshotError) as refusal:
        decode(bytes(newer))
    assert str(refusal.value) == (
        f"the snapshot has format {VERSION + 1} and this version reads up to {VERSION}: "
        "upgrade before restoring it"
    )


@pytest.mark.parametrize("version", [1, 4])
def test_a_format_that_was_never_released_is_not_read(version: int) -> None:
    old = bytearray(encode(SNAPSHOT))
    old[8:12] = struct.pack("<I", version)
    with pytest.raises(SnapshotError, match=f"format {version}, which was never released"):
        decode(bytes(old))


def test_format_zero_never_existed() -> None:
    blob = bytearray(encode(SNAPSHOT))
    blob[8:12] = struct.pack("<I", 0)
    with pytest.raises(SnapshotError, match="damaged"):
        decode(bytes(blob))


def test_sections_are_combined_and_taken_out_again() -> None:
    sections: dict[str, dict[str, Any]] = {
        "one": {"array": np.ones(2), "n": 3, "deep/array": np.zeros(1)},
        "two": {"text": "x"},
    }
    snapshot = combine(sections)
    assert sorted(snapshot.arrays) == ["one/array", "one/deep/array"]
    one = section(snapshot, "one")
    assert sorted(one) == ["array", "deep/array", "n"]
    assert section(snapshot, "two") == {"text": "x"}
    with pytest.raises(SnapshotError, match="no section three"):
        section(snapshot, "three")


def test_parts_of_a_section_are_flattened_and_taken_out_again() -> None:
    parts: dict[str, dict[str, Any]] = {"a": {"n": 1, "deep/m": 2}, "b": {"n": 3}, "ab": {"n": 4}}
    flat = flatten(parts)
    assert flat == {"a/n": 1, "a/deep/m": 2, "b/n": 3, "ab/n": 4}
    assert {name: subsection(flat, name) for name in parts} == parts
    assert subsection(flat, "c") == {}


@pytest.mark.parametrize("ids", [[], [""], ["a", "", "bc"], ["grün", "\ud800", "x" * 1000, "\0"]])
def test_ids_are_packed_and_unpacked(ids: list[str]) -> None:
    assert unpack_ids(*pack_ids(ids)) == ids


class Inner:
    def __init__(self) -> None:
        self.array = np.zeros(3)
        self.set = {1}


class Outer:
    def __init__(self) -> None:
        self.inner = Inner()
        self.by_name = {"a": Inner(), "b": Inner()}
        self.numbers = {"x": 1}
        self.frozen = ("a", 1)
        self.items = [1, 2]


def test_clone_shares_nothing_that_can_change() -> None:
    original = Outer()
    twin = clone(original)
    twin.inner.array.fill(1.0)
    twin.inner.set.add(2)
    twin.by_name["b"].array.fill(1.0)
    twin.numbers["x"] = 2
    twin.items.append(3)
    assert original.inner.array.tolist() == [0.0] * 3
    assert original.inner.set == {1}
    assert original.by_name["b"].array.tolist() == [0.0] * 3
    assert original.numbers == {"x": 1}
    assert original.items == [1, 2]
    assert twin.frozen == original.frozen
