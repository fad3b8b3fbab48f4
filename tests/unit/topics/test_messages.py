"""Every message: its example, its schema, its bytes of version 1, and the way there and back."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from tests.support.near_records import TS, near_records
from topics.codec import (
    read_erasure,
    read_features,
    read_label,
    read_prediction,
    read_process_event,
    read_score,
    write_erasure,
    write_event,
    write_features,
    write_label,
    write_prediction,
    write_process_event,
    write_score,
)
from topics.dead_letters import DeadLetter, Redriven, is_marker
from topics.features import Features, FeatureValue
from topics.generate import FOLDER, HEADERS, PAYLOADS, schema_files
from topics.headers import read_headers, write_headers
from topics.journal import (
    ConfigChange,
    Control,
    Crash,
    FeatureKind,
    RecordKind,
    Reset,
    Retry,
    Retype,
    Skip,
    Source,
    read_control,
    write_control,
)
from topics.labels import Label
from topics.predictions import Contribution, ExpertAnswer, Identity, Prediction
from topics.reasons import Reason, Rejection
from topics.scores import Event, Score
from topics.snapshots import Chunk
from topics.wire import read

EXAMPLES = FOLDER / "examples"
GOLDEN = Path(__file__).parents[2] / "golden" / "messages"
SCHEMAS = schema_files()
KEY = b"k"

READ: dict[str, Callable[[bytes], Any]] = {
    "features": lambda data: read_features(data, KEY, TS),
    "labels": lambda data: read_label(data, KEY, TS),
    "labels-erasure": read_erasure,
    "predictions": read_prediction,
    "scores": read_score,
    "journal-config": lambda data: read_control(data, [("dtgol-kind", b"config")]),
    "journal-reset": lambda data: read_control(data, [("dtgol-kind", b"reset")]),
    "journal-retype": lambda data: read_control(data, [("dtgol-kind", b"retype")]),
    "journal-crash": lambda data: read_control(data, [("dtgol-kind", b"crash")]),
    "journal-skip": lambda data: read_control(data, [("dtgol-kind", b"skip")]),
    "journal-retry": lambda data: read_control(data, [("dtgol-kind", b"retry")]),
    "journal-version": lambda data: read_control(data, [("dtgol-kind", b"version")]),
    "journal-padding": lambda data: read_control(data, [("dtgol-kind", b"padding")]),
    "events": read_process_event,
    "scores-event": lambda data: read(Event, orjson.loads(data)),
}
WRITE: dict[str, Callable[[Any], bytes]] = {
    "features": write_features,
    "labels": write_label,
    "labels-erasure": write_erasure,
    "predictions": write_prediction,
    "scores": write_score,
    "journal-config": lambda control: write_control(control)[0],
    "journal-reset": lambda control: write_control(control)[0],
    "journal-retype": lambda control: write_control(control)[0],
    "journal-crash": lambda control: write_control(control)[0],
    "journal-skip": lambda control: write_control(control)[0],
    "journal-retry": lambda control: write_control(control)[0],
    "journal-version": lambda control: write_control(control)[0],
    "journal-padding": lambda control: write_control(control)[0],
    "events": write_process_event,
    "scores-event": write_event,
}
shares = st.floats(0, 1)
counts = st.integers(0, 2**53)
predictions = st.builds(
    Prediction,
    step=st.integers(1, 2**53),
    at=st.builds(Identity, st.text(), counts, counts),
    ts=counts,
    p=shares,
    label=st.integers(0, 1),
    naive=shares,
    experts=st.dictionaries(
        st.text(), st.builds(ExpertAnswer, shares, st.floats(-9, 9)), max_size=3
    ),
    guard=st.dictionaries(st.text(), shares, max_size=3),
    labels_learnt=counts,
    unverified=counts,
    observed_share=shares,
    uncertainty=shares,
    labels_offset=st.integers(-1, 2**53),
    defaulted=st.lists(st.text(), max_size=3).map(tuple),
    default=st.none() | st.integers(0, 1),
    why=st.lists(
        st.builds(Contribution, st.text(), st.floats(allow_nan=False, allow_infinity=False)),
        max_size=3,
    ).map(tuple),
    missing=st.lists(st.text(), max_size=3).map(tuple),
    expire_ms=st.none() | counts.map(lambda count: count + 1),
)


def example(name: str) -> Any:
    return json.loads((EXAMPLES / f"{name}.json").read_text())


def test_every_message_has_one_example() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.json")} == set(SCHEMAS)


@pytest.mark.parametrize("name", SCHEMAS)
def test_schema_is_a_schema(name: str) -> None:
    Draft202012Validator.check_schema(SCHEMAS[name])


@pytest.mark.parametrize("name", SCHEMAS)
def test_example_follows_its_schema(name: str) -> None:
    Draft202012Validator(SCHEMAS[name]).validate(example(name))


@pytest.mark.parametrize("name", PAYLOADS)
def test_example_goes_there_and_back(name: str) -> None:
    message = READ[name](orjson.dumps(example(name)))
    assert type(message) is PAYLOADS[name]
    assert READ[name](WRITE[name](message)) == message


@pytest.mark.parametrize("name", ["predictions", "scores", "journal-config", "journal-skip"])
def test_example_of_what_we_write_is_what_we_write(name: str) -> None:
    data = orjson.dumps(example(name))
    assert WRITE[name](READ[name](data)) == data


@pytest.mark.parametrize("name", HEADERS)
def test_example_headers_go_there_and_back(name: str) -> None:
    headers = [(header, text.encode()) for header, text in example(name).items()]
    message = read_headers(HEADERS[name], headers)
    assert type(message) is HEADERS[name]
    assert write_headers(message) == headers


GOLDEN_FILES = sorted(GOLDEN.glob("v*/*.json"))


def test_golden_bytes_of_every_message_are_kept() -> None:
    assert {path.stem for path in GOLDEN_FILES} >= set(SCHEMAS)


@pytest.mark.parametrize("path", GOLDEN_FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_golden_bytes_decode_for_ever(path: Path) -> None:
    name = max((name for name in SCHEMAS if path.stem.startswith(name)), key=len)
    if name in PAYLOADS:
        message = READ[name](path.read_bytes())
    else:
        pairs = json.loads(path.read_bytes())
        message = read_headers(HEADERS[name], [(header, text.encode()) for header, text in pairs])
    assert type(message) is (PAYLOADS | HEADERS)[name]


def test_golden_bytes_mean_what_they_meant() -> None:
    folder = GOLDEN / "v1"
    features = Features("ward-3", "visit-20931", {}, 1_767_225_600_000)
    x: dict[str, FeatureValue] = {
        "age": 71,
        "knee_flexion_deg": 88.5,
        "assisted": True,
        "pain": "moderate",
    }
    assert READ["features"]((folder / "features.json").read_bytes()) == dataclasses.replace(
        features, x=x
    )
    assert READ["labels"]((folder / "labels.json").read_bytes()) == Label(
        "ward-3", "visit-20931", 1, 1_767_571_200_000
    )
    assert READ["labels"]((folder / "labels-smallest.json").read_bytes()) == Label(
        "default", "7", 1, TS
    )
    prediction = READ["predictions"]((folder / "predictions.json").read_bytes())
    assert (prediction.p, prediction.naive) == (0.8125, 0.75)
    assert prediction.experts == {
        "naive": ExpertAnswer(0.75, 0.0),
        "paper": ExpertAnswer(0.8125, 1.0),
    }
    score = READ["scores"]((folder / "scores.json").read_bytes())
    assert isinstance(score, Score)
    assert (score.at, score.y, score.rescored) == (
        Identity("kx8pXgVbQ5yZ0n3rT1mW2A", 2, 10_233),
        1,
        False,
    )


@given(predictions)
def test_prediction_written_is_read_back(prediction: Prediction) -> None:
    assert read_prediction(write_prediction(prediction)) == prediction


@given(
    st.builds(Skip, counts, st.text())
    | st.builds(Retry, counts, st.text())
    | st.builds(Crash, counts, st.text(), st.text())
    | st.builds(Reset, st.none() | st.text(), st.text())
    | st.builds(Retype, st.text(), st.text(), st.sampled_from(FeatureKind), st.text())
)
def test_control_written_is_read_back(control: Control) -> None:
    value, headers = write_control(control)
    assert read_control(value, headers) == control


texts = st.text(st.characters(exclude_categories=["Cs"]))
header_messages = (
    st.builds(
        Source,
        st.sampled_from([RecordKind.COPY, RecordKind.STUB]),
        texts,
        texts,
        counts,
        counts,
        st.integers(-1, 2**53),
        st.integers(-1, 2**53),
        st.none() | counts,
        st.none() | texts,
    )
    | st.builds(
        DeadLetter, texts, counts, counts, texts, texts.filter(lambda text: len(text) < 512)
    )
    | st.builds(Redriven, texts, counts, counts, st.just("2/88"))
    | st.builds(
        Chunk,
        version=st.just(1),
        part=counts,
        parts=st.integers(1, 99),
        length=counts,
        name=texts,
        sha256=texts,
    )
)


@given(header_messages)
def test_headers_written_are_read_back(message: object) -> None:
    assert read_headers(type(message), write_headers(message)) == message


@given(header_messages)
def test_only_a_marker_is_taken_for_one(message: object) -> None:
    assert is_marker(write_headers(message)) is isinstance(message, Redriven)


@given(near_records)
def test_what_the_codec_accepts_the_schema_accepts(raw: dict[str, Any]) -> None:
    data = json.dumps(raw).encode()
    for name in ("features", "labels"):
        if not isinstance(READ[name](data), Rejection):
            Draft202012Validator(SCHEMAS[name]).validate(orjson.loads(data))


@given(near_records)
def test_what_the_schema_accepts_the_codec_accepts(raw: dict[str, Any]) -> None:
    """But for what a schema cannot say: bytes of UTF-8, floats as ids, a null that is required."""
    try:
        data = orjson.dumps(raw)
    except orjson.JSONEncodeError:
        return
    for name in ("features", "labels"):
        answer = READ[name](data)
        if Draft202012Validator(SCHEMAS[name]).is_valid(orjson.loads(data)):
            assert not isinstance(answer, Rejection) or _beyond_schema(raw), answer


def _beyond_schema(raw: dict[str, Any]) -> bool:
    """A stream that ends in a newline, which Python's ``$`` lets pass; a whole float as an id."""
    return isinstance(raw.get("id"), float) or str(raw.get("stream")).endswith("\n")


