"""OL-MDISF: OSLMF with a window that is cut when the stream seems to have changed.

*Reconstructed* from the abstract and the public code, which is OSLMF's.
"""

import math
from collections import deque

import numpy as np

from dtgol_core.baselines.base import Answer
from dtgol_core.baselines.ftrl import Ftrl
from dtgol_core.baselines.oslmf import Oslmf
from dtgol_core.config import Config
from dtgol_core.losses import entropy
from dtgol_core.types import FloatArray, Vectors

CHECK_STEPS = 10
INSTANCES_MIN = 100
MISMATCH = 4.0
"""Times what two halves of an unchanged window differ by chance: no cut on shuffled data."""
ENTROPY_RISE = 0.15
RESTART_LABELS = 20


class OlMdisf(Oslmf):
    """OSLMF with an adaptive window.

    Notes
    -----
    Every ten steps the fine buffer is halved by age. The older half goes when the newer one's
    answers have a mean entropy higher by 0.15 nats, or when mean or covariance of the latent
    vectors differ by more than 4 times what chance explains: ``n‖μ₁−μ₂‖²/(4d)`` and
    ``n‖C₁−C₂‖²/(4d(d+1))``. Ours: these scales, and that the learners restart from the kept part
    only if it holds at least 20 verified instances of both classes. With late labels the kept part
    often holds none, and a restart from nothing would throw everything away.

    References
    ----------
    Zhuo, Wu, He et al. (2025), (Extension) OL-MDISF: Online learning from mix-typed, drifted, and
    incomplete streaming features, arXiv 2507.10594.
    """

    title = "OL-MDISF"
    reference = "Zhuo et al., arXiv 2507.10594"

    def __init__(self, config: Config, generator: np.random.Generator | None = None) -> None:
        super().__init__(config, generator)
        instances_max = config.graph.unverified + config.graph.verified
        self.entropies: deque[float] = deque(maxlen=instances_max)
        self.cuts = 0

    def _answer(self, vectors: Vectors) -> Answer:
        answer = super()._answer(vectors)
        self.entropies.append(entropy(answer.p))
        if self.step % CHECK_STEPS == 0:
            self._check()
        return answer

    def _check(self) -> None:
        buffer = self.geometry.buffer
        taken = np.flatnonzero(buffer.steps >= 0)
        if len(taken) < INSTANCES_MIN:
            return
        taken = taken[np.argsort(buffer.steps[taken])]
        middle = len(taken) // 2
        older, newer = taken[:middle], taken[middle:]
        moved = mismatch(buffer.latent[older], buffer.latent[newer]) > MISMATCH
        if moved or self._entropy_rise() > ENTROPY_RISE:
            self._cut([int(step) for step in buffer.steps[older]])

    def _entropy_rise(self) -> float:
        entropies = np.array(self.entropies)
        middle = len(entropies) // 2
        return float(entropies[middle:].mean() - entropies[:middle].mean())

    def _cut(self, steps: list[int]) -> None:
        """The older half leaves; the learners start again from what is left."""
        self.cuts += 1
        for step in steps:
            self.geometry.forget(step)
        for _ in range(len(self.entropies) // 2):
            self.entropies.popleft()
        buffer = self.geometry.buffer
        if len(buffer.verified) < RESTART_LABELS or not self._both_classes():
            return
        self.latent, self.original = Ftrl(), Ftrl()
        self.latent.grow(self.columns.width)
        self.original.grow(self.columns.width)
        for slot in buffer.verified:
            vectors = Vectors.of(buffer.latent[slot], buffer.original[slot])
            self._train(vectors, int(buffer.label[slot]))


def mismatch(older: FloatArray, newer: FloatArray) -> float:
    """How much mean or covariance of two samples differ, over what chance explains.

    >>> rows = np.random.default_rng(1).normal(size=(200, 4))
    >>> mismatch(rows[:100], rows[100:]) < 2.0 < mismatch(rows[:100], rows[100:] + 1.0)
    True
    """
    n, d = len(older) + len(newer), older.shape[1]
    means = float(np.sum((newer.mean(axis=0) - older.mean(axis=0)) ** 2)) * n / (4.0 * d)
    covariances = np.atleast_2d(np.cov(newer.T)) - np.atleast_2d(np.cov(older.T))
    spread = float(np.sum(covariances**2)) * n / (4.0 * d * (d + 1))
    return max(means, spread) if math.isfinite(means + spread) else 0.0
