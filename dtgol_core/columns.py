"""Named features to numbered columns: kinds, levels, a feature space that grows.

In: a record of named values. Out: a `Reading`, one number per column with NaN for missing, or a
`Rejection`. `read` only looks; what is new in a record (features, levels, a kind that turns out
to be continuous) is remembered by `absorb`, after nobody has refused the record. Columns never
go away: a feature that stops coming is simply missing.
"""

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dtgol_core.config import Config, FeatureConfig
from dtgol_core.state import text, whole
from dtgol_core.types import FloatArray, Record, Rejection, Value

ORDINAL, CONTINUOUS, NOMINAL = 0, 1, 2
LEVELS_MAX = 32
DISTINCT_MAX = 15
MAGNITUDE_MAX = 1e150
"""Squares of larger values would overflow in a window's variance."""

KIND_NAMES = ("ordinal", "continuous", "nominal")
_ACCEPTS = {
    "ordinal": ("number", "boolean"),
    "continuous": ("number",),
    "nominal": ("string", "number"),
}


@dataclass(frozen=True, slots=True)
class Feature:
    """What is known of one named feature.

    ``accepts`` are the JSON types it takes. ``seen`` holds the distinct whole numbers of an
    ordinal feature whose kind is ``inferred`` and may still turn continuous.
    """

    kind: int
    accepts: tuple[str, ...]
    inferred: bool
    columns: tuple[int, ...] = ()
    levels: dict[str, int] = field(default_factory=dict)
    other: int = -1
    seen: frozenset[float] = frozenset()


@dataclass(frozen=True, slots=True)
class Addition:
    """One new column: its kind, and an older column of the same feature (-1: none).

    Where the older column was observed in the past, the new one was 0: another level.
    """

    kind: int
    sibling: int


@dataclass(frozen=True, slots=True)
class Reading:
    """A record as numbers: one per column, those about to be added included."""

    row: FloatArray
    observed: int
    additions: tuple[Addition, ...] = ()
    changed: tuple[tuple[str, Feature], ...] = ()
    """Features as they will be known once this record is absorbed; only those that change."""


