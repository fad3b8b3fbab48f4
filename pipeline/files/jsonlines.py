"""One JSON object per line -> typed rows; the other table beside CSV, with the same faults.

Two shapes, told apart by the first line. As on the wire: ``{"id": …, "x": {…}, "y": …}``, where
``id``, ``y`` and ``key`` may be absent. Flat: every field is a feature except the label and the
columns that the layout sets aside. JSON has types, so values are taken as they are; null and
absent are missing. One pass finds every name and every fault before the first row is given out.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from dtgol_core.types import Value
from pipeline.files.tables import Layout, RecordsError, TableRow

_FIELDS = Layout("y", "id", "key")
_KINDS = (float, int, bool, str)


class _Parts(NamedTuple):
    features: Mapping[str, Any]
    label: Any
    id: Any
    key: Any


class JsonTable:
    """A file in UTF-8 with one JSON object per line. Blank lines are skipped."""

    def __init__(self, path: Path, layout: Layout) -> None:
        self._path = path
        with self._objects() as objects:
            _, first = next(objects, (0, None))
            if first is None:
                raise RecordsError(f"{path} is empty: it needs one JSON object per line")
            self._nested = isinstance(first.get("x"), dict)
        self._layout = _FIELDS if self._nested else layout
        self.names = self._survey()

    def rows(self) -> Iterator[TableRow]:
        """The rows in the order of the file, each value as its JSON type."""
        with self._objects() as objects:
            for _, each in objects:
                features, label, id, key = self._parts(each)
                values: list[Value] = [features.get(name) for name in self.names]
                truth = None if label is None else int(label)
                yield TableRow(values, truth, _text(id), _text(key))

    def _parts(self, each: Mapping[str, Any]) -> _Parts:
        label, id, key = self._layout
        if self._nested:
            features = each.get("x")
            if not isinstance(features, dict):
                raise RecordsError('"x" is not an object')
        else:
            features = {name: value for name, value in each.items() if name not in self._layout}
        return _Parts(features, each.get(label), each.get(id or ""), each.get(key or ""))

    def _survey(self) -> list[str]:
        """Every feature name in the order of first sight; raises on the first fault."""
        names: dict[str, None] = {}
        labels = 0
        with self._objects() as objects:
            for line, each in objects:
                try:
                    parts = self._parts(each)
                    labels += self._check(parts)
                except RecordsError as fault:
                    raise RecordsError(f"line {line} of {self._path}: {fault}") from None
                names.update(dict.fromkeys(parts.features))
        if not names:
            raise RecordsError(f"{self._path} has no features")
        if not labels and not self._nested:
            raise RecordsError(
                f"{self._path} has no field {self._layout.label!r} for the label; there are: "
                f"{', '.join(names)}"
            )
        return list(names)

    def _check(self, parts: _Parts) -> bool:
        """Whether the row has a label; raises what cannot be sent."""
        for name, value in parts.features.items():
            if value is not None and type(value) not in _KINDS:
                raise RecordsError(f"{name!r} is neither a number, a boolean, a text nor null")
        for use, given in (("id", parts.id), ("key", parts.key)):
            if given is not None and type(given) not in (str, int):
                raise RecordsError(f"the {use} is neither a text nor a whole number")
        if parts.label is not None and parts.label not in (0, 1):
            raise RecordsError(f"the label {self._layout.label!r} must be 0, 1, false or true")
        return parts.label is not None

    @contextmanager
    def _objects(self) -> Iterator[Iterator[tuple[int, dict[str, Any]]]]:
        try:
            with self._path.open("rb") as file:
                yield self._parsed(file)
        except FileNotFoundError:
            raise RecordsError(f"there is no file {self._path}") from None
        except OSError as error:
            raise RecordsError(f"cannot read {self._path}: {error.strerror}") from None

    def _parsed(self, lines: Iterator[bytes]) -> Iterator[tuple[int, dict[str, Any]]]:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                each = orjson.loads(line)
            except orjson.JSONDecodeError as error:
                # The parser's texts are fixed sentences and quote nothing of the record.
                raise RecordsError(
                    f"line {number} of {self._path} is not JSON: {error.msg}"
                ) from None
            if type(each) is not dict:
                raise RecordsError(f"line {number} of {self._path} is not a JSON object")
            yield number, each


def _text(value: object) -> str | None:
    return None if value is None else str(value)
