"""The decoder: every refusal by name, what is accepted, and that nothing makes it raise."""

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.bad_records import FOLDER, BadRecord, bad_records
from tests.support.near_records import TS, json_values, near_records
from topics.codec import (
    read_features,
    read_label,
    read_prediction,
    read_score,
    write_features,
    write_label,
)
from topics.features import Features
from topics.journal import read_control
from topics.labels import Label
from topics.reasons import SECONDS, Limits, Reason, Rejection

KEY = b"k"

texts = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=16)
names = texts.filter(bool)
streams = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}", fullmatch=True)
values = st.floats(-1e150, 1e150) | st.integers(-(2**63), 2**64 - 1) | st.booleans() | texts
times = st.integers(0, TS).filter(lambda ts: ts not in SECONDS)
all_features = st.builds(
    Features, streams, names, st.dictionaries(names, values), times, st.just(())
)
all_labels = st.builds(Label, streams, names, st.integers(0, 1), times, st.just(()))


def answers(data: bytes) -> list[object]:
    return [
        read_features(data, KEY, TS),
        read_label(data, KEY, TS),
        read_prediction(data),
        read_score(data),
        read_control(data, [("dtgol-kind", b"config")]),
    ]


@pytest.mark.parametrize("bad", bad_records(), ids=lambda bad: bad.name)
def test_bad_record_is_refused_with_its_reason(bad: BadRecord) -> None:
    assert bad.as_expected(), bad.refused()


DECIDED_LATER = {
    Reason.HEADER_NAME,
    Reason.NOT_FINITE,
    Reason.KIND_CONFLICT,
    Reason.OUT_OF_BOUNDS,
    Reason.TOO_MANY_COLUMNS,
    Reason.TOO_MANY_STREAMS,
    Reason.STATE_FULL,
    Reason.LABEL_LATE,
    Reason.LABEL_ORPHAN,
    Reason.CORRECTION_TOO_LATE,
    Reason.SKIPPED,
}
"""Reasons that depend on more than the bytes of one record."""


def test_every_reason_of_the_decoder_has_a_bad_record() -> None:
    assert {bad.reason for bad in bad_records()} == set(Reason) - DECIDED_LATER


def test_every_file_of_the_corpus_is_listed() -> None:
    assert {path.stem for path in FOLDER.glob("*.bin")} == {bad.name for bad in bad_records()}


def test_tombstone_is_an_empty_value() -> None:
    refused = read_features(None, KEY, TS)
    assert isinstance(refused, Rejection)
    assert refused.reason is Reason.EMPTY_VALUE


@given(st.binary())
def test_no_bytes_make_it_raise(data: bytes) -> None:
    for answer in answers(data):
        assert isinstance(answer, Rejection)


@given(json_values | near_records)
def test_no_json_makes_it_raise(raw: Any) -> None:
    for data in (
        json.dumps(raw).encode(),
        json.dumps(raw, ensure_ascii=False).encode("utf-8", "replace"),
    ):
        answers(data)


@given(st.sampled_from([bad.data for bad in bad_records()]), st.data())
def test_no_broken_record_makes_it_raise(data: bytes, draw: st.DataObject) -> None:
    at = draw.draw(st.integers(0, len(data)))
    answers(data[:at] + draw.draw(st.binary(max_size=4)) + data[at + 1 :])


@given(all_features)
def test_features_written_are_read_back(features: Features) -> None:
    assert read_features(write_features(features), KEY, 1) == features


@given(all_labels)
def test_label_written_is_read_back(label: Label) -> None:
    assert read_label(write_label(label), KEY, 1) == label


@given(near_records)
def test_details_hold_no_value_and_no_id(raw: dict[str, Any]) -> None:
    marked = {"stream": "ward", "id": "i", "x": {"age": 1}, "y": 1, "ts": 1} | raw
    secret = "tuberculosis"
    marked["id"] = [secret] if "id" in raw else secret * 30
    for read in (read_features, read_label):
        refused = read(json.dumps(marked).encode(), KEY, TS)
        assert isinstance(refused, Rejection)
        assert secret not in refused.detail


@pytest.mark.parametrize("value", ["tuberculosis" * 30, ["tuberculosis"], {"tuberculosis": 1}])
def test_refused_feature_is_named_and_its_value_is_not(value: object) -> None:
    refused = read_features(orjson.dumps({"id": "a", "x": {"illness": value}}), KEY, TS)
    assert isinstance(refused, Rejection)
    assert "illness" in refused.detail
    assert "tuberculosis" not in refused.detail


def test_detail_of_a_long_name_is_short_and_printable() -> None:
    refused = read_features(orjson.dumps({"id": "a", "x": {"\n" * 120: []}}), KEY, TS)
    assert isinstance(refused, Rejection)
    assert len(refused.detail) < 256
    assert refused.detail.isprintable()


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b'{"id":"a","x":{}}', Features("default", "a", {}, TS)),
        (b'{"id":"a","x":{"v":null,"w":1}}', Features("default", "a", {"w": 1}, TS)),
        (b'{"stream":null,"id":"a","x":{},"ts":null}', Features("default", "a", {}, TS)),
        (b'{"id":7,"x":{}}', Features("default", "7", {}, TS)),
        (b'{"id":7.0,"x":{}}', Features("default", "7", {}, TS)),
        (b'{"id":-7,"x":{}}', Features("default", "-7", {}, TS)),
        (
            b'{"id":18446744073709551615,"x":{}}',
            Features("default", "18446744073709551615", {}, TS),
        ),
        (b'{"id":"a","x":{},"ts":5e3}', Features("default", "a", {}, 5000)),
        (b'{"id":"a","id":"b","x":{}}', Features("default", "b", {}, TS)),
        (b' {"id":"a","x":{}}\n', Features("default", "a", {}, TS)),
        (b'{"id":"\\\\u0000","x":{}}', Features("default", "\\u0000", {}, TS)),
        (b'{"id":"a","x":{},"y":1,"z":[]}', Features("default", "a", {}, TS, ("y", "z"))),
    ],
)
def test_features_may_be_spelt_so(raw: bytes, expected: Features) -> None:
    assert read_features(raw, KEY, TS) == expected


