"""The oracle against numbers worked out by hand."""

import math

import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import truncnorm

from dtgol_core.config import ColumnsConfig, Config, FeatureConfig
from dtgol_core.types import Forecast, LabelOutcome, Rejection, Value
from tests.support import plain
from tests.support.plain import PlainLearner
from tests.support.records import BUILDERS, FeatureEvent, many_levels, nasty_events, play


def forecast_of(answer: Forecast | Rejection) -> Forecast:
    assert isinstance(answer, Forecast)
    return answer


# --- copula --------------------------------------------------------------------------------------


def test_mid_ranks_by_hand() -> None:
    observed = np.array([1.0, 2.0, 2.0, 3.0])
    assert plain.continuous_latent(2.0, observed) == pytest.approx(0.0)  # (1 + 3/2) / 5 = 0.5
    assert plain.continuous_latent(3.0, observed) == pytest.approx(0.8416212336)  # Φ⁻¹(0.8)
    assert plain.continuous_latent(7.0, np.full(9, 7.0)) == pytest.approx(0.0)


def test_truncated_normal_by_hand() -> None:
    mean, left = plain.ordinal_latent(1.0, np.array([0.0, 1.0]))
    assert mean == pytest.approx(math.sqrt(2 / math.pi))  # the half normal
    assert left == pytest.approx(1 - 2 / math.pi)
    assert plain.ordinal_latent(7.0, np.full(3, 7.0)) == pytest.approx((0.0, 1.0))
    mean, left = plain.ordinal_latent(1.0, np.array([0.0, 1.0, 1.0, 2.0, 2.0]))
    a, b = ndtri(0.2), ndtri(0.6)
    assert mean == pytest.approx(float(truncnorm.mean(a, b)))
    assert left == pytest.approx(float(truncnorm.var(a, b)))


def test_missing_value_is_imputed_from_a_known_correlation() -> None:
    correlation = np.array([[1.0, 0.6], [0.6, 1.0]])
    z, moment = plain.conditional(
        correlation, np.array([2.0, math.nan]), np.array([0.5, 0.0]), ridge=0.0
    )
    assert z == pytest.approx([2.0, 1.2])
    # C = [[v, 0.6 v], [0.6 v, 1 − 0.36 + 0.36 v]] with v = 0.5.
    assert moment == pytest.approx(np.array([[4.5, 2.4 + 0.3], [2.4 + 0.3, 1.44 + 0.82]]))


def test_ridge_shrinks_what_is_imputed() -> None:
    correlation = np.array([[1.0, 0.6], [0.6, 1.0]])
    z, _ = plain.conditional(correlation, np.array([2.0, math.nan]), np.zeros(2), ridge=0.5)
    assert z == pytest.approx([2.0, 0.6])


def test_correlation_after_two_records_by_hand() -> None:
    learner = PlainLearner(Config())
    learner.observe("1", {"a": 0.5, "b": 10.5})
    assert learner.latent == pytest.approx([0.0, 0.0])
    # E = 0 and γ = ½: ½ I rescaled is I again.
    assert learner.correlation == pytest.approx(np.eye(2))
    learner.observe("2", {"a": 1.5, "b": 9.5})
    z = 0.4307272993  # Φ⁻¹(2/3): above one value, equal to itself, of two
    assert learner.latent == pytest.approx([z, -z])
    # γ = ⅓: off the diagonal −⅓z², on it ⅔ + ⅓z².
    expected = -z * z / (2 + z * z)
    assert learner.correlation == pytest.approx(np.array([[1, expected], [expected, 1]]))


def test_original_values_by_hand() -> None:
    assert plain.original_value(3.0, np.array([1.0, 3.0])) == pytest.approx(1.0)
    assert plain.original_value(1.0, np.array([0.0] * 99 + [1.0])) == 5.0  # 9.95, clipped
    assert plain.original_value(0.1, np.full(3, 0.1)) == 0.0
    assert plain.original_value(1e-200, np.array([0.0, 1e-200])) == 0.0  # the deviation underflows


