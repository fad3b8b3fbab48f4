"""One JSON object per line -> typed rows; the other table beside CSV, with the same faults.

Two shapes, recognised by the first line. As on the wire: ``{"id": …, "x": {…}, "y": …}``, where
``id``, ``y`` and ``key`` may be absent. Flat: every field is a feature except the label and the
columns that the layout sets aside. JSON has types, so values are taken as they are; null and
absent are missing. One pass finds every name and every fault before the first row is given out.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import orjson

from dtgol_core.types import Value
from pipeline.errors import InputError
from pipeline.offline.files.source import InputFile
from pipeline.offline.files.tables import (
    KINDS,
    Column,
    Layout,
    TableRow,
    check_positive,
    list_columns,
    parse_time,
)

_KINDS = {float: "number", int: "number", bool: "true/false", str: "text"}


class _Parts(NamedTuple):
    features: Mapping[str, Any]
    label: Any
    id: Any
    key: Any
    time: Any


class JsonTable:
    """A file in UTF-8 with one JSON object per line. Blank lines are skipped."""

    def __init__(self, source: InputFile, layout: Layout) -> None:
        self._source = source
        with self._objects() as objects:
            _, first = next(objects, (0, None))
            if first is None:
                raise InputError(f"{source} is empty: it needs one JSON object per line")
            self._nested = isinstance(first.get("x"), dict)
        wire = replace(layout, label="y", id="id", key="key", time="ts")
        self._layout = wire if self._nested else layout
        self._missing = {text.strip().lower() for text in layout.missing}
        self.columns = self._survey()
        self.names = [column.name for column in self.columns]

    def rows(self) -> Iterator[TableRow]:
        """The rows in the order of the file, each value as its JSON type."""
        with self._objects() as objects:
            for _, each in objects:
                features, label, id, key, time = self._parts(each)
                values: list[Value] = [features.get(name) for name in self.names]
                moment = parse_time(_text(time))
                yield TableRow(values, self._truth(label), _text(id), _text(key), moment)

    def describe(self) -> Iterator[str]:
        """A line for each type of column, and one for each column that is mixed.

        No type is decided here: values are passed on as they are, and the learner decides as it
        does for records from Kafka.
        """
        for kind in KINDS:
            names = [column.name for column in self.columns if list(column.types) == [kind]]
            yield from list_columns(kind, names)
        yield from list_columns("empty", [each.name for each in self.columns if not each.types])
        for column in self.columns:
            if len(column.types) > 1:
                yield (
                    f"mixed: {column.words}; passed on as they are: the learner goes by the type "
                    f"that most of the first cells have, and cells of another are missing"
                )

    def _truth(self, label: Any) -> int | None:
        """0 or 1, None where it is missing; a `KeyError` for anything else."""
        return None if label is None else self._layout.label_of(_label_text(label))

    def _parts(self, each: Mapping[str, Any]) -> _Parts:
        layout, aside = self._layout, self._layout.aside()
        given = each.get("x") if self._nested else each
        if not isinstance(given, dict):
            raise InputError('"x" is not an object')
        left_out = set(layout.drop) if self._nested else aside
        features = {name: value for name, value in given.items() if name not in left_out}
        others = (each.get(name or "") for name in (layout.id, layout.key, layout.time))
        return _Parts(features, each.get(layout.label), *others)

    def _survey(self) -> list[Column]:
        """Every feature in the order of first use; raises on the first fault."""
        columns: dict[str, Column] = {}
        labels: Counter[str] = Counter()
        with self._objects() as objects:
            for line, each in objects:
                try:
                    parts = self._parts(each)
                    self._check(parts)
                except InputError as fault:
                    raise InputError(f"line {line} of {self._source}: {fault}") from None
                if parts.label is not None:
                    labels[_label_text(parts.label)] += 1
                for name, value in parts.features.items():
                    self._count(columns.setdefault(name, Column(name)), value)
        if not columns:
            raise InputError(f"{self._source} has no features")
        if not labels and not self._nested:
            raise InputError(
                f"{self._source} has no field {self._layout.label!r} for the label; there are: "
                f"{', '.join(columns)}"
            )
        check_positive(self._layout, labels, self._source)
        return list(columns.values())

    def _count(self, column: Column, value: Value) -> None:
        text = isinstance(value, str)
        if value is None or (text and str(value).strip().lower() in self._missing):
            column.seen["missing"] += 1
            return
        column.seen[_KINDS[type(value)]] += 1
        if text and column.stray is None:
            column.stray = str(value)

    def _check(self, parts: _Parts) -> None:
        """Raise what cannot be sent."""
        for name, value in parts.features.items():
            if value is not None and type(value) not in _KINDS:
                raise InputError(f"{name!r} is neither a number, a boolean, a text nor null")
        for use, given in (("id", parts.id), ("key", parts.key)):
            if given is not None and type(given) not in (str, int):
                raise InputError(f"the {use} is neither a text nor a whole number")
        parse_time(_text(parts.time))
        try:
            self._truth(parts.label)
        except KeyError:
            raise InputError(
                f"the label {self._layout.label!r} must be 0, 1, false or true; "
                f"--positive says which value is 1"
            ) from None

    @contextmanager
    def _objects(self) -> Iterator[Iterator[tuple[int, dict[str, Any]]]]:
        with self._source.open() as file:
            yield self._parsed(file)

    def _parsed(self, lines: Iterator[bytes]) -> Iterator[tuple[int, dict[str, Any]]]:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                each = orjson.loads(line)
            except orjson.JSONDecodeError as error:
                # The parser's texts are fixed sentences and quote nothing of the record.
                raise InputError(
                    f"line {number} of {self._source} is not JSON: {error.msg}"
                ) from None
            if type(each) is not dict:
                raise InputError(f"line {number} of {self._source} is not a JSON object")
            yield number, each


def _label_text(label: object) -> str:
    """A label as it stands in the file: true and not Python's True."""
    return str(label).lower() if isinstance(label, bool) else str(label)


def _text(value: object) -> str | None:
    return None if value is None else str(value)
