"""Tables on disk -> typed rows in the order of the file; every fault is a `RecordsError`.

A CSV file has no types, so one pass over it decides each column before the second pass gives
rows out: a column is numbers, true/false, or text as soon as one cell is neither. That pass also
finds every fault, so nothing is learnt from a file that breaks off later. Rows are streamed.
Another format is another class with ``names`` and ``rows()``.
"""

import csv
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

from dtgol_core.types import Value

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_WHOLE = re.compile(r"[+-]?\d{1,15}")  # fifteen digits: exact as a float too
_TRUTH = {"true": True, "false": False}
_NOT_FINITE = {"nan", "inf", "infinity"}
_LABELS = {"0": 0, "1": 1, "0.0": 0, "1.0": 1, "false": 0, "true": 1}


class RecordsError(ValueError):
    """A file that cannot be read as records; the message is one sentence for the user.

    It names rows and columns, never the value of a feature.
    """


class TableRow(NamedTuple):
    """One row: the values in the order of the table's names, and the label if there is one.

    ``id`` and ``key`` are there if the table has them beside its features.
    """

    values: list[Value]
    label: int | None
    id: str | None = None
    key: str | None = None


class Layout(NamedTuple):
    """Which columns are no features: the label, and where wanted the instance and its key."""

    label: str = "label"
    id: str | None = None
    key: str | None = None


class Table(Protocol):
    """A file with named columns that can be gone through more than once."""

    @property
    def names(self) -> list[str]:
        """The feature columns, in the order of the file; the label is not among them."""

    def rows(self) -> Iterator[TableRow]:
        """The rows in the order of the file."""


class CsvTable:
    """A CSV file in UTF-8 with a header line; an empty cell is missing. Blank lines are skipped."""

    def __init__(self, path: Path, layout: Layout) -> None:
        self._path = path
        self._layout = layout
        with self._lines() as lines:
            header = next(lines, None)
            if header is None:
                raise RecordsError(f"{path} is empty: it needs a header line and records")
            self._check_header(header)
            self._place = header.index(layout.label)
            self._id_place = None if layout.id is None else header.index(layout.id)
            self._key_place = None if layout.key is None else header.index(layout.key)
            self._places = [place for place, name in enumerate(header) if name not in layout]
            self.names = [header[place] for place in self._places]
            self._texts, self._truths = self._survey(lines, header)

    def rows(self) -> Iterator[TableRow]:
        """The rows in the order of the file, each cell as its column's type."""
        with self._lines() as lines:
            next(lines)
            for cells in filter(None, lines):
                label = _LABELS.get(cells[self._place].strip().lower())
                id, key = (
                    None if place is None else cells[place].strip() or None
                    for place in (self._id_place, self._key_place)
                )
                values = [self._value(i, cells[place]) for i, place in enumerate(self._places)]
                yield TableRow(values, label, id, key)

    @contextmanager
    def _lines(self) -> "Iterator[_Lines]":
        try:
            with self._path.open(encoding="utf-8-sig", newline="") as file:
                yield csv.reader(file, strict=True)
        except FileNotFoundError:
            raise RecordsError(f"there is no file {self._path}") from None
        except OSError as error:
            raise RecordsError(f"cannot read {self._path}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise RecordsError(f"{self._path} is not UTF-8 text") from None
        except csv.Error as error:
            raise RecordsError(f"{self._path} is not CSV: {error}") from None

    def _check_header(self, header: list[str]) -> None:
        for use, name in zip(Layout._fields, self._layout, strict=True):
            if name is not None and name not in header:
                raise RecordsError(
                    f"{self._path} has no column {name!r} for the {use}; there are: "
                    f"{', '.join(header)}"
                )
        doubled = next((name for name in header if header.count(name) > 1), None)
        if doubled is not None:
            raise RecordsError(f"{self._path} has two columns {doubled!r}")
        if set(header) <= set(self._layout):
            raise RecordsError(
                f"{self._path} has no column besides the label {self._layout.label!r}"
            )

    def _survey(self, lines: "_Lines", header: list[str]) -> tuple[set[int], set[int]]:
        """The places of the text and of the true/false columns; raises on the first fault."""
        numbers: set[int] = set()
        truths: set[int] = set()
        texts: set[int] = set()
        not_finite: dict[int, str] = {}
        row = -1
        for row, cells in enumerate(filter(None, lines)):
            where = f"row {row} (line {lines.line_num}) of {self._path}"
            if len(cells) != len(header):
                raise RecordsError(f"{where} has {len(cells)} cells, the header {len(header)}")
            label = cells[self._place].strip().lower()
            if label and label not in _LABELS:
                column = repr(self._layout.label)
                raise RecordsError(
                    f"the label must be 0 or 1: column {column} in {where} is {label!r}"
                )
            for place, cell in enumerate(cells[at].strip() for at in self._places):
                if not cell:
                    continue
                if cell.lower() in _TRUTH:
                    truths.add(place)
                elif cell.lstrip("+-").lower() in _NOT_FINITE or _overflows(cell):
                    not_finite.setdefault(place, where)
                elif _NUMBER.fullmatch(cell):
                    numbers.add(place)
                else:
                    texts.add(place)
        if row < 0:
            raise RecordsError(f"{self._path} has a header but no records")
        texts |= numbers & truths
        for place, where in not_finite.items():
            if place not in texts:
                raise RecordsError(
                    f"column {self.names[place]!r} in {where} is not a finite number; "
                    f"leave the cell empty if it is missing"
                )
        return texts, truths - texts

    def _value(self, place: int, cell: str) -> Value:
        cell = cell.strip()
        if not cell:
            return None
        if place in self._texts:
            return cell
        if place in self._truths:
            return _TRUTH[cell.lower()]
        return int(cell) if _WHOLE.fullmatch(cell) else float(cell)


class _Lines(Protocol):
    """What `csv.reader` returns."""

    @property
    def line_num(self) -> int: ...

    def __iter__(self) -> Iterator[list[str]]: ...

    def __next__(self) -> list[str]: ...


def _overflows(cell: str) -> bool:
    return _NUMBER.fullmatch(cell) is not None and math.isinf(float(cell))