# --- columns -------------------------------------------------------------------------------------


def test_a_number_turns_continuous_at_its_fifteenth_distinct_value() -> None:
    learner = PlainLearner(Config())
    for i in range(14):
        learner.observe(str(i), {"n": i})
        learner.observe(f"{i} again", {"n": i})
    kinds = [learner.features["n"].kind]
    learner.observe("15th", {"n": 99})
    kinds.append(learner.features["n"].kind)
    assert kinds == ["ordinal", "continuous"]
    assert learner.latent == pytest.approx(ndtri((28 + 1) / (29 + 1)))


def test_levels_beyond_the_thirty_second_share_one_column() -> None:
    learner = PlainLearner(Config())
    for i in range(40):
        learner.observe(str(i), {"city": str(i)})
    assert len(learner.columns) == 33
    # `other` is 1 in 8 of 40 records: the mean above Φ⁻¹(0.8).
    assert learner.latent[-1] == pytest.approx(plain.normal_density(ndtri(0.8)) / 0.2)


def test_a_level_without_room_has_zeros_and_a_feature_without_room_is_refused() -> None:
    learner = PlainLearner(Config.read({"copula": {"max_columns": 2}}))
    for i, level in enumerate("abc"):
        assert isinstance(learner.observe(str(i), {"l": level}), Forecast)
    assert [column.level for column in learner.columns] == ["a", "b"]
    answer = learner.observe("new", {"l": "a", "other": 1})
    assert isinstance(answer, Rejection)
    assert answer.reason == "too-many-columns"
    assert isinstance(learner.observe("new", {"l": "a", "other": None}), Forecast)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("flag", 1, "kind-conflict"),
        ("number", True, "kind-conflict"),
        ("number", "1", "kind-conflict"),
        ("text", 1, "kind-conflict"),
        ("real", False, "kind-conflict"),
        ("named", 0.5, "kind-conflict"),
        ("named", False, "kind-conflict"),
        ("number", math.nan, "not-finite"),
        ("number", -math.inf, "not-finite"),
        ("number", 10**400, "out-of-range"),
        ("number", -1.1e150, "out-of-range"),
        ("ranked", 5, "out-of-bounds"),
        ("number", 1e150, None),
        ("named", 7, None),
        ("ranked", True, None),
    ],
)
def test_bad_values_are_refused_and_change_nothing(
    name: str, value: Value, reason: str | None
) -> None:
    described = {
        "real": FeatureConfig(kind="continuous"),
        "ranked": FeatureConfig(kind="ordinal", low=0, high=4),
        "named": FeatureConfig(kind="nominal", levels=("7", "8")),
    }
    learner = PlainLearner(Config(columns=ColumnsConfig(strict=True), features=described))
    learner.observe("1", {"flag": True, "number": 1, "text": "a"})
    answer = learner.observe("2", {name: value})
    assert (answer.reason if isinstance(answer, Rejection) else None) == reason
    assert learner.step == (2 if reason is None else 1)


# --- graph ---------------------------------------------------------------------------------------


def test_three_points_by_hand() -> None:
    distance = plain.distances(np.array([[0.0], [1.0], [3.0]]))
    assert distance == pytest.approx(np.array([[0, 1, 3], [1, 0, 2], [3, 2, 0]]))
    assert plain.cutoff_of(distance, 2.0) == pytest.approx(1.04)
    cutoff = plain.cutoff_of(distance, 50.0)
    assert cutoff == pytest.approx(2.0)
    near, middle, far = math.exp(-1 / 4), math.exp(-1), math.exp(-9 / 4)
    densities = plain.exact_densities(distance, cutoff)
    assert densities == pytest.approx([near + far, near + middle, far + middle])
    assert plain.parents_of([1, 2, 3], distance, densities) == [(1, 2), (2, None), (3, 2)]


