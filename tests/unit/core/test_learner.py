"""The corridor: what one record and one label do to the whole learner."""

import math
from typing import Any

import numpy as np
import pytest

from dtgol_core.config import Config
from dtgol_core.delay import BLOCK_STEPS
from dtgol_core.learner import Learner
from dtgol_core.types import Contribution, Forecast, LabelOutcome, Record, Rejection
from tests.support.views import Watched, digest_of, reborn


def learner_of(**settings: Any) -> Learner:
    return Learner(Config.read(settings))


def observe(learner: Learner, id: str, x: Record, **more: Any) -> Forecast:
    said = learner.observe(id, x, **more)
    assert isinstance(said, Forecast), said
    return said


def taught(learner: Learner, records: int = 40, seed: int = 0) -> Learner:
    """`x` decides, `noise` does not, `still` never moves."""
    rng = np.random.default_rng(seed)
    for i in range(records):
        x, noise = rng.normal(size=2).tolist()
        observe(learner, f"taught {i}", {"x": x, "noise": noise, "still": 1})
        learner.learn(f"taught {i}", int(x > 0))
    return learner


# --- what a forecast says ------------------------------------------------------------------------


def test_first_forecast_knows_nothing() -> None:
    said = observe(learner_of(), "a", {"x": 1.5})
    assert said == Forecast(
        step=1,
        p=0.5,
        label=0,
        naive=0.5,
        latent_weight=0.5,
        latent_persistent=0.5,
        latent_transient=0.5,
        original_persistent=0.5,
        original_transient=0.5,
        labels_learnt=0,
        unverified=0,
        observed_share=1.0,
        uncertainty=math.log(2),
    )


def test_forecast_blends_tracks_and_spaces() -> None:
    learner = taught(learner_of(ensemble={"beta": 0.3}))
    for i in range(5):
        said = observe(learner, f"new {i}", {"x": 0.5 * i})
    alpha = said.latent_weight
    latent = 0.3 * said.latent_persistent + 0.7 * said.latent_transient
    original = 0.3 * said.original_persistent + 0.7 * said.original_transient
    assert said.p == pytest.approx(alpha * latent + (1 - alpha) * original)
    naive = alpha * said.latent_persistent + (1 - alpha) * said.original_persistent
    assert said.naive == pytest.approx(naive)
    assert said.naive != pytest.approx(said.p, abs=1e-9)
    p = said.p
    assert said.uncertainty == pytest.approx(-p * math.log(p) - (1 - p) * math.log(1 - p))


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
    said = observe(learner, "3", {"x": 3})
    assert (said.unverified, said.labels_learnt, said.learnt) == (2, 1, ("1",))


def test_why_names_features_and_no_values() -> None:
    learner = taught(learner_of(), 200)
    observe(learner, "ward", {"ward": "a secret"})
    said = observe(learner, "a", {"x": 3.25, "noise": 0.123, "ward": "a secret"}, why=3)
    assert len(said.why) == 3
    assert said.why[0].feature == "x"
    assert said.why[0].log_odds > 0.5
    sizes = [abs(each.log_odds) for each in said.why]
    assert sizes == sorted(sizes, reverse=True)
    assert set(Contribution.__slots__) == {"feature", "log_odds"}
    assert "secret" not in repr(said.why)
    assert "3.25" not in repr(said.why)


def test_why_adds_up_to_the_log_odds_of_a_single_track() -> None:
    """With one space and one track the contributions and the bias are the whole logit."""
    learner = taught(learner_of(ablate={"risk": True, "dual_track": True}), 100)
    said = observe(learner, "a", {"x": 1.0, "noise": -0.5, "still": 1}, why=10)
    logit = math.log(said.p / (1 - said.p))
    total = sum(each.log_odds for each in said.why) + float(learner.latent.weights[0])
    assert total == pytest.approx(logit)


def test_why_is_empty_unless_asked_for_and_has_at_most_all_features() -> None:
    learner = taught(learner_of())
    assert observe(learner, "a", {"x": 1}).why == ()
    assert len(observe(learner, "b", {"x": 1}, why=99).why) == 3


