"""Bayesian logistic regression, one label at a time: mean and covariance of the weights.

In: a vector x whose first number is the constant 1, and labels. Out: log-odds that already allow
for how uncertain the weights are. Shared by experts and by the combination, which differ in what x
is and in the prior; `design_prior` is that of an expert that looks at the columns.
"""

import math
from typing import Any, ClassVar

import numpy as np

from dtgol_core.compiled import compiled
from dtgol_core.losses import P_CLIP
from dtgol_core.state import require_shape
from dtgol_core.types import FloatArray, IntArray

WEIGHTS_FULL_MAX = 193
"""Beyond so many weights (64 columns in three scales) only blocks of the covariance are kept."""
BLOCK = 3
PRIOR_VARIANCE, PRIOR_SPREAD, PRIOR_BIAS = 0.2, 10.0, 1.0


class Regression:
    """Weights of a logistic regression as a normal distribution that slowly returns to its prior.

    Parameters
    ----------
    prior_mean, prior_variance : (weights,)
        m0 and the diagonal of P0. The bias is first.
    memory
        ρ, the share of the deviation from the prior that stays with every label.

    Attributes
    ----------
    mean : (weights,)
        m.
    covariance : (weights, weights), or (blocks, 3, 3)
        P. With more than 193 weights those after the bias are taken in threes, and only the
        covariances within a three are kept; ``bias_variance`` is then the bias' own, 0 before.

    Notes
    -----
    Score: ``a = m·x / √(1 + π v/8)`` with ``v = x'Px`` (the probit approximation to the mean of the
    logistic function). `learn`: first the drift ``m ← m0 + ρ(m − m0)``, ``P ← ρ²P + (1−ρ²)P0``,
    then, with a label y, ``g = Px``, ``p = σ(a)``, ``W = max(p(1−p), 1e-6)``,
    ``c = 1/(1 + W v)``, ``m ← m + c·(y − p)·g``, ``P ← P − c·W·gg'``.
    Cost: O(weights²), or O(weights) in blocks.

    References
    ----------
    Spiegelhalter and Lauritzen (1990), Sequential updating of conditional probabilities on directed
    graphical structures, Networks; MacKay (1992), The evidence framework applied to classification
    networks, Neural Computation.

    >>> regression = Regression(np.zeros(2), np.ones(2), memory=1.0)
    >>> regression.score(np.array([1.0, 2.0]))
    0.0
    >>> regression.learn(np.array([1.0, 2.0]), 1)
    >>> regression.mean.round(3).tolist()
    [0.222, 0.444]
    """

    def __init__(self, prior_mean: FloatArray, prior_variance: FloatArray, memory: float) -> None:
        self._memory = memory
        self._prior_mean, self._prior_variance = prior_mean, prior_variance
        self.mean = prior_mean.copy()
        self.bias_variance = np.zeros(1)
        self.covariance = np.diag(prior_variance)
        self._narrow()

    def grow(self, prior_mean: FloatArray, prior_variance: FloatArray) -> None:
        """Go on with a longer prior: old weights stay, new ones are as their prior says."""
        known = len(self.mean)
        self._prior_mean, self._prior_variance = prior_mean, prior_variance
        self.mean = np.concatenate([self.mean, prior_mean[known:]])
        if self.covariance.ndim == 2:
            wider = np.diag(prior_variance)
            wider[:known, :known] = self.covariance
            self.covariance = wider
            self._narrow()
        else:
            fresh = [np.diag(each) for each in prior_variance[known:].reshape(-1, BLOCK)]
            self.covariance = np.concatenate(
                [self.covariance, np.reshape(fresh, (-1, BLOCK, BLOCK))]
            )

    def _narrow(self) -> None:
        """Keep the blocks alone once there are too many weights."""
        if len(self.mean) <= WEIGHTS_FULL_MAX:
            return
        self.bias_variance = self.covariance[0, :1].copy()
        blocks = [
            self.covariance[first : first + BLOCK, first : first + BLOCK]
            for first in range(1, len(self.mean), BLOCK)
        ]
        self.covariance = np.array(blocks)

    def score(self, x: FloatArray) -> float:
        """The log-odds of label 1."""
        if self.covariance.ndim == 2:
            return _score(self.mean, self.covariance, x)
        return _score_blocks(self.mean, self.covariance, self.bias_variance, x)

    def moderation(self, x: FloatArray) -> float:
        """The factor 1/√(1 + π v/8) between m·x and the score."""
        if self.covariance.ndim == 2:
            variance = _product(self.covariance, x, np.empty(len(x)))
        else:
            variance = _product_blocks(self.covariance, self.bias_variance, x, np.empty(len(x)))
        return _moderate(1.0, variance)

    def terms(self, x: FloatArray) -> FloatArray:
        """What each number of x adds to the score: the terms sum to it."""
        terms: FloatArray = self.mean * x * self.moderation(x)
        return terms

    def learn(self, x: FloatArray, label: int) -> None:
        """One step back to the prior, then one towards the label."""
        if self.covariance.ndim == 2:
            _learn(
                self.mean,
                self.covariance,
                self._prior_mean,
                self._prior_variance,
                self._memory,
                x,
                label,
            )
        else:
            _learn_blocks(
                self.mean,
                self.covariance,
                self.bias_variance,
                self._prior_mean,
                self._prior_variance,
                self._memory,
                x,
                label,
            )

    def snapshot(self) -> dict[str, Any]:
        """Mean and covariance; the name of the latter says in which form it is."""
        if self.covariance.ndim == 2:
            return {"mean": self.mean.copy(), "covariance": self.covariance.copy()}
        return {
            "mean": self.mean.copy(),
            "blocks": self.covariance.copy(),
            "bias_variance": self.bias_variance.copy(),
        }

    @staticmethod
    def restore(
        prior_mean: FloatArray, prior_variance: FloatArray, memory: float, snapshot: dict[str, Any]
    ) -> "Regression":
        """The regression that `snapshot` described, with as many weights as the prior has."""
        regression = Regression(prior_mean, prior_variance, memory)
        regression.fill(snapshot)
        return regression

    def fill(self, snapshot: dict[str, Any]) -> None:
        """Take mean and covariance out of a snapshot of as many weights."""
        full = self.covariance.ndim == 2
        covariance = snapshot["covariance" if full else "blocks"]
        bias_variance = self.bias_variance if full else snapshot["bias_variance"]
        require_shape("mean", snapshot["mean"], self.mean.shape)
        require_shape("covariance", covariance, self.covariance.shape)
        require_shape("bias_variance", bias_variance, (1,))
        self.mean, self.covariance = snapshot["mean"].copy(), covariance.copy()
        self.bias_variance = bias_variance.copy()


