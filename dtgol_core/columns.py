"""Named features to numbered columns: kinds, levels, a feature space that grows.

In: a record of named values. Out: an `EncodedRecord`, one number per column with NaN for missing,
or a `Rejection`. `read` changes nothing; what is new in a record (features, levels, a kind that
turns out to be another) is remembered by `absorb`, once the record is not refused. Columns never
go away: a feature that stops coming is simply missing, and so is a column whose feature has
changed its kind.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np

from dtgol_core.config import Config, FeatureConfig, FeatureKind
from dtgol_core.state import SnapshotError, require_int, require_str
from dtgol_core.types import FeatureValues, FloatArray, Rejection, Value

ORDINAL, CONTINUOUS, NOMINAL = 0, 1, 2
LEVELS_MAX = 32
MISSING_MAX = 50
"""Names of missing features that one record gives: they travel with every prediction."""
DISTINCT_MAX = 15
MAGNITUDE_MAX = 1e150
"""Squares of larger values would overflow in a window's variance."""

KIND_EVIDENCE = 20
"""Cells of one JSON type after which an inferred kind is settled. Until then the type that most
cells had decides. Twenty: with 5 % bad cells a wrong majority is a matter of one in 10^13, and a
stranger who alternates types wastes at most twenty columns of a feature."""

KIND_NAMES = ("ordinal", "continuous", "nominal")
_ACCEPTS = {
    "ordinal": ("number", "boolean"),
    "continuous": ("number",),
    "nominal": ("string", "number"),
}
_JSON_TYPES = ("number", "boolean", "string")
_NUMBERS: Mapping[str, tuple[type, ...]] = {"number": (float, int), "boolean": (bool,)}
_PLAIN = (float, int, str, bool)


@dataclass(frozen=True, slots=True)
class Feature:
    """What is known of one named feature.

    ``accepts`` are the JSON types it takes. ``seen`` holds the distinct whole numbers of an
    ordinal feature whose kind is ``inferred`` and may still turn continuous. ``votes`` counts its
    cells by JSON type while its kind is provisional; it is empty once the kind is settled.
    ``conflicts`` counts the cells that were missing because they were of another kind, and
    ``retired`` are columns of a kind that it no longer has.
    """

    kind: int
    accepts: tuple[str, ...]
    inferred: bool
    columns: tuple[int, ...] = ()
    levels: dict[str, int] = field(default_factory=dict)
    other: int = -1
    seen: frozenset[float] = frozenset()
    votes: Mapping[str, int] = field(default_factory=dict)
    conflicts: int = 0
    retired: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Addition:
    """One new column: its kind, and an older column of the same feature (-1: none).

    Where the older column was observed in the past, the new one was 0: another level.
    """

    kind: int
    sibling: int


class EncodedRecord(NamedTuple):
    """A record as numbers: one per column, those about to be added included."""

    row: FloatArray
    observed: int
    missing: tuple[str, ...] = ()
    """Known features that were not observed, by name, sorted: the first `MISSING_MAX`."""
    additions: tuple[Addition, ...] = ()
    changed: tuple[tuple[str, Feature], ...] = ()
    """Features as they will be known once this record is absorbed; only those that change."""
    conflicts: int = 0
    """Cells of another kind than their feature, taken as missing."""


class _Quick(NamedTuple):
    """How cells of a settled feature are read in which nothing can be new.

    ``types`` are the Python types it takes. ``places`` are the columns by known value; None: every
    number goes to ``column``. ``levels`` are the columns of a nominal feature, 0 but for one.
    """

    types: tuple[type, ...]
    column: int
    places: Mapping[Any, int] | None
    levels: tuple[int, ...]