def test_ties_go_to_the_older() -> None:
    same = plain.distances(np.zeros((3, 2)))
    assert plain.cutoff_of(same, 2.0) == 1.0
    densities = plain.exact_densities(same, 1.0)
    assert plain.parents_of([4, 5, 9], same, densities) == [(4, None), (5, 4), (9, 4)]
    # Four corners of a square: all densities equal, two neighbours equally near.
    square = plain.distances(np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]))
    densities = plain.exact_densities(square, 1.0)
    assert plain.parents_of([1, 2, 3, 4], square, densities) == [
        (1, None),
        (2, 1),
        (3, 1),
        (4, 2),
    ]


@pytest.mark.parametrize("name", ["mixed", "duplicates", "coming and going"])
def test_amortised_densities_stay_the_kernel_sums_under_the_kept_cutoff(name: str) -> None:
    settings = {
        "copula": {"window": 30},
        "graph": {"unverified": 6, "verified": 4, "refresh_steps": 7},
        "delay": {"expire_steps": 12, "pending_max": 15},
    }
    learner = PlainLearner(Config.read(settings))
    cutoffs = []
    for event in nasty_events(name, 1, 80):
        before = learner.step
        play(learner, [event])
        if learner.step == before or not isinstance(event, FeatureEvent):
            continue
        cutoffs.append(learner.cutoff)
        assert learner.since == (learner.step - 1) % 7
        # The window has taken t and let go of the nodes in `evicted`; add them back to check.
        nodes = {i.step: i for i in [*learner.verified, *learner.window, *learner.evicted]}
        assert set(learner.densities) == set(nodes)
        size = len(learner.columns)
        vectors = np.array([plain.padded(nodes[s].latent, size) for s in learner.densities])
        exact = plain.exact_densities(plain.distances(vectors), learner.cutoff)
        assert list(learner.densities.values()) == pytest.approx(exact.tolist(), abs=1e-9)
        assert [above for _, above in learner.parents].count(None) == 1
    assert len(set(cutoffs)) <= 1 + len(cutoffs) // 7


def test_an_instance_learnt_after_it_left_the_window_is_verified() -> None:
    learner = PlainLearner(Config.read({"graph": {"unverified": 1, "refresh_steps": 100}}))
    for i in range(3):
        learner.observe(str(i), {"a": i + 0.5})
    assert [step for step, _ in learner.parents] == [2, 3]
    learner.learn("0", 1)
    learner.observe("3", {"a": 9.5})
    assert [step for step, _ in learner.parents] == [1, 3, 4]


# --- soft labels ---------------------------------------------------------------------------------


def test_one_walk_by_hand() -> None:
    """Verified 1 ascends to 2, the root; 3 descends from it. `f` starts at zero."""
    config = Config.read({"softlabels": {"frontier_steps": 0, "refine_steps": 1, "rate": 0.1}})
    vectors = {1: np.array([1.0]), 2: np.array([0.0]), 3: np.array([-2.0])}
    parents: plain.Parents = [(1, 2), (2, None), (3, 2)]
    f, labels = plain.spread(parents, vectors, {1: 1}, np.zeros(2), [0.2, 0.8], config)
    # Node 2: views 0.5, M[0] = 0.2 and its child's 1, with weights e^(−5H):
    # 2^−5 = 0.03125, e^(−5·0.500402) = 0.08192 and 1.
    two = (0.03125 * 0.5 + 0.08192 * 0.2 + 1) / (0.03125 + 0.08192 + 1)
    assert two == pytest.approx(0.92709, abs=1e-5)
    # Node 3: the same with its parent's 0.92709, whose weight is e^(−5·0.26110) = 0.27102.
    three = (0.03125 * 0.5 + 0.08192 * 0.2 + 0.27102 * two) / (0.03125 + 0.08192 + 0.27102)
    assert labels == pytest.approx({1: 1.0, 2: two, 3: three}, abs=1e-4)
    # f = 0 − 0.1 · mean((½ − v) (1, z)).
    bias = -0.1 * ((0.5 - 1) + (0.5 - two) + (0.5 - three)) / 3
    slope = -0.1 * ((0.5 - 1) * 1 + (0.5 - three) * -2) / 3
    assert f == pytest.approx([bias, slope], abs=1e-4)