class Stack(Regression):
    """A regression over a constant 1 and the clipped log-odds of some of the answers it is given.

    Parameters
    ----------
    places
        Where its answers are among all, counted from 1; first a 0 for the constant.
    clip
        Bound of the log-odds, widened on the base rate's side by the base rate's.

    >>> stack = Stack(np.zeros(2), np.ones(2), 1.0, places=np.array([0, 2]), clip=4.0)
    >>> stack.answer(np.array([0.9, 0.1]), base_rate=0.5)
    0.5
    """

    CACHES: ClassVar[tuple[str, ...]] = ("_places",)

    def __init__(
        self,
        prior_mean: FloatArray,
        prior_variance: FloatArray,
        memory: float,
        places: IntArray,
        clip: float,
    ) -> None:
        super().__init__(prior_mean, prior_variance, memory)
        self._places, self._clip = places, clip

    def answer(self, answers: FloatArray, base_rate: float) -> float:
        """P(y=1) from all answers."""
        return _answer(self.mean, self.covariance, answers, base_rate, self._places, self._clip)

    def learn_answers(self, answers: FloatArray, base_rate: float, label: int) -> None:
        """Learn a label from all answers."""
        _learn_answers(
            self.mean,
            self.covariance,
            self._prior_mean,
            self._prior_variance,
            self._memory,
            answers,
            base_rate,
            self._places,
            self._clip,
            label,
        )

    def inputs(self, answers: FloatArray, base_rate: float) -> FloatArray:
        """x, from all answers."""
        x = np.empty(len(self.mean))
        _inputs(answers, base_rate, self._places, self._clip, x)
        return x


