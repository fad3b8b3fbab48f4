"""Named features to columns: kinds, levels, growth and refusals."""

import math
from typing import Any

import numpy as np
import pytest

from dtgol_core.columns import CONTINUOUS, MISSING_MAX, NOMINAL, ORDINAL, Columns, EncodedRecord
from dtgol_core.config import Config
from dtgol_core.types import FeatureValues, Rejection, Value

STRICT = {"strict": True}


def absorb(columns: Columns, record: FeatureValues) -> EncodedRecord:
    reading = columns.read(record)
    assert isinstance(reading, EncodedRecord), reading
    columns.absorb(reading)
    return reading


def columns_of(**settings: Any) -> Columns:
    return Columns(Config.read(settings))


def row(columns: Columns, record: FeatureValues) -> list[float | None]:
    return [None if math.isnan(value) else value for value in absorb(columns, record).row.tolist()]


def refusal(columns: Columns, record: FeatureValues) -> Rejection:
    result = columns.read(record)
    assert isinstance(result, Rejection), result
    return result


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
    columns = columns_of(features={"code": {"kind": "nominal"}}, columns=STRICT)
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
    columns = columns_of(features={"code": {"kind": "nominal"}}, columns=STRICT)
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
def test_another_json_type_later_is_refused_where_it_is_strict(first: Value, then: Value) -> None:
    columns = columns_of(columns=STRICT)
    absorb(columns, {"f": first})
    result = refusal(columns, {"f": then})
    assert result.reason == "kind-conflict"
    assert result.detail.startswith("f takes ")


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
    columns = columns_of(features={"f": {"kind": kind}}, columns=STRICT)
    for value in takes:
        absorb(columns, {"f": value})
    for value in refuses:
        assert refusal(columns, {"f": value}).reason == "kind-conflict"


@pytest.mark.parametrize("value", [[1], {"a": 1}, b"bytes", 1j])
def test_value_of_no_json_type_is_refused(value: Any) -> None:
    assert refusal(columns_of(), {"f": value}).reason == "kind-conflict"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_number_that_is_not_finite_is_refused(value: float) -> None:
    result = refusal(columns_of(columns=STRICT), {"f": value})
    assert (result.reason, result.detail) == ("not-finite", "f is not a finite number")


@pytest.mark.parametrize("value", [1.0001e150, -1.0001e150, 10**151, 10**400])
def test_number_beyond_the_largest_magnitude_is_refused(value: float) -> None:
    result = refusal(columns_of(), {"f": value})
    assert result.reason == "out-of-range"
    assert "1.0001" not in result.detail, "a refusal names no values"
    absorb(columns_of(), {"f": 1e150})


def test_declared_bounds_are_kept() -> None:
    columns = columns_of(features={"age": {"low": 0, "high": 120}})
    absorb(columns, {"age": 0})
    absorb(columns, {"age": 120})
    for value in (-1, 121):
        result = refusal(columns, {"age": value})
        assert (result.reason, result.detail) == (
            "out-of-bounds",
            "age is outside its declared bounds",
        )


def test_feature_that_finds_no_column_is_refused() -> None:
    columns = columns_of(copula={"max_columns": 2})
    absorb(columns, {"a": 1, "b": 2})
    result = refusal(columns, {"a": 3, "c": 1})
    assert result.reason == "too-many-columns"
    assert result.detail == "c is new; the stream may have 2 columns"
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
    assert isinstance(reading, EncodedRecord)
    assert len(reading.row) == 4
    assert columns.width == 2
    assert columns.snapshot() == before
    refusal(columns, {"newer": 1, "n": math.inf})
    assert columns.snapshot() == before