def test_why_of_equal_contributions_survives_a_restart() -> None:
    """Before the first label all contributions are 0, and features are listed by name."""
    learner = learner_of()
    observe(learner, "a", {"z": 1, "m": 2.5, "a": True})
    for each in (learner, reborn(learner)):
        said = each.peek({"z": 1}, why=2)
        assert isinstance(said, Forecast)
        assert [reason.feature for reason in said.why] == ["a", "m"]


# --- two tracks ----------------------------------------------------------------------------------


def test_pseudo_label_changes_the_transient_prediction_and_leaves_the_persistent_one() -> None:
    """The same labels; unlabelled records in between move only the transient tracks."""
    quiet, busy = taught(learner_of()), taught(learner_of())
    for learner in (quiet, busy):
        observe(learner, "drain", {"x": 0.0, "noise": 0.0, "still": 1})
    weights = busy.latent.weights.copy(), busy.original.weights.copy()
    anchors = busy.latent.anchor.copy(), busy.original.anchor.copy()
    rng = np.random.default_rng(9)
    for i in range(15):
        noise = float(rng.normal())
        observe(busy, f"unlabelled {i}", {"x": 2 + noise, "noise": noise, "still": 1})
    said = observe(busy, "asked", {"x": 1.0, "noise": 0.3, "still": 1})
    assert busy.latent.weights.tobytes() == weights[0].tobytes()
    assert busy.original.weights.tobytes() == weights[1].tobytes()
    assert busy.latent.anchor.tobytes() == anchors[0].tobytes()
    assert busy.original.anchor.tobytes() == anchors[1].tobytes()
    assert busy.labels_learnt == quiet.labels_learnt
    assert abs(said.latent_transient - said.latent_persistent) > 1e-4
    assert abs(said.original_transient - said.original_persistent) > 1e-4
    assert said.p != said.naive


def test_one_soft_label_moves_the_transient_track_of_the_same_record() -> None:
    """Two learners that differ in the soft-label temperature alone: only transients differ."""
    said = []
    for temperature in (0.0, 50.0):
        learner = taught(learner_of(softlabels={"temperature": temperature}))
        for i in range(10):
            observe(learner, f"u{i}", {"x": 1.0 * i, "noise": 0.1 * i, "still": 1})
        said.append(observe(learner, "asked", {"x": 1.0, "noise": 0.3, "still": 1}))
    assert said[0].latent_persistent == said[1].latent_persistent
    assert said[0].original_persistent == said[1].original_persistent
    assert said[0].naive == said[1].naive
    assert said[0].latent_transient != said[1].latent_transient
    assert said[0].original_transient != said[1].original_transient


def test_no_transient_track_before_the_first_label() -> None:
    learner = learner_of()
    for i in range(10):
        said = observe(learner, f"{i}", {"x": float(i)})
        assert said.p == said.naive == 0.5
    learner.learn("3", 1)
    assert learner.labels_learnt == 0, "a label only queues"
    said = observe(learner, "next", {"x": 1.0})
    assert said.labels_learnt == 1
    assert said.p != said.naive


def test_what_is_learnt_is_what_was_predicted_from() -> None:
    """Vector and prediction of the arrival, not of today: Σ and ranks have moved on."""
    learner = taught(learner_of())
    before = Watched(learner.config)
    before.learner = learner
    said = observe(learner, "asked", {"x": 1.0})
    latent, _ = (vector.copy() for vector in before.vectors(said.step))
    for i in range(30):
        observe(learner, f"later {i}", {"x": 5.0 + i, "noise": float(i)})
    risk, weights = learner.ensemble.latent_risk, learner.latent.weights.copy()
    learner.learn("asked", 0)
    observe(learner, "next", {"x": 0.0})
    assert learner.ensemble.latent_risk == pytest.approx(
        risk - math.log(1 - said.latent_persistent)
    )
    logit = weights[0] + weights[1:] @ latent
    residual = 1 / (1 + math.exp(-logit))
    rate = 1 / math.sqrt(learner.labels_learnt)
    np.testing.assert_allclose(
        learner.latent.weights, weights - rate * residual * np.array([1.0, *latent])
    )


