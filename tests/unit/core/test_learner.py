"""What one record and one label do to the whole learner."""

import math
from copy import deepcopy
from dataclasses import replace
from typing import Any
from unittest.mock import ANY

import numpy as np
import pytest

from dtgol_core import delay as delay_module
from dtgol_core import learner as learner_module
from dtgol_core.config import EXPERT_NAMES, Config
from dtgol_core.experts import EXPERTS
from dtgol_core.experts.naive import Naive
from dtgol_core.experts.paper import Paper
from dtgol_core.experts.tracker import Tracker
from dtgol_core.ids import hash_text, id_hash, signed_hash
from dtgol_core.learner import Learner
from dtgol_core.pending import BLOCK_STEPS
from dtgol_core.state import Snapshot, SnapshotError, encode
from dtgol_core.types import (
    Contribution,
    ExpertAnswer,
    FeatureValues,
    FloatArray,
    Forecast,
    LabelOutcome,
    RejectedError,
    Rejection,
    Vectors,
)
from tests.support.plain import PAPER_DECIDES
from tests.support.views import digest_of, naive_of, paper_of, reborn, vectors_of


def learner_of(**settings: Any) -> Learner:
    return Learner(Config.read(settings))


def paper_alone(**settings: Any) -> Learner:
    return learner_of(**PAPER_DECIDES, **settings)


def observe(learner: Learner, id: str, x: FeatureValues, **more: Any) -> Forecast:
    forecast = learner.observe(id, x, **more)
    assert isinstance(forecast, Forecast), forecast
    return forecast


def taught(learner: Learner, records: int = 40, seed: int = 0) -> Learner:
    """`x` decides, `noise` does not, `still` never moves."""
    rng = np.random.default_rng(seed)
    for i in range(records):
        x, noise = rng.normal(size=2).tolist()
        observe(learner, f"taught {i}", {"x": x, "noise": noise, "still": 1})
        learner.learn(f"taught {i}", int(x > 0))
    return learner


def window_of(learner: Learner) -> list[int]:
    """Steps of the unverified window."""
    buffer = paper_of(learner).geometry.buffer
    steps: list[int] = buffer.steps[buffer.window].tolist()
    return steps


# --- what is in a forecast -----------------------------------------------------------------------


def test_first_forecast_knows_nothing() -> None:
    forecast = observe(learner_of(), "a", {"x": 1.5})
    assert forecast == Forecast(
        step=1,
        p=0.5,
        label=0,
        naive=0.5,
        labels_learnt=0,
        unverified=0,
        observed_share=1.0,
        uncertainty=math.log(2),
        experts={name: ExpertAnswer(0.5, ANY) for name in EXPERT_NAMES},
        guard=forecast.guard,
    )
    assert forecast.guard == pytest.approx(
        {"now": 0.25, "arrival": 0.15, "tracked": 0.1, "naive": 0.5}
    )
    weights = {name: each.weight for name, each in forecast.experts.items() if each.weight}
    assert weights == pytest.approx(
        {"naive": 0.5, "forest": 0.25 + 0.15 + 0.1 * 0.3, "tracker": 0.1 * 0.7}
    )


def test_forecast_blends_tracks_and_spaces() -> None:
    learner = taught(paper_alone(ensemble={"beta": 0.3}))
    for i in range(5):
        forecast = observe(learner, f"new {i}", {"x": 0.5 * i})
    paper, vectors = paper_of(learner), vectors_of(learner, forecast.step)
    alpha = paper.ensemble.latent_weight()
    latent, latent_transient = paper.latent.answer(vectors.latent)
    original, original_transient = paper.original.answer(vectors.original)
    assert forecast.p == pytest.approx(
        alpha * (0.3 * latent + 0.7 * latent_transient)
        + (1 - alpha) * (0.3 * original + 0.7 * original_transient)
    )
    assert forecast.naive == pytest.approx(alpha * latent + (1 - alpha) * original)
    assert forecast.naive != pytest.approx(forecast.p, abs=1e-9)
    p = forecast.p
    assert forecast.uncertainty == pytest.approx(-p * math.log(p) - (1 - p) * math.log(1 - p))


def test_where_one_expert_decides_its_answer_is_the_forecast() -> None:
    forecast = observe(taught(paper_alone()), "a", {"x": 1.0})
    assert forecast.experts == {
        "naive": ExpertAnswer(forecast.naive, 0.0),
        "paper": ExpertAnswer(forecast.p, 1.0),
    }
    assert forecast.guard == {}
    decides = taught(learner_of(combination={"decides": "linear"}))
    forecast = observe(decides, "a", {"x": 1.0})
    assert forecast.p == forecast.experts["linear"].p != forecast.experts["paper"].p


def test_forecast_has_every_expert_and_the_guard_mixes_the_stack() -> None:
    forecast = observe(taught(learner_of()), "a", {"x": 1.0})
    assert list(forecast.experts) == [expert.name for expert in EXPERTS] == list(EXPERT_NAMES)
    assert forecast.experts["naive"] == ExpertAnswer(forecast.naive, forecast.guard["naive"])
    assert sum(forecast.guard.values()) == pytest.approx(1.0)
    stacks = (forecast.p - forecast.guard["naive"] * forecast.naive) / (
        1.0 - forecast.guard["naive"]
    )
    assert 0.5 < stacks < max(each.p for each in forecast.experts.values()) + 0.1


