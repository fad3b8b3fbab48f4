"""FOBOS: forward-backward splitting with an l1 penalty, in the original space."""

import math

import numpy as np

from dtgol_core.baselines.base import Answer, Baseline, sigmoid, with_bias
from dtgol_core.config import Config
from dtgol_core.types import Instance, Vectors

RATE = 1.0
PENALTY = 1e-3
"""Chosen on the odd streams among rates 0.1, 0.3, 1, 3 and penalties 1e-4, 1e-3, 1e-2."""


class Fobos(Baseline):
    """Logistic regression by forward-backward splitting.

    Notes
    -----
    ``w' = w − η_t g``, ``w = sign(w')·max(0, |w'| − η_t λ)``, ``η_t = η/√t`` with t the labels
    learnt. Ours: the bias is not shrunk, since no feature is dropped with it. Cost: O(d).

    References
    ----------
    Duchi and Singer (2009), Efficient online and batch learning using forward backward splitting,
    JMLR 10.
    """

    title = "FOBOS"
    reference = "Duchi and Singer, JMLR 2009"

    def __init__(self, config: Config, generator: np.random.Generator | None = None) -> None:
        super().__init__(config, generator)
        self.weights = np.zeros(1)

    def _widen(self, columns: int) -> None:
        self.weights = np.concatenate([self.weights, np.zeros(columns)])

    def _teach(self, instance: Instance, label: int) -> None:
        vector = with_bias(instance.vectors.original)
        rate = RATE / math.sqrt(self.labels_learnt)
        moved = self.weights - rate * (sigmoid(float(self.weights @ vector)) - label) * vector
        shrunk = np.sign(moved) * np.maximum(0.0, np.abs(moved) - rate * PENALTY)
        shrunk[0] = moved[0]
        self.weights = shrunk

    def _answer(self, vectors: Vectors) -> Answer:
        p = sigmoid(float(self.weights @ with_bias(vectors.original)))
        return Answer(p, p, p, 0.0)
