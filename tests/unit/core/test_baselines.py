"""Every baseline under the learner's verbs: it learns, survives gaps, and `peek` is pure."""

import math
from collections import Counter

import numpy as np
import pytest

from dtgol_core.baselines import BASELINES, CONTROLS, Baseline
from dtgol_core.baselines.base import with_bias
from dtgol_core.baselines.fobos import Fobos
from dtgol_core.baselines.ftrl import Ftrl
from dtgol_core.baselines.hardlabels import hard_labels
from dtgol_core.baselines.iwms import Iwms
from dtgol_core.baselines.lach import RATES, Lach
from dtgol_core.baselines.naive import Naive
from dtgol_core.baselines.olmdisf import OlMdisf
from dtgol_core.baselines.oslmf import Oslmf
from dtgol_core.baselines.ovfm import Ovfm
from dtgol_core.config import Config
from dtgol_core.learner import Learner
from dtgol_core.types import FeatureValues, Forecast, Instance, LabelOutcome, Rejection, Vectors

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


def alike(vector: list[float]) -> Vectors:
    """The same in both spaces."""
    return Vectors.of(np.array(vector), np.array(vector))


def instance(vectors: Vectors, latent: float = 0.5, original: float = 0.5) -> Instance:
    """With the answers of both spaces on arrival."""
    return Instance(1, vectors, np.array([latent, original]))


def run(learner: Baseline | Learner, rows: Rows, delay: int = 20) -> list[Forecast]:
    forecasts: list[Forecast] = []
    for step, (record, _) in enumerate(rows):
        if step >= delay:
            learner.learn(str(step - delay), rows[step - delay][1])
        forecast = learner.observe(str(step), record)
        assert isinstance(forecast, Forecast)
        forecasts.append(forecast)
    return forecasts


def accuracy(forecasts: list[Forecast], rows: Rows, first: int) -> float:
    right = [forecast.label == y for forecast, (_, y) in zip(forecasts, rows, strict=True)]
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
    forecasts = run(fresh(kind), rows)
    assert all(np.isfinite(forecast.p) and 0.0 <= forecast.p <= 1.0 for forecast in forecasts)
    assert accuracy(forecasts, rows, first=200) > 0.8


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
    bad: FeatureValues = {"x": float("inf")}
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
    printed = {name for name, each in EVERY.items() if not each.reconstructed}
    assert printed == {"naive", "fobos", "replay"}
    for each in EVERY.values():
        assert each.title
        assert each.reference


def test_naive_is_the_naive_of_the_learner_to_the_bit() -> None:
    rows = separable(200, missing=0.2)
    ours = run(Learner(CONFIG), rows)
    assert [forecast.naive for forecast in ours] == [f.p for f in run(Naive(CONFIG), rows)]


def test_fobos_steps_and_shrinks_by_hand() -> None:
    learner = Fobos(CONFIG)
    learner.weights = np.array([0.0002, 0.0004, -0.3])
    learner.labels_learnt = 4  # η = 1/√4
    learner._teach(instance(alike([0.0, -2.0])), 1)
    step = 0.5 * (1.0 - 1.0 / (1.0 + np.exp(-0.6002)))
    # The bias moves and is not shrunk; 0.0004 is less than η·λ = 0.0005 and becomes 0.
    expected = [0.0002 + step, 0.0, -0.3 - 2.0 * step + 0.0005]
    assert learner.weights.tolist() == pytest.approx(expected, rel=1e-12)
    assert learner.weights[1] == 0.0


def test_iwms_draws_by_cosine_within_the_class_it_predicts() -> None:
    learner = Iwms(CONFIG, np.random.default_rng(1))
    learner._widen(2)
    learner.latent.weights[0] = learner.original.weights[0] = 3.0  # it predicts 1
    learner.memories[0].store(alike([1.0, 0.0]), 0)
    for cosine in (1.0, 0.8, 0.6):
        near = 7.0 * np.array([cosine, math.sqrt(1.0 - cosine**2)])  # of any length
        learner.memories[1].store(Vectors.of(near, near), 1)
    drawn: Counter[tuple[int, int]] = Counter()
    learner._rehearse = lambda side, place: drawn.update([(side, place)])  # type: ignore[method-assign]
    for _ in range(4000):
        learner._answer(alike([2.0, 0.0]))
    chance = np.exp([5.0, 4.0, 3.0]) / np.exp([5.0, 4.0, 3.0]).sum()
    assert [drawn[1, place] / 4000 for place in range(3)] == pytest.approx(chance, abs=0.025)
    assert drawn.total() == sum(drawn[1, place] for place in range(3))


def test_iwms_rehearses_what_it_drew_before_it_answers() -> None:
    learner, plain = Iwms(CONFIG, np.random.default_rng(1)), Naive(CONFIG)
    for each in (learner, plain):
        each._widen(2)
        each.labels_learnt = 9
        each.latent.weights[:] = each.original.weights[:] = 0.3, -0.2, 0.1
    kept = Vectors.of(np.array([1.0, 2.0]), np.array([-1.0, 0.5]))
    learner.memories[1].store(kept, 1)
    plain._teach(instance(kept), 1)
    plain.ensemble = learner.ensemble  # a rehearsed label is no new loss
    new = alike([0.5, 0.5])
    assert learner._answer(new) == plain._answer(new)