def design_prior(columns: int) -> tuple[FloatArray, FloatArray]:
    """Prior mean and variance of weights over `Vectors.design`: 0, and the less the more columns.

    Variance 1 for the bias and min(1/5, 10/(3·columns)) for all others, so that the log-odds of a
    typical record have about the same prior variance however wide it is.
    """
    variance = np.full(BLOCK * columns + 1, min(PRIOR_VARIANCE, PRIOR_SPREAD / max(1, 3 * columns)))
    variance[0] = PRIOR_BIAS
    return np.zeros(len(variance)), variance


@compiled
def _moderate(logit: float, variance: float) -> float:
    """Log-odds whose logistic function is about its mean over so uncertain a logit."""
    return logit / math.sqrt(1.0 + math.pi * variance / 8.0)


@compiled
def _gains(logit: float, variance: float, label: int) -> tuple[float, float]:
    """How far the mean and the covariance move along Px."""
    if logit >= 0.0:
        p = 1.0 / (1.0 + math.exp(-logit))
    else:
        e = math.exp(logit)
        p = e / (1.0 + e)
    curvature = max(p * (1.0 - p), 1e-6)
    shrink = 1.0 / (1.0 + curvature * variance)
    return (label - p) * shrink, curvature * shrink


@compiled
def _product(covariance: FloatArray, x: FloatArray, product: FloatArray) -> float:
    """Px, row by row so that the processor may use its lanes, and x'Px."""
    n = len(x)
    for i in range(n):
        product[i] = 0.0
    for j in range(n):
        value = x[j]
        for i in range(n):
            product[i] += covariance[j, i] * value
    variance = 0.0
    for i in range(n):
        variance += product[i] * x[i]
    return variance


@compiled
def _dot(mean: FloatArray, x: FloatArray) -> float:
    total = 0.0
    for i in range(len(x)):
        total += mean[i] * x[i]
    return total


@compiled
def _score(mean: FloatArray, covariance: FloatArray, x: FloatArray) -> float:
    return _moderate(_dot(mean, x), _product(covariance, x, np.empty(len(x))))


@compiled
def _learn(
    mean: FloatArray,
    covariance: FloatArray,
    prior_mean: FloatArray,
    prior_variance: FloatArray,
    memory: float,
    x: FloatArray,
    label: int,
) -> None:
    n = len(x)
    _drift(mean, covariance, prior_mean, prior_variance, memory)
    product = np.empty(n)
    variance = _product(covariance, x, product)
    logit = _moderate(_dot(mean, x), variance)
    step, shrink = _gains(logit, variance, label)
    for i in range(n):
        value = product[i]
        mean[i] += step * value
        for j in range(n):
            # The product of two numbers does not depend on their order: P stays symmetric.
            covariance[i, j] -= shrink * (value * product[j])


@compiled
def _inputs(
    answers: FloatArray, base_rate: float, places: IntArray, clip: float, x: FloatArray
) -> None:
    """1, then the log-odds of the answers within ``[−clip + min(β, 0), clip + max(β, 0)]``, β those
    of the base rate."""
    base = math.log(base_rate / (1.0 - base_rate))
    low, high = -clip + min(base, 0.0), clip + max(base, 0.0)
    x[0] = 1.0
    for place in range(1, len(x)):
        p = min(max(answers[places[place] - 1], P_CLIP), 1.0 - P_CLIP)
        x[place] = min(max(math.log(p / (1.0 - p)), low), high)


