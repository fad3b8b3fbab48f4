"""Bayesian logistic regression, one label at a time: mean and covariance of the weights.

In: a vector x whose first number is the constant 1, and labels. Out: log-odds that already allow
for how uncertain the weights are. Shared by experts and by the combination, which differ in what x
is and in the prior; `design_prior` is that of an expert that looks at the columns.
"""

import math
from typing import Any

import numpy as np

from dtgol_core.compiled import compiled, fma, in_place
from dtgol_core.elementary import sigmoid
from dtgol_core.state import SnapshotError, require_shape
from dtgol_core.types import FloatArray

WEIGHTS_FULL_MAX = 193
"""Beyond so many weights (64 columns in three scales) only blocks of the covariance are kept."""
BLOCK = 3
MEAN, PRIOR_MEAN, PRIOR_VARIANCE, COVARIANCE = range(4)
"""Rows of the table of a regression; the covariance is all from its own on."""
COLUMN_VARIANCE, COLUMNS_VARIANCE, BIAS_VARIANCE = 0.2, 10.0, 1.0
_SLACK = 1e-6
"""For rounding, where a covariance is checked."""


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
    table : (3 + weights, weights), or (6, weights)
        Mean, prior mean, prior variance and covariance, one below the other: a compiled loop takes
        all of it as one array. With more than 193 weights those after the bias are taken in threes,
        and only the covariances within a three are kept: of weight i with the first, second and
        third of its three, in three rows; the bias has its variance in the first of these.

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
        self.memory = memory
        self.table = new_table(prior_mean, prior_variance)

    @property
    def mean(self) -> FloatArray:
        """m, shape (weights,)."""
        mean: FloatArray = self.table[MEAN]
        return mean

    @property
    def covariance(self) -> FloatArray:
        """P, shape (weights, weights), or its blocks, shape (3, weights)."""
        covariance: FloatArray = self.table[COVARIANCE:]
        return covariance

    def grow(self, prior_mean: FloatArray, prior_variance: FloatArray) -> None:
        """Go on with a longer prior: old weights stay, new ones are as their prior says."""
        old, known = self.table, self.table.shape[1]
        self.table = new_table(prior_mean, prior_variance)
        self.mean[:known] = old[MEAN]
        if _is_full(known) and not _is_full(len(prior_mean)):
            self.covariance[:, :known] = _blocks(old[COVARIANCE:])
        else:
            self.covariance[: len(old) - COVARIANCE, :known] = old[COVARIANCE:]

    def score(self, x: FloatArray) -> float:
        """The log-odds of label 1."""
        return score(self.table, x)

    def moderation(self, x: FloatArray) -> float:
        """The factor 1/√(1 + π v/8) between m·x and the score."""
        return moderation(self.table, x)

    def terms(self, x: FloatArray) -> FloatArray:
        """What each number of x adds to the score: the terms sum to it."""
        terms: FloatArray = self.mean * x * self.moderation(x)
        return terms

    def learn(self, x: FloatArray, label: int) -> None:
        """One step back to the prior, then one towards the label."""
        learn(self.table, self.memory, x, label)

    def snapshot(self) -> dict[str, Any]:
        """Mean and covariance; the name of the latter says in which form it is."""
        form = "covariance" if _is_full(len(self.mean)) else "blocks"
        return {"mean": self.mean.copy(), form: self.covariance.copy()}

    @staticmethod
    def restore(
        prior_mean: FloatArray, prior_variance: FloatArray, memory: float, snapshot: dict[str, Any]
    ) -> "Regression":
        """The regression that `snapshot` described, with as many weights as the prior has."""
        regression = Regression(prior_mean, prior_variance, memory)
        covariance = snapshot["covariance" if _is_full(len(prior_mean)) else "blocks"]
        require_shape("mean", snapshot["mean"], regression.mean.shape)
        require_shape("covariance", covariance, regression.covariance.shape)
        regression.mean[:] = snapshot["mean"]
        regression.covariance[:] = covariance
        require_covariance(regression.table)
        return regression


def new_table(prior_mean: FloatArray, prior_variance: FloatArray) -> FloatArray:
    """The table of a regression that has learnt nothing.

    >>> new_table(np.zeros(2), np.array([1.0, 0.5])).tolist()
    [[0.0, 0.0], [0.0, 0.0], [1.0, 0.5], [1.0, 0.0], [0.0, 0.5]]
    """
    weights = len(prior_mean)
    table = np.zeros((COVARIANCE + (weights if _is_full(weights) else BLOCK), weights))
    table[MEAN], table[PRIOR_MEAN], table[PRIOR_VARIANCE] = prior_mean, prior_mean, prior_variance
    place = np.arange(weights)
    row = place if _is_full(weights) else np.where(place, (place - 1) % BLOCK, 0)
    table[COVARIANCE + row, place] = prior_variance
    return table


def require_covariance(table: FloatArray) -> None:
    """Refuse a covariance that no labels lead to: it is symmetric and positive, and no variance is
    larger than that of a bias before the first label."""
    form, weights = table[COVARIANCE:], table.shape[1]
    if _is_full(weights):
        blocks, bias = form[None], form[:1, :1]
    else:
        blocks, bias = form[:, 1:].reshape(BLOCK, -1, BLOCK).transpose(1, 2, 0), form[:1, :1]
    variances = np.append(np.diagonal(blocks, axis1=1, axis2=2), bias)
    sound = bool(((variances >= 0.0) & (variances <= BIAS_VARIANCE + _SLACK)).all())
    try:
        np.linalg.cholesky(blocks + _SLACK * np.eye(blocks.shape[1]))
    except np.linalg.LinAlgError:
        sound = False
    if not sound or (blocks != blocks.transpose(0, 2, 1)).any():
        raise SnapshotError("the snapshot is damaged: a covariance that cannot be")


