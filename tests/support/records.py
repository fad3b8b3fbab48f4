"""Nasty record streams for the tests: deterministic builders, chance is a seed handed in.

A *builder* makes `rows` feature records from a seed. `labels_of` and `one_class_stretches` make
their labels, `events_of` interleaves both into what a learner sees: labels on time, early, late,
repeated, corrected or never. `play` feeds the events to anything with the learner's two verbs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np

from dtgol_core.types import FeatureValues, Forecast, LabelReceipt, Rejection, Value

LEVELS = ("red", "green", "blue", "grün", "")


@dataclass(frozen=True, slots=True)
class FeatureEvent:
    """A feature record arrives."""

    id: str
    x: FeatureValues
    event_time_ms: int | None = None


@dataclass(frozen=True, slots=True)
class LabelEvent:
    """A label arrives."""

    id: str
    y: int
    event_time_ms: int | None = None


Event: TypeAlias = FeatureEvent | LabelEvent
Answer: TypeAlias = Forecast | Rejection | LabelReceipt
Builder: TypeAlias = Callable[[int, int], list[FeatureValues]]


class Verbs(Protocol):
    """What `play` needs of a learner."""

    def observe(
        self, id: str, x: FeatureValues, event_time_ms: int | None = None
    ) -> Forecast | Rejection: ...

    def learn(self, id: str, y: int, event_time_ms: int | None = None) -> LabelReceipt: ...


def play(learner: Verbs, events: Sequence[Event]) -> list[Answer]:
    """Feed the events in order; the answers, one for each."""
    answers: list[Answer] = []
    for event in events:
        if isinstance(event, FeatureEvent):
            answers.append(learner.observe(event.id, event.x, event.event_time_ms))
        else:
            answers.append(learner.learn(event.id, event.y, event.event_time_ms))
    return answers


# --- feature records -----------------------------------------------------------------------------


def plain_numbers(seed: int, rows: int, features: int = 4) -> list[FeatureValues]:
    """Correlated continuous features, nothing missing."""
    rng = np.random.default_rng(seed)
    mixing = rng.normal(size=(features, features))
    values = rng.normal(size=(rows, features)) @ mixing
    return [{f"x{j}": float(v) for j, v in enumerate(row)} for row in values]


def mixed(seed: int, rows: int) -> list[FeatureValues]:
    """All four kinds, tied to one hidden number; a few cells missing, some as null."""
    rng = np.random.default_rng(seed)
    records: list[FeatureValues] = []
    for _ in range(rows):
        hidden = float(rng.normal())
        record: dict[str, Value] = {
            "real": hidden + 0.3 * float(rng.normal()),
            "count": int(rng.poisson(2 + abs(hidden))),
            "grade": int(np.clip(round(hidden + float(rng.normal())), -2, 2)),
            "flag": bool(hidden + float(rng.normal()) > 0),
            "colour": LEVELS[int(rng.integers(len(LEVELS)))] if hidden < 1 else "red",
        }
        for name in list(record):
            draw = float(rng.random())
            if draw < 0.05:
                del record[name]
            elif draw < 0.1:
                record[name] = None
        records.append(record)
    return records


def half_missing(seed: int, rows: int) -> list[FeatureValues]:
    """`mixed` with half of the cells gone."""
    rng = np.random.default_rng([seed, 1])
    return [
        {name: value for name, value in record.items() if rng.random() < 0.5}
        for record in mixed(seed, rows)
    ]


def duplicates(seed: int, rows: int) -> list[FeatureValues]:
    """Few distinct records over and over: ties in ranks, distances and densities."""
    rng = np.random.default_rng([seed, 2])
    pool = mixed(seed, 5)
    return [dict(pool[int(rng.integers(len(pool)))]) for _ in range(rows)]


def constant_columns(seed: int, rows: int) -> list[FeatureValues]:
    """One feature moves; the others never do, one of them is often missing."""
    rng = np.random.default_rng(seed)
    records: list[FeatureValues] = []
    for _ in range(rows):
        record: dict[str, Value] = {
            "still": 0.1,
            "whole": 7,
            "always": True,
            "one": "only",
            "moves": float(rng.normal()),
        }
        if rng.random() < 0.5:
            record["sometimes"] = -3.5
        records.append(record)
    return records


def empty_rows(seed: int, rows: int) -> list[FeatureValues]:
    """The first rows and every third one have nothing: absent, or null under a new name."""
    records: list[FeatureValues] = []
    for i, record in enumerate(mixed(seed, rows)):
        if i < 3 or i % 3 == 0:
            records.append({} if i % 2 else dict.fromkeys([*record, "never"]))
        else:
            records.append(record)
    return records


def coming_and_going(seed: int, rows: int) -> list[FeatureValues]:
    """A feature is there only for its stretch of the stream; names come in shuffled order."""
    rng = np.random.default_rng(seed)
    records: list[FeatureValues] = []
    for i in range(rows):
        first = 8 * i // max(rows, 1)
        names = [f"f{j}" for j in range(first, first + 3)] + ["base"]
        rng.shuffle(names)
        record: dict[str, Value] = {}
        for name in names:
            if name != "base" and int(name[1:]) % 3 == 2:
                record[name] = LEVELS[int(rng.integers(3))]
            else:
                record[name] = round(float(rng.normal()), 2)
        records.append(record)
    return records


def extremes(seed: int, rows: int) -> list[FeatureValues]:
    """±1e150, the smallest numbers, zeros of both signs, neighbours in the last bit."""
    rng = np.random.default_rng(seed)
    pool = [1e150, -1e150, 5e-324, -5e-324, 0.0, -0.0, 1e-200, 1.0, np.nextafter(1.0, 2), 0.5]
    records: list[FeatureValues] = []
    for _ in range(rows):
        picks = rng.integers(len(pool), size=3)
        record: dict[str, Value] = {f"e{j}": float(pool[int(k)]) for j, k in enumerate(picks)}
        record["tiny"] = float(rng.integers(3)) * 1e-200
        record["huge"] = (10**149) * int(rng.integers(-9, 10))
        records.append(record)
    return records


def turning_continuous(seed: int, rows: int) -> list[FeatureValues]:
    """Whole numbers: one gets its 15th distinct value late, one a half, one never does."""
    rng = np.random.default_rng(seed)
    records: list[FeatureValues] = []
    for i in range(rows):
        records.append(
            {
                "slow": int(rng.integers(1 + i // 3)),
                "half": int(rng.integers(4)) + (0.5 if i > 0 and i == rows // 2 else 0),
                "stays": float(rng.integers(14)),
            }
        )
    return records


def many_levels(seed: int, rows: int) -> list[FeatureValues]:
    """A nominal feature with more than 32 levels beside one with few, both often missing."""
    rng = np.random.default_rng(seed)
    records: list[FeatureValues] = []
    for i in range(rows):
        record: dict[str, Value] = {"x": round(float(rng.normal()), 1)}
        if rng.random() < 0.8:
            record["city"] = f"city {int(rng.integers(1 + i))}"
        if rng.random() < 0.6:
            record["few"] = LEVELS[int(rng.integers(len(LEVELS)))]
        records.append(record)
    return records


def clusters(seed: int, rows: int) -> list[FeatureValues]:
    """Two far clusters on a coarse grid: equal distances and equal densities abound."""
    rng = np.random.default_rng(seed)
    records: list[FeatureValues] = []
    for _ in range(rows):
        centre = 10.5 * int(rng.integers(2))
        records.append({f"x{j}": centre + float(rng.integers(-1, 2)) for j in range(2)})
    return records


def with_bad_records(builder: Builder) -> Builder:
    """Every fifth record of a builder is spoilt in one of the ways that are refused."""

    def spoilt(seed: int, rows: int) -> list[FeatureValues]:
        rng = np.random.default_rng([seed, 3])
        bad: list[Value] = [float("nan"), float("inf"), 1.1e150, -(10**400), "text", True, 0.5]
        records: list[FeatureValues] = []
        for i, record in enumerate(builder(seed, rows)):
            names = sorted(record)
            if i % 5 == 4 and names:
                name = names[int(rng.integers(len(names)))]
                records.append({**record, "new": 1.5, name: bad[int(rng.integers(len(bad)))]})
            else:
                records.append(record)
        return records

    return spoilt


def changing_types(seed: int, rows: int) -> list[FeatureValues]:
    """Numbers, texts, booleans and missing markers in the same features, one type prevailing."""
    rng = np.random.default_rng([seed, 4])
    given: list[Value] = ["high", "n/a", 1, 2.5, True, False, "low", float("nan")]
    records: list[FeatureValues] = []
    for i in range(rows):
        share = 0.5 if i < 30 else 0.1
        wild = {name: given[int(rng.integers(len(given)))] for name in ("pulse", "ward", "flag")}
        tame: dict[str, Value] = {
            "pulse": round(float(rng.normal()), 1),
            "ward": LEVELS[int(rng.integers(len(LEVELS)))],
            "flag": bool(rng.integers(2)),
        }
        records.append({name: wild[name] if rng.random() < share else tame[name] for name in tame})
    return records


BUILDERS: Mapping[str, Builder] = {
    "plain numbers": plain_numbers,
    "mixed": mixed,
    "half missing": half_missing,
    "duplicates": duplicates,
    "constant columns": constant_columns,
    "empty rows": empty_rows,
    "coming and going": coming_and_going,
    "extremes": extremes,
    "turning continuous": turning_continuous,
    "many levels": many_levels,
    "clusters": clusters,
    "bad records": with_bad_records(mixed),
    "changing types": changing_types,
}


# --- labels --------------------------------------------------------------------------------------


def labels_of(records: Sequence[FeatureValues], seed: int, noise: float = 0.1) -> list[int]:
    """Labels that depend on the values: the sign of the numbers' and levels' sum, some flipped."""
    rng = np.random.default_rng([seed, 4])
    labels = []
    for record in records:
        total = 0.0
        for value in record.values():
            if isinstance(value, str):
                total += (len(value) % 3) - 1.0
            elif value is not None and abs(value) < 1e6:
                total += float(np.tanh(value))
        labels.append(int((total > 0.2) != (rng.random() < noise)))
    return labels


def one_class_stretches(rows: int, stretch: int = 25) -> list[int]:
    """Only one class for a long time, then only the other."""
    return [i // stretch % 2 for i in range(rows)]


@dataclass(frozen=True, slots=True)
class LabelHabits:
    """How labels arrive; shares are probabilities for each label."""

    delay_max: int = 20
    """A label on time comes 0 to this many records after its features."""
    early: float = 0.05
    """Before its features, by up to five records."""
    late: float = 0.05
    """Three times `delay_max` records after its features."""
    never: float = 0.1
    repeated: float = 0.1
    """Sent again with the same value, up to `delay_max` records later."""
    corrected: float = 0.1
    """Sent again with the other value, up to `delay_max` records later."""
    unknown: float = 0.02
    """A label whose features never come is sent beside it."""
    again: float = 0.03
    """The features are sent again, up to `delay_max` records later."""
    timed: bool = True
    """Whether events carry event times (mostly rising, now and then absent or old)."""


PUNCTUAL = LabelHabits(10, 0, 0, 0, 0, 0, 0, 0)


def events_of(
    records: Sequence[FeatureValues],
    labels: Sequence[int],
    seed: int,
    habits: LabelHabits | None = None,
) -> list[Event]:
    """Interleave records and labels; ids are ``r0``, ``r1``, … in the records' order."""
    habits = LabelHabits() if habits is None else habits
    rng = np.random.default_rng([seed, 5])
    placed: list[tuple[float, int, Event]] = []

    def place(at: float, event: Event) -> None:
        placed.append((at, len(placed), event))

    def later() -> float:
        return float(rng.integers(habits.delay_max + 1)) + 0.5

    for i, (record, y) in enumerate(zip(records, labels, strict=True)):
        id = f"r{i}"
        place(i, FeatureEvent(id, record, _event_time(rng, i, habits)))
        if rng.random() < habits.again:
            place(i + later(), FeatureEvent(id, record, _event_time(rng, i, habits)))
        if rng.random() < habits.never:
            continue
        at = i + later()
        draw = float(rng.random())
        if draw < habits.early:
            at = i - float(rng.integers(1, 6)) + 0.5
        elif draw < habits.early + habits.late:
            at = i + 3 * habits.delay_max + 0.5
        place(at, LabelEvent(id, y, _event_time(rng, at, habits)))
        if rng.random() < habits.repeated:
            place(at + later(), LabelEvent(id, y, _event_time(rng, at, habits)))
        if rng.random() < habits.corrected:
            place(at + later(), LabelEvent(id, 1 - y, _event_time(rng, at, habits)))
        if rng.random() < habits.unknown:
            place(at, LabelEvent(f"unknown {i}", y, _event_time(rng, at, habits)))
    return [event for _, _, event in sorted(placed, key=lambda item: item[:2])]


def _event_time(rng: np.random.Generator, at: float, habits: LabelHabits) -> int | None:
    """A thousand ms for each record, jittered; one in ten has none."""
    draw, jitter = float(rng.random()), int(rng.integers(-2000, 2000))
    return None if not habits.timed or draw < 0.1 else int(1000 * at) + jitter


def nasty_events(name: str, seed: int, rows: int, habits: LabelHabits | None = None) -> list[Event]:
    """A builder's records with labels that arrive in every way; some seeds have one class only
    for long stretches."""
    records = BUILDERS[name](seed, rows)
    labels = one_class_stretches(rows) if seed % 3 == 2 else labels_of(records, seed)
    return events_of(records, labels, seed, habits)