@pytest.mark.parametrize(
    ("raw", "y"), [(b"0", 0), (b"1", 1), (b"false", 0), (b"true", 1), (b"1.0", 1)]
)
def test_label_may_be_spelt_so(raw: bytes, y: int) -> None:
    label = read_label(b'{"id":"a","more":1,"y":' + raw + b"}", KEY, TS)
    assert label == Label("default", "a", y, TS, ("more",))
    assert isinstance(label, Label)
    assert type(label.y) is int


def test_values_keep_their_json_type() -> None:
    features = read_features(b'{"id":"a","x":{"b":true,"i":1,"f":1.0,"s":"1"}}', KEY, TS)
    assert isinstance(features, Features)
    assert [type(value) for value in features.x.values()] == [bool, int, float, str]


@pytest.mark.parametrize("length", [256, 257])
def test_limit_itself_is_allowed(length: int) -> None:
    answer = read_features(orjson.dumps({"id": "i" * length, "x": {}}), KEY, TS)
    assert isinstance(answer, Features if length == 256 else Rejection)


def test_described_stream_is_let_in_when_streams_are_closed() -> None:
    answer = read_features(b'{"stream":"ward-3","id":"a","x":{}}', KEY, TS, streams={"ward-3"})
    assert isinstance(answer, Features)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_writing_what_is_not_finite_is_the_callers_mistake(value: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        write_features(Features("s", "a", {"v": value}, TS))


def test_limits_below_one_are_a_mistake() -> None:
    with pytest.raises(ValueError, match="id_bytes_max"):
        Limits(id_bytes_max=0)


@given(near_records, json_values)
def test_unknown_fields_change_nothing_else(raw: dict[str, Any], more: Any) -> None:
    raw.pop("more", None)
    plain = read_label(_dumps(raw), KEY, TS)
    with_more = read_label(_dumps(raw | {"more": more}), KEY, TS)
    if isinstance(plain, Label) and isinstance(with_more, Label):
        assert (with_more.id, with_more.y, with_more.ts) == (plain.id, plain.y, plain.ts)
        assert with_more.unknown == (*plain.unknown, "more")
    elif isinstance(plain, Rejection):
        assert isinstance(with_more, Rejection)


def _dumps(raw: object) -> bytes:
    return json.dumps(raw).encode()


# Serializers that others use.

FRAME = b"\x00\x00\x00\x00\x2a"


def test_json_in_a_registrys_frame_is_read_without_it() -> None:
    features, label = b'{"id": "a", "x": {"v": 1}}', b'{"id": "a", "y": 1}'
    assert read_features(FRAME + features, b"k", 5) == read_features(features, b"k", 5)
    assert read_label(FRAME + label, b"k", 5) == read_label(label, b"k", 5)


@pytest.mark.parametrize(
    "value", [FRAME + b"\x02a\x0cabcdef", b"Obj\x01\x04\x14avro.codec", FRAME + b"\x00"]
)
def test_avro_is_named(value: bytes) -> None:
    result = read_features(value, b"k", 5)
    assert result == Rejection(Reason.NOT_JSON, "looks like Avro: JSON is expected")


@pytest.mark.parametrize("value", [b"\x00", FRAME, b"\x00\x00{}"])
def test_a_frame_with_nothing_in_it_is_not_json(value: bytes) -> None:
    result = read_label(value, b"k", 5)
    assert isinstance(result, Rejection)
    assert result.reason is Reason.NOT_JSON


def test_a_cloud_event_in_structured_mode_is_refused_with_a_hint() -> None:
    event = b'{"specversion": "1.0", "id": "e", "type": "t", "source": "s", "data": {"id": "a"}}'
    for result in (read_features(event, b"k", 5), read_label(event, b"k", 5)):
        assert isinstance(result, Rejection)
        assert result.reason is Reason.MISSING_FIELD
        assert result.detail.endswith("of CloudEvents only binary mode is read")


def test_ids_are_compared_as_they_are_written() -> None:
    """NFC and NFD of one name are two ids: docs/guide-clients.md says so."""
    composed, decomposed = (
        read_label(f'{{"id": "{name}", "y": 1}}'.encode(), b"k", 5)
        for name in ("Zo\u00eb", "Zoe\u0308")
    )
    assert isinstance(composed, Label)
    assert isinstance(decomposed, Label)
    assert composed.id != decomposed.id


@pytest.mark.parametrize(("ts", "taken"), [
    (1_700_000_000, False), (1_000_000_000, False), (9_999_999_999, False),
    (999_999_999, True), (10_000_000_000, True), (1_700_000_000_000, True), (0, True),
])  # fmt: skip
def test_a_time_in_seconds_is_refused(ts: int, taken: bool) -> None:
    """Ten digits are seconds: taken as milliseconds they are in January 1970."""
    result = read_label(f'{{"id": "a", "y": 1, "ts": {ts}}}'.encode(), b"k", 1_700_000_000)
    assert isinstance(result, Label) == taken
    if isinstance(result, Rejection):
        assert result.detail == "ts: looks like seconds; epoch milliseconds expected"
