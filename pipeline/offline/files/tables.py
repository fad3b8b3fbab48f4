"""Tables on disk -> typed rows in the order of the file; every fault is a `InputError`.

A CSV file has no types, so one pass over it decides each column before the second pass gives
rows out: a column is numbers, true/false, or text. A few texts among numbers (`STRAY_MAX`) do not
make it text: they are missing, and reported. That pass also finds every fault, so nothing is
learnt from a file that breaks off later. Rows are streamed. Another format is another class with
``names``, ``columns`` and ``rows()``.
"""

import csv
import io
import math
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple, Protocol

from dtgol_core.config import ColumnsConfig
from dtgol_core.types import Value
from pipeline.errors import InputError
from pipeline.offline.files.source import InputFile

STRAY_MAX = 0.05
"""Share of texts up to which a column of numbers stays one. More, as in codes such as 250.01 and
V58, and the texts are what the column is about."""
SECONDS_MAX = 100_000_000_000
"""A time below it is in seconds: as milliseconds it would be before March 1973."""
NAMES_MAX = 20
"""Names of columns in one line."""
KINDS = ("number", "true/false", "text")
_SEPARATORS = (",", ";", "\t")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_WHOLE = re.compile(r"[+-]?\d{1,15}")  # fifteen digits: exact as a float too
_TRUTH = {"true": True, "false": False}
_NOT_FINITE = {"inf", "infinity"}
_LABELS = {"0": 0, "1": 1, "0.0": 0, "1.0": 1, "false": 0, "true": 1}


class TableRow(NamedTuple):
    """One row: the values in the order of the table's names, and the label if there is one.

    ``id``, ``key`` and ``time_ms`` are there if the table has them beside its features.
    """

    values: list[Value]
    label: int | None
    id: str | None = None
    key: str | None = None
    time_ms: int | None = None


@dataclass(frozen=True)
class Layout:
    """Which columns are no features, what is missing, and what a label of 1 looks like."""

    label: str = "label"
    id: str | None = None
    key: str | None = None
    time: str | None = None
    drop: tuple[str, ...] = ()
    positive: str | None = None
    missing: tuple[str, ...] = ColumnsConfig().missing

    def named(self) -> Iterator[tuple[str, str]]:
        """Use and name of every column that is no feature."""
        for use, name in (
            ("label", self.label), ("id", self.id), ("key", self.key), ("time", self.time),
            *(("drop", name) for name in self.drop),
        ):  # fmt: skip
            if name is not None:
                yield use, name

    def aside(self) -> set[str]:
        """The names of columns that are no features."""
        return {name for _, name in self.named()}

    def label_of(self, text: str) -> int | None:
        """0 or 1, None where it is missing; a `KeyError` for anything else."""
        text = text.strip()
        if text.lower() in {each.strip().lower() for each in self.missing}:
            return None
        if self.positive is not None:
            return int(text == self.positive)
        return _LABELS[text.lower()]


@dataclass
class Column:
    """What one pass has seen of a feature column."""

    name: str
    seen: Counter[str] = field(default_factory=Counter)
    """Cells by what they are: number, true/false, text, missing."""
    stray: str | None = None
    """The first cell that is a text."""

    @property
    def kind(self) -> str:
        """What its cells are taken as; a cell that is something else is missing."""
        numbers, truths, texts = (self.seen[kind] for kind in ("number", "true/false", "text"))
        if numbers and truths:
            return "text"
        if texts > STRAY_MAX * (numbers + truths + texts) or not numbers + truths + texts:
            return "text"
        return "number" if numbers else "true/false"

    @property
    def types(self) -> dict[str, int]:
        """How many cells it has of each type; the most frequent first."""
        return {kind: count for kind, count in self.seen.most_common() if kind != "missing"}

    @property
    def words(self) -> str:
        """Its name, and its cells by type with an example."""
        counts = self.types.items()
        words = ", ".join(f"{count} {kind}{'s' * (count > 1)}" for kind, count in counts)
        example = f" (such as {self.stray!r})" if self.stray is not None else ""
        return f"{self.name}: {words}{example}"

    @property
    def mixed(self) -> str | None:
        """What becomes of its cells if they are of several types; None if they are of one."""
        if len(self.types) < 2:
            return None
        fate = "" if self.kind == "text" else "; what is no " + self.kind + " is missing"
        return f"{self.words}; taken as {self.kind}{fate}"