def test_prediction_of_a_newer_writer_is_read() -> None:
    raw = example("predictions") | {"new": {"anything": 1}}
    raw["experts"]["forest"] = {"p": 0.5, "weight": 0.25, "trees": 32}
    read = read_prediction(orjson.dumps(raw))
    assert isinstance(read, Prediction)
    assert list(read.experts) == ["naive", "paper", "linear", "forest"]
    assert read.experts["forest"] == ExpertAnswer(0.5, 0.25)


def test_optional_fields_may_be_absent() -> None:
    raw = example("predictions")
    del raw["why"], raw["repeat"]
    prediction = read_prediction(orjson.dumps(raw))
    assert isinstance(prediction, Prediction)
    assert (prediction.repeat, prediction.why) == (False, ())


@pytest.mark.parametrize(
    ("change", "reason", "place"),
    [
        ({"p": "0.5"}, Reason.WRONG_TYPE, "p"),
        ({"p": None}, Reason.WRONG_TYPE, "p"),
        ({"p": 1.5}, Reason.OUT_OF_RANGE, "p"),
        ({"step": True}, Reason.WRONG_TYPE, "step"),
        ({"step": 0}, Reason.OUT_OF_RANGE, "step"),
        ({"repeat": 1}, Reason.WRONG_TYPE, "repeat"),
        ({"at": [1]}, Reason.WRONG_TYPE, "at"),
        ({"at": {"journal": "j", "partition": 0}}, Reason.MISSING_FIELD, "at.offset"),
        ({"at": {"journal": "j", "partition": 0, "offset": "1"}}, Reason.WRONG_TYPE, "at.offset"),
        ({"experts": [1]}, Reason.WRONG_TYPE, "experts"),
        ({"experts": {"naive": 0.5}}, Reason.WRONG_TYPE, "experts.naive"),
        ({"experts": {"naive": {"p": 0.5}}}, Reason.MISSING_FIELD, "experts.naive.weight"),
        ({"experts": {"a": {"p": 2, "weight": 0}}}, Reason.OUT_OF_RANGE, "experts.a.p"),
        ({"why": {}}, Reason.WRONG_TYPE, "why"),
        ({"why": [{"feature": 1, "log_odds": 1}]}, Reason.WRONG_TYPE, "why.feature"),
    ],
)
def test_bad_prediction_is_refused_and_the_field_named(
    change: dict[str, Any], reason: Reason, place: str
) -> None:
    refused = read_prediction(orjson.dumps(example("predictions") | change))
    assert isinstance(refused, Rejection)
    assert refused.reason is reason
    assert refused.detail.startswith(f"{place}:")


@pytest.mark.parametrize("field", ["p", "naive", "uncertainty"])
def test_prediction_that_is_not_finite_cannot_be_written(field: str) -> None:
    prediction = read_prediction(orjson.dumps(example("predictions")))
    assert isinstance(prediction, Prediction)
    broken: dict[str, Any] = {field: float("nan")}
    with pytest.raises(ValueError, match="finite"):
        write_prediction(dataclasses.replace(prediction, **broken))
    with pytest.raises(ValueError, match="finite"):
        write_prediction(dataclasses.replace(prediction, why=(Contribution("a", float("inf")),)))
    experts = {"naive": ExpertAnswer(0.5, float("nan"))}
    with pytest.raises(ValueError, match="finite"):
        write_prediction(dataclasses.replace(prediction, experts=experts))
    with pytest.raises(ValueError, match="finite"):
        write_prediction(dataclasses.replace(prediction, guard={"stack": float("nan")}))


def test_config_change_keeps_its_configuration() -> None:
    change = ConfigChange("9f2c61d0", {"copula": {"window": 200}, "streams": ["ward-3"]})
    value, headers = write_control(change)
    assert headers == [("dtgol-kind", b"config")]
    assert read_control(value, headers) == change