def test_ovfm_weighs_its_spaces_by_their_own_losses() -> None:
    learner = Ovfm(CONFIG)
    learner._widen(1)
    learner._teach(instance(alike([1.0]), latent=0.9, original=0.6), 1)
    assert learner.latent_risk == pytest.approx(-math.log(0.9))
    assert learner.original_risk == pytest.approx(-math.log(0.6))
    learner.latent_risk, learner.original_risk = 300.0, 1300.0
    learner.latent.weights, learner.original.weights = np.array([1.0, 2.0]), np.array([0.0, -1.0])
    answer = learner._answer(Vectors.of(np.array([0.5]), np.array([3.0])))
    share = math.exp(-0.3) / (math.exp(-0.3) + math.exp(-1.3))  # 1 − λ: the latent space's
    assert answer.latent_weight == pytest.approx(share)
    assert answer.p == pytest.approx(1.0 / (1.0 + math.exp(-(share * 2.0 + (1.0 - share) * -3.0))))


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
    labels = hard_labels(learner.geometry, learner.latent.weights)
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


def test_a_cut_of_ol_mdisf_leaves_the_newer_half_and_what_it_teaches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    learner = OlMdisf(Config.read({"graph": {"unverified": 80, "verified": 80}}))
    run(learner, separable(305))
    buffer = learner.geometry.buffer
    before = sorted(step for step in buffer.steps.tolist() if step >= 0)
    count = len(learner.entropies)
    monkeypatch.setattr("dtgol_core.baselines.olmdisf.mismatch", lambda *_: 10.0)
    learner._check()
    assert sorted(step for step in buffer.steps.tolist() if step >= 0) == before[len(before) // 2 :]
    assert len(learner.entropies) == count - count // 2
    again = Ftrl()
    again.grow(5)
    assert len(buffer.verified) >= 20
    for slot in buffer.verified:
        again.learn(with_bias(buffer.latent[slot]), int(buffer.label[slot]))
    assert learner.latent.weights.tolist() == again.weights.tolist()


def test_lach_reweighs_its_experts_by_what_they_said() -> None:
    learner = Lach(CONFIG)
    learner.labels_learnt = 9
    answers = np.full(20, 0.5)
    answers[3], answers[7] = 0.9, 0.0
    learner._reweigh(answers, 1)
    power = np.clip(answers, 1e-12, 1.0) ** math.sqrt(8.0 * math.log(20.0) / 9.0)
    expected = 0.99 * power / power.sum() + 0.01 / 20.0
    assert np.exp(learner.log_weights) == pytest.approx(expected)


def test_lach_keeps_its_best_model_after_250_labels() -> None:
    learner = Lach(CONFIG)
    rows = separable(280)
    run(learner, rows[:250], delay=1)
    assert learner.frozen == 0
    learner.learn("249", rows[249][1])
    learner.observe("250", rows[250][0])
    assert learner.frozen == 1
    place = len(RATES)
    weights = np.exp(learner.log_weights)
    for first, models in ((0, learner.latent), (len(learner.latent), learner.original)):
        best = int(np.argmax(weights[first : first + place]))
        assert models[place].tolist() == models[best].tolist()
        assert weights[first + place] == weights[first + best]
        assert not models[place + 1 :].any()
    # All began with a twentieth; hardly anything is left of it to the share of the classes.
    assert weights[-1] < 0.005
    assert weights.max() > 0.1
    kept = learner.latent[place].copy()
    for step in range(251, 280):
        learner.learn(str(step - 1), rows[step - 1][1])
        learner.observe(str(step), rows[step][0])
    assert learner.latent[place].tolist() == kept.tolist()
    assert not np.array_equal(learner.latent[: len(RATES)], np.tile(kept, (len(RATES), 1)))


def test_lach_counts_a_label_in_its_prior_once_however_early() -> None:
    early, late = Lach(CONFIG), Lach(CONFIG)
    for number in range(10):
        early.learn(str(number), 1)
    for number in range(11):
        for learner in (early, late):
            learner.observe(str(number), {"x": float(number)})
        if number < 10:
            late.learn(str(number), 1)
            late.learn(str(number), 1)
    assert early.labels_learnt == late.labels_learnt == 10
    assert early.classes.tolist() == late.classes.tolist() == [1.0, 11.0]


def test_lach_counts_labels_that_come_before_their_features() -> None:
    learner = Lach(CONFIG)
    for number in range(20):
        assert learner.learn(f"early {number}", 1).outcome == LabelOutcome.EARLY
    forecast = learner.observe("a", {"x": 1.0})
    assert isinstance(forecast, Forecast)
    assert forecast.p > 0.5
