"""What a trial has found, as one row, and the table of all rows of a run.

The zeros are asserted by `Row.check`; seconds are figures and are never asserted. The table is
printed at the end of the run, and written as Markdown to the file that `DTGOL_FAULT_TABLE` names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

TABLE_VARIABLE = "DTGOL_FAULT_TABLE"
HEADINGS = (
    "fault",
    "of",
    "store",
    "seed",
    "inputs",
    "faults",
    "lost",
    "dup",
    "differing",
    "learnt twice",
    "state",
    "s to next (median/max)",
)
LEGEND = """\
of: whose outputs and state are checked. inputs: source records. lost: never answered, never read,
or never scored. dup: outputs of an identity sent again, the same bytes; differing: other bytes.
learnt twice: labels learnt, or predictions counted, more than once. state: every whole snapshot
against the offline fold at its offset, by hash. s to next: from a kill to the next prediction, or
score, of every partition that was hit."""


@dataclass(frozen=True)
class Row:
    """The results of one trial."""

    fault: str
    of: str
    store: str
    seed: int
    inputs: int
    faults: int
    lost: int
    duplicates: int
    differing: int
    twice: int
    equal: bool
    recoveries_s: Sequence[float] = ()
    remarks: Sequence[str] = field(default=(), repr=False)
    """What was wrong, in words, for the failing test."""

    def check(self) -> None:
        """Zeros where zeros belong."""
        about = "; ".join(self.remarks[:10])
        assert self.inputs > 0, "nothing was sent"
        assert (self.lost, self.differing, self.twice) == (0, 0, 0), f"{self}: {about}"
        assert self.equal, f"{self}: {about}"
        assert not self.remarks, about

    def cells(self) -> list[str]:
        """The row as texts, in the order of the headings."""
        seconds = self.recoveries_s
        figures = f"{median(seconds):.1f}/{max(seconds):.1f}" if seconds else "-"
        counts = (self.inputs, self.faults, self.lost, self.duplicates, self.differing, self.twice)
        equal = "equal" if self.equal else "DIFFERS"
        texts = [self.fault, self.of, self.store, str(self.seed)]
        return [*texts, *map(str, counts), equal, figures]


def as_text(rows: Sequence[Row]) -> str:
    """The table in columns of equal width."""
    lines = [list(HEADINGS), *(row.cells() for row in rows)]
    widths = [max(len(line[place]) for line in lines) for place in range(len(HEADINGS))]

    def shown(line: Sequence[str]) -> str:
        left = [text.ljust(width) for text, width in zip(line[:3], widths[:3], strict=True)]
        right = [text.rjust(width) for text, width in zip(line[3:], widths[3:], strict=True)]
        return "  ".join([*left, *right])

    return "\n".join([*map(shown, lines), "", LEGEND])


def as_markdown(rows: Sequence[Row]) -> str:
    """The same as a Markdown table."""
    lines = [HEADINGS, ["---"] * len(HEADINGS), *(row.cells() for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"
