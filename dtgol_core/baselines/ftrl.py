"""Adaptive follow-the-proximally-regularised-leader: the base learner of OVFM, OSLMF and OL-MDISF.

One space, logistic loss. The past counts less when the decay falls; the decay follows the number
of labels and the error rate, and starts again when the error rate has risen for certain.
"""

import math

import numpy as np

from dtgol_core.baselines.base import sigmoid
from dtgol_core.types import FloatArray

ERROR_SHARE = 0.005
"""Weight of the error rate in the decay; the public code sets 0.005 to 0.05 per data set. Of five
weights and the five decays of the public code this pair did best on the odd streams."""
WARM_UP = 30


class Ftrl:
    """The proximal learner of one space; ``weights`` are derived, bias first.

    Notes
    -----
    ``v += g``, ``h = ρh + w``, ``r = 1 + ρr``, ``w = −(v − h)/r``. Decay ``ρ = 1 − ln t/(2t)`` (the
    choice the public code makes most often), after 30 labels mixed with the error rate. A test in
    the manner of DDM on the error rate p with deviation s: warning at 2, restart of the clock at 3
    deviations above the best seen. Letters: g gradient, v its sum, h decayed weights, ρ decay.
    """

    def __init__(self) -> None:
        self.gradient = np.zeros(1)
        self.history = np.zeros(1)
        self.weights = np.zeros(1)
        self.mass = 1.0
        self.count = self.fails = 0
        self.warned = self.warned_fails = 0
        self.best_rate, self.best_deviation = 1.0, 10.0

    def grow(self, columns: int) -> None:
        """Add columns of weight 0."""
        fresh = np.zeros(columns)
        self.gradient = np.concatenate([self.gradient, fresh])
        self.history = np.concatenate([self.history, fresh])
        self.weights = np.concatenate([self.weights, fresh])

    def logit(self, vector: FloatArray) -> float:
        """Log-odds of a vector that begins with a constant 1."""
        return float(self.weights @ vector)

    def learn(self, vector: FloatArray, label: int) -> None:
        """One step on a label, true or not."""
        p = sigmoid(self.logit(vector))
        decay = self._pace(int(abs(label - p) > 0.5))
        self.gradient += (p - label) * vector
        self.history = decay * self.history + self.weights
        self.mass = 1.0 + decay * self.mass
        self.weights = (self.history - self.gradient) / self.mass

    def _pace(self, failed: int) -> float:
        """The decay after one more label."""
        self.count += 1
        self.fails += failed
        decay = 1.0 - math.log(self.count) / (2.0 * self.count)
        if self.count <= WARM_UP:
            return decay
        rate = self.fails / self.count
        deviation = math.sqrt(rate * (1.0 - rate) / self.count)
        decay = decay * (1.0 - ERROR_SHARE) + ERROR_SHARE * rate
        if rate + deviation < self.best_rate + self.best_deviation:
            self.best_rate, self.best_deviation = rate, deviation
        if rate + deviation < self.best_rate + 2.0 * self.best_deviation:
            self.warned = self.warned_fails = 0
            return decay
        self.warned += 1
        self.warned_fails += failed
        if rate + deviation > self.best_rate + 3.0 * self.best_deviation:
            self.count, self.fails = self.warned, self.warned_fails
            self.best_rate, self.best_deviation = 1.0, 10.0
        return decay