def test_space_that_errs_less_gains_weight() -> None:
    """Ranks see what a few huge values hide from the standard scores."""
    rng = np.random.default_rng(3)
    learner = learner_of()
    for i in range(300):
        x = float(rng.normal())
        observe(learner, f"{i}", {"x": x if i % 20 else 1e6, "y": x})
        learner.learn(f"{i}", int(x > 0))
    said = observe(learner, "asked", {"x": 0.1})
    risks = learner.ensemble.latent_risk, learner.ensemble.original_risk
    rate = math.sqrt(2 * math.log(2) / 300)
    assert said.latent_weight == pytest.approx(1 / (1 + math.exp(rate * (risks[0] - risks[1]))))
    assert (said.latent_weight > 0.5) == (risks[0] < risks[1])
    assert said.latent_weight != 0.5


# --- ablations -----------------------------------------------------------------------------------


def test_without_copula_the_latent_space_is_the_original_one() -> None:
    learner = taught(learner_of(ablate={"copula": True}))
    said = observe(learner, "a", {"x": 1.0})
    assert said.latent_persistent == said.original_persistent
    slot = learner.buffer.find(said.step)
    assert learner.buffer.latent[slot].tolist() == learner.buffer.original[slot].tolist()
    assert learner.buffer.latent[slot][1] == 0.0, "missing is 0"


def test_without_correlation_a_missing_value_is_the_centre() -> None:
    learner = taught(learner_of(ablate={"marginals": True}))
    said = observe(learner, "a", {"x": 1.0})
    slot = learner.buffer.find(said.step)
    assert learner.buffer.latent[slot][1:].tolist() == [0.0, 0.0]
    assert learner.copula.correlation.tolist() == np.eye(3).tolist()


def test_without_soft_labels_and_rehearsal_there_is_only_the_naive_answer() -> None:
    learner = taught(learner_of(ablate={"softlabels": True}, tracks={"rehearsal_rate": 0}))
    said = observe(learner, "a", {"x": 1.0})
    assert said.p == pytest.approx(said.naive, abs=1e-15)
    assert said.latent_transient == said.latent_persistent
    assert learner.graph.size == 0


def test_without_soft_labels_the_transient_answer_is_that_of_the_rehearsed_weights() -> None:
    learner = taught(learner_of(ablate={"softlabels": True}))
    said = observe(learner, "a", {"x": 1.0})
    step = Watched(learner.config)
    step.learner = learner
    latent, _ = step.vectors(said.step)
    logit = learner.latent.anchor[0] + learner.latent.anchor[1:] @ latent
    assert said.latent_transient == pytest.approx(1 / (1 + math.exp(-logit)))
    assert said.latent_transient != said.latent_persistent


def test_one_track_takes_both_kinds_of_updates() -> None:
    learner = taught(learner_of(ablate={"dual_track": True}))
    observe(learner, "drain", {"x": 0.0})
    weights = learner.latent.weights.copy()
    said = observe(learner, "a", {"x": 1.0})
    assert learner.latent.weights.tobytes() != weights.tobytes()
    assert said.latent_transient == said.latent_persistent
    assert said.p == pytest.approx(said.naive, abs=1e-15)


def test_without_risk_only_the_latent_space_answers() -> None:
    learner = taught(learner_of(ablate={"risk": True}))
    said = observe(learner, "a", {"x": 1.0})
    assert said.latent_weight == 1.0
    assert said.p == pytest.approx(0.5 * said.latent_persistent + 0.5 * said.latent_transient)


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
    said = learner.learn("farther", 1)
    assert said.orphans == ("future",)
    expired = [observe(learner, f"more {i}", {"x": i}).expired for i in range(4)]
    assert expired == [(), (), ("1",), ("2",)]
    outcomes += [learner.learn("1", 1).outcome, learner.learn("0", 1).outcome]
    assert outcomes == ["queued", "repeated", "corrected-replaced", "early", "late",
                        "corrected-ignored"]  # fmt: skip
    assert learner.counts == {
        "observed": 7, "queued": 1, "repeated": 1, "corrected-replaced": 1, "early": 2, "late": 1,
        "corrected-ignored": 1, "orphaned": 1, "learnt": 1, "expired": 2,
    }  # fmt: skip


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
    said = observe(learner, "b", {"x": 1})
    assert said.learnt == ("a",)
    assert said.naive > 0.5


