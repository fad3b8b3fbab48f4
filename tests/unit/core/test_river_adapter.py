"""River's verbs on the learner."""

from typing import Any

import numpy as np
import pytest

from dtgol_core.learner import Learner
from dtgol_core.river_adapter import RiverClassifier
from dtgol_core.types import FeatureValues, RejectedError


def test_it_learns_and_asking_changes_nothing() -> None:
    model = RiverClassifier()
    generator = np.random.default_rng(0)
    right = 0
    for n in range(200):
        a = float(generator.normal())
        x: FeatureValues = {"a": a, "ward": "B"}
        first, again = model.predict_proba_one(x), model.predict_proba_one(x)
        assert first == again
        assert sum(first.values()) == pytest.approx(1.0)
        right += n >= 100 and model.predict_one(x) == (a > 0)
        model.learn_one(x, a > 0)
    assert right > 85
    assert model.learner.step == 200


def test_it_says_what_the_learner_says_with_labels_that_come_at_once() -> None:
    model, learner = RiverClassifier(), Learner()
    for n in range(30):
        x = {"a": n % 5, "b": n % 3}
        result = learner.observe(str(n), x)
        assert model.predict_proba_one(x)[True] == result.p  # type: ignore[union-attr]
        model.learn_one(x, n % 2 == 0)
        learner.learn(str(n), int(n % 2 == 0))


def test_a_refused_record_raises() -> None:
    model = RiverClassifier(Learner())
    bad: Any = {"a": [1]}
    with pytest.raises(RejectedError, match="kind-conflict"):
        model.predict_proba_one(bad)
    with pytest.raises(RejectedError, match="kind-conflict"):
        model.learn_one(bad, True)


def test_it_runs_in_rivers_own_progressive_validation() -> None:
    base = pytest.importorskip("river.base")
    evaluate = pytest.importorskip("river.evaluate")
    metrics = pytest.importorskip("river.metrics")
    model = type("Model", (RiverClassifier, base.Classifier), {})()
    generator = np.random.default_rng(1)
    rows = [({"a": float(a)}, bool(a > 0)) for a in generator.normal(size=150)]
    metric = evaluate.progressive_val_score(rows, model, metrics.LogLoss())
    assert metric.get() < 0.6
