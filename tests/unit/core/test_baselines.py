"""Every baseline under the learner's verbs: it learns, survives gaps, and `peek` is pure."""

import numpy as np
import pytest

from dtgol_core.baselines import BASELINES, CONTROLS, Baseline
from dtgol_core.baselines.ftrl import Ftrl
from dtgol_core.baselines.lach import Lach
from dtgol_core.baselines.naive import Naive
from dtgol_core.baselines.olmdisf import OlMdisf
from dtgol_core.baselines.oslmf import Oslmf
from dtgol_core.config import Config
from dtgol_core.learner import Learner
from dtgol_core.types import Forecast, LabelOutcome, Record, Rejection

EVERY = {**BASELINES, **CONTROLS}
CONFIG = Config.read(
    {"copula": {"window": 60}, "graph": {"unverified": 40, "verified": 40, "refresh_steps": 5}}
)
Rows = list[tuple[dict[str, float], int]]


def separable(rows: int, seed: int = 1, missing: float = 0.0) -> Rows:
    """Two clouds four deviations apart in the first two of five columns."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 2, size=rows)
    values = generator.normal(size=(rows, 5))
    values[:, :2] += np.where(labels == 1, 2.0, -2.0)[:, None]
    present = generator.random((rows, 5)) >= missing
    return [
        ({f"x{j}": float(values[i, j]) for j in range(5) if present[i, j]}, int(labels[i]))
        for i in range(rows)
    ]


def fresh(kind: type[Baseline], seed: int = 1) -> Baseline:
    return kind(CONFIG, np.random.default_rng(seed))


def run(learner: Baseline | Learner, rows: Rows, delay: int = 20) -> list[Forecast]:
    said: list[Forecast] = []
    for step, (record, _) in enumerate(rows):
        if step >= delay:
            learner.learn(str(step - delay), rows[step - delay][1])
        forecast = learner.observe(str(step), record)
        assert isinstance(forecast, Forecast)
        said.append(forecast)
    return said


def accuracy(said: list[Forecast], rows: Rows, first: int) -> float:
    right = [forecast.label == y for forecast, (_, y) in zip(said, rows, strict=True)]
    return float(np.mean(right[first:]))


@pytest.fixture(params=EVERY, ids=str)
def kind(request: pytest.FixtureRequest) -> type[Baseline]:
    return EVERY[request.param]


def test_it_learns_a_separable_stream(kind: type[Baseline]) -> None:
    rows = separable(400)
    assert accuracy(run(fresh(kind), rows), rows, first=200) > 0.95


def test_it_survives_missing_features(kind: type[Baseline]) -> None:
    rows = separable(400, missing=0.4)
    rows[50] = ({}, rows[50][1])
    said = run(fresh(kind), rows)
    assert all(np.isfinite(forecast.p) and 0.0 <= forecast.p <= 1.0 for forecast in said)
    assert accuracy(said, rows, first=200) > 0.8


def test_it_survives_features_that_appear_later(kind: type[Baseline]) -> None:
    rows = separable(200)
    rows = [({"x3": r["x3"]} if i < 60 else r, y) for i, (r, y) in enumerate(rows)]
    assert accuracy(run(fresh(kind), rows), rows, first=120) > 0.8


def test_peek_changes_nothing_and_says_what_observe_says(kind: type[Baseline]) -> None:
    rows = separable(150, missing=0.2)
    looked, plain = fresh(kind), fresh(kind)
    run(looked, rows[:120])
    run(plain, rows[:120])
    for step in range(120, 150):
        record = rows[step][0]
        peeked = [looked.peek(record), looked.peek(record)]
        observed, expected = looked.observe(str(step), record), plain.observe(str(step), record)
        assert peeked[0] == peeked[1] == observed == expected


def test_same_seed_same_forecasts(kind: type[Baseline]) -> None:
    rows = separable(150)
    assert run(fresh(kind, 3), rows) == run(fresh(kind, 3), rows)


def test_one_class_only_is_learnt_and_nothing_breaks(kind: type[Baseline]) -> None:
    rows = [(record, 1) for record, _ in separable(120)]
    assert run(fresh(kind), rows)[-1].p > 0.5


def test_labels_that_never_come_are_forgotten(kind: type[Baseline]) -> None:
    config = Config.read({"delay": {"expire_steps": 10}})
    learner = kind(config, np.random.default_rng(1))
    for step, (record, _) in enumerate(separable(100)):
        learner.observe(str(step), record)
    assert len(learner.delay) <= 12
    assert learner.learn("3", 1).outcome == LabelOutcome.LATE


def test_a_bad_record_is_answered_not_raised(kind: type[Baseline]) -> None:
    learner = fresh(kind)
    bad: Record = {"x": float("inf")}
    assert isinstance(learner.observe("a", bad), Rejection)
    assert isinstance(learner.peek(bad), Rejection)
    assert learner.step == 0


def test_a_repeated_id_is_answered_and_learnt_once(kind: type[Baseline]) -> None:
    learner = fresh(kind)
    learner.observe("a", {"x": 1.0})
    again = learner.observe("a", {"x": 1.0})
    assert isinstance(again, Forecast)
    assert again.repeat
    assert learner.step == 1


def test_a_label_that_is_not_0_or_1_is_refused(kind: type[Baseline]) -> None:
    with pytest.raises(ValueError, match="0 or 1"):
        fresh(kind).learn("a", 2)


def test_every_baseline_says_where_it_comes_from() -> None:
    assert list(BASELINES) == ["naive", "fobos", "ovfm", "oslmf", "iwms", "ol-mdisf", "lach"]
    assert {name for name, each in EVERY.items() if each.reconstructed} == {
        "iwms",
        "ol-mdisf",
        "lach",
    }
    for each in EVERY.values():
        assert each.title
        assert each.reference


def test_naive_is_the_naive_of_the_learner_to_the_bit() -> None:
    rows = separable(200, missing=0.2)
    ours = run(Learner(CONFIG), rows)
    assert [forecast.naive for forecast in ours] == [f.p for f in run(Naive(CONFIG), rows)]


def test_ftrl_follows_its_recursion() -> None:
    learner = Ftrl()
    learner.grow(1)
    learner.learn(np.array([1.0, 2.0]), 1)
    # g = −½(1, 2), h = 0, r = 1 + 1·1 (the decay of the first label is 1)
    assert learner.weights.tolist() == [0.25, 0.5]
    learner.learn(np.array([1.0, -1.0]), 0)
    p = 1.0 / (1.0 + np.exp(0.25))
    decay = 1.0 - np.log(2.0) / 4.0
    gradient = np.array([-0.5, -1.0]) + p * np.array([1.0, -1.0])
    expected = -(gradient - np.array([0.25, 0.5])) / (1.0 + decay * 2.0)
    assert learner.weights == pytest.approx(expected)


def test_ftrl_restarts_its_clock_when_errors_rise() -> None:
    learner = Ftrl()
    learner.grow(1)
    generator = np.random.default_rng(1)
    for step in range(600):
        x = generator.normal()
        label = int(x > 0.0) if step < 300 else int(x <= 0.0)
        learner.learn(np.array([1.0, 3.0 * x]), label)
    assert learner.count < 600


def test_pseudo_labels_of_oslmf_follow_the_clouds() -> None:
    rows = separable(300)
    learner = Oslmf(CONFIG)
    run(learner, rows)
    buffer = learner.geometry.buffer
    labels = learner.geometry.hard_labels(learner.latent.weights)
    truth = {step: y for step, (_, y) in enumerate(rows, start=1)}
    right = [labels[slot] == truth[int(buffer.steps[slot])] for slot in buffer.window]
    assert np.mean(right) > 0.95


def test_ol_mdisf_cuts_its_window_when_the_rows_move_and_not_otherwise() -> None:
    config = Config.read({"graph": {"unverified": 80, "verified": 80}})
    steady, moved = OlMdisf(config), OlMdisf(config)
    rows = separable(600)
    run(steady, rows)
    shifted = [
        ({name: x + (8.0 if i >= 300 else 0.0) for name, x in record.items()}, y)
        for i, (record, y) in enumerate(rows)
    ]
    run(moved, shifted)
    assert moved.cuts > steady.cuts


def test_lach_counts_labels_that_come_before_their_features() -> None:
    learner = Lach(CONFIG)
    for number in range(20):
        assert learner.learn(f"early {number}", 1).outcome == LabelOutcome.EARLY
    said = learner.observe("a", {"x": 1.0})
    assert isinstance(said, Forecast)
    assert said.p > 0.5