def test_a_frontier_moves_the_classifier_before_the_next_one() -> None:
    config = Config.read({"softlabels": {"temperature": 0, "refine_steps": 0, "rate": 1}})
    vectors = {1: np.zeros(1), 2: np.zeros(1), 3: np.zeros(1)}
    parents: plain.Parents = [(1, 2), (2, 3), (3, None)]
    _, labels = plain.spread(parents, vectors, {1: 1}, np.zeros(2), [0.2, 0.8], config)
    two = (0.5 + 0.2 + 1) / 3  # temperature 0: plain means
    intrinsic = 1 / (1 + math.exp(0.5 - two))
    assert labels[3] == pytest.approx((intrinsic + 0.8 + two) / 3)


# --- tracks, ensemble, the whole walk ------------------------------------------------------------


def test_first_label_by_hand() -> None:
    learner = PlainLearner(Config())
    first = forecast_of(learner.observe("1", {"a": 1.5}))
    assert (first.p, first.naive, first.label) == (0.5, 0.5, 0)
    assert learner.paper.latent_weight() == learner.naive.latent_weight() == 0.5
    assert first.uncertainty == pytest.approx(math.log(2))
    assert learner.learn("1", 1).outcome is LabelOutcome.QUEUED
    second = forecast_of(learner.observe("2", {"a": 2.5}))
    # Both vectors of record 1 were 0, so only the biases have moved: 1 · ½, rehearsed ones too.
    assert second.learnt == ("1",)
    assert second.p == pytest.approx(1 / (1 + math.exp(-0.5)))
    # The window was empty.
    assert learner.latent_transient.tolist() == learner.paper.latent_weights.tolist()
    assert learner.paper.latent_risk == learner.naive.latent_risk == pytest.approx(math.log(2))
    # q = ½ is not on the right side of a 1, so the prototypes stay.
    assert learner.prototypes == pytest.approx([0.2, 0.8])


def test_risk_weight_by_hand() -> None:
    risks = plain.Persistent(Config())
    risks.labels_learnt, risks.latent_risk, risks.original_risk = 8, 1.0, 3.0
    mu = math.sqrt(2 * math.log(2) / 8)
    assert risks.latent_weight() == pytest.approx(1 / (1 + math.exp(-2 * mu)))


def test_transient_step_by_hand() -> None:
    settings = {"transient_reduction": "sum", "transient_rate": 0.1}
    learner = PlainLearner(Config.read({"tracks": settings}))
    learner.columns = [plain.Column("a")]
    learner.soft_labels = {1: 0.9, 2: 0.3}
    moved = learner.transient_weights(np.zeros(2), {1: np.array([2.0]), 2: np.array([-1.0])})
    # −0.1 · ((½ − 0.9)(1, 2) + (½ − 0.3)(1, −1))
    assert moved == pytest.approx([0.02, 0.1])


# --- label policy --------------------------------------------------------------------------------