def test_experts_are_those_listed_in_that_order() -> None:
    learner = learner_of(experts=["recent", "naive"])
    forecast = observe(taught(learner), "a", {"x": 1.0})
    assert list(forecast.experts) == ["recent", "naive"]
    assert list(forecast.guard) == ["now", "arrival", "naive"]
    assert observe(taught(learner_of(experts=["naive"])), "a", {"x": 1.0}).p > 0.5


def test_no_scale_is_computed_or_kept_that_no_expert_uses() -> None:
    light = learner_of(experts=["naive", "linear"])
    for learner, scales in ((paper_alone(), 0), (learner_of(), 3), (light, 2)):
        observe(learner, "a", {"x": 1.0, "y": 2.0})
        arrays = learner.snapshot().arrays
        assert arrays["delay/block/0/scores"].shape == (2, scales, 2)
        assert arrays["scales/counts"].shape == ((2,) if scales else (0,))


def test_learner_learns() -> None:
    learner = taught(learner_of(), 200)
    high = learner.peek({"x": 2.0})
    low = learner.peek({"x": -2.0})
    assert isinstance(high, Forecast)
    assert isinstance(low, Forecast)
    assert (high.label, low.label) == (1, 0)
    assert high.p > 0.8
    assert low.p < 0.2


def test_share_of_features_observed_counts_features_not_columns() -> None:
    learner = learner_of()
    observe(learner, "a", {"x": 1, "ward": "A"})
    observe(learner, "b", {"x": 1, "ward": "B"})
    assert observe(learner, "c", {"ward": "A"}).observed_share == 0.5
    assert observe(learner, "d", {}).observed_share == 0.0
    assert observe(learner, "e", {"x": 2, "ward": "B", "new": 1, "gone": None}).observed_share == 1


def test_unverified_counts_who_waits_when_the_record_arrives() -> None:
    learner = learner_of()
    assert [observe(learner, f"{i}", {"x": i}).unverified for i in range(3)] == [0, 1, 2]
    learner.learn("1", 1)
    forecast = observe(learner, "3", {"x": 3})
    assert (forecast.unverified, forecast.labels_learnt, forecast.learnt) == (2, 1, ("1",))


def test_why_names_features_and_no_values() -> None:
    learner = taught(learner_of(), 200)
    observe(learner, "ward", {"ward": "a secret"})
    forecast = observe(learner, "a", {"x": 3.25, "noise": 0.123, "ward": "a secret"}, why=3)
    assert len(forecast.why) == 4
    assert forecast.why[0].feature == "x"
    assert forecast.why[0].log_odds > 0.5
    sizes = [abs(each.log_odds) for each in forecast.why[:3]]
    assert sizes == sorted(sizes, reverse=True)
    assert set(Contribution.__slots__) == {"feature", "log_odds"}
    assert "secret" not in repr(forecast.why)
    assert "3.25" not in repr(forecast.why)


@pytest.mark.parametrize("decides", ["paper", None])
@pytest.mark.parametrize("why", [1, 10])
def test_why_adds_up_to_the_log_odds_with_the_rest_named(decides: str | None, why: int) -> None:
    learner = taught(learner_of(combination={"decides": decides}), 100)
    forecast = observe(learner, "a", {"x": 1.0, "noise": -0.5, "still": 1}, why=why)
    assert forecast.why[-1].feature == "(rest)"
    assert sum(each.log_odds for each in forecast.why) == pytest.approx(
        math.log(forecast.p / (1 - forecast.p))
    )
    assert len(forecast.why) == min(why, 3) + 1


def test_the_rest_is_the_bias_where_the_answer_is_linear() -> None:
    """One track in one space; and the regression, whose terms are exact."""
    one_track = {"risk": True, "dual_track": True}
    learner = taught(learner_of(combination={"decides": "paper"}, ablate=one_track), 100)
    forecast = observe(learner, "a", {"x": 1.0, "noise": -0.5, "still": 1}, why=10)
    assert forecast.why[-1].log_odds == pytest.approx(float(paper_of(learner).latent.weights[0]))
    learner = taught(learner_of(combination={"decides": "linear"}), 100)
    forecast = observe(learner, "a", {"x": 1.0, "noise": -0.5, "still": 1}, why=10)
    bias = learner.experts["linear"].inspect().weights["latent"][0]
    assert 0.8 < forecast.why[-1].log_odds / bias < 1.0, "moderated as the rest of the logit is"


def test_why_is_empty_unless_asked_for_and_has_at_most_all_features() -> None:
    learner = taught(learner_of())
    assert observe(learner, "a", {"x": 1}).why == ()
    assert len(observe(learner, "b", {"x": 1}, why=99).why) == 3 + 1


def test_why_of_equal_contributions_survives_a_restart() -> None:
    """Before the first label all contributions are 0, and features are listed by name."""
    learner = learner_of()
    observe(learner, "a", {"z": 1, "m": 2.5, "a": True})
    for each in (learner, reborn(learner)):
        forecast = each.peek({"z": 1}, why=2)
        assert isinstance(forecast, Forecast)
        assert [reason.feature for reason in forecast.why] == ["a", "m", "(rest)"]


# --- two tracks ----------------------------------------------------------------------------------


