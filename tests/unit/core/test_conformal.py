"""Conformal sets: against the plain ones, their coverage by class, restored to the bit."""

import numpy as np
import pytest

from dtgol_core.config import Config, DecisionConfig
from dtgol_core.conformal import RATE, ConformalSets
from dtgol_core.learner import Learner
from dtgol_core.state import SnapshotError, digest
from dtgol_core.types import Forecast
from tests.support.plain_conformal import PlainSets
from tests.support.records import FeatureEvent, LabelHabits, nasty_events


def stream(seed: int, rows: int, moves_at: int | None = None) -> list[tuple[float, int]]:
    """(p, label) of a forecast that is calibrated, and after `moves_at` the wrong way round.

    A fifth of the labels are 1; p has two decimals, so that many are equal.
    """
    random = np.random.default_rng(seed)
    p = np.round(random.beta(0.4, 1.6, rows), 2)
    y = (random.random(rows) < p).astype(int)
    if moves_at is not None:
        y[moves_at:] = 1 - y[moves_at:]
    return list(zip(p.tolist(), y.tolist(), strict=True))


@pytest.mark.parametrize("coverage", [0.5, 0.9, 0.99])
def test_the_sets_are_those_of_the_plain_implementation(coverage: float) -> None:
    sets, plain = ConformalSets(DecisionConfig(coverage=coverage)), PlainSets(coverage)
    seen = set()
    for p, y in stream(1, 4_000, moves_at=3_000):
        assert sets.of(p) == plain.of(p)
        seen.add(sets.of(p))
        sets.learn(p, y)
        plain.learn(p, y)
    assert seen == {(0,), (1,), (0, 1)}
    assert min(sets.labels) > 500, "the ring has gone round"


@pytest.mark.parametrize("moves_at", [None, 5_000])
def test_each_class_is_covered_also_the_rare_one_and_after_a_change(moves_at: int | None) -> None:
    sets = ConformalSets(DecisionConfig(coverage=0.9))
    covered: list[list[bool]] = [[], []]
    for p, y in stream(2, 10_000, moves_at):
        covered[y].append(y in sets.of(p))
        sets.learn(p, y)
    for each in covered:
        assert np.mean(each) == pytest.approx(0.9, abs=0.025)
        assert np.mean(each[-1_000:]) == pytest.approx(0.9, abs=0.04)


@pytest.mark.parametrize("y", [0, 1])
def test_errors_stay_within_the_bound_whatever_comes(y: int) -> None:
    """Worse with every label: each score is the largest so far."""
    plain = PlainSets(0.9)
    rows = 2_000
    sets = ConformalSets(DecisionConfig(coverage=0.9))
    missed = 0
    for k in range(rows):
        p = (k / rows, 1 - k / rows)[y]
        missed += (1 - p if y else p) > sets._limits[y]
        sets.learn(p, y)
        plain.learn(p, y)
    assert missed == sum(plain.missed[y])
    assert abs(missed / rows - 0.1) <= (0.9 + RATE) / (RATE * rows)


def test_without_labels_nothing_is_decided() -> None:
    sets = ConformalSets(DecisionConfig(coverage=0.9))
    assert sets.of(0.001) == sets.of(0.999) == (0, 1)
    for _ in range(8):
        sets.learn(0.9, 1)
        sets.learn(0.1, 0)
    assert sets.of(0.001) == (0, 1), "nine labels of a class are needed"


def test_where_neither_class_fits_both_are_given() -> None:
    sets = ConformalSets(DecisionConfig(coverage=0.5))
    for _ in range(20):
        sets.learn(0.9, 1)
        sets.learn(0.1, 0)
    assert (sets.of(0.95), sets.of(0.05), sets.of(0.5)) == ((1,), (0,), (0, 1))


def test_another_coverage_holds_at_once() -> None:
    narrow = ConformalSets(DecisionConfig(coverage=0.5))
    for p, y in stream(3, 2_000):
        narrow.learn(p, y)
    wide = ConformalSets.restore(DecisionConfig(coverage=0.99), narrow.snapshot())
    asked = [k / 100 for k in range(101)]
    assert sum(len(wide.of(p)) for p in asked) > sum(len(narrow.of(p)) for p in asked)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("scores", np.zeros((2, 3))),
        ("labels", np.array([-1, 0])),
        ("shifts", np.array([np.nan, 0.0])),
    ],
)
def test_a_state_that_cannot_be_is_refused(name: str, value: np.ndarray) -> None:
    config = DecisionConfig()
    with pytest.raises(SnapshotError, match="sets"):
        ConformalSets.restore(config, ConformalSets(config).snapshot() | {name: value})


@pytest.mark.parametrize("preset", ["light", "paper"])
def test_the_learner_gives_the_sets_of_its_own_p_and_labels(preset: str) -> None:
    """Labels count in the order they are learnt in, each with the p of its arrival."""
    config = Config.read({"preset": preset, "decision": {"coverage": 0.6}})
    learner, plain = Learner(config), PlainSets(0.6)
    arrived: dict[str, float] = {}
    labels: dict[str, int] = {}
    seen = set()
    for event in nasty_events("mixed", 5, 150, LabelHabits(corrected=0, again=0)):
        if not isinstance(event, FeatureEvent):
            learner.learn(event.id, event.y, event.event_time_ms)
            labels.setdefault(event.id, event.y)
            continue
        forecast = learner.observe(event.id, event.x, event.event_time_ms)
        assert isinstance(forecast, Forecast)
        for id in forecast.learnt:
            plain.learn(arrived[id], labels[id])
        assert forecast.set == plain.of(forecast.p)
        seen.add(forecast.set)
        if not forecast.repeat:
            arrived[event.id] = forecast.p
    assert len(seen) > 1
    restored = Learner.restore(config, learner.snapshot())
    assert digest(restored.snapshot()) == digest(learner.snapshot())


def test_coverage_changes_no_probability_and_the_threshold_only_the_label() -> None:
    events = nasty_events("mixed", 6, 120)

    def answers(decision: dict[str, float]) -> list[Forecast]:
        learner = Learner(Config.read({"preset": "light", "decision": decision}))
        given = []
        for event in events:
            if isinstance(event, FeatureEvent):
                forecast = learner.observe(event.id, event.x, event.event_time_ms)
                assert isinstance(forecast, Forecast)
                given.append(forecast)
            else:
                learner.learn(event.id, event.y, event.event_time_ms)
        return given

    plain, wide, keen = answers({}), answers({"coverage": 0.5}), answers({"threshold": 0.2})
    assert [each.p for each in plain] == [each.p for each in wide] == [each.p for each in keen]
    assert [each.set for each in plain] == [each.set for each in keen]
    assert [each.set for each in plain] != [each.set for each in wide]
    assert [each.label for each in keen] == [int(each.p > 0.2) for each in keen]
    assert [each.label for each in keen] != [each.label for each in plain]
