"""Tens of thousands of hostile records on every preset: no NaN, no exception, no growth; memory."""

import math
import tracemalloc
from collections import defaultdict, deque
from collections.abc import Iterator

import numpy as np
import pytest

from dtgol_core.config import Config
from dtgol_core.ids import id_hash
from dtgol_core.learner import Learner
from dtgol_core.state import encode
from dtgol_core.types import Forecast, LabelOutcome, Rejection, Value
from tests.support.views import sizes_beyond_bounds

ROWS = {"default": 50_000, "light": 30_000, "paper": 30_000}
ERA = 2_500
AHEAD = 10
"""Records known in advance to whoever sends labels too early."""
BAD: tuple[Value, ...] = (math.nan, math.inf, -math.inf, 1.01e150, -(10**400), "text")
REASONS = {"rejected.not-finite", "rejected.out-of-range"}

SETTINGS = {
    "copula": {"window": 40, "max_columns": 16},
    "graph": {"unverified": 30, "verified": 15},
    "delay": {
        "expire_steps": 300,
        "expire_ms": 250_000,
        "pending_max": 120,
        "early_max": 20,
        "early_steps": 30,
        "settled_max": 400,
    },
}
SETTLED_CORRECTIONS = {LabelOutcome.CORRECTED_RELABELLED, LabelOutcome.CORRECTION_TOO_LATE}
"""Which of them it is depends on how long an expert of the preset keeps instances."""
NOT_WITH = {
    "last": {LabelOutcome.CONFIRMED, LabelOutcome.CORRECTED_IGNORED},
    "first": {LabelOutcome.CONFIRMED, LabelOutcome.CORRECTED_REPLACED},
}
"""Outcomes that `delay.corrected` rules out; `confirmed` needs `delay.expired` 0 or 1."""


def hostile_records(rng: np.random.Generator, rows: int) -> Iterator[dict[str, Value]]:
    """Half of the cells missing; magnitudes up to 1e150; features that live for an era."""
    for i in range(rows):
        draws = rng.random(12).tolist()
        if draws[0] < 0.05:
            yield {}
            continue
        era = i // ERA
        sign = 1 if draws[10] < 0.5 else -1
        record: dict[str, Value] = {
            "huge": sign * 10.0 ** (300 * draws[1] - 150),
            "edge": sign * 1e150 if draws[2] < 0.5 else 0.0,
            "number": draws[3] - 0.5 if era % 3 else 0.25,
            "whole": int(40 * draws[4]) if era > 4 else int(3 * draws[4]),
            "flag": draws[5] < 0.5,
            "colour": "rgbk"[int(4 * draws[6])],
            "still": 7,
            f"era {era % 4}": math.tan(3 * draws[7]),
        }
        kept = rng.random(len(record)).tolist()
        record = {name: v for (name, v), k in zip(record.items(), kept, strict=True) if k < 0.5}
        if draws[8] < 0.01:
            record["number"] = BAD[int(len(BAD) * draws[9])]
        yield record


def label_of(record: dict[str, Value], i: int, draw: float) -> int:
    """One class only in every other era."""
    if i // ERA % 2:
        return i // ERA // 2 % 2
    number = record.get("number")
    high = record.get("flag") is True or (isinstance(number, float) and number > 0.2)
    return int(high != (draw < 0.1))


def schedule(
    due: dict[int, list[tuple[str, int]]], rng: np.random.Generator, i: int, y: int
) -> None:
    """When the labels of record i come: early, on time, late, repeated, corrected, never."""
    draws = rng.random(4).tolist()
    id = f"r{i}"
    if draws[0] < 0.1:
        return
    at = i + int(60 * draws[1])
    if draws[0] < 0.2:
        at = i - 1 - int((AHEAD - 1) * draws[1])
    elif draws[0] < 0.25:
        at = i + 500
    due[at].append((id, y))
    if draws[2] < 0.1:
        due[at + int(40 * draws[3])].append((id, y))
    elif draws[2] < 0.2:
        due[at + int(40 * draws[3])].append((id, 1 - y))
    elif draws[2] < 0.22:
        due[at].append((f"unknown {i}", y))


def assert_sound(result: Forecast) -> None:
    answers = [each.p for each in result.experts.values()]
    for number in (result.p, result.naive, result.observed_share, *answers, *result.guard.values()):
        assert 0.0 <= number <= 1.0, result  # false for a NaN too
    assert math.isfinite(result.uncertainty)
    assert math.isfinite(sum(each.weight for each in result.experts.values()))


def assert_finite(learner: Learner) -> None:
    for name, array in learner.snapshot().arrays.items():
        if array.dtype.kind == "f" and name != "marginals/rows":
            assert np.isfinite(array).all(), name
    assert np.linalg.eigvalsh(learner.copula.correlation).min() > -1e-9