def test_pseudo_label_changes_the_transient_prediction_and_leaves_the_persistent_one() -> None:
    """The same labels; unlabelled records in between move only the transient tracks."""
    quiet, busy = taught(learner_of()), taught(learner_of())
    for learner in (quiet, busy):
        observe(learner, "drain", {"x": 0.0, "noise": 0.0, "still": 1})
    spaces = paper_of(busy).latent, paper_of(busy).original
    before = [(space.weights.tobytes(), space.anchor.tobytes()) for space in spaces]
    rng = np.random.default_rng(9)
    for i in range(15):
        noise = float(rng.normal())
        observe(busy, f"unlabelled {i}", {"x": 2 + noise, "noise": noise, "still": 1})
    forecast = observe(busy, "asked", {"x": 1.0, "noise": 0.3, "still": 1})
    assert [(space.weights.tobytes(), space.anchor.tobytes()) for space in spaces] == before
    assert busy.labels_learnt == quiet.labels_learnt
    vectors = vectors_of(busy, forecast.step)
    for space, vector in zip(spaces, (vectors.latent, vectors.original), strict=True):
        persistent, transient = space.answer(vector)
        assert abs(transient - persistent) > 1e-4
    assert forecast.p != forecast.naive


def test_one_soft_label_moves_the_transient_track_of_the_same_record() -> None:
    """Two learners that differ in the soft-label temperature alone: only transients differ."""
    forecast, tracks = [], []
    for temperature in (0.0, 50.0):
        learner = taught(learner_of(softlabels={"temperature": temperature}))
        for i in range(10):
            observe(learner, f"u{i}", {"x": 1.0 * i, "noise": 0.1 * i, "still": 1})
        forecast.append(observe(learner, "asked", {"x": 1.0, "noise": 0.3, "still": 1}))
        tracks.append((paper_of(learner).latent, paper_of(learner).original))
    assert forecast[0].naive == forecast[1].naive
    assert forecast[0].p != forecast[1].p
    for one, other in zip(*tracks, strict=True):
        assert one.weights.tolist() == other.weights.tolist()
        assert one.transient.tolist() != other.transient.tolist()


def test_no_transient_track_before_the_first_label() -> None:
    learner = learner_of()
    for i in range(10):
        forecast = observe(learner, f"{i}", {"x": float(i)})
        assert forecast.p == forecast.naive == 0.5
    learner.learn("3", 1)
    assert learner.labels_learnt == 0, "a label only queues"
    forecast = observe(learner, "next", {"x": 1.0})
    assert forecast.labels_learnt == 1
    assert forecast.p != forecast.naive


def test_what_is_learnt_is_what_was_predicted_from() -> None:
    """Vector and prediction of the arrival, not of today: Σ and ranks have moved on."""
    learner = taught(learner_of())
    forecast = observe(learner, "asked", {"x": 1.0})
    latent = vectors_of(learner, forecast.step).latent.copy()
    experts: list[Naive | Paper] = [naive_of(learner), paper_of(learner)]
    answer = experts[0].latent.score(latent)
    for i in range(30):
        observe(learner, f"later {i}", {"x": 5.0 + i, "noise": float(i)})
    before = [(each.ensemble.latent_risk, each.latent.weights.copy()) for each in experts]
    learner.learn("asked", 0)
    observe(learner, "next", {"x": 0.0})
    rate = 1 / math.sqrt(learner.labels_learnt)
    for expert, (risk, weights) in zip(experts, before, strict=True):
        assert expert.ensemble.latent_risk == pytest.approx(risk - math.log(1 - answer))
        residual = 1 / (1 + math.exp(-(weights[0] + weights[1:] @ latent)))
        moved = weights - rate * residual * np.array([1.0, *latent])
        np.testing.assert_allclose(expert.latent.weights, moved)


def test_space_that_errs_less_gains_weight() -> None:
    """Ranks see what a few huge values hide from the standard scores."""
    rng = np.random.default_rng(3)
    learner = learner_of()
    for i in range(300):
        x = float(rng.normal())
        observe(learner, f"{i}", {"x": x if i % 20 else 1e6, "y": x})
        learner.learn(f"{i}", int(x > 0))
    observe(learner, "asked", {"x": 0.1})
    rate = math.sqrt(2 * math.log(2) / 300)
    for ensemble in (naive_of(learner).ensemble, paper_of(learner).ensemble):
        weight, gain = ensemble.latent_weight(), ensemble.original_risk - ensemble.latent_risk
        assert weight == pytest.approx(1 / (1 + math.exp(-rate * gain)))
        assert (weight > 0.5) == (gain > 0)
        assert weight != 0.5


# --- ablations -----------------------------------------------------------------------------------


def test_without_copula_the_latent_space_is_the_original_one() -> None:
    learner = taught(learner_of(ablate={"copula": True}))
    forecast = observe(learner, "a", {"x": 1.0})
    vectors, naive = vectors_of(learner, forecast.step), naive_of(learner)
    assert vectors.latent.tolist() == vectors.original.tolist()
    assert vectors.latent[1] == 0.0, "missing is 0"
    assert naive.latent.weights.tolist() == naive.original.weights.tolist()


def test_without_correlation_a_missing_value_is_the_centre() -> None:
    learner = taught(learner_of(ablate={"marginals": True}))
    forecast = observe(learner, "a", {"x": 1.0})
    assert vectors_of(learner, forecast.step).latent[1:].tolist() == [0.0, 0.0]
    assert learner.copula.correlation.tolist() == np.eye(3).tolist()


