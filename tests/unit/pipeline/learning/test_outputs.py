"""A prediction is written from its fields: the bytes are those of the message."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtgol_core.config import Config
from dtgol_core.types import Contribution, ExpertAnswer, Forecast
from pipeline.kafka.record import Record
from pipeline.learning.fold_config import Lineage
from pipeline.learning.outputs import Output, make_prediction
from pipeline.learning.stream import StreamState
from tests.support.journal import REF
from topics.codec import read_prediction, write_prediction
from topics.features import Features
from topics.predictions import Prediction

STREAM = StreamState(Config.read({"delay": {"expire_steps": 1, "expired": 1}}), Lineage(1, 0))
texts = st.text(max_size=8) | st.just("null")
shares = st.floats(0, 1)
finite = st.floats(allow_nan=False, allow_infinity=False)


def written(forecast: Forecast, id: str = "a") -> Output:
    record = Record("journal", 0, 7, 1_000, b"k", b"{}", [("own", b"1"), ("dtgol-kind", b"copy")])
    return make_prediction(REF, record, Features("ward", id, {}, 5), forecast, STREAM, -1)


forecasts = st.builds(
    Forecast,
    step=st.integers(1, 10**9),
    p=shares,
    label=st.integers(0, 1),
    naive=shares,
    labels_learnt=st.integers(0, 10**9),
    unverified=st.integers(0, 10**6),
    observed_share=shares,
    uncertainty=st.floats(0, 1),
    experts=st.dictionaries(texts, st.builds(ExpertAnswer, shares, finite), max_size=3),
    guard=st.dictionaries(texts, finite, max_size=3),
    set=st.sampled_from([(0,), (1,), (0, 1)]),
    repeat=st.booleans(),
    why=st.lists(st.builds(Contribution, texts, finite), max_size=3).map(tuple),
    defaulted=st.lists(texts, max_size=2).map(tuple),
)


@given(forecasts, texts)
def test_the_bytes_are_those_of_the_message(forecast: Forecast, id: str) -> None:
    value = written(forecast, id).value
    message = read_prediction(value)
    assert isinstance(message, Prediction)
    assert value == write_prediction(message)
    assert list(orjson.loads(value or b"")) == [item.name for item in fields(Prediction)]


@pytest.mark.parametrize(
    "broken",
    [
        {"p": float("nan")},
        {"experts": {"naive": ExpertAnswer(0.5, float("inf"))}},
        {"guard": {"stack": float("nan")}},
        {"why": (Contribution("null", float("-inf")),)},
    ],
)
def test_a_number_that_is_not_finite_is_a_bug(broken: dict[str, Any]) -> None:
    whole = {"step": 1, "p": 0.5, "label": 0, "naive": 0.5, "labels_learnt": 0, "unverified": 0}
    shares = {"observed_share": 1.0, "uncertainty": 0.1}
    with pytest.raises(ValueError, match="finite"):
        written(Forecast(**{**whole, **shares, **broken}))
