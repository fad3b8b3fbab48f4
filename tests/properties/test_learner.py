"""What holds after any walk: a correlation matrix, a tree, probabilities, bounds, restarts."""

import math
from collections.abc import Sequence

import numpy as np
from hypothesis import given

from dtgol_core.config import Config
from dtgol_core.learner import Learner
from dtgol_core.types import FloatArray, Forecast, LabelReceipt, Rejection
from tests.properties.walks import configs, records, walks
from tests.support.records import Answer, Event, FeatureEvent
from tests.support.views import (
    Tree,
    Watched,
    digest_of,
    paper_of,
    reborn,
    sizes_beyond_bounds,
    unverified_slots,
)


def send(learner: Learner | Watched, event: Event) -> Answer:
    if isinstance(event, FeatureEvent):
        return learner.observe(event.id, event.x, event.event_time_ms)
    return learner.learn(event.id, event.y, event.event_time_ms)


def assert_correlation(matrix: FloatArray) -> None:
    assert np.isfinite(matrix).all()
    assert (matrix == matrix.T).all()
    assert (np.diag(matrix) == 1.0).all()
    assert np.abs(matrix).max(initial=0.0) <= 1 + 1e-9
    if len(matrix):
        assert np.linalg.eigvalsh(matrix).min() >= -1e-9


def assert_tree(tree: Tree) -> None:
    """One root, no circle, and every parent is higher: denser, or as dense and older."""
    units = {step: round(density * 1e9) for step, density in tree.densities.items()}
    roots = [step for step, parent in tree.parents.items() if parent is None]
    assert len(roots) == 1
    for step, parent in tree.parents.items():
        if parent is not None:
            assert (units[parent], -parent) > (units[step], -step)
        at: int | None = step
        for _ in tree.parents:
            at = None if at is None else tree.parents[at]
        assert at is None, "a circle"


@given(configs, walks)
def test_correlation_stays_one(config: Config, walk: Sequence[Event]) -> None:
    learner = Learner(config)
    for event in walk:
        send(learner, event)
        assert_correlation(learner.copula.correlation)
        assert learner.copula.correlation.shape == (learner.columns.width,) * 2


@given(configs, walks)
def test_answers_stay_on_the_simplex(config: Config, walk: Sequence[Event]) -> None:
    learner = Watched(config)
    for event in walk:
        result = send(learner, event)
        if isinstance(result, LabelReceipt | Rejection):
            continue
        answers = [each.p for each in result.experts.values()]
        shares = (result.p, result.naive, *answers, *result.guard.values(), result.observed_share)
        assert all(0 <= share <= 1 for share in shares)
        assert math.isfinite(sum(each.weight for each in result.experts.values()))
        assert math.isclose(sum(result.guard.values()), 1)
        assert all(0 <= soft <= 1 for soft in learner.soft_labels.values())
        assert 0 <= result.uncertainty <= math.log(2) + 1e-12
        assert result.label == int(result.p > 0.5)
        low, high = learner.paper.softlabels.prototypes
        assert 0 <= low <= 0.5 <= high <= 1


@given(configs, walks)
def test_parents_form_a_tree_over_the_fine_buffer(config: Config, walk: Sequence[Event]) -> None:
    learner = Watched(config)
    for event in walk:
        result = send(learner, event)
        if isinstance(result, Forecast) and not result.repeat and not config.ablate.softlabels:
            assert_tree(learner.tree)
            assert result.step in learner.tree.parents
            assert set(learner.window) <= set(learner.tree.parents)


@given(configs, walks)
def test_memory_is_bounded_and_stages_agree(config: Config, walk: Sequence[Event]) -> None:
    learner = Learner(config)
    for event in walk:
        send(learner, event)
        assert sizes_beyond_bounds(learner) == {}
        geometry = paper_of(learner).geometry
        buffer = geometry.buffer
        assert set(buffer.window.tolist()) == unverified_slots(learner)
        assert len(buffer) == len(buffer.window) + len(buffer.verified)
        assert geometry.graph.size == (0 if config.ablate.softlabels else len(buffer))
        waiting = set(learner.delay._steps.values())
        assert {int(buffer.steps[slot]) for slot in buffer.window} <= waiting


@given(configs, walks)
def test_every_label_is_learnt_once_or_accounted_for(config: Config, walk: Sequence[Event]) -> None:
    learner = Learner(config)
    queued: set[str] = set()
    learnt = 0
    for event in walk:
        result = send(learner, event)
        if isinstance(result, Forecast):
            assert len(set(result.learnt)) == len(result.learnt)
            assert not set(result.learnt) & set(result.expired)
            learnt += len(result.learnt)
            assert result.repeat or result.labels_learnt == learnt, "a look may be a label ahead"
            queued -= set(result.learnt)
        elif isinstance(result, LabelReceipt) and result.outcome == "queued":
            assert event.id not in queued, "a label was queued twice before it was learnt"
            queued.add(event.id)
    assert learner.labels_learnt == learnt == learner.counts["learnt"]
    assert learner.counts["observed"] == learner.step
    assert learner.step == learnt + learner.counts["expired"] + learner.pending


@given(configs, walks, records)
def test_crash_and_restore_at_any_step(
    config: Config, walk: Sequence[Event], look: dict[str, float]
) -> None:
    steady, crashing = Learner(config), Learner(config)
    for event in walk:
        crashing = reborn(crashing)
        assert send(crashing, event) == send(steady, event)
        assert crashing.state_bytes == steady.state_bytes, "the fold decides by it"
    before = digest_of(steady)
    assert digest_of(crashing) == before
    assert crashing.peek(look) == steady.peek(look)
    assert digest_of(steady) == before, "looking changed something"


@given(configs, walks)
def test_no_number_is_ever_lost(config: Config, walk: Sequence[Event]) -> None:
    """No NaN and no infinity in any array that lasts, but for the coarse buffer's missing cells."""
    learner = Learner(config)
    for event in walk:
        send(learner, event)
    for name, array in learner.snapshot().arrays.items():
        if array.dtype.kind == "f" and name != "marginals/rows":
            assert np.isfinite(array).all(), name