@compiled
def _answer(
    mean: FloatArray,
    covariance: FloatArray,
    answers: FloatArray,
    base_rate: float,
    places: IntArray,
    clip: float,
) -> float:
    x = np.empty(len(mean))
    _inputs(answers, base_rate, places, clip, x)
    logit = _score(mean, covariance, x)
    if logit >= 0.0:
        return 1.0 / (1.0 + math.exp(-logit))
    e = math.exp(logit)
    return e / (1.0 + e)


@compiled
def _learn_answers(
    mean: FloatArray,
    covariance: FloatArray,
    prior_mean: FloatArray,
    prior_variance: FloatArray,
    memory: float,
    answers: FloatArray,
    base_rate: float,
    places: IntArray,
    clip: float,
    label: int,
) -> None:
    x = np.empty(len(mean))
    _inputs(answers, base_rate, places, clip, x)
    _learn(mean, covariance, prior_mean, prior_variance, memory, x, label)


@compiled
def _drift(
    mean: FloatArray,
    covariance: FloatArray,
    prior_mean: FloatArray,
    prior_variance: FloatArray,
    memory: float,
) -> None:
    keep = memory * memory
    for i in range(len(mean)):
        mean[i] = prior_mean[i] + memory * (mean[i] - prior_mean[i])
        for j in range(len(mean)):
            covariance[i, j] *= keep
        covariance[i, i] += (1.0 - keep) * prior_variance[i]


@compiled
def _product_blocks(
    covariance: FloatArray, bias_variance: FloatArray, x: FloatArray, product: FloatArray
) -> float:
    product[0] = bias_variance[0] * x[0]
    variance: float = product[0] * x[0]
    for block in range(len(covariance)):
        first = 3 * block + 1
        for i in range(3):
            total = 0.0
            for j in range(3):
                total += covariance[block, i, j] * x[first + j]
            product[first + i] = total
            variance += total * x[first + i]
    return variance


@compiled
def _score_blocks(
    mean: FloatArray, covariance: FloatArray, bias_variance: FloatArray, x: FloatArray
) -> float:
    variance = _product_blocks(covariance, bias_variance, x, np.empty(len(x)))
    return _moderate(_dot(mean, x), variance)


@compiled
def _learn_blocks(
    mean: FloatArray,
    covariance: FloatArray,
    bias_variance: FloatArray,
    prior_mean: FloatArray,
    prior_variance: FloatArray,
    memory: float,
    x: FloatArray,
    label: int,
) -> None:
    _drift_blocks(mean, covariance, bias_variance, prior_mean, prior_variance, memory)
    product = np.empty(len(x))
    variance = _product_blocks(covariance, bias_variance, x, product)
    logit = _moderate(_dot(mean, x), variance)
    step, shrink = _gains(logit, variance, label)
    for i in range(len(x)):
        mean[i] += step * product[i]
    bias_variance[0] -= shrink * (product[0] * product[0])
    for block in range(len(covariance)):
        first = 3 * block + 1
        for i in range(3):
            for j in range(3):
                covariance[block, i, j] -= shrink * (product[first + i] * product[first + j])


@compiled
def _drift_blocks(
    mean: FloatArray,
    covariance: FloatArray,
    bias_variance: FloatArray,
    prior_mean: FloatArray,
    prior_variance: FloatArray,
    memory: float,
) -> None:
    keep = memory * memory
    for i in range(len(mean)):
        mean[i] = prior_mean[i] + memory * (mean[i] - prior_mean[i])
    bias_variance[0] = keep * bias_variance[0] + (1.0 - keep) * prior_variance[0]
    for block in range(len(covariance)):
        for i in range(3):
            for j in range(3):
                covariance[block, i, j] *= keep
            covariance[block, i, i] += (1.0 - keep) * prior_variance[3 * block + 1 + i]
