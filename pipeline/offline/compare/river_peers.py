"""River's learners under the learner's verbs. River is a benchmark extra.

What needs no label, the scaler, learns at once.
"""

from collections.abc import Mapping
from typing import Any

from river import ensemble, forest, linear_model, optim, preprocessing, tree

from pipeline.offline.compare.peers import Peer

RATE = 0.03
"""Chosen among 0.01, 0.03, 0.1, 0.3 on one seed of the odd streams without kr-vs-kp."""


class RiverPeer(Peer):
    """A River classifier; numbers are standardised as they come if asked for."""

    def __init__(self, model: Any, scale: bool = False) -> None:
        super().__init__()
        self._model = model
        self._scaler: Any = preprocessing.StandardScaler() if scale else None

    def _prepare(self, features: Mapping[str, Any]) -> Mapping[str, Any]:
        if self._scaler is None:
            return features
        self._scaler.learn_one(dict(features))
        scaled: Mapping[str, Any] = self._scaler.transform_one(dict(features))
        return scaled

    def _predict(self, features: Mapping[str, Any]) -> float:
        answer = self._model.predict_proba_one(dict(features))
        return float(answer.get(1, 0.0)) if answer else 0.5

    def _learn(self, features: Mapping[str, Any], y: int) -> None:
        self._model.learn_one(dict(features), y)


def logistic_regression(seed: int) -> RiverPeer:
    """Scaled logistic regression; nothing in it is drawn."""
    return RiverPeer(
        linear_model.LogisticRegression(optim.SGD(RATE), intercept_lr=RATE), scale=True
    )


def adaptive_tree(seed: int) -> RiverPeer:
    """Hoeffding adaptive tree; a shorter grace than the default 200, which helps on short sets."""
    return RiverPeer(tree.HoeffdingAdaptiveTreeClassifier(grace_period=50, seed=seed))


def adaptive_forest(seed: int) -> RiverPeer:
    """Adaptive random forest of ten trees."""
    return RiverPeer(forest.ARFClassifier(n_models=10, seed=seed))


def random_patches(seed: int) -> RiverPeer:
    """Streaming random patches, ten trees with the shorter grace of `adaptive_tree`."""
    grown = tree.HoeffdingTreeClassifier(grace_period=50)
    return RiverPeer(ensemble.SRPClassifier(grown, n_models=10, seed=seed))
