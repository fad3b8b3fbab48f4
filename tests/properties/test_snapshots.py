"""A snapshot that is cut off, altered, forged, too new or made otherwise is refused, in words."""

import hashlib
import json
import struct
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtgol_core.config import Config
from dtgol_core.learner import Learner
from dtgol_core.state import VERSION, Snapshot, SnapshotError, decode, encode
from tests.support.records import nasty_events, play

CONFIG = Config.read({"copula": {"window": 8}, "graph": {"unverified": 6, "verified": 4}})
HEAD = struct.Struct("<8sI32sQ")


@cache
def blob() -> bytes:
    """A learner in the middle of a nasty stream."""
    learner = Learner(CONFIG)
    play(learner, nasty_events("mixed", 1, 25))
    return encode(learner.snapshot())


def sealed(header: bytes, arrays: bytes = b"", version: int = VERSION) -> bytes:
    """A blob with the right magic and the right checksum, whatever is in it."""
    body = header + arrays
    return HEAD.pack(b"DTGOLSNP", version, hashlib.sha256(body).digest(), len(header)) + body


def opened(forged: bytes) -> None:
    """Decode and restore; any refusal must be a `SnapshotError` with something to read."""
    with pytest.raises(SnapshotError) as refusal:
        Learner.restore(CONFIG, decode(forged))
    assert len(str(refusal.value)) > 10


def test_the_untouched_blob_is_taken() -> None:
    assert encode(Learner.restore(CONFIG, decode(blob())).snapshot()) == blob()


@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_refused(data: bytes) -> None:
    opened(data)
    opened(b"DTGOLSNP" + data)


@given(st.integers(0, 10**9))
def test_cut_off_blobs_are_refused(at: int) -> None:
    opened(blob()[: at % len(blob())])


@given(st.integers(0, 10**9), st.integers(1, 255))
def test_one_altered_byte_is_refused(at: int, change: int) -> None:
    altered = bytearray(blob())
    altered[at % len(altered)] ^= change
    opened(bytes(altered))


@pytest.mark.parametrize("at", range(HEAD.size))
def test_every_byte_of_the_head_counts(at: int) -> None:
    for change in (1, 128, 255):
        altered = bytearray(blob())
        altered[at] ^= change
        opened(bytes(altered))


@given(st.binary(min_size=1, max_size=20))
def test_appended_bytes_are_refused(more: bytes) -> None:
    opened(blob() + more)


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
    | st.sampled_from(["<f8", "|u1", "|O", "latent"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["arrays", "manifest", "config", "name", "dtype", "shape", "learner"])
            | st.text(max_size=3),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
array_entries = st.fixed_dictionaries(
    {"name": json_values, "dtype": st.sampled_from(["<f8", "|u1", "|O", 3]), "shape": json_values}
)


@given(json_values | st.fixed_dictionaries({"arrays": st.lists(array_entries | json_values),
       "manifest": json_values}), st.binary(max_size=40))  # fmt: skip
def test_forged_headers_are_refused(header: object, arrays: bytes) -> None:
    """The checksum is right, so only what is in it can give it away."""
    opened(sealed(json.dumps(header).encode(), arrays))


@given(st.binary(max_size=60))
def test_sealed_rubbish_is_refused(header: bytes) -> None:
    opened(sealed(header))


def test_header_nested_beyond_reason_is_refused() -> None:
    opened(sealed(b'{"arrays":' + b"[" * 100_000 + b"]" * 100_000 + b',"manifest":{}}'))


@given(st.data())
def test_missing_or_wrong_parts_are_refused(data: st.DataObject) -> None:
    snapshot = decode(blob())
    arrays, manifest = dict(snapshot.arrays), dict(snapshot.manifest)
    if data.draw(st.booleans()):
        del arrays[data.draw(st.sampled_from(sorted(arrays)))]
    else:
        name = data.draw(st.sampled_from(sorted(manifest)))
        if name == "config" or data.draw(st.booleans()) or not manifest[name]:
            manifest[name] = data.draw(st.none() | st.integers() | st.text() | st.lists(st.none()))
        else:
            section = dict(manifest[name])
            del section[data.draw(st.sampled_from(sorted(section)))]
            manifest[name] = section
    opened(encode(Snapshot(arrays, manifest)))


@pytest.mark.parametrize("version", [VERSION + 1, VERSION + 2, 255, 2**32 - 1])
def test_newer_format_says_so(version: int) -> None:
    with pytest.raises(
        SnapshotError, match=f"format {version} and this version reads up to {VERSION}"
    ):
        decode(sealed(b"{}", version=version))
    newer = bytearray(blob())
    newer[8:12] = struct.pack("<I", version)
    with pytest.raises(SnapshotError, match="upgrade before restoring it"):
        decode(bytes(newer))


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"copula": {"window": 9}}, ["copula.window"]),
        ({"graph": {"unverified": 7, "verified": 4}}, ["graph.unverified"]),
        ({"graph": {"unverified": 6, "verified": 5}}, ["graph.verified"]),
        ({"ablate": {"copula": True}}, ["ablate.copula"]),
        ({"ablate": {"marginals": True}}, ["ablate.marginals"]),
        ({"ablate": {"softlabels": True}}, ["ablate.softlabels"]),
        ({"ablate": {"dual_track": True}}, ["ablate.dual_track"]),
        ({"ablate": {"risk": True}}, ["ablate.risk"]),
        ({"features": {"real": {"kind": "continuous"}}}, ["features"]),
        (
            {"copula": {"window": 9}, "graph": {"unverified": 9, "verified": 9}},
            ["copula.window", "graph.unverified", "graph.verified"],
        ),
    ],
)
def test_settings_of_another_shape_are_refused_by_name(
    changed: dict[str, Any], named: list[str]
) -> None:
    settings = {**CONFIG.as_mapping(), **changed}
    with pytest.raises(SnapshotError) as refusal:
        Learner.restore(Config.read(settings), decode(blob()))
    text = str(refusal.value)
    assert f"another {', '.join(named)}:" in text
    assert "start anew" in text


def test_a_refused_restore_leaves_a_running_learner_alone() -> None:
    learner = Learner.restore(CONFIG, decode(blob()))
    with pytest.raises(SnapshotError):
        Learner.restore(CONFIG, Snapshot({}, decode(blob()).manifest))
    assert encode(learner.snapshot()) == blob()


@given(
    st.dictionaries(
        st.text(max_size=5),
        st.builds(
            lambda values, kind: np.array(values).astype(kind),
            st.lists(st.integers(0, 100), max_size=6),
            st.sampled_from(["<f8", "<i8", "<i4", "|i1", "|u1", "|b1"]),
        ),
        max_size=4,
    ),
    st.dictionaries(st.text(max_size=4), json_values, max_size=3),
)
def test_what_is_encoded_comes_back(
    arrays: dict[str, np.ndarray[Any, Any]], manifest: dict[str, Any]
) -> None:
    again = decode(encode(Snapshot(arrays, manifest)))
    assert again.manifest == manifest
    assert sorted(again.arrays) == sorted(arrays)
    for name, array in arrays.items():
        assert again.arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(again.arrays[name], array)