def design_prior(columns: int) -> tuple[FloatArray, FloatArray]:
    """Prior mean and variance of weights over `Vectors.design`: 0, and the less the more columns.

    Variance 1 for the bias and min(1/5, 10/(3·columns)) for all others, so that the log-odds of a
    typical record have about the same prior variance however wide it is.
    """
    each = min(COLUMN_VARIANCE, COLUMNS_VARIANCE / max(1, BLOCK * columns))
    variance = np.full(BLOCK * columns + 1, each)
    variance[0] = BIAS_VARIANCE
    return np.zeros(len(variance)), variance


def _is_full(weights: int) -> bool:
    return weights <= WEIGHTS_FULL_MAX


def _blocks(covariance: FloatArray) -> FloatArray:
    """The blocks of a whole covariance, shape (3, weights)."""
    weights = len(covariance)
    blocks = np.zeros((BLOCK, weights))
    blocks[0, 0] = covariance[0, 0]
    for place in range(1, weights):
        first = place - (place - 1) % BLOCK
        blocks[:, place] = covariance[place, first : first + BLOCK]
    return blocks


@in_place
def _moderate(logit: float, variance: float) -> float:
    """Log-odds whose logistic function is about its mean over so uncertain a logit."""
    return logit / math.sqrt(1.0 + math.pi * variance / 8.0)


@compiled
def moderation(table: FloatArray, x: FloatArray) -> float:
    """The factor between m·x and the score, by the table of a regression."""
    return _moderate(1.0, _product(table, x, np.empty(len(x))))


@compiled
def score(table: FloatArray, x: FloatArray) -> float:
    """The log-odds of label 1, by the table of a regression."""
    variance = _product(table, x, np.empty(len(x)))
    return _moderate(_dot(table[MEAN], x), variance)


@compiled
def learn(table: FloatArray, memory: float, x: FloatArray, label: int) -> None:
    """One drift and one update of the table of a regression."""
    product = np.empty(len(x))
    _drift(table, memory)
    variance = _product(table, x, product)
    logit = _moderate(_dot(table[MEAN], x), variance)
    p = sigmoid(logit)
    curvature = max(p * (1.0 - p), 1e-6)
    shrink = 1.0 / (1.0 + curvature * variance)
    mean, step = table[MEAN], (label - p) * shrink
    for i in range(len(x)):
        mean[i] = fma(step, product[i], mean[i])
    _shrink(table, curvature * shrink, product)


@in_place
def _dot(mean: FloatArray, x: FloatArray) -> float:
    total = 0.0
    for i in range(len(x)):
        total = fma(mean[i], x[i], total)
    return total


@in_place
def _product(table: FloatArray, x: FloatArray, product: FloatArray) -> float:
    """Px, row by row so that the processor may use its lanes, and x'Px."""
    n = len(x)
    if n > WEIGHTS_FULL_MAX:
        return _product_blocks(table, x, product)
    for i in range(n):
        product[i] = 0.0
    # Four rows at a time; each sum is still added row by row.
    fours = n // 4 * 4
    for j in range(0, fours, 4):
        a, b = table[COVARIANCE + j], table[COVARIANCE + j + 1]
        c, d = table[COVARIANCE + j + 2], table[COVARIANCE + j + 3]
        at_a, at_b, at_c, at_d = x[j], x[j + 1], x[j + 2], x[j + 3]
        for i in range(n):
            total = fma(b[i], at_b, fma(a[i], at_a, product[i]))
            product[i] = fma(d[i], at_d, fma(c[i], at_c, total))
    for j in range(fours, n):
        row, value = table[COVARIANCE + j], x[j]
        for i in range(n):
            product[i] = fma(row[i], value, product[i])
    return max(0.0, _dot(product, x))


@in_place
def _product_blocks(table: FloatArray, x: FloatArray, product: FloatArray) -> float:
    product[0] = table[COVARIANCE, 0] * x[0]
    for first in range(1, len(x), BLOCK):
        for i in range(first, first + BLOCK):
            total = 0.0
            for j in range(BLOCK):
                total = fma(table[COVARIANCE + j, i], x[first + j], total)
            product[i] = total
    return max(0.0, _dot(product, x))


@in_place
def _drift(table: FloatArray, memory: float) -> None:
    keep, n = memory * memory, table.shape[1]
    mean, prior_mean, prior_variance = table[MEAN], table[PRIOR_MEAN], table[PRIOR_VARIANCE]
    for i in range(n):
        mean[i] = fma(memory, mean[i] - prior_mean[i], prior_mean[i])
    for row in range(COVARIANCE, len(table)):
        covariances = table[row]
        for i in range(n):
            covariances[i] *= keep
    for i in range(n):
        row = i if n <= WEIGHTS_FULL_MAX else (i + BLOCK - 1) % BLOCK
        table[COVARIANCE + (row if i else 0), i] += (1.0 - keep) * prior_variance[i]


@in_place
def _shrink(table: FloatArray, factor: float, product: FloatArray) -> None:
    """``P − factor·gg'``; the product of two numbers does not depend on their order: P stays
    symmetric."""
    n = len(product)
    if n <= WEIGHTS_FULL_MAX:
        for i in range(n):
            row, value = table[COVARIANCE + i], product[i]
            for j in range(n):
                row[j] = fma(-factor, value * product[j], row[j])
        return
    table[COVARIANCE, 0] -= factor * (product[0] * product[0])
    for first in range(1, n, BLOCK):
        for i in range(first, first + BLOCK):
            for j in range(BLOCK):
                table[COVARIANCE + j, i] -= factor * (product[i] * product[first + j])