def test_snapshot_tells_everything_and_shares_nothing() -> None:
    config = Config.read({"features": {"code": {"kind": "nominal", "levels": ["x"]}}})
    columns = Columns(config)
    records: list[FeatureValues] = [
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


# Input that is nearly right.


def test_a_bad_first_value_does_not_own_its_feature() -> None:
    """Seen: "unknown" first, then 29 numbers, and 29 of 29 records were refused."""
    columns = columns_of()
    absorb(columns, {"pulse": "unknown"})
    taken = [absorb(columns, {"pulse": 60.5 + n}).observed for n in range(29)]
    assert taken == [0] + [1] * 28, "one number is outvoted by one text, two are not"
    pulse = columns.features["pulse"]
    assert (pulse.kind, pulse.conflicts, pulse.retired, pulse.columns) == (
        CONTINUOUS,
        1,
        (0,),
        (1,),
    )
    assert columns.kinds.tolist() == [ORDINAL, CONTINUOUS]


@pytest.mark.parametrize("marker", ["", "NA", "N/A", "n/a", "null", "NaN", "?", " na ", "NULL"])
def test_missing_markers_are_missing(marker: str) -> None:
    columns = columns_of()
    assert absorb(columns, {"pulse": marker}).observed == 0
    assert not columns.features, "a marker says nothing about the kind"
    absorb(columns, {"pulse": 60})
    reading = absorb(columns, {"pulse": marker})
    assert (reading.observed, reading.conflicts) == (0, 0)


def test_missing_markers_are_a_setting_and_levels_where_a_feature_is_declared_nominal() -> None:
    columns = columns_of(columns={"missing": ["-"]}, features={"region": {"kind": "nominal"}})
    assert absorb(columns, {"a": "-", "region": "-"}).observed == 1
    assert row(columns, {"region": "-", "b": "NA"}) == [1, 1]


def test_a_cell_of_another_kind_is_missing_and_counted() -> None:
    columns = columns_of()
    for n in range(3):
        absorb(columns, {"pulse": n, "ward": "B"})
    reading = absorb(columns, {"pulse": "high", "ward": "B"})
    assert (reading.row[1], reading.observed, reading.conflicts) == (1.0, 1, 1)
    assert math.isnan(reading.row[0])
    assert columns.features["pulse"].conflicts == 1


def test_a_kind_is_settled_after_twenty_cells_and_then_nothing_outvotes_it() -> None:
    columns = columns_of()
    for _ in range(20):
        absorb(columns, {"pulse": 60})
    assert not columns.features["pulse"].votes
    for _ in range(100):
        assert absorb(columns, {"pulse": "high"}).conflicts == 1
    assert columns.features["pulse"].kind == ORDINAL
    assert columns.features["pulse"].conflicts == 100


def test_alternating_types_waste_a_bounded_number_of_columns() -> None:
    columns = columns_of()
    for n in range(400):
        absorb(columns, {"f": "text" if n // 2 % 2 else 1.5})
    assert columns.width <= 20
    assert not columns.features["f"].votes


def test_true_and_one_share_a_column() -> None:
    columns = columns_of()
    absorb(columns, {"flag": True})
    absorb(columns, {"flag": 0})
    assert row(columns, {"flag": 2.5}) == [2.5]
    assert columns.kinds.tolist() == [CONTINUOUS]


def test_a_feature_whose_kind_would_change_without_room_keeps_it() -> None:
    columns = columns_of(copula={"max_columns": 1})
    absorb(columns, {"f": "text"})
    for _ in range(5):
        assert absorb(columns, {"f": 1}).conflicts == 1


def test_retype_changes_one_feature_and_leaves_its_old_columns_missing() -> None:
    columns = columns_of()
    for _ in range(30):
        absorb(columns, {"pulse": "unknown", "ward": "B"})
    assert columns.retype("pulse", "continuous") is None
    assert row(columns, {"pulse": 60, "ward": "B"}) == [None, 1, 60]
    assert columns.kinds.tolist() == [ORDINAL, ORDINAL, CONTINUOUS]
    assert absorb(columns, {"pulse": "unknown"}).conflicts == 1
    restored = Columns.restore(Config(), columns.snapshot())
    assert restored.features == columns.features
    assert restored.kinds.tolist() == columns.kinds.tolist()


def test_retype_without_room_is_refused() -> None:
    columns = columns_of(copula={"max_columns": 1})
    absorb(columns, {"f": "text"})
    result = columns.retype("f", "continuous")
    assert result is not None
    assert result.reason == "too-many-columns"


# Scalars of numpy and pandas.


class NAType:
    """As pandas' NA: comparing it says nothing."""

    def __eq__(self, other: object) -> "NAType":  # type: ignore[override]
        return self

    def __bool__(self) -> bool:
        raise TypeError("boolean value of NA is ambiguous")

    __hash__ = None  # type: ignore[assignment]


class NaTType:
    """As pandas' NaT."""


def test_scalars_of_numpy_are_taken_as_pythons() -> None:
    columns = columns_of()
    record: Any = {
        "f": np.float32(0.5), "i": np.int64(3), "b": np.bool_(True), "s": np.str_("B"),
    }  # fmt: skip
    assert row(columns, record) == [0.5, 3, 1, 1]
    assert {name: known.accepts[0] for name, known in columns.features.items()} == {
        "f": "number", "i": "number", "b": "boolean", "s": "string",
    }  # fmt: skip


@pytest.mark.parametrize(
    "value",
    [math.nan, np.float32("nan"), np.datetime64("NaT"), NAType(), NaTType()],
    ids=lambda value: type(value).__name__,
)
def test_what_numpy_and_pandas_call_missing_is_missing(value: Any) -> None:
    columns = columns_of()
    absorb(columns, {"f": 1})
    reading = absorb(columns, {"f": value, "new": value})
    assert (reading.observed, columns.width) == (0, 1)


@pytest.mark.parametrize("name", [1, None, ("a", "b"), np.str_("ok").encode()])
def test_a_name_that_is_no_string_is_refused(name: Any) -> None:
    assert refusal(columns_of(), {name: 1}).reason == "feature-name"


def test_what_a_record_lacks_is_named_sorted_and_bounded() -> None:
    columns = columns_of()
    absorb(columns, {"c": 1, "a": 2.5, "b": "x"})
    assert absorb(columns, {"b": "y", "c": None}).missing == ("a", "c")
    assert absorb(columns, {"new": 1, "a": 1, "b": "x", "c": 3}).missing == ()
    restored = Columns.restore(Config(), columns.snapshot())
    reading = restored.read({"b": "x"})
    assert isinstance(reading, EncodedRecord)
    assert reading.missing == ("a", "c", "new")
    absorb(columns, {f"f{number:02}": 1 for number in range(60)})
    assert len(absorb(columns, {"a": 1}).missing) == MISSING_MAX


def test_missing_features_are_named_of_settled_numbers_too() -> None:
    """Such records are read on a quicker way."""
    columns = Columns(Config())
    for number in range(30):
        record = columns.read({"b": number + 0.5, "a": number / 3})
        assert isinstance(record, EncodedRecord)
        columns.absorb(record)
    for values, missing in (
        ({"b": 1.0}, ("a",)),
        ({"a": None}, ("a", "b")),
        ({"c": 1.0}, ("a", "b")),
    ):
        record = columns.read(values)
        assert isinstance(record, EncodedRecord)
        assert record.missing == missing


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_known_cells_are_read_quickly_and_as_all_others_are(seed: int, strict: bool) -> None:
    """Cells of all types, some of which are new or wrong; most records have none of these."""
    chance = np.random.default_rng(seed)
    declared = {
        "bounded": {"low": 0.0, "high": 1.0},
        "ward": {"kind": "nominal", "levels": ["NA", "B"]},
        "rank": {"kind": "ordinal"},
    }
    settings = {"features": declared, "columns": {"strict": strict}}
    columns = columns_of(**settings)
    cells: dict[str, list[Any]] = {
        "number": [0.5, 1.25, 3, -7.5, 1e-300, None],
        "whole": [1, 2, 3, 4.0, None],
        "flag": [True, False, None],
        "text": ["a", "b", "c", None, "NA", " na "],
        "bounded": [0.25, 0.5, None],
        "ward": ["NA", "B", "C", 7],
        "rank": [1, 2.5, True],
    }
    odd = [math.nan, math.inf, 1e200, 10**400, "x", "", 1, True, np.float32(0.5), {}, None]
    quick = 0
    for number in range(400):
        names = [name for name in cells if chance.random() < 0.8]
        record = {name: cells[name][chance.integers(len(cells[name]))] for name in names}
        if names and chance.random() < 0.1:
            record[names[0]] = odd[chance.integers(len(odd))]
        if number % 97 == 5:
            record[f"new {number}"] = 1
        read, slowly = columns.read(record), columns._read_slowly(record)
        if isinstance(read, Rejection) or isinstance(slowly, Rejection):
            assert read == slowly
            continue
        np.testing.assert_array_equal(read.row, slowly.row)
        assert read[1:] == slowly[1:]
        known = [columns._quick.get(name) for name, value in record.items() if value is not None]
        quick += None not in known
        columns.absorb(read)
        if number == 200:
            columns = Columns.restore(Config.read(settings), columns.snapshot())
    assert quick > 50
