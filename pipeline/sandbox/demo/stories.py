"""What every story of the demo has: cases of one or more streams, and one moment of change.

A story is data, drawn from a seed: records in the order they happen, each with the truth about it
and the moment at which that becomes known. Time is the story's own; the play scales it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dtgol_core.types import Value
from pipeline.offline.files.records import Row

DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Case:
    """One record: its stream, its row, when it happened, and when its label is known."""

    stream: str
    row: Row
    at_ms: int
    known_ms: int


@dataclass(frozen=True, slots=True)
class Story:
    """A whole play. From case number ``change`` on the world is another one."""

    name: str
    title: str
    cases: Sequence[Case]
    change: int
    days: float

    @property
    def blind(self) -> range:
        """Cases after the change that come before any label from after it."""
        first_label = min(case.known_ms for case in self.cases[self.change :])
        end = next(
            (
                n
                for n, case in enumerate(self.cases)
                if n > self.change and case.at_ms >= first_label
            ),
            len(self.cases),
        )
        return range(self.change, end)

    @property
    def first_answerable(self) -> int:
        """The first case that comes after any label at all; before it nobody can know anything."""
        first_label = min(case.known_ms for case in self.cases)
        return next(
            (n for n, case in enumerate(self.cases) if case.at_ms >= first_label), len(self.cases)
        )


def with_id_prefix(story: Story, before: str) -> Story:
    """The same story with ids of its own."""
    cases = [
        replace(case, row=case.row._replace(id=f"{before}{case.row.id}")) for case in story.cases
    ]
    return replace(story, cases=cases)


Measure = Callable[[bool, float, np.random.Generator], dict[str, Value]]
"""(truth, share of the story that has passed, chance) -> everything that could be measured."""
CHANGE = 0.5
"""The share of a story that has passed when its world changes."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How a story unfolds, apart from what is measured."""

    days: float
    label_days: tuple[float, float]
    positives: float
    missing: float


def generate_cases(
    plan: Plan,
    records: int,
    end_ms: int,
    stream_of: Callable[[int], tuple[str, str]],
    measure: Measure,
    generator: np.random.Generator,
) -> list[Case]:
    """The cases; ``stream_of`` gives stream and id of a case by its number."""
    start_ms = end_ms - round(plan.days * DAY_MS)
    cases = []
    for number in range(records):
        truth = bool(generator.random() < plan.positives)
        record = measure(truth, number / records, generator)
        kept = generator.random(len(record)) >= plan.missing
        seen = {name: value for (name, value), k in zip(record.items(), kept, strict=True) if k}
        stream, id = stream_of(number)
        at_ms = start_ms + round(plan.days * DAY_MS * number / records)
        known_ms = at_ms + round(generator.uniform(*plan.label_days) * DAY_MS)
        cases.append(Case(stream, Row(number, seen, int(truth), id, stream), at_ms, known_ms))
    return cases