def test_without_soft_labels_and_rehearsal_there_is_only_the_naive_answer() -> None:
    learner = taught(paper_alone(ablate={"softlabels": True}, tracks={"rehearsal_rate": 0}))
    forecast = observe(learner, "a", {"x": 1.0})
    assert forecast.p == pytest.approx(forecast.naive, abs=1e-15)
    assert paper_of(learner).geometry.graph.size == 0


def test_without_soft_labels_the_transient_answer_is_that_of_the_rehearsed_weights() -> None:
    learner = taught(learner_of(ablate={"softlabels": True}))
    forecast = observe(learner, "a", {"x": 1.0})
    track, latent = paper_of(learner).latent, vectors_of(learner, forecast.step).latent
    persistent, transient = track.answer(latent)
    logit = track.anchor[0] + track.anchor[1:] @ latent
    assert transient == pytest.approx(1 / (1 + math.exp(-logit)))
    assert transient != persistent


def test_one_track_takes_both_kinds_of_updates_and_naive_only_true_labels() -> None:
    learner, dual = taught(learner_of(ablate={"dual_track": True})), taught(learner_of())
    for each in (learner, dual):
        observe(each, "drain", {"x": 0.0})
    track = paper_of(learner).latent
    weights = track.weights.copy()
    forecast = observe(learner, "a", {"x": 1.0})
    assert track.weights.tobytes() != weights.tobytes()
    assert track.weights.tobytes() == track.transient.tobytes()
    assert forecast.naive == observe(dual, "a", {"x": 1.0}).naive
    assert forecast.naive != forecast.p


def test_without_risk_only_the_latent_space_answers() -> None:
    learner = taught(paper_alone(ablate={"risk": True}))
    forecast = observe(learner, "a", {"x": 1.0})
    latent = vectors_of(learner, forecast.step).latent
    persistent, transient = paper_of(learner).latent.answer(latent)
    assert forecast.naive == persistent
    assert forecast.p == pytest.approx(0.5 * persistent + 0.5 * transient)


# --- labels --------------------------------------------------------------------------------------


@pytest.mark.parametrize("label", [2, -1, 0.5, "1", None])
def test_label_that_is_not_binary_is_an_error_and_changes_nothing(label: Any) -> None:
    learner = taught(learner_of(), 5)
    before = digest_of(learner)
    with pytest.raises(ValueError, match="a label is 0 or 1"):
        learner.learn("taught 1", label)
    assert digest_of(learner) == before


def test_boolean_labels_are_labels() -> None:
    learner = learner_of()
    observe(learner, "a", {"x": 1})
    assert learner.learn("a", True).outcome == LabelOutcome.QUEUED
    assert learner.learn("a", 1).outcome == LabelOutcome.REPEATED


def test_every_outcome_is_counted() -> None:
    learner = learner_of(delay={"expire_steps": 3, "early_max": 1, "corrected": "last"})
    for i in range(3):
        observe(learner, f"{i}", {"x": i})
    outcomes = [
        learner.learn("0", 1).outcome,
        learner.learn("0", 1).outcome,
        learner.learn("0", 0).outcome,
        learner.learn("future", 1).outcome,
    ]
    forecast = learner.learn("farther", 1)
    assert forecast.orphans == ("future",)
    expired = [observe(learner, f"more {i}", {"x": i}).expired for i in range(4)]
    assert expired == [(), (), ("1",), ("2",)]
    outcomes += [learner.learn("1", 1).outcome, learner.learn("0", 1).outcome]
    assert outcomes == ["queued", "repeated", "corrected-replaced", "early", "late",
                        "corrected-relabelled"]  # fmt: skip
    assert learner.counts == {
        "observed": 7, "queued": 1, "repeated": 1, "corrected-replaced": 1, "early": 2, "late": 1,
        "corrected-relabelled": 1, "orphaned": 1, "learnt": 1, "expired": 2,
        "late.expire_steps": 1,
    }  # fmt: skip
    assert learner_of().learn("0", 1).outcome == "early"