class Columns:
    """The dictionary from names to columns.

    Parameters
    ----------
    config
        `features` declares kinds, levels and bounds; `columns` says what is missing and how
        strict to be; `copula.max_columns` limits the columns.

    Notes
    -----
    A number is ordinal until its 15th distinct value or its first non-whole one, then continuous
    for good; a boolean is ordinal; a string makes the feature nominal with one 0/1 column per
    level, 32 levels at most and one column for all others. A new level that finds no column free
    is observed as none of the known ones. A kind that is inferred is provisional until
    `KIND_EVIDENCE` cells had its JSON type: before that, another type that has come more often
    takes the feature over. A cell of another type is missing, unless `strict`. Numpy's and pandas'
    scalars are taken as Python's; NaN, NaT and pandas' NA are missing. Cost: a dictionary look-up
    and a few tests per cell.

    >>> columns = Columns(Config())
    >>> record = columns.read({"age": 61, "ward": "B"})
    >>> record.row.tolist(), columns.width
    ([61.0, 1.0], 0)
    >>> columns.absorb(record)
    >>> columns.read({"age": "n/a", "ward": 7}).conflicts
    1
    """

    CACHES: ClassVar[tuple[str, ...]] = ("_quick", "_names")

    def __init__(self, config: Config) -> None:
        self._declared = config.features
        self._strict = config.columns.strict
        self._missing = frozenset(text.strip().lower() for text in config.columns.missing)
        self._columns_max = config.copula.max_columns
        self.features: dict[str, Feature] = {}
        self.kinds = np.zeros(0, dtype=np.uint8)
        self._quick: dict[str, _Quick] = {}
        self._names: list[str] | None = None
        """Sorted names of the features; None after a new one came."""

    @property
    def width(self) -> int:
        """Number of columns known."""
        return len(self.kinds)

    def read(self, record: FeatureValues) -> EncodedRecord | Rejection:
        """A record as a row, or the reason of its refusal. Changes nothing."""
        row, quick, observed = [math.nan] * self.width, self._quick, len(record)
        for name, value in record.items():
            known = quick.get(name)
            if known is None:
                break
            if value is None:
                observed -= 1
                continue
            types, column, places, levels = known
            if type(value) not in types:
                break
            if places is None:
                if not -MAGNITUDE_MAX <= value <= MAGNITUDE_MAX:  # type: ignore[operator]
                    break
                row[column] = float(value)
                continue
            column = places.get(value, -1)
            if column < 0:
                break
            for level in levels:
                row[level] = 0.0
            row[column] = 1.0 if levels else float(value)
        else:
            return EncodedRecord(np.array(row), observed, self._missing_in(record, observed))
        return self._read_slowly(record)

    def _missing_in(self, record: FeatureValues, observed: int) -> tuple[str, ...]:
        """The known features that a record of known ones does not have, at most `MISSING_MAX`."""
        if observed == len(self.features):
            return ()
        if self._names is None:
            self._names = sorted(self.features)
        return tuple([name for name in self._names if record.get(name) is None][:MISSING_MAX])

    def _read_slowly(self, record: FeatureValues) -> EncodedRecord | Rejection:
        """The same for any record, cell by cell."""
        row = [math.nan] * self.width
        additions: list[Addition] = []
        changed: list[tuple[str, Feature]] = []
        conflicts = 0
        observed: list[str] = []
        for key, given in cast(Mapping[object, Any], record).items():  # as a library: anything
            if not isinstance(key, str):
                given_type = type(key).__name__
                return Rejection("feature-name", f"a name must be a string, not {given_type}")
            name = str(key)  # of numpy's own strings too
            value = given if type(given) in _PLAIN else _as_plain(given)
            if value is None or self._is_missing(name, value):
                continue
            known = self.features.get(name)
            feature = self._feature_after(name, known, value, len(row))
            if isinstance(feature, Rejection):
                return feature
            if feature is not known:
                changed.append((name, feature))
                if feature.conflicts > (known.conflicts if known is not None else 0):
                    conflicts += 1
                    continue
                fresh = len([column for column in feature.columns if column >= len(row)])
                grown = known is not None and feature.columns[: len(known.columns)] == known.columns
                sibling = known.columns[0] if known is not None and grown and known.columns else -1
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
            observed.append(name)
        # Sorted: the order of the features after a restore is not that in which they came.
        missing = tuple(sorted(self.features.keys() - observed)[:MISSING_MAX])
        return EncodedRecord(
            np.array(row), len(observed), missing, tuple(additions), tuple(changed), conflicts
        )

    def retype(self, name: str, kind: FeatureKind) -> Rejection | None:
        """Give a feature another kind, for good; its columns so far are missing from now on.

        The learner keeps all else that it knows. A feature never seen takes the kind when it comes.
        """
        known = self.features.get(name, Feature(ORDINAL, (), inferred=False))
        if self.width >= self._columns_max:
            return self._full(name)
        self._remember(
            name, _other_kind(known, Feature(KIND_NAMES.index(kind), _ACCEPTS[kind], False))
        )
        return None

    def absorb(self, record: EncodedRecord) -> None:
        """Remember what was new in a record."""
        if record.additions:
            fresh = np.array([addition.kind for addition in record.additions], dtype=np.uint8)
            self.kinds = np.concatenate([self.kinds, fresh])
        for name, feature in record.changed:
            self._remember(name, feature)

    def _remember(self, name: str, feature: Feature) -> None:
        self._add(name, feature)
        self.kinds[list(feature.retired)] = ORDINAL
        if feature.kind != NOMINAL and feature.columns:
            self.kinds[feature.columns[0]] = feature.kind

    def _add(self, name: str, feature: Feature) -> None:
        if name not in self.features:
            self._names = None
        self.features[name] = feature
        quick = self._quickly(name, feature)
        if quick is None:
            self._quick.pop(name, None)
        else:
            self._quick[name] = quick

    def _quickly(self, name: str, feature: Feature) -> _Quick | None:
        """How known cells of a feature are read; None while its kind is provisional."""
        declared = self._declared.get(name, FeatureConfig())
        if feature.votes or not feature.columns:
            return None
        if feature.kind == NOMINAL:
            places = {
                level: column
                for level, column in feature.levels.items()
                if not self._is_missing(name, level)
            }
            return _Quick((str,), -1, places, feature.columns)
        if declared.low is not None or declared.high is not None:
            return None
        column = feature.columns[0]
        types = tuple(each for accepted in feature.accepts for each in _NUMBERS[accepted])
        changes = feature.kind == ORDINAL and feature.inferred
        return _Quick(types, column, dict.fromkeys(feature.seen, column) if changes else None, ())

    def _is_missing(self, name: str, value: Value) -> bool:
        """NaN, or a text that means it; a feature declared nominal takes such a text as a level."""
        if type(value) is str:
            if value.strip().lower() not in self._missing:
                return False
            declared = self._declared.get(name)
            return declared is None or declared.kind != "nominal"
        return value != value and not self._strict

    def _feature_after(
        self, name: str, known: Feature | None, value: Value, width: int
    ) -> Feature | Rejection:
        """The feature as it is known after `value`: the same object if nothing in it is new."""
        json_type = _json_type(value)
        feature = self._new_feature(name, json_type) if known is None else known
        if feature.votes:
            feature = self._after_vote(name, feature, json_type, width)
        if json_type not in feature.accepts:
            wanted = " or ".join(feature.accepts) or "number, boolean or string"
            return self._conflict(feature, json_type, f"{name} takes {wanted}, not {json_type}")
        if json_type != "string":
            refusal = self._refuse_number(name, value)
            if refusal is not None:
                return refusal
        if feature.kind == NOMINAL:
            if json_type == "number" and value != int(value):  # type: ignore[arg-type]
                return self._conflict(feature, json_type, f"{name} takes whole numbers as levels")
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

    def _new_feature(self, name: str, json_type: str) -> Feature:
        """A feature never seen before, without columns yet."""
        declared = self._declared.get(name, FeatureConfig()).kind
        if declared is not None:
            return Feature(KIND_NAMES.index(declared), _ACCEPTS[declared], inferred=False)
        if json_type not in _JSON_TYPES:
            return Feature(ORDINAL, (), inferred=True)
        kind = NOMINAL if json_type == "string" else ORDINAL
        votes = {} if self._strict else {json_type: 0}
        return Feature(kind, (json_type,), inferred=json_type != "boolean", votes=votes)

    def _conflict(self, feature: Feature, json_type: str, detail: str) -> Feature | Rejection:
        """A cell of another kind: counted, or the record is refused."""
        if self._strict or json_type not in _JSON_TYPES:
            return Rejection("kind-conflict", detail)
        return replace(feature, conflicts=feature.conflicts + 1)

    def _after_vote(self, name: str, feature: Feature, json_type: str, width: int) -> Feature:
        """A provisional feature after one more cell: settled, outvoted, or provisional still."""
        if json_type not in _JSON_TYPES:
            return feature
        votes = dict(feature.votes)
        votes[json_type] = votes.get(json_type, 0) + 1
        (accepted,) = feature.accepts
        if json_type == accepted and votes[json_type] >= KIND_EVIDENCE:
            return replace(feature, votes={})
        if votes[json_type] > votes[accepted] and width < self._columns_max:
            return replace(_other_kind(feature, self._new_feature(name, json_type)), votes=votes)
        return replace(feature, votes=votes)

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
        """Everything known, as plain JSON values; what is empty in most features is left out."""
        return {
            name: {
                "kind": KIND_NAMES[feature.kind],
                "accepts": list(feature.accepts),
                "inferred": feature.inferred,
                "columns": list(feature.columns),
                "levels": dict(feature.levels),
                "other": feature.other,
                "seen": sorted(feature.seen),
                **({"votes": dict(feature.votes)} if feature.votes else {}),
                **({"conflicts": feature.conflicts} if feature.conflicts else {}),
                **({"retired": list(feature.retired)} if feature.retired else {}),
            }
            for name, feature in self.features.items()
        }

    @staticmethod
    def restore(config: Config, snapshot: dict[str, Any]) -> "Columns":
        """The columns that `snapshot` described."""
        columns = Columns(config)
        kinds: dict[int, int] = {}
        taken = 0
        for name, known in snapshot.items():
            feature = Feature(
                kind=KIND_NAMES.index(known["kind"]),
                accepts=tuple(map(require_str, known["accepts"])),
                inferred=bool(known["inferred"]),
                columns=tuple(map(require_int, known["columns"])),
                levels={
                    level: require_int(column)
                    for level, column in sorted(known["levels"].items(), key=lambda pair: pair[1])
                },
                other=require_int(known["other"]),
                seen=frozenset(map(float, known["seen"])),
                votes={each: require_int(n) for each, n in known.get("votes", {}).items()},
                conflicts=require_int(known.get("conflicts", 0)),
                retired=tuple(map(require_int, known.get("retired", ()))),
            )
            own = {*feature.columns}
            if not {*feature.levels.values(), feature.other} - {-1} <= own or len(own) < len(
                feature.columns
            ):
                raise SnapshotError(f"the snapshot is damaged: columns of feature {name}")
            columns._add(name, feature)
            taken += len(feature.columns) + len(feature.retired)
            kinds.update(dict.fromkeys(feature.retired, ORDINAL))
            for column in feature.columns:
                kinds[column] = CONTINUOUS if feature.kind == CONTINUOUS else ORDINAL
        if taken != len(kinds):
            raise SnapshotError("the snapshot is damaged: two features have one column")
        columns.kinds = np.array([kinds[column] for column in range(len(kinds))], dtype=np.uint8)
        return columns


def _other_kind(feature: Feature, other: Feature) -> Feature:
    """`feature` as `other` from now on; a number stays in its column, whatever its kind."""
    before = replace(other, conflicts=feature.conflicts, retired=feature.retired)
    if NOMINAL in (feature.kind, other.kind):
        return replace(before, retired=feature.retired + feature.columns)
    return replace(before, columns=feature.columns)


def _as_plain(value: Any) -> Any:
    """A numpy or pandas scalar as Python's own; None for NaT and pandas' NA.

    By what they are, not by import: the core knows no pandas.
    """
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, np.generic):
        return value.item()
    for kind in _PLAIN:
        if isinstance(value, kind):
            return kind(value)
    return value


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
