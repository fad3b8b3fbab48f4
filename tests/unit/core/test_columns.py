"""Named features to columns: kinds, levels, growth and refusals."""

import math
from typing import Any

import pytest

from dtgol_core.columns import CONTINUOUS, NOMINAL, ORDINAL, Columns, Reading
from dtgol_core.config import Config
from dtgol_core.types import Record, Rejection, Value


def absorb(columns: Columns, record: Record) -> Reading:
    reading = columns.read(record)
    assert isinstance(reading, Reading), reading
    columns.absorb(reading)
    return reading


def columns_of(**settings: Any) -> Columns:
    return Columns(Config.read(settings))


def row(columns: Columns, record: Record) -> list[float | None]:
    return [None if math.isnan(value) else value for value in absorb(columns, record).row.tolist()]


def refusal(columns: Columns, record: Record) -> Rejection:
    said = columns.read(record)
    assert isinstance(said, Rejection), said
    return said


def test_columns_come_in_order_of_first_sight() -> None:
    columns = columns_of()
    assert row(columns, {"b": 1, "a": 2.5}) == [1, 2.5]
    assert row(columns, {"a": 3.5, "c": True, "b": 4}) == [4, 3.5, 1]
    assert list(columns.features) == ["b", "a", "c"]


def test_absent_and_null_are_missing_and_unseen_names_add_nothing() -> None:
    columns = columns_of()
    absorb(columns, {"a": 1, "b": 2})
    assert row(columns, {"a": None}) == [None, None]
    assert row(columns, {"never": None}) == [None, None]
    assert columns.width == 2
    assert absorb(columns, {"a": None, "b": 5}).observed == 1


def test_number_turns_continuous_at_its_fifteenth_distinct_value() -> None:
    columns = columns_of()
    for value in range(14):
        absorb(columns, {"n": value})
        absorb(columns, {"n": float(value)})  # 3 and 3.0 are one value
    assert columns.kinds.tolist() == [ORDINAL]
    absorb(columns, {"n": 14})
    assert columns.kinds.tolist() == [CONTINUOUS]
    assert columns.features["n"].kind == CONTINUOUS


def test_number_turns_continuous_at_its_first_non_whole_value_for_good() -> None:
    columns = columns_of()
    absorb(columns, {"n": 3})
    assert columns.kinds.tolist() == [ORDINAL]
    absorb(columns, {"n": 3.5})
    assert columns.kinds.tolist() == [CONTINUOUS]
    absorb(columns, {"n": 3})
    assert columns.kinds.tolist() == [CONTINUOUS]


def test_large_whole_numbers_are_distinct_only_as_far_as_they_are_kept() -> None:
    """2**53 and 2**53 + 1 are the same number in a row, and count once."""
    columns = columns_of()
    for value in [*range(13), 2**53, 2**53 + 1, 10**149, 10**149 + 1][:15]:
        absorb(columns, {"n": value})
    assert columns.kinds.tolist() == [ORDINAL]
    absorb(columns, {"n": 10**149})
    assert columns.kinds.tolist() == [CONTINUOUS]


def test_boolean_stays_ordinal() -> None:
    columns = columns_of()
    assert row(columns, {"flag": True}) == [1]
    assert row(columns, {"flag": False}) == [0]
    assert columns.kinds.tolist() == [ORDINAL]
    assert not columns.features["flag"].inferred


def test_declared_kind_is_kept_whatever_comes() -> None:
    columns = columns_of(features={"c": {"kind": "continuous"}, "o": {"kind": "ordinal"}})
    absorb(columns, {"c": 1, "o": 0.5})
    for value in range(20):
        absorb(columns, {"o": value})
    assert columns.kinds.tolist() == [CONTINUOUS, ORDINAL]


def test_level_is_one_and_the_other_levels_are_zero() -> None:
    columns = columns_of()
    assert row(columns, {"ward": "A"}) == [1]
    assert row(columns, {"ward": "B"}) == [0, 1]
    assert row(columns, {"ward": "A"}) == [1, 0]
    assert row(columns, {}) == [None, None]


def test_new_level_names_the_sibling_that_fills_its_past() -> None:
    columns = columns_of()
    absorb(columns, {"x": 1, "ward": "A"})
    (added,) = absorb(columns, {"ward": "B"}).additions
    assert added.sibling == 1
    (fresh,) = absorb(columns, {"new": 1}).additions
    assert fresh.sibling == -1


def test_thirty_two_levels_then_one_other_column() -> None:
    columns = columns_of()
    for level in range(32):
        absorb(columns, {"city": f"{level}"})
    assert columns.width == 32
    assert row(columns, {"city": "beyond"}) == [0] * 32 + [1]
    assert row(columns, {"city": "farther"}) == [0] * 32 + [1]
    assert row(columns, {"city": "31"}) == [0] * 31 + [1, 0]
    assert columns.width == 33
    assert len(columns.features["city"].levels) == 32


def test_declared_levels_have_columns_from_the_first_record_on() -> None:
    columns = columns_of(features={"ward": {"kind": "nominal", "levels": ["B", "A"]}})
    assert row(columns, {"ward": "A"}) == [0, 1]
    assert row(columns, {"ward": "C"}) == [0, 0, 1]


