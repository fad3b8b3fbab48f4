"""LACH: learning with asynchronous labels by an online ensemble that keeps its past.

*Reconstructed* from the abstract; nothing else of it is public here.
"""

import math

import numpy as np

from dtgol_core.baselines.base import Answer, Baseline, with_bias
from dtgol_core.baselines.memory import Memory
from dtgol_core.config import Config
from dtgol_core.types import FloatArray, Instance, LabelOutcome, LabelReceipt, Vectors

RATES = (0.01, 0.03, 0.1, 0.3, 1.0)
POOL = 4
"""Frozen models kept, per space."""
FREEZE_LABELS = 250
MEMORY = 500
NEAREST = 10
SHARE = 0.01
"""Weight that flows back to all experts with each label (fixed share), so that a past model can
return; without it the weights cannot follow a change."""
CLIP = 1e-12


class Lach(Baseline):
    """Exponential weights over step sizes, past models, near instances and the class prior.

    Notes
    -----
    Experts: in each space one logistic regression per step size of a grid, whose gradients are
    applied when their labels arrive, and the last four copies of the then best one, frozen every
    250 labels; the vote of the ten nearest of the last 500 labelled instances; the share of the
    classes, in which a label counts when it comes, even before its features. Weights fall with the
    loss of each expert's answer on arrival, and are mixed with one per cent of the uniform ones.
    A copy that has just been frozen is charged with the answers of its predecessor in that place,
    until the labels of all of those have come; a repair of this did worse in a trial. All of these
    numbers are ours. Cost: O(experts·d + memory·d).

    References
    ----------
    Qian, Zhang, Zhao and Zhou (2024), Learning with asynchronous labels, TKDD,
    doi 10.1145/3662186.
    """

    title = "LACH"
    reference = "Qian et al., TKDD 2024"
    reconstructed = True

    def __init__(self, config: Config, generator: np.random.Generator | None = None) -> None:
        super().__init__(config, generator)
        rows = len(RATES) + POOL
        self.latent, self.original = np.zeros((rows, 1)), np.zeros((rows, 1))
        self.frozen = 0
        self.memory = Memory(MEMORY)
        self.classes = np.ones(2)
        self.log_weights = np.zeros(2 * rows + 2)
        self.answers: dict[int, FloatArray] = {}

    def learn(self, id: str, y: int) -> LabelReceipt:
        """Queue a label; even one that comes before its features counts for its class, once."""
        receipt = super().learn(id, y)
        if receipt.outcome in (LabelOutcome.QUEUED, LabelOutcome.EARLY):
            self.classes[y] += 1.0
        return receipt

    def _widen(self, columns: int) -> None:
        fresh = np.zeros((len(self.latent), columns))
        self.latent = np.concatenate([self.latent, fresh], axis=1)
        self.original = np.concatenate([self.original, fresh], axis=1)
        self.memory.grow(columns)

    def _teach(self, instance: Instance, label: int) -> None:
        vectors = instance.vectors
        self._reweigh(self.answers.pop(instance.step), label)
        for weights, vector in ((self.latent, vectors.latent), (self.original, vectors.original)):
            biased = with_bias(vector)
            live = weights[: len(RATES)]
            residual = _sigmoids(live @ biased) - label
            live -= (np.array(RATES) * residual)[:, None] * biased
        self.memory.store(vectors, label)
        if self.labels_learnt % FREEZE_LABELS == 0:
            self._freeze()

    def _answer(self, vectors: Vectors) -> Answer:
        latent = _sigmoids(self.latent @ with_bias(vectors.latent))
        original = _sigmoids(self.original @ with_bias(vectors.original))
        prior = self.classes[1] / self.classes.sum()
        answers = np.concatenate([latent, original, [self._near(vectors, prior), prior]])
        self.answers[self.step] = answers
        weights = np.exp(self.log_weights) * self._present()
        p = float(np.clip(weights @ answers / weights.sum(), 0.0, 1.0))
        rows = len(latent)
        share = float(weights[:rows].sum() / weights[: 2 * rows].sum())
        return Answer(p, float(latent[2]), float(original[2]), share)

    def _forget(self, step: int) -> None:
        self.answers.pop(step, None)

    def _near(self, vectors: Vectors, prior: float) -> float:
        """Vote of the nearest labelled instances, with the class prior as one more voter."""
        distances = self.memory.distances(vectors.latent)
        if len(distances) > NEAREST:
            near = np.argpartition(distances, NEAREST)[:NEAREST]
        else:
            near = np.arange(len(distances))
        return float((self.memory.labels[near].sum() + prior) / (len(near) + 1))

    def _present(self) -> FloatArray:
        """1 for experts that exist: pool places not yet filled count nothing."""
        present = np.ones(len(self.log_weights))
        for first in (0, len(self.latent)):
            present[first + len(RATES) + min(self.frozen, POOL) : first + len(self.latent)] = 0.0
        return present

    def _reweigh(self, answers: FloatArray, label: int) -> None:
        chance = np.clip(answers if label else 1.0 - answers, CLIP, 1.0)
        rate = math.sqrt(8.0 * math.log(len(answers)) / self.labels_learnt)
        self.log_weights += np.maximum(rate, SHARE) * np.log(chance)
        weights = np.exp(self.log_weights - self.log_weights.max())
        weights = (1.0 - SHARE) * weights / weights.sum() + SHARE / len(weights)
        self.log_weights = np.log(weights)

    def _freeze(self) -> None:
        """Keep a copy of the best live model of each space in place of the oldest copy."""
        place = len(RATES) + self.frozen % POOL
        for first, weights in ((0, self.latent), (len(self.latent), self.original)):
            best = int(np.argmax(self.log_weights[first : first + len(RATES)]))
            weights[place] = weights[best]
            self.log_weights[first + place] = self.log_weights[first + best]
        self.frozen += 1


def _sigmoids(logits: FloatArray) -> FloatArray:
    probabilities: FloatArray = 1.0 / (1.0 + np.exp(-np.clip(logits, -700.0, 700.0)))
    return probabilities