@pytest.mark.parametrize(
    ("preset", "corrected"), [("default", "last"), ("light", "last"), ("paper", "first")]
)
def test_hostile_records(preset: str, corrected: str) -> None:
    rng, rows = np.random.default_rng(20), ROWS[preset]
    delay = {**SETTINGS["delay"], "corrected": corrected}
    learner = Learner(Config.read({"preset": preset, **SETTINGS, "delay": delay}))
    due: dict[int, list[tuple[str, int]]] = defaultdict(list)
    ahead: deque[dict[str, Value]] = deque()
    largest = [0, 0]
    refused = 0
    for place, future in enumerate(hostile_records(rng, rows + AHEAD)):
        schedule(due, rng, place, label_of(future, place, float(rng.random())))
        ahead.append(future)
        i = place - AHEAD
        if i < 0:
            continue
        result = learner.observe(f"r{i}", ahead.popleft(), None if i % 7 == 0 else 1000 * i)
        if isinstance(result, Rejection):
            refused += 1
        else:
            assert_sound(result)
        if i % 20 == 19:
            learner.erase(id_hash(f"r{i}"))
        for id, y in due.pop(i, ()):
            learner.learn(id, y, 1000 * i)
        if i % 500 == 499 and i >= rows // 4:
            assert sizes_beyond_bounds(learner) == {}
            half = int(i >= rows // 2)
            largest[half] = max(largest[half], len(encode(learner.snapshot())))
        if i % 5000 == 4999:
            assert_finite(learner)
    # Blocks and chunks fill and go: some percent. 8 bytes a record would be a quarter or more.
    assert largest[1] < 1.1 * largest[0], "the snapshot grows"
    strict = learner.config.columns.strict
    reasons = REASONS | ({"rejected.kind-conflict"} if strict else set())
    assert {name for name in learner.counts if name.startswith("rejected")} == reasons
    assert refused + learner.step == rows
    assert refused > rows // 300
    for outcome in set(LabelOutcome) - NOT_WITH[corrected] - SETTLED_CORRECTIONS:
        assert learner.counts[outcome] > rows // 1000, f"{outcome} never happened"
    late = sum(learner.counts[outcome] for outcome in SETTLED_CORRECTIONS)
    assert (late > rows // 1000) == (corrected == "last")
    assert learner.counts["expired"] > rows // 100
    assert learner.counts["orphaned"] > rows // 1000
    assert (learner.counts["cells.kind-conflict"] > rows // 1000) != strict


def test_one_class_for_ever_gives_certainty_and_no_more() -> None:
    rng = np.random.default_rng(3)
    config = Config.read({"copula": {"window": 20}, "graph": {"unverified": 10, "verified": 5},
                          "tracks": {"rate": 10.0, "transient_rate": 10.0,
                                     "transient_reduction": "sum"}})  # fmt: skip
    learner = Learner(config)
    p = 0.5
    for i in range(5000):
        result = learner.observe(f"r{i}", {"x": float(rng.normal()), "still": 1})
        assert isinstance(result, Forecast)
        assert_sound(result)
        p = result.p
        learner.learn(f"r{i}", 1)
    assert_finite(learner)
    assert p > 0.99


@pytest.mark.parametrize("value", [1.01e150, -1.01e150, 10**151, -(10**400)])
def test_beyond_the_largest_magnitude_is_a_named_refusal(value: float) -> None:
    learner = Learner(Config())
    for sign in (1, -1):
        assert isinstance(learner.observe(f"edge {sign}", {"x": sign * 1e150}), Forecast)
    result = learner.observe("beyond", {"x": value})
    assert isinstance(result, Rejection)
    assert result.reason == "out-of-range"
    assert "x is beyond" in result.detail


@pytest.mark.parametrize(
    ("preset", "bytes_max"), [("default", 5_500_000), ("light", 2_000_000), ("paper", 2_500_000)]
)
def test_sixteen_columns_and_two_thousand_pending_fit_in_little_memory(
    preset: str, bytes_max: int
) -> None:
    rng, config = np.random.default_rng(1), Config.read({"preset": preset})
    rows = rng.normal(size=(2600, 16)).tolist()
    records = [{f"x{j}": value for j, value in enumerate(row)} for row in rows]
    warm = Learner(config)  # compiled code is not the learner's
    for i, record in enumerate(records[:3]):
        warm.observe(f"{i}", record)
        warm.learn(f"{i}", 1)
    tracemalloc.start()
    try:
        learner = Learner(config)
        for i, record in enumerate(records):
            learner.observe(f"instance number {i:08d}", record, 1000 * i)
            if i < 600:
                learner.learn(f"instance number {i:08d}", i % 2, 1000 * i)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert learner.pending == 2000
    assert learner.columns.width == 16
    assert 500_000 < held < bytes_max