def test_whole_numbers_may_be_levels_of_a_declared_nominal_feature() -> None:
    columns = columns_of(features={"code": {"kind": "nominal"}})
    assert row(columns, {"code": 7}) == [1]
    assert row(columns, {"code": "7"}) == [1]
    assert row(columns, {"code": 7.0}) == [1]
    assert refusal(columns, {"code": 7.5}).reason == "kind-conflict"
    assert refusal(columns, {"code": True}).reason == "kind-conflict"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (math.nan, "not-finite"),
        (math.inf, "not-finite"),
        (1e200, "out-of-range"),
        (10**5000, "out-of-range"),
    ],
    ids=["nan", "infinite", "too large", "a number of 5000 digits"],
)
def test_number_that_is_none_is_no_level_either(value: Value, reason: str) -> None:
    columns = columns_of(features={"code": {"kind": "nominal"}})
    assert refusal(columns, {"code": value}).reason == reason


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (1, "text"),
        (1, True),
        (1.5, "text"),
        (True, 1),
        (True, "text"),
        ("text", 1),
        ("text", False),
    ],
)
def test_another_json_type_later_is_refused(first: Value, then: Value) -> None:
    columns = columns_of()
    absorb(columns, {"f": first})
    said = refusal(columns, {"f": then})
    assert said.reason == "kind-conflict"
    assert said.detail.startswith("f takes ")


@pytest.mark.parametrize(
    ("kind", "takes", "refuses"),
    [
        ("continuous", [1, 1.5], [True, "text"]),
        ("ordinal", [1, 1.5, True], ["text"]),
        ("nominal", ["text", 1], [True, 1.5]),
    ],
)
def test_declared_kind_decides_what_is_taken(
    kind: str, takes: list[Value], refuses: list[Value]
) -> None:
    columns = columns_of(features={"f": {"kind": kind}})
    for value in takes:
        absorb(columns, {"f": value})
    for value in refuses:
        assert refusal(columns, {"f": value}).reason == "kind-conflict"


@pytest.mark.parametrize("value", [[1], {"a": 1}, b"bytes", 1j])
def test_value_of_no_json_type_is_refused(value: Any) -> None:
    assert refusal(columns_of(), {"f": value}).reason == "kind-conflict"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_number_that_is_not_finite_is_refused(value: float) -> None:
    said = refusal(columns_of(), {"f": value})
    assert (said.reason, said.detail) == ("not-finite", "f is not a finite number")


@pytest.mark.parametrize("value", [1.0001e150, -1.0001e150, 10**151, 10**400])
def test_number_beyond_the_largest_magnitude_is_refused(value: float) -> None:
    said = refusal(columns_of(), {"f": value})
    assert said.reason == "out-of-range"
    assert "1.0001" not in said.detail, "a refusal names no values"
    absorb(columns_of(), {"f": 1e150})


def test_declared_bounds_are_kept() -> None:
    columns = columns_of(features={"age": {"low": 0, "high": 120}})
    absorb(columns, {"age": 0})
    absorb(columns, {"age": 120})
    for value in (-1, 121):
        said = refusal(columns, {"age": value})
        assert (said.reason, said.detail) == ("out-of-bounds", "age is outside its declared bounds")


def test_feature_that_finds_no_column_is_refused() -> None:
    columns = columns_of(copula={"max_columns": 2})
    absorb(columns, {"a": 1, "b": 2})
    said = refusal(columns, {"a": 3, "c": 1})
    assert said.reason == "too-many-columns"
    assert said.detail == "c is new; the stream may have 2 columns"
    assert refusal(columns, {"d": "level"}).reason == "too-many-columns"
    assert row(columns, {"a": 4}) == [4, None]


def test_level_that_finds_no_column_is_none_of_the_known_ones() -> None:
    columns = columns_of(copula={"max_columns": 2})
    absorb(columns, {"ward": "A"})
    absorb(columns, {"ward": "B"})
    assert row(columns, {"ward": "C"}) == [0, 0]
    assert columns.width == 2


def test_declared_levels_that_find_no_room_refuse_the_record() -> None:
    declared = {"ward": {"kind": "nominal", "levels": ["A", "B"]}}
    columns = columns_of(copula={"max_columns": 2}, features=declared)
    absorb(columns, {"x": 1})
    assert refusal(columns, {"ward": "A"}).reason == "too-many-columns"


def test_reading_changes_nothing_until_it_is_absorbed() -> None:
    columns = columns_of()
    absorb(columns, {"n": 1, "ward": "A"})
    before = columns.snapshot()
    reading = columns.read({"n": 2.5, "ward": "B", "new": True})
    assert isinstance(reading, Reading)
    assert len(reading.row) == 4
    assert columns.width == 2
    assert columns.snapshot() == before
    refusal(columns, {"newer": 1, "n": "text"})
    assert columns.snapshot() == before


def test_snapshot_tells_everything_and_shares_nothing() -> None:
    config = Config.read({"features": {"code": {"kind": "nominal", "levels": ["x"]}}})
    columns = Columns(config)
    records: list[Record] = [
        {"n": 1, "ward": "A", "code": "y"},
        {"ward": "B", "n": 2},
        {"r": 0.5},
    ]
    for record in records:
        absorb(columns, record)
    restored = Columns.restore(config, columns.snapshot())
    assert restored.features == columns.features
    assert restored.kinds.tolist() == columns.kinds.tolist()
    assert restored.features["ward"].kind == NOMINAL
    columns.snapshot()["ward"]["levels"]["C"] = 9
    assert "C" not in columns.features["ward"].levels