@pytest.mark.parametrize("corrected", ["first", "last"])
def test_a_correction_after_learning_reaches_the_experts_if_the_last_counts(
    corrected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = learner_of(delay={"corrected": corrected})
    observe(learner, "a", {"x": 1})
    observe(learner, "b", {"x": 2})
    seen: list[tuple[int, int]] = []

    def correct(step: int, label: int) -> bool:
        seen.append((step, label))
        return True

    for name in learner.experts:
        monkeypatch.setattr(learner.experts[name], "correct", correct)
    learner.learn("b", 1)
    learner.learn("b", 0)
    assert seen == [], "not learnt yet"
    observe(learner, "c", {"x": 3})
    learner.learn("b", 1)
    learner.learn("unknown", 1)
    assert seen == ([(2, 1)] * len(learner.experts) if corrected == "last" else [])


def test_held_label_is_invisible_until_it_is_released() -> None:
    learner = learner_of(delay={"release": "step", "steps": 4})
    observe(learner, "a", {"x": 1})
    learner.learn("a", 1)
    learnt = [observe(learner, f"{i}", {"x": i}).labels_learnt for i in range(5)]
    assert learnt == [0, 0, 0, 1, 1]


def test_label_in_time_for_the_next_record_is_learnt_before_it() -> None:
    learner = learner_of()
    observe(learner, "a", {"x": 1})
    learner.learn("a", 1)
    forecast = observe(learner, "b", {"x": 1})
    assert forecast.learnt == ("a",)
    assert forecast.naive > 0.5


def test_instance_that_left_the_window_is_still_learnt_from() -> None:
    learner = learner_of(graph={"unverified": 2, "verified": 2})
    for i in range(6):
        observe(learner, f"{i}", {"x": float(i)})
    assert paper_of(learner).geometry.buffer.find(1) is None
    learner.learn("0", 1)
    forecast = observe(learner, "next", {"x": 1.0})
    assert forecast.learnt == ("0",)
    found = paper_of(learner).geometry.buffer.find(1)
    assert found is not None, "verified instances are in the fine buffer"


def test_instance_pushed_out_of_the_table_leaves_the_window_too() -> None:
    learner = learner_of(delay={"pending_max": 2})
    expired = [observe(learner, f"{i}", {"x": float(i)}).expired for i in range(4)]
    assert expired == [(), (), ("0",), ("1",)]
    assert window_of(learner) == [3, 4]
    assert learner.learn("0", 1).outcome == LabelOutcome.LATE


def test_instance_that_expires_leaves_the_window() -> None:
    learner = learner_of(delay={"expire_steps": 2})
    for i in range(5):
        forecast = observe(learner, f"{i}", {"x": float(i)})
    assert forecast.expired == ("1",)
    assert window_of(learner) == [3, 4, 5]
    assert learner.counts["expired"] == 2


# --- event time ----------------------------------------------------------------------------------


def test_instances_expire_by_the_largest_event_time_seen() -> None:
    learner = learner_of(delay={"expire_ms": 1000})
    observe(learner, "a", {"x": 1}, event_time_ms=5_000)
    observe(learner, "b", {"x": 1}, event_time_ms=5_500)
    assert observe(learner, "old", {"x": 1}, event_time_ms=100).expired == ()
    assert observe(learner, "c", {"x": 1}, event_time_ms=6_000).expired == ("old",)
    assert observe(learner, "d", {"x": 1}, event_time_ms=6_001).expired == ("a",)
    assert observe(learner, "e", {"x": 1}).expired == ()


def test_label_moves_the_clock_too() -> None:
    learner = learner_of(delay={"expire_ms": 1000})
    observe(learner, "a", {"x": 1}, event_time_ms=0)
    learner.learn("nobody", 1, event_time_ms=5_000)
    assert learner.clock_ms == 5_000
    assert observe(learner, "b", {"x": 1}).expired == ("a",)


@pytest.mark.parametrize("start", [-5, 0, 5])
def test_clock_never_goes_back(start: int) -> None:
    """Regression: a clock at exactly 0 was taken for no clock."""
    learner = learner_of()
    observe(learner, "a", {"x": 1}, event_time_ms=start)
    observe(learner, "b", {"x": 1}, event_time_ms=start - 3)
    learner.learn("a", 1, event_time_ms=start - 1)
    assert learner.clock_ms == start
    observe(learner, "c", {"x": 1}, event_time_ms=start + 1)
    assert learner.clock_ms == start + 1


# --- refusals and repeats ------------------------------------------------------------------------


def test_refused_record_is_counted_by_reason() -> None:
    learner = learner_of(columns={"strict": True})
    observe(learner, "a", {"x": 1})
    forecast = learner.observe("b", {"x": "text", "new": 1})
    assert forecast == Rejection("kind-conflict", "x takes number, not string")
    assert learner.counts["rejected.kind-conflict"] == 1
    assert (learner.step, learner.columns.width) == (1, 1)
    assert isinstance(learner.observe("b", {"x": 2}), Forecast), "its id is still free"


def test_a_learner_needs_no_arguments() -> None:
    assert Learner().config == Config()


def test_a_cell_of_another_kind_is_missing_and_counted() -> None:
    learner = Learner()
    observe(learner, "a", {"x": 1, "y": 1})
    forecast = observe(learner, "b", {"x": "text", "y": 2})
    assert (forecast.conflicts, forecast.observed_share) == (1, 0.5)
    assert learner.counts["cells.kind-conflict"] == 1


def test_a_strict_learner_raises_what_another_returns() -> None:
    learner = Learner(strict=True)
    learner.observe("a", {"x": 1})
    with pytest.raises(RejectedError, match="kind-conflict: x takes number") as caught:
        learner.observe("b", {"x": "text"})
    assert caught.value.rejection.reason == "kind-conflict"
    with pytest.raises(RejectedError):
        learner.peek({"x": True})
    assert (learner.step, learner.counts["rejected.kind-conflict"]) == (1, 1)


def test_retype_keeps_all_else_that_was_learnt() -> None:
    """A kind that was settled wrongly is put right by one call, and the snapshot carries it."""
    learner = Learner()
    for n in range(40):
        observe(learner, f"{n}", {"pulse": "unknown", "age": n % 7})
        learner.learn(f"{n}", n % 7 > 3)
    assert observe(learner, "bad", {"pulse": 61.5}).conflicts == 1
    learnt, weights = learner.labels_learnt, learner.snapshot().arrays
    assert learner.retype("pulse", "continuous") is None
    assert learner.labels_learnt == learnt
    for name, now in learner.snapshot().arrays.items():
        np.testing.assert_array_equal(weights[name], now)
    twin = Learner.restore(learner.config, learner.snapshot())
    for n in range(40, 60):
        records = [observe(each, f"{n}", {"pulse": 60.5 + n, "age": 1}) for each in (learner, twin)]
        assert records[0] == records[1]
        assert (records[0].conflicts, records[0].observed_share) == (0, 1.0)


def test_repeated_id_is_answered_again_and_says_so() -> None:
    learner = taught(learner_of())
    first = observe(learner, "a", {"x": 1.0})
    again = observe(learner, "a", {"x": 1.0})
    assert (first.repeat, again.repeat) == (False, True)
    assert learner.step == first.step
    assert observe(learner, "taught 0", {"x": 1.0}).repeat, "answered ids are remembered"
    assert learner.counts["repeats"] == 2
    learner.learn("taught 0", 1)
    assert learner.labels_learnt == 40


def test_look_reports_nothing_as_changed() -> None:
    learner = learner_of(delay={"expire_steps": 1, "early_steps": 1})
    observe(learner, "a", {"x": 1})
    observe(learner, "b", {"x": 1})
    learner.learn("b", 1)
    learner.learn("early", 1)
    forecast = learner.peek({"x": 2})
    assert isinstance(forecast, Forecast)
    assert (forecast.learnt, forecast.expired, forecast.orphans, forecast.repeat) == (
        (),
        (),
        (),
        False,
    )
    assert forecast.labels_learnt == 1, "the look drains the queue, as the next record would"
    assert learner.labels_learnt == 0


# --- growing -------------------------------------------------------------------------------------


def test_instance_that_waited_while_columns_came_is_learnt_in_todays_columns() -> None:
    learner = learner_of()
    for i in range(BLOCK_STEPS + 5):
        observe(learner, f"{i}", {"x": float(i)})
    observe(learner, "wide", {"x": 1.0, "y": 2.0, "ward": "A"})
    learner.learn("3", 1)
    forecast = observe(learner, "next", {"x": 1.0, "y": 1.0})
    assert forecast.learnt == ("3",)
    for expert in (naive_of(learner), paper_of(learner)):
        assert len(expert.latent.weights) == 4
        assert expert.latent.weights[2:].tolist() == [0.0, 0.0], "it was 0 in the new columns"
        assert expert.latent.weights[1] != 0.0


def test_feature_that_stops_coming_is_simply_missing() -> None:
    learner = taught(learner_of())
    for i in range(30):
        forecast = observe(learner, f"{i}", {"noise": float(i)})
    assert forecast.observed_share == pytest.approx(1 / 3)
    assert learner.columns.width == 3


def test_first_record_may_be_empty() -> None:
    learner = learner_of()
    assert observe(learner, "a", {}).p == 0.5
    learner.learn("a", 1)
    assert observe(learner, "b", {}).p > 0.5, "the bias has learnt"
    assert observe(learner, "c", {"x": 1}).observed_share == 1.0


# --- the memory of the past ---------------------------------------------------------


def test_a_label_sent_again_after_many_others_is_not_learnt_twice() -> None:
    """Beyond 10,000 newer ids an old label used to be held, and learnt with a returned id."""
    learner = learner_of(copula={"window": 2}, graph={"unverified": 1, "verified": 1})
    for i in range(10_100):
        learner.delay.settled.remember(id_hash(f"{i}"), 1, i, None)
    assert learner.learn("0", 1).outcome == LabelOutcome.REPEATED
    assert observe(learner, "0", {"x": 1}).repeat


def test_labels_of_ids_already_seen_do_not_push_out_early_ones() -> None:
    """A nightly export of all labels: 0 of 50 early ones survived it."""
    learner = learner_of(delay={"early_max": 50})
    for i in range(20_000):
        learner.delay.settled.remember(id_hash(f"{i}"), i % 2, i, None)
    early = [f"early {i}" for i in range(50)]
    for id in early:
        assert learner.learn(id, 1).outcome == LabelOutcome.EARLY
    outcomes = {learner.learn(f"{i}", i % 2).outcome for i in range(20_000)}
    assert outcomes == {LabelOutcome.REPEATED}
    assert learner.delay.early_labels == 50


def test_labels_that_come_days_later_are_learnt_by_default() -> None:
    """One record a second, labels four hours late: nothing was learnt at all."""
    learner = learner_of(experts=["naive", "paper"], copula={"window": 2})
    for i in range(14_400):
        learner.delay.reserve(i + 1, 1)
        learner.delay.open(f"{i}", id_hash(f"{i}"), i + 1, i * 1000)
    learner.step = 14_400
    learner.delay.expire(14_400, 14_400_000)
    assert learner.learn("0", 1).outcome == LabelOutcome.QUEUED


def test_a_late_label_says_by_which_setting() -> None:
    learner = learner_of(delay={"expire_steps": 1})
    for id in "abc":
        observe(learner, id, {"x": 1})
    receipt = learner.learn("a", 1)
    assert (receipt.outcome, receipt.setting) == (LabelOutcome.LATE, "expire_steps")


def test_the_default_label_is_learnt_at_the_deadline_and_superseded_by_the_true_one() -> None:
    learner = learner_of(delay={"expire_steps": 1, "expired": 0})
    forecasts = [observe(learner, id, {"x": 1}) for id in "abcd"]
    assert [each.defaulted for each in forecasts] == [(), (), ("a",), ("b",)]
    assert forecasts[-1].labels_learnt == 2
    assert learner.counts["expired"] == learner.counts["defaulted"] == 2
    assert forecasts[-1].p < 0.5
    assert learner.learn("a", 0).outcome == LabelOutcome.CONFIRMED
    assert learner.learn("b", 1).outcome == LabelOutcome.CORRECTED_RELABELLED
    buffer = paper_of(learner).geometry.buffer
    labels = {int(buffer.steps[slot]): int(buffer.label[slot]) for slot in buffer.verified}
    assert labels == {1: 0, 2: 1}


def test_a_correction_is_taken_where_the_instance_is_rehearsed_and_else_too_late() -> None:
    learner = learner_of(experts=["naive", "paper"], graph={"verified": 1})
    for id in "abc":
        observe(learner, id, {"x": 1})
        learner.learn(id, 1)
    observe(learner, "d", {"x": 1})
    assert learner.learn("c", 0).outcome == LabelOutcome.CORRECTED_RELABELLED
    assert learner.learn("a", 0).outcome == LabelOutcome.CORRECTION_TOO_LATE
    assert learner.learn("a", 0).outcome == LabelOutcome.REPEATED


def test_a_correction_of_what_is_remembered_no_longer_is_too_late() -> None:
    """Regression: an assertion failed where ``settled_max`` had been lowered to 0 at a restore."""
    learner = taught(learner_of(delay={"corrected": "last"}), 5)
    observe(learner, "asked", {"x": 1.0})
    learner.learn("asked", 1)
    observe(learner, "after", {"x": 1.0})
    none = replace(learner.config, delay=replace(learner.config.delay, settled_max=0))
    restored = Learner.restore(none, learner.snapshot())
    assert restored.learn("asked", 0).outcome == LabelOutcome.CORRECTION_TOO_LATE
    observe(restored, "then", {"x": 1.0})


def test_an_empty_id_is_refused() -> None:
    """It could not be erased."""
    with pytest.raises(ValueError, match="not empty"):
        learner_of().observe("", {"x": 1.0})


def test_a_snapshot_without_the_block_that_is_not_full_is_refused() -> None:
    """Regression: the next record was written into a row that no step had."""
    learner = taught(learner_of(), 6)
    observe(learner, "waits", {"x": 1.0})
    learner.erase(id_hash("waits"))
    assert learner.pending == 0
    whole = learner.snapshot()
    arrays = {name: each for name, each in whole.arrays.items() if "delay/block/" not in name}
    manifest = deepcopy(whole.manifest)
    assert manifest["delay"]["blocks"] == [0]
    manifest["delay"]["blocks"] = []
    with pytest.raises(SnapshotError, match="rows of the delay table"):
        Learner.restore(learner.config, Snapshot(arrays, manifest))


@pytest.mark.parametrize("verb", ["observe", "learn", "grow", "score"])
def test_a_step_that_ends_in_the_middle_is_the_learners_last(
    monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """Seen: ids paired with other instances, labels lost, loops past the end of their arrays."""
    learner = taught(learner_of(experts=["naive", "linear"]), 5)
    saved = learner.snapshot()
    learner.learn("4", 1)

    def interrupt(*_: Any) -> float:
        raise KeyboardInterrupt

    where = learner.combination if verb == "score" else learner.experts["linear"]
    with monkeypatch.context() as patch:
        patch.setattr(type(where), "combine" if verb == "score" else verb, interrupt)
        with pytest.raises(KeyboardInterrupt):
            learner.peek({"x": 1.0, "new": 1.0})  # of a copy, of which nothing is left
        with pytest.raises(KeyboardInterrupt):
            learner.observe("interrupted", {"x": 1.0, "new": 1.0})
    for go_on in (
        lambda: learner.observe("next", {"x": 1.0}),
        lambda: learner.peek({"x": 1.0}),
        lambda: learner.learn("3", 1),
        lambda: learner.erase(id_hash("3")),
        learner.give_up_oldest,
        learner.snapshot,
    ):
        with pytest.raises(RuntimeError, match="restore one from a snapshot"):
            go_on()
    observe(Learner.restore(learner.config, saved), "next", {"x": 1.0})


def test_an_event_time_beyond_64_bits_is_refused_before_anything_changes() -> None:
    learner = taught(learner_of(experts=["naive"]), 3)
    before = digest_of(learner)
    for time_ms in (2**63, -(2**63)):
        with pytest.raises(ValueError, match="64 bits"):
            learner.observe("late", {"x": 1.0}, time_ms)
        with pytest.raises(ValueError, match="64 bits"):
            learner.learn("0", 1, time_ms)
    assert digest_of(learner) == before


def test_one_hash_of_two_ids_errs_towards_not_learning_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second id is answered as a repeat, and its label is one of an id already learnt."""
    for module in (delay_module, learner_module):
        monkeypatch.setattr(module, "id_hash", lambda id: 7)
    learner = learner_of(experts=["naive"])
    observe(learner, "seen", {"x": 1.0})
    assert learner.learn("seen", 1).outcome == LabelOutcome.QUEUED
    assert observe(learner, "between", {"x": 1.0}).learnt == ("seen",)
    step = learner.step
    assert observe(learner, "another", {"x": 1.0}).repeat
    assert learner.learn("another", 1).outcome == LabelOutcome.REPEATED
    assert learner.learn("another", 0).outcome == LabelOutcome.CORRECTION_TOO_LATE
    assert (learner.step, learner.pending, learner.labels_learnt) == (step, 1, 1)


def kept_in(learner: Learner, vectors: list[FloatArray]) -> set[str]:
    """Arrays of the snapshot one of whose rows or columns is one of these vectors."""
    found = set()
    for name, array in learner.snapshot().arrays.items():
        if array.dtype.kind != "f" or array.ndim < 2 or not array.size:
            continue
        for axis in (-1, -2):
            rows = np.moveaxis(array, axis, -1).reshape(-1, array.shape[axis])
            for vector in vectors:
                if len(vector) == rows.shape[1] and np.isclose(rows, vector, 1e-6).all(1).any():
                    found.add(name)
    return found


@pytest.mark.parametrize("age", [0, 5, 60])
@pytest.mark.parametrize("learnt", [False, True])
def test_no_vector_of_an_erased_instance_is_left_in_the_snapshot(age: int, learnt: bool) -> None:
    """In the window, pushed out of it by the newest record or long ago, and with its label."""
    learner = taught(learner_of(graph={"unverified": 5, "verified": 50}), 100)
    observe(learner, "asked", {"x": 0.1234, "noise": -1.2345, "still": 1})
    _, (spaces, scores), _ = learner.delay.oldest(range(learner.step, learner.step + 1), 1)[0][0]
    design = Vectors(spaces, scores).design[1:]
    vectors = [*spaces.copy(), *scores.copy(), design]
    for number in range(age):
        observe(learner, f"then {number}", {"x": 0.01 * number, "noise": 1.0, "still": 1})
    if learnt:
        learner.learn("asked", 1)
        observe(learner, "last", {"x": 0.5, "noise": 1.0, "still": 1})
    kept = kept_in(learner, vectors)
    assert "delay/block/0/spaces" in kept
    assert ("experts/forest/rows" in kept) == learnt
    assert ("experts/tracker/waiting/rows" in kept) != learnt
    assert ("experts/paper/geometry/buffer/latent" in kept) == (learnt or age < 5)
    assert learner.erase(id_hash("asked")) == ["asked"]
    assert kept_in(learner, vectors) == set()
    tracker = learner.experts["tracker"]
    assert isinstance(tracker, Tracker)
    rows = tracker.waiting.rows  # in memory, where a snapshot does not look
    same = [(rows == each).all(axis=1).any() for each in vectors if len(each) == rows.shape[1]]
    assert same
    assert not any(same)
    assert digest_of(reborn(learner)) == digest_of(learner)


def test_paper_goes_on_when_its_only_verified_instance_is_erased() -> None:
    """Regression: labels spread from nowhere, through memory that nobody had written."""
    digests = []
    for _ in range(2):
        learner = paper_alone()
        for number in range(20):
            observe(learner, str(number), {"x": 0.1 * number, "noise": float(number % 3)})
        learner.learn("3", 1)
        observe(learner, "learnt", {"x": 1.0, "noise": 1.0})
        paper = paper_of(learner)
        assert not np.array_equal(paper.latent.transient, paper.latent.anchor)
        learner.erase(id_hash("3"))
        for number in range(3):
            forecast = observe(learner, f"after {number}", {"x": 0.5 * number, "noise": 0.0})
            assert math.isfinite(forecast.p)
            for track in (paper.latent, paper.original):
                assert track.transient.tolist() == track.anchor.tolist()
        digests.append(digest_of(learner))
        learner.learn("5", 0)
        observe(learner, "verified again", {"x": 1.0, "noise": 1.0})
        assert not np.array_equal(paper.latent.transient, paper.latent.anchor)
    assert digests[0] == digests[1]


def test_what_is_kept_of_an_id_can_be_erased() -> None:
    """Nothing of an erased instance is left in the snapshot."""
    learner = taught(learner_of(), 300)
    observe(learner, "secret-waiting", {"x": 0.123456, "noise": 1.0})
    observe(learner, "secret-learnt", {"x": 0.5, "noise": 1.0})
    learner.learn("secret-learnt", 1)
    learner.learn("secret-early", 1)
    observe(learner, "after", {"x": 0.5, "noise": 1.0})
    step = learner.delay.settled.find(id_hash("secret-learnt"))
    assert step is not None
    assert paper_of(learner).geometry.buffer.find(step.step) is not None
    for id in ("secret-waiting", "secret-learnt", "secret-early"):
        assert learner.erase(id_hash(id)) == [id]
    blob = encode(learner.snapshot())
    assert b"secret" not in blob
    assert paper_of(learner).geometry.buffer.find(step.step) is None
    assert digest_of(reborn(learner)) == digest_of(learner)
    assert learner.learn("secret-waiting", 1).outcome == LabelOutcome.ERASED
    assert observe(learner, "secret-waiting", {"x": 1.0}).repeat
    for number in range(300):
        learner.learn(f"after {number}", 1)
        observe(learner, f"after {number}", {"x": 0.1})
    assert digest_of(reborn(learner)) == digest_of(learner)


def test_erasing_an_id_that_is_not_known_changes_nothing_but_a_count() -> None:
    learner = taught(learner_of(), 20)
    before = learner.delay.snapshot()["waiting"].tolist()
    assert learner.erase(id_hash("nobody")) == []
    assert learner.delay.snapshot()["waiting"].tolist() == before
    assert signed_hash(hash_text("nobody")) == id_hash("nobody")