class Columns:
    """The dictionary from names to columns.

    Parameters
    ----------
    config
        `features` declares kinds, levels and bounds; `copula.max_columns` limits the columns.

    Notes
    -----
    A number is ordinal until its 15th distinct value or its first non-whole one, then continuous
    for good; a boolean is ordinal; a string makes the feature nominal with one 0/1 column per
    level, 32 levels at most and one column for all others. A new level that finds no column free
    is observed as none of the known ones. Cost: a dictionary look-up and a few tests per cell.

    >>> columns = Columns(Config())
    >>> reading = columns.read({"age": 61, "ward": "B"})
    >>> reading.row.tolist(), columns.width
    ([61.0, 1.0], 0)
    >>> columns.absorb(reading)
    >>> columns.read({"ward": 7})
    Rejection(reason='kind-conflict', detail='ward takes string, not number')
    """

    def __init__(self, config: Config) -> None:
        self._declared = config.features
        self._columns_max = config.copula.max_columns
        self.features: dict[str, Feature] = {}
        self.kinds = np.zeros(0, dtype=np.uint8)

    @property
    def width(self) -> int:
        """Number of columns known."""
        return len(self.kinds)

    def read(self, record: Record) -> Reading | Rejection:
        """Turn a record into a row, or say why not. Changes nothing."""
        row = [math.nan] * self.width
        additions: list[Addition] = []
        changed: list[tuple[str, Feature]] = []
        observed = 0
        for name, value in record.items():
            if value is None:
                continue
            known = self.features.get(name)
            feature = self._know(name, known, value, len(row))
            if isinstance(feature, Rejection):
                return feature
            if feature is not known:
                changed.append((name, feature))
                fresh = len([column for column in feature.columns if column >= len(row)])
                sibling = known.columns[0] if known is not None else -1
                kind = CONTINUOUS if feature.kind == CONTINUOUS else ORDINAL
                additions.extend([Addition(kind, sibling)] * fresh)
                row.extend([math.nan] * fresh)
            if feature.kind == NOMINAL:
                for column in feature.columns:
                    row[column] = 0.0
                column = feature.levels.get(_level(value), feature.other)
                if column >= 0:
                    row[column] = 1.0
            else:
                row[feature.columns[0]] = float(value)
            observed += 1
        return Reading(np.array(row), observed, tuple(additions), tuple(changed))

    def absorb(self, reading: Reading) -> None:
        """Remember what was new in a record."""
        if reading.additions:
            fresh = np.array([addition.kind for addition in reading.additions], dtype=np.uint8)
            self.kinds = np.concatenate([self.kinds, fresh])
        for name, feature in reading.changed:
            self.features[name] = feature
            if feature.kind == CONTINUOUS:
                self.kinds[feature.columns[0]] = CONTINUOUS

    def _know(
        self, name: str, known: Feature | None, value: Value, width: int
    ) -> Feature | Rejection:
        """The feature as it is known after `value`: the same object if it taught nothing new."""
        json_type = _json_type(value)
        feature = self._meet(name, json_type) if known is None else known
        if json_type not in feature.accepts:
            wanted = " or ".join(feature.accepts) or "number, boolean or string"
            return Rejection("kind-conflict", f"{name} takes {wanted}, not {json_type}")
        if json_type != "string":
            refusal = self._refuse_number(name, value)
            if refusal is not None:
                return refusal
        if feature.kind == NOMINAL:
            if json_type == "number" and value != int(value):  # type: ignore[arg-type]
                return Rejection("kind-conflict", f"{name} takes whole numbers as levels")
            return self._with_level(name, feature, _level(value), width)
        if not feature.columns:
            if width >= self._columns_max:
                return self._full(name)
            feature = replace(feature, columns=(width,))
        if feature.inferred and feature.kind == ORDINAL:
            number = float(value)  # type: ignore[arg-type]  # a large int is as coarse as its row
            if number in feature.seen:
                return feature
            if number != math.floor(number) or len(feature.seen) + 1 >= DISTINCT_MAX:
                return replace(feature, kind=CONTINUOUS, seen=frozenset())
            return replace(feature, seen=feature.seen | {number})
        return feature

    def _meet(self, name: str, json_type: str) -> Feature:
        """A feature never seen before, without columns yet."""
        declared = self._declared.get(name, FeatureConfig()).kind
        if declared is not None:
            return Feature(KIND_NAMES.index(declared), _ACCEPTS[declared], inferred=False)
        if json_type == "string":
            return Feature(NOMINAL, ("string",), inferred=True)
        if json_type in ("number", "boolean"):
            return Feature(ORDINAL, (json_type,), inferred=json_type == "number")
        return Feature(ORDINAL, (), inferred=True)

    def _refuse_number(self, name: str, value: Value) -> Rejection | None:
        try:
            number = float(value)  # type: ignore[arg-type]
        except OverflowError:
            return Rejection("out-of-range", f"{name} is beyond ±{MAGNITUDE_MAX:g}")
        if not -MAGNITUDE_MAX <= number <= MAGNITUDE_MAX:
            if math.isfinite(number):
                return Rejection("out-of-range", f"{name} is beyond ±{MAGNITUDE_MAX:g}")
            return Rejection("not-finite", f"{name} is not a finite number")
        declared = self._declared.get(name)
        if declared is not None and (
            (declared.low is not None and number < declared.low)
            or (declared.high is not None and number > declared.high)
        ):
            return Rejection("out-of-bounds", f"{name} is outside its declared bounds")
        return None

    def _with_level(
        self, name: str, feature: Feature, level: str, width: int
    ) -> Feature | Rejection:
        if level in feature.levels:
            return feature
        levels, columns, other = dict(feature.levels), feature.columns, feature.other
        if not columns:
            for declared in self._declared.get(name, FeatureConfig()).levels:
                levels[declared] = width + len(levels)
            columns = tuple(levels.values())
            if width + max(len(columns), 1) > self._columns_max:
                return self._full(name)
        fresh = width + len(columns) - len(feature.columns)
        if level not in levels and fresh < self._columns_max:
            if len(levels) < LEVELS_MAX:
                levels[level] = fresh
                columns = (*columns, fresh)
            elif other < 0:
                other = fresh
                columns = (*columns, fresh)
        if columns == feature.columns:
            return feature
        return replace(feature, levels=levels, columns=columns, other=other)

    def _full(self, name: str) -> Rejection:
        limit = self._columns_max
        return Rejection("too-many-columns", f"{name} is new; the stream may have {limit} columns")

    def snapshot(self) -> dict[str, Any]:
        """Everything known, as plain JSON values."""
        return {
            name: {
                "kind": KIND_NAMES[feature.kind],
                "accepts": list(feature.accepts),
                "inferred": feature.inferred,
                "columns": list(feature.columns),
                "levels": dict(feature.levels),
                "other": feature.other,
                "seen": sorted(feature.seen),
            }
            for name, feature in self.features.items()
        }

    @staticmethod
    def restore(config: Config, snapshot: dict[str, Any]) -> "Columns":
        """The columns that `snapshot` described."""
        columns = Columns(config)
        kinds: dict[int, int] = {}
        for name, known in snapshot.items():
            feature = Feature(
                kind=KIND_NAMES.index(known["kind"]),
                accepts=tuple(map(text, known["accepts"])),
                inferred=bool(known["inferred"]),
                columns=tuple(map(whole, known["columns"])),
                levels={level: whole(column) for level, column in known["levels"].items()},
                other=whole(known["other"]),
                seen=frozenset(map(float, known["seen"])),
            )
            columns.features[name] = feature
            for column in feature.columns:
                kinds[column] = CONTINUOUS if feature.kind == CONTINUOUS else ORDINAL
        columns.kinds = np.array([kinds[column] for column in range(len(kinds))], dtype=np.uint8)
        return columns


def _json_type(value: Value) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return type(value).__name__


def _level(value: Value) -> str:
    return value if isinstance(value, str) else str(int(value))  # type: ignore[arg-type]