def test_label_policy_row_by_row() -> None:
    learner = PlainLearner(
        Config.read({"delay": {"expire_steps": 2, "early_max": 1, "early_steps": 2}})
    )
    learner.observe("a", {"x": 1})
    assert learner.learn("a", 1).outcome is LabelOutcome.QUEUED
    assert learner.learn("a", 1).outcome is LabelOutcome.REPEATED
    assert learner.learn("a", 0).outcome is LabelOutcome.CORRECTED_REPLACED
    assert learner.learn("b", 1).outcome is LabelOutcome.EARLY
    assert learner.learn("c", 0).orphans == ("b",)
    assert forecast_of(learner.observe("c", {"x": 2})).learnt == ("a",)
    assert learner.learn("a", 1).outcome is LabelOutcome.CORRECTED_RELABELLED
    assert [instance.label for instance in learner.verified] == [1]
    assert learner.learn("d", 1).outcome is LabelOutcome.EARLY
    assert forecast_of(learner.observe("e", {"x": 3})).learnt == ("c",)
    assert forecast_of(learner.observe("f", {"x": 4})).orphans == ()
    assert forecast_of(learner.observe("g", {"x": 5})).orphans == ("d",)
    assert forecast_of(learner.observe("h", {"x": 6})).expired == ("e",)
    assert learner.learn("e", 1).outcome is LabelOutcome.LATE


def test_a_repeated_id_is_answered_and_changes_nothing() -> None:
    learner = PlainLearner(Config())
    play(learner, nasty_events("mixed", 0, 40))
    state = repr(vars(learner))
    answer = forecast_of(learner.observe("r39", {"real": 1.5, "brand new": 2}))
    assert answer.repeat
    assert answer.step == learner.step + 1
    assert repr(vars(learner)) == state


def test_an_early_label_is_learnt_one_step_after_its_features() -> None:
    learner = PlainLearner(Config())
    learner.learn("a", 1)
    assert forecast_of(learner.observe("a", {"x": 1})).learnt == ()
    assert forecast_of(learner.observe("b", {"x": 1})).learnt == ("a",)


def test_labels_are_held_until_their_step() -> None:
    learner = PlainLearner(Config.read({"delay": {"release": "step", "steps": 3}}))
    for i in range(3):
        learner.observe(str(i), {"x": i})
        learner.learn(str(i), 1)
        assert learner.labels_learnt == 0
    assert forecast_of(learner.observe("3", {"x": 3})).learnt == ("0",)


# --- everything at once --------------------------------------------------------------------------


@pytest.mark.parametrize("name", BUILDERS)
def test_every_nasty_stream_gets_finite_answers(name: str) -> None:
    learner = PlainLearner(Config.read({"graph": {"unverified": 12, "verified": 8}}))
    answers = play(learner, nasty_events(name, 2, 60))
    forecasts = [answer for answer in answers if isinstance(answer, Forecast)]
    assert len(forecasts) > 40
    assert all(0 <= answer.p <= 1 and 0 <= answer.naive <= 1 for answer in forecasts)
    assert np.all(np.isfinite(learner.correlation))
    assert np.all(np.diag(learner.correlation) == 1)


def test_ablations_say_what_they_should() -> None:
    events = nasty_events("half missing", 0, 60)
    for name in ("copula", "marginals", "softlabels", "dual_track", "risk"):
        learner = PlainLearner(
            Config.read({"graph": {"unverified": 12, "verified": 8}, "ablate": {name: True}})
        )
        forecasts = [a for a in play(learner, events) if isinstance(a, Forecast)]
        if name in ("copula", "marginals"):
            assert np.array_equal(learner.correlation, np.eye(len(learner.columns)))
        if name == "copula":
            assert np.array_equal(learner.latent, learner.original)
        if name == "softlabels":
            assert not learner.soft_labels
        if name == "dual_track":
            assert np.array_equal(learner.latent_transient, learner.paper.latent_weights)
            assert not np.array_equal(learner.naive.latent_weights, learner.paper.latent_weights)
            assert any(abs(answer.p - answer.naive) > 1e-3 for answer in forecasts)
        if name == "risk":
            assert learner.naive.latent_weight() == learner.paper.latent_weight() == 1.0


def test_builders_are_deterministic_and_cross_their_limits() -> None:
    for builder in BUILDERS.values():
        assert repr(builder(7, 30)) == repr(builder(7, 30))
    assert len({record.get("city") for record in many_levels(0, 120)}) > 33
