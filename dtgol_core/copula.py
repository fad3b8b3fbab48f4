"""Online Gaussian copula: the latent point of an incomplete row, and the correlation behind it.

In: normal scores with NaN for missing, and the variance left in ordinal intervals. Out: the
complete latent point. One E and one M step per record; the correlation stays symmetric and
positive definite up to the ridge, with a unit diagonal. Linear algebra is written out because the
matrices are small (a few dozen columns), and so that no bit depends on a BLAS build.
"""

import math
from typing import Any

import numpy as np

from dtgol_core.compiled import compiled, in_place
from dtgol_core.config import CopulaConfig
from dtgol_core.state import SnapshotError, require_shape
from dtgol_core.types import FloatArray


class Copula:
    """The correlation of the latent columns, learnt one record at a time.

    Parameters
    ----------
    config
        `ridge` (ε), `gamma_floor` (the least weight of a new record; auto is 1/window).

    Notes
    -----
    ``S = (1−ε)Σ + εI``, ``J = S_oo⁻¹ S_om``; imputation ``z_m = Jᵀ z_o``; the expected outer
    product ``E = z zᵀ + C`` moves ``Σ ← corr((1−γ)Σ + γE)``, ``γ = max(1/(t+1), floor)``: with the
    floor Σ follows drift. Letters: Σ correlation, S ridged correlation, o/m observed/missing
    columns, J regression of missing on observed, v spread. Cost per record: O(o³ + o²m + om² + d²).

    References
    ----------
    Zhao, Landgrebe, Shekhtman and Udell (2022), Online missing value imputation and change point
    detection with the Gaussian copula, AAAI.

    >>> copula = Copula(CopulaConfig())
    >>> copula.grow(2)
    >>> copula.correlation[0, 1] = copula.correlation[1, 0] = 0.8
    >>> latent = np.array([1.0, np.nan])
    >>> copula.absorb(latent, np.zeros(2), step=10)
    >>> latent.round(3).tolist()
    [1.0, 0.799]
    """

    def __init__(self, config: CopulaConfig) -> None:
        self._ridge = config.ridge
        self._floor = 1.0 / config.window if config.gamma_floor is None else config.gamma_floor
        self.correlation = np.zeros((0, 0))

    def grow(self, columns: int) -> None:
        """Add columns that are correlated with nothing yet."""
        known = len(self.correlation)
        wider = np.eye(known + columns)
        wider[:known, :known] = self.correlation
        self.correlation = wider

    def absorb(self, latent: FloatArray, spread: FloatArray, step: int) -> None:
        """Complete normal scores, in place, from what is known before them; then learn from them.

        `latent` is NaN where a value is missing, `spread` the variance left in each interval.
        """
        gamma = max(1.0 / (step + 1), self._floor)
        _learn(self.correlation, latent, spread, self._ridge, gamma)

    def snapshot(self) -> dict[str, Any]:
        """The correlation, shape (columns, columns)."""
        return {"correlation": self.correlation.copy()}

    @staticmethod
    def restore(config: CopulaConfig, snapshot: dict[str, Any], columns: int) -> "Copula":
        """The copula that `snapshot` described, over so many columns."""
        copula = Copula(config)
        correlation = snapshot["correlation"].copy()
        require_shape("correlation", correlation, (columns, columns))
        within = (np.abs(correlation) <= 1.0 + 1e-6).all() and (np.diag(correlation) == 1.0).all()
        if not within or (correlation != correlation.T).any():
            raise SnapshotError("the snapshot is damaged: correlations that cannot be")
        copula.correlation = correlation
        return copula


@compiled
def _learn(
    correlation: FloatArray,
    latent: FloatArray,
    spread: FloatArray,
    ridge: float,
    gamma: float,
) -> None:
    """Fill `latent` where it is NaN and move `correlation`, both in place."""
    observed, missing = np.flatnonzero(latent == latent), np.flatnonzero(latent != latent)
    n, m, d = len(observed), len(missing), len(latent)
    latent[missing] = 0.0
    if n == 0:
        return
    regression = np.empty((n, m))
    factor = np.empty((n, n))
    while m > 0:
        keep = 1.0 - ridge
        for p in range(n):
            for q in range(n):
                factor[p, q] = keep * correlation[observed[p], observed[q]]
            factor[p, p] += ridge
            for q in range(m):
                regression[p, q] = keep * correlation[observed[p], missing[q]]
        if _factorise(factor) or ridge >= 1.0:
            break
        ridge = min(1.0, ridge * 10.0)
    keep = 1.0 - ridge
    cross = regression.copy()
    _solve(factor, regression)

    for p in range(n):
        z = latent[observed[p]]
        for q in range(m):
            latent[missing[q]] += regression[p, q] * z

    # C_mm = S_mm − Jᵀ(S_om − diag(v) J), accumulated one observed column at a time.
    between = np.empty((m, m))
    for i in range(m):
        for j in range(m):
            between[i, j] = keep * correlation[missing[i], missing[j]]
        between[i, i] += ridge
    for p in range(n):
        v = spread[observed[p]]
        for q in range(m):
            cross[p, q] -= v * regression[p, q]
        for i in range(m):
            weight = regression[p, i]
            for j in range(m):
                between[i, j] -= weight * cross[p, j]

    for i in range(d):
        weight = gamma * latent[i]
        for j in range(d):
            correlation[i, j] = (1.0 - gamma) * correlation[i, j] + weight * latent[j]
    for p in range(n):
        v = gamma * spread[observed[p]]
        correlation[observed[p], observed[p]] += v
        if v > 0.0:
            for q in range(m):
                correlation[missing[q], observed[p]] += v * regression[p, q]
                correlation[observed[p], missing[q]] += v * regression[p, q]
    for i in range(m):
        for j in range(m):
            correlation[missing[i], missing[j]] += gamma * between[i, j]

    scale = np.empty(d)
    for i in range(d):
        scale[i] = 1.0 / math.sqrt(correlation[i, i])
    for i in range(d):
        for j in range(i):
            # Both halves are averaged, so that rounding never makes the matrix lopsided.
            value = 0.5 * (correlation[i, j] + correlation[j, i]) * scale[i] * scale[j]
            correlation[i, j] = value
            correlation[j, i] = value
        correlation[i, i] = 1.0


@in_place
def _factorise(matrix: FloatArray) -> bool:
    """Cholesky in place: the upper triangle U with UᵀU = matrix. False if it is not definite."""
    n = len(matrix)
    for k in range(n):
        if not matrix[k, k] > 0.0:
            return False
        root = math.sqrt(matrix[k, k])
        matrix[k, k] = root
        for j in range(k + 1, n):
            matrix[k, j] /= root
        for i in range(k + 1, n):
            weight = matrix[k, i]
            for j in range(i, n):
                matrix[i, j] -= weight * matrix[k, j]
    return True


@in_place
def _solve(factor: FloatArray, right: FloatArray) -> None:
    """Solve UᵀU X = right in place, for all columns of `right` at once."""
    n, m = right.shape
    for k in range(n):
        for j in range(m):
            right[k, j] /= factor[k, k]
        for i in range(k + 1, n):
            weight = factor[k, i]
            for j in range(m):
                right[i, j] -= weight * right[k, j]
    for k in range(n - 1, -1, -1):
        for j in range(m):
            right[k, j] /= factor[k, k]
        for i in range(k):
            weight = factor[i, k]
            for j in range(m):
                right[i, j] -= weight * right[k, j]