class Table(Protocol):
    """A file with named columns that can be gone through more than once."""

    @property
    def names(self) -> list[str]:
        """The feature columns, in the order of the file; the label is not among them."""

    @property
    def columns(self) -> list[Column]:
        """What the cells of each feature column are."""

    def rows(self) -> Iterator[TableRow]:
        """The rows in the order of the file."""

    def describe(self) -> Iterator[str]:
        """For people: a line for each kind of column, and one for each column that is mixed."""


def list_columns(kind: str, names: list[str]) -> Iterator[str]:
    """One line with the columns of a kind, the first of them by name; none if there are none."""
    if names:
        more = f" and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else ""
        yield f"{kind} columns ({len(names)}): {', '.join(names[:NAMES_MAX])}{more}"


class CsvTable:
    """A CSV file in UTF-8 with a header line, separated by comma, semicolon or tab.

    An empty cell is missing, and so is one with a text of ``layout.missing``. Blank lines are
    skipped.
    """

    def __init__(self, source: InputFile, layout: Layout) -> None:
        self._source = source
        self._layout = layout
        self._missing = {text.strip().lower() for text in layout.missing} | {""}
        with self._lines() as lines:
            header = next(lines, None)
            if header is None:
                raise InputError(f"{source} is empty: it needs a header line and records")
            self._check_header(header)
            self._at = {use: header.index(name) for use, name in layout.named() if use != "drop"}
            aside = layout.aside()
            self._places = [place for place, name in enumerate(header) if name not in aside]
            self.names = [header[place] for place in self._places]
            self.columns = self._survey(lines, header)
            self._kinds = [column.kind for column in self.columns]

    def rows(self) -> Iterator[TableRow]:
        """The rows in the order of the file, each cell as its column's type."""
        with self._lines() as lines:
            next(lines)
            for cells in filter(None, lines):
                yield TableRow(
                    [self._value(i, cells[place]) for i, place in enumerate(self._places)],
                    self._layout.label_of(cells[self._at["label"]]),
                    self._cell(cells, "id"),
                    self._cell(cells, "key"),
                    parse_time(self._cell(cells, "time")),
                )

    def describe(self) -> Iterator[str]:
        """A line for each kind of column, and one for each column that is mixed."""
        for kind in KINDS:
            yield from list_columns(kind, [each.name for each in self.columns if each.kind == kind])
        yield from (f"mixed: {each.mixed}" for each in self.columns if each.mixed is not None)

    def _cell(self, cells: list[str], use: str) -> str | None:
        """What a row has in a column that is no feature."""
        return cells[self._at[use]].strip() or None if use in self._at else None

    @contextmanager
    def _lines(self) -> "Iterator[_Lines]":
        with self._source.open() as raw:
            try:
                file = io.TextIOWrapper(raw, encoding="utf-8-sig", newline="")
                first = file.readline()
                file.seek(0)
                # More of them in the header than of the others; a comma where there is none.
                separator = max(_SEPARATORS, key=first.count)
                yield csv.reader(file, strict=True, delimiter=separator)
            except UnicodeDecodeError:
                raise InputError(f"{self._source} is not UTF-8 text") from None
            except csv.Error as error:
                raise InputError(f"{self._source} is not CSV: {error}") from None

    def _check_header(self, header: list[str]) -> None:
        for use, name in self._layout.named():
            if name not in header:
                raise InputError(
                    f"{self._source} has no column {name!r} for the {use}; there are: "
                    f"{', '.join(header)}"
                )
        doubled = next((name for name in header if header.count(name) > 1), None)
        if doubled is not None:
            raise InputError(f"{self._source} has two columns {doubled!r}")
        if set(header) <= self._layout.aside():
            raise InputError(
                f"{self._source} has no column besides the label {self._layout.label!r}"
            )

    def _survey(self, lines: "_Lines", header: list[str]) -> list[Column]:
        """What every column holds; raises on the first fault."""
        columns = [Column(name) for name in self.names]
        not_finite: dict[str, str] = {}
        labels: Counter[str] = Counter()
        row = -1
        for row, cells in enumerate(filter(None, lines)):
            where = f"row {row} (line {lines.line_num}) of {self._source}"
            if len(cells) != len(header):
                raise InputError(f"{where} has {len(cells)} cells, the header {len(header)}")
            labels[self._check_label(cells, where)] += 1
            try:
                parse_time(self._cell(cells, "time"))
            except InputError as fault:
                raise InputError(f"column {self._layout.time!r} in {where}: {fault}") from None
            for column, place in zip(columns, self._places, strict=True):
                cell = cells[place].strip()
                kind = self._kind(cell)
                if kind == "not finite":
                    not_finite.setdefault(column.name, where)
                    continue
                column.seen[kind] += 1
                if kind == "text" and column.stray is None:
                    column.stray = cell
        if row < 0:
            raise InputError(f"{self._source} has a header but no records")
        check_positive(self._layout, labels, self._source)
        for column in columns:
            if column.name in not_finite and column.kind != "text":
                raise InputError(
                    f"column {column.name!r} in {not_finite[column.name]} is not a finite number; "
                    f"leave the cell empty if it is missing"
                )
        return columns

    def _check_label(self, cells: list[str], where: str) -> str:
        label = cells[self._at["label"]].strip()
        try:
            self._layout.label_of(label)
        except KeyError:
            column = repr(self._layout.label)
            raise InputError(
                f"the label must be 0 or 1: column {column} in {where} is {label!r}; "
                f"--positive says which value is 1"
            ) from None
        return label

    def _kind(self, cell: str) -> str:
        if cell.lower() in self._missing:
            return "missing"
        if cell.lower() in _TRUTH:
            return "true/false"
        if _NUMBER.fullmatch(cell):
            return "not finite" if math.isinf(float(cell)) else "number"
        return "not finite" if cell.lstrip("+-").lower() in _NOT_FINITE else "text"

    def _value(self, place: int, cell: str) -> Value:
        cell = cell.strip()
        kind, wanted = self._kind(cell), self._kinds[place]
        if kind == "missing":
            return None
        if wanted == "text":
            return cell
        if kind != wanted:
            return None
        if kind == "true/false":
            return _TRUTH[cell.lower()]
        return int(cell) if _WHOLE.fullmatch(cell) else float(cell)


class _Lines(Protocol):
    """What `csv.reader` returns."""

    @property
    def line_num(self) -> int: ...

    def __iter__(self) -> Iterator[list[str]]: ...

    def __next__(self) -> list[str]: ...


def parse_time(text: str | None) -> int | None:
    """Epoch milliseconds of a time: ISO 8601 (UTC where it names no zone), seconds, milliseconds.

    >>> parse_time("1970-01-02"), parse_time("1700000000"), parse_time("1700000000000")
    (86400000, 1700000000000, 1700000000000)
    """
    if text is None:
        return None
    if _NUMBER.fullmatch(text):
        number = float(text)
        return int(number * 1000 if number < SECONDS_MAX else number)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InputError(f"{text!r} is no time: ISO 8601, or epoch s or ms") from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def check_positive(layout: Layout, labels: Counter[str], source: InputFile) -> None:
    """Refuse a value for 1 that no label has: every label would be 0."""
    if layout.positive is not None and layout.positive not in labels:
        found = ", ".join(repr(value) for value, _ in labels.most_common(5))
        raise InputError(
            f"no label in column {layout.label!r} of {source} is {layout.positive!r}; "
            f"there are: {found}"
        )