def test_instance_that_left_the_window_is_still_learnt_from() -> None:
    learner = learner_of(graph={"unverified": 2, "verified": 2})
    for i in range(6):
        observe(learner, f"{i}", {"x": float(i)})
    assert learner.buffer.find(1) is None
    learner.learn("0", 1)
    said = observe(learner, "next", {"x": 1.0})
    assert said.learnt == ("0",)
    assert learner.buffer.find(1) is not None, "verified instances are in the fine buffer"


def test_instance_pushed_out_of_the_table_leaves_the_window_too() -> None:
    learner = learner_of(delay={"pending_max": 2})
    expired = [observe(learner, f"{i}", {"x": float(i)}).expired for i in range(4)]
    assert expired == [(), (), ("0",), ("1",)]
    assert learner.buffer.steps[learner.buffer.window].tolist() == [3, 4]
    assert learner.learn("0", 1).outcome == LabelOutcome.LATE


def test_instance_that_expires_leaves_the_window() -> None:
    learner = learner_of(delay={"expire_steps": 2})
    for i in range(5):
        said = observe(learner, f"{i}", {"x": float(i)})
    assert said.expired == ("1",)
    assert learner.buffer.steps[learner.buffer.window].tolist() == [3, 4, 5]
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
    learner = learner_of()
    observe(learner, "a", {"x": 1})
    said = learner.observe("b", {"x": "text", "new": 1})
    assert said == Rejection("kind-conflict", "x takes number, not string")
    assert learner.counts["rejected.kind-conflict"] == 1
    assert (learner.step, learner.columns.width) == (1, 1)
    assert isinstance(learner.observe("b", {"x": 2}), Forecast), "its id is still free"


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
    said = learner.peek({"x": 2})
    assert isinstance(said, Forecast)
    assert (said.learnt, said.expired, said.orphans, said.repeat) == ((), (), (), False)
    assert said.labels_learnt == 1, "the look drains the queue, as the next record would"
    assert learner.labels_learnt == 0


def test_look_is_not_disturbed_by_an_instance_without_a_name() -> None:
    learner = learner_of()
    for i in range(3):
        observe(learner, f"{i}", {"x": i})
    observe(learner, "", {"x": 5})
    learner.learn("", 1)
    before = digest_of(learner)
    assert isinstance(learner.peek({"x": 2}), Forecast)
    assert digest_of(learner) == before
    assert observe(learner, "next", {"x": 1}).learnt == ("",)


# --- growing -------------------------------------------------------------------------------------


def test_instance_that_waited_while_columns_came_is_learnt_in_todays_columns() -> None:
    learner = learner_of()
    for i in range(BLOCK_STEPS + 5):
        observe(learner, f"{i}", {"x": float(i)})
    observe(learner, "wide", {"x": 1.0, "y": 2.0, "ward": "A"})
    learner.learn("3", 1)
    said = observe(learner, "next", {"x": 1.0, "y": 1.0})
    assert said.learnt == ("3",)
    assert len(learner.latent.weights) == 4
    assert learner.latent.weights[2:].tolist() == [0.0, 0.0], "it knew nothing of the new columns"
    assert learner.latent.weights[1] != 0.0


def test_feature_that_stops_coming_is_simply_missing() -> None:
    learner = taught(learner_of())
    for i in range(30):
        said = observe(learner, f"{i}", {"noise": float(i)})
    assert said.observed_share == pytest.approx(1 / 3)
    assert learner.columns.width == 3


def test_first_record_may_be_empty() -> None:
    learner = learner_of()
    assert observe(learner, "a", {}).p == 0.5
    learner.learn("a", 1)
    assert observe(learner, "b", {}).p > 0.5, "the bias has learnt"
    assert observe(learner, "c", {"x": 1}).observed_share == 1.0
