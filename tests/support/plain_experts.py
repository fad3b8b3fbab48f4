"""The plain experts: scales, regression, linear and recent once more.

Written from docs/learner.md by other hands than the core's and from nothing else; only `types` is
shared. It is slow on purpose. Sums whose order the text gives are added in that order; all others
are left to numpy. Forest and tracker are in `plain_forest` and `plain_tracker`, the combination in
`plain_whole`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from dtgol_core.types import FloatArray, SingleArray, Vectors

TOLERANCE = 1e-9

FLAT = 1e-300
"""A variance that is no more than this is none."""


def close(ours: npt.ArrayLike, theirs: npt.ArrayLike, at: str) -> None:
    """Assert that two arrays have the same shape and agree within the tolerance."""
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    assert ours.shape == theirs.shape, at
    assert (np.abs(ours - theirs) <= TOLERANCE).all(), f"{at}: {ours}, not {theirs}"


def clip(x: float, most: float) -> float:
    """x cut to ±most."""
    return min(max(x, -most), most)


def log_odds(p: float) -> float:
    """log(p/(1 − p)), p clipped to [1e-12, 1 − 1e-12]."""
    p = min(max(p, 1e-12), 1 - 1e-12)
    return math.log(p / (1 - p))


class Seen(NamedTuple):
    """A record as a plain expert sees it; ``kept`` is what its `observe` returned."""

    step: int
    vectors: Vectors
    kept: Sequence[float] = ()


class PlainExpert(Protocol):
    """What the tests ask of an expert. `observe` returns what it wants back with the label."""

    def observe(self, instance: Seen) -> Sequence[float]: ...
    def score(self, instance: Seen) -> float: ...
    def learn(self, instance: Seen, label: int) -> None: ...
    def forget(self, step: int) -> None: ...
    def correct(self, step: int, label: int) -> bool: ...
    def grow(self, columns: int) -> None: ...


class OnlyLabels:
    """An expert that learns from labels alone and keeps no instance."""

    def observe(self, instance: Seen) -> Sequence[float]:
        """Nothing is learnt without a label."""
        return ()

    def forget(self, step: int) -> None:
        """Nothing is kept."""

    def correct(self, step: int, label: int) -> bool:
        """Nothing is kept."""
        return False


# --- scales --------------------------------------------------------------------------------------


@dataclass
class RunningMoments:
    """One column in one of the two running scales."""

    floor: float
    observed: int = 0
    mean: float = 0.0
    variance: float = 0.0

    def absorb(self, x: float) -> None:
        """Mean and variance with one more observed value."""
        self.observed += 1
        g = max(1 / self.observed, self.floor)
        e = x - self.mean
        self.mean = self.mean + g * e
        self.variance = (1 - g) * (self.variance + g * e**2)

    def score(self, x: float) -> float:
        """x standardised, cut to ±5."""
        if self.variance <= FLAT:
            return 0.0
        return clip((x - self.mean) / math.sqrt(self.variance), 5)


@dataclass
class PlainScales:
    """Both running scales of every column."""

    cumulative: list[RunningMoments] = field(default_factory=list)
    fast: list[RunningMoments] = field(default_factory=list)

    def absorb(self, row: Sequence[float], latent: FloatArray) -> Sequence[SingleArray]:
        """cumulative, fast and completed of a record, NaN where missing."""
        for _ in range(len(row) - len(self.cumulative)):
            self.cumulative.append(RunningMoments(0.0))
            self.fast.append(RunningMoments(0.01))
        scores = [
            self.cell(x, z, slow, fast)
            for x, z, slow, fast in zip(row, latent, self.cumulative, self.fast, strict=True)
        ]
        return [np.array([cell[k] for cell in scores], dtype=np.float32) for k in range(3)]

    @staticmethod
    def cell(
        x: float, z: float, slow: RunningMoments, fast: RunningMoments
    ) -> tuple[float, float, float]:
        """One cell in all three scales."""
        if not math.isnan(x):
            slow.absorb(x)
            fast.absorb(x)
            return slow.score(x), fast.score(x), slow.score(x)
        guess = fast.mean + math.sqrt(fast.variance) * clip(float(z), 3)
        return 0.0, 0.0, slow.score(guess)


# --- the regression ------------------------------------------------------------------------------


class PlainRegression:
    """Bayesian logistic regression: mean m, covariance P, both drifting to a prior.

    `prior` gives mean and variances of the prior for a number of weights.
    """

    FULL_MAX = 193

    def __init__(
        self, weights: int, prior: Callable[[int], tuple[FloatArray, FloatArray]], memory: float
    ) -> None:
        self.prior, self.memory = prior, memory
        self.mean0, self.variance0 = prior(weights)
        self.mean: FloatArray = self.mean0.copy()
        self.covariance: FloatArray = np.diag(self.variance0)

    def kept_cells(self) -> FloatArray:
        """1 where P is kept, 0 elsewhere: all of it, or weight 0 and blocks of three."""
        size = len(self.mean)
        if size <= self.FULL_MAX:
            return np.ones((size, size))
        block = (np.arange(size) + 2) // 3
        return np.asarray(block[:, None] == block[None, :], dtype=np.float64)

    def score(self, x: FloatArray) -> float:
        """The log-odds of x, moderated by their variance."""
        v = float(x @ self.covariance @ x)
        return float(self.mean @ x) / math.sqrt(1 + math.pi * v / 8)

    def drift(self) -> None:
        """One step towards the prior."""
        rho = self.memory
        self.mean = self.mean0 + rho * (self.mean - self.mean0)
        self.covariance = rho**2 * self.covariance + (1 - rho**2) * np.diag(self.variance0)

    def learn(self, x: FloatArray, y: int) -> None:
        """One label."""
        g = self.covariance @ x
        v = float(x @ g)
        p = float(expit(self.score(x)))
        w = max(p * (1 - p), 1e-6)
        c = 1 / (1 + w * v)
        self.mean = self.mean + c * (y - p) * g
        self.covariance = (self.covariance - c * w * np.outer(g, g)) * self.kept_cells()

    def grow(self, weights: int) -> None:
        """Add weights with the prior of the new width."""
        before = len(self.mean)
        self.mean0, self.variance0 = self.prior(before + weights)
        covariance = np.diag(self.variance0)
        covariance[:before, :before] = self.covariance
        self.mean = np.concatenate([self.mean, self.mean0[before:]])
        self.covariance = covariance * self.kept_cells()


# --- linear and recent ---------------------------------------------------------------------------


def linear_prior(weights: int) -> tuple[FloatArray, FloatArray]:
    """Variance 1 for the bias, min(0.2, 10/(3d)) for the others: weights = 1 + 3d."""
    variance = np.ones(weights)
    variance[1:] = min(0.2, 10 / (weights - 1)) if weights > 1 else 1.0
    return np.zeros(weights), variance


def features_of(vectors: Vectors) -> SingleArray:
    """(latent, cumulative, fast) of each column in turn, in float32."""
    scales = [vectors.latent, vectors.cumulative, vectors.fast]
    return np.array(scales, dtype=np.float32).T.reshape(-1)


def with_one(x: SingleArray) -> FloatArray:
    """(1, x) in float64."""
    return np.concatenate([[1.0], x.astype(np.float64)])


class PlainLinear(OnlyLabels):
    """`linear` and, with another memory, `linear_fast`."""

    def __init__(self, memory: float) -> None:
        self.regression = PlainRegression(1, linear_prior, memory)

    def score(self, instance: Seen) -> float:
        return float(expit(self.regression.score(with_one(features_of(instance.vectors)))))

    def learn(self, instance: Seen, label: int) -> None:
        self.regression.drift()
        self.regression.learn(with_one(features_of(instance.vectors)), label)

    def grow(self, columns: int) -> None:
        self.regression.grow(3 * columns)


class PlainRecent(OnlyLabels):
    """`recent`: the newest 32 labels and the label rate."""

    def __init__(self) -> None:
        variance = np.full(34, 0.1)
        variance[0] = 1.0
        self.regression = PlainRegression(34, lambda _: (np.zeros(34), variance), 0.99997)
        self.labels: list[int] = []
        self.rate = 0.5

    def observe(self, instance: Seen) -> Sequence[float]:
        """The inputs without the 1."""
        signs = [2.0 * y - 1 for y in reversed(self.labels[-32:])]
        rate = min(max(self.rate, 0.02), 0.98)
        return [*signs, *[0.0] * (32 - len(signs)), log_odds(rate)]

    def score(self, instance: Seen) -> float:
        return float(expit(self.regression.score(np.array([1.0, *instance.kept]))))

    def learn(self, instance: Seen, label: int) -> None:
        self.regression.drift()
        self.regression.learn(np.array([1.0, *instance.kept]), label)
        self.labels.append(label)
        self.rate += max(1 / (len(self.labels) + 1), 0.02) * (label - self.rate)

    def grow(self, columns: int) -> None:
        """No column is looked at."""


MEMORIES: Mapping[str, float] = {"linear": 0.9999, "linear_fast": 0.9995}
