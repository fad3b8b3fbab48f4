"""A file -> the records of a stream: shuffled, masked, limited. Used by all readers of files.

Shuffle and mask are independent streams of one seed. The mask is drawn in the order of the file,
one fixed number of draws per row: what a row loses depends on the seed and its place in the file,
not on the shuffle, the limit, or which cells were empty anyway.
"""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dtgol_core.types import BoolArray, Value
from pipeline.errors import InputError
from pipeline.offline.files.jsonlines import JsonTable
from pipeline.offline.files.source import InputFile
from pipeline.offline.files.tables import CsvTable, Layout, Table

__all__ = ["InputError", "Mask", "Row", "open_table", "read_records", "rows_of"]


class Row(NamedTuple):
    """One record: its place in the file from 0, its observed features, its label if it has one.

    ``id``, ``key`` and ``time_ms`` are those of the file, where it has any.
    """

    number: int
    record: dict[str, Value]
    label: int | None
    id: str | None = None
    key: str | None = None
    time_ms: int | None = None


class Mask(NamedTuple):
    """Which cells are dropped: one of each neighbouring ``pair`` of columns, or a share of all.

    >>> Mask.parse("pairs")
    Mask(pairs=True, rate=0.0)
    >>> Mask.parse("0.3")
    Mask(pairs=False, rate=0.3)
    """

    pairs: bool = False
    rate: float = 0.0

    @staticmethod
    def parse(text: str) -> "Mask":
        """Read ``none``, ``pairs`` or a share between 0 and 1."""
        if text == "none":
            return Mask()
        if text == "pairs":
            return Mask(pairs=True)
        try:
            rate = float(text)
        except ValueError:
            rate = -1.0
        if 0.0 <= rate <= 1.0:
            return Mask(rate=rate)
        raise InputError(f"missing must be none, pairs or a share from 0 to 1, not {text!r}")

    def draw(self, columns: int, generator: np.random.Generator) -> BoolArray:
        """True where one row's cell is dropped, shape ``(columns,)``; an odd last one stays."""
        if self.pairs:
            dropped = np.zeros(columns, dtype=np.bool_)
            first = np.arange(0, columns - 1, 2)
            dropped[first + generator.integers(0, 2, size=len(first))] = True
            return dropped
        return generator.random(columns) < self.rate


def open_table(source: InputFile, layout: Layout) -> Table:
    """The table in a file: one JSON object per line by the name's ending, else CSV."""
    return (JsonTable if source.is_json else CsvTable)(source, layout)


def read_records(
    path: Path,
    *,
    label: str = "label",
    mask: Mask | None = None,
    seed: int = 0,
    shuffle: bool = False,
    limit: int | None = None,
    id_column: str | None = None,
    key_column: str | None = None,
) -> Iterator[Row]:
    """The records of a file. All faults are raised here, before the first one is given out."""
    table = open_table(InputFile(path), Layout(label, id_column, key_column))
    return rows_of(table, mask=mask, seed=seed, shuffle=shuffle, limit=limit)


def rows_of(
    table: Table,
    *,
    mask: Mask | None = None,
    seed: int = 0,
    shuffle: bool = False,
    limit: int | None = None,
) -> Iterator[Row]:
    """The records of a table; missing features are left out of a record.

    In the order of the file rows are streamed; a shuffle holds the whole file in memory.
    """
    shuffling, masking = np.random.SeedSequence(seed).spawn(2)
    rows = _masked(table, mask or Mask(), np.random.default_rng(masking))
    if shuffle:
        held = list(rows)
        rows = (held[place] for place in np.random.default_rng(shuffling).permutation(len(held)))
    return islice(rows, limit)


def _masked(table: Table, mask: Mask, generator: np.random.Generator) -> Iterator[Row]:
    for number, (values, label, id, key, time_ms) in enumerate(table.rows()):
        dropped = mask.draw(len(table.names), generator).tolist()
        record: dict[str, Value] = {
            name: value
            for name, value, drop in zip(table.names, values, dropped, strict=True)
            if value is not None and not drop
        }
        yield Row(number, record, label, id, key, time_ms)
