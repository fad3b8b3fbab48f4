"""Linear: Bayesian logistic regression over three scales of every column, slow and fast."""

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np

from dtgol_core import bayes
from dtgol_core.bayes import Regression, design_prior
from dtgol_core.compiled import compiled
from dtgol_core.config import Config
from dtgol_core.elementary import sigmoid
from dtgol_core.types import FloatArray, Inspection, Instance, SingleArray, design


class Linear:
    """Bayesian logistic regression that forgets slowly.

    Notes
    -----
    `Regression` over ``x = [1, (latent, cumulative, fast) of each column]``; with every label one
    drift with ρ = .9999, then one update. Records without a label change nothing. Cost: O(d²) up to
    64 columns, O(d) beyond.
    """

    name: ClassVar[str] = "linear"
    kept: ClassVar[tuple[str, ...]] = ()
    scales: ClassVar[tuple[str, ...]] = ("cumulative", "fast")
    memory: ClassVar[float] = 0.9999

    def __init__(self, config: Config) -> None:
        self.at = 0
        self.regression = Regression(*design_prior(0), self.memory)

    def observe(self, instance: Instance) -> float:
        """Nothing is learnt without a label."""
        return _score(self.regression.table, *instance.vectors)

    def score(self, instance: Instance) -> float:
        """The regression's answer."""
        return _score(self.regression.table, *instance.vectors)

    def learn(self, instance: Instance, label: int) -> float:
        """One drift, one update."""
        return _learn(self.regression.table, self.memory, *instance.vectors, label)

    def forget(self, step: int) -> None:
        """Nothing is kept of an instance."""

    def correct(self, step: int, label: int) -> bool:
        """Nothing is kept of an instance."""
        return False

    def grow(self, columns: int) -> None:
        """Add columns of three weights each; the prior of all becomes that of the new width."""
        known = len(self.regression.mean) // bayes.BLOCK
        self.regression.grow(*design_prior(known + columns))

    def contributions(self, instance: Instance) -> FloatArray:
        """The terms of the three scales of a column together: exact, but for the bias."""
        terms = self.regression.terms(instance.vectors.design)
        moved: FloatArray = terms[1:].reshape(-1, 3).sum(axis=1)
        return moved

    def inspect(self) -> Inspection:
        """The weights by scale; the bias stands with the latent ones."""
        mean, none = self.regression.mean, np.zeros(1)
        weights = {
            "latent": np.concatenate([mean[:1], mean[1::3]]),
            "cumulative": np.concatenate([none, mean[2::3]]),
            "fast": np.concatenate([none, mean[3::3]]),
        }
        return Inspection({}, weights)

    def snapshot(self) -> dict[str, Any]:
        """Mean and covariance of the weights."""
        return self.regression.snapshot()

    @classmethod
    def restore(cls, config: Config, snapshot: Mapping[str, Any], columns: int) -> Self:
        """The expert that `snapshot` described."""
        linear = cls(config)
        prior = design_prior(columns)
        linear.regression = Regression.restore(*prior, cls.memory, dict(snapshot))
        return linear


class LinearFast(Linear):
    """The same regression with ρ = .9995: what is 2,000 labels old has lost two thirds."""

    name: ClassVar[str] = "linear_fast"
    memory: ClassVar[float] = 0.9995


@compiled
def _score(table: FloatArray, spaces: FloatArray, scores: SingleArray) -> float:
    x = np.empty(table.shape[1])
    design(spaces, scores, x)
    return sigmoid(bayes.score(table, x))


@compiled
def _learn(
    table: FloatArray, memory: float, spaces: FloatArray, scores: SingleArray, label: int
) -> float:
    """Learn a label; the answer before that."""
    x = np.empty(table.shape[1])
    design(spaces, scores, x)
    p = sigmoid(bayes.score(table, x))
    bayes.learn(table, memory, x, label)
    return p
