"""The plain tracker: the expert that follows moving clouds, once more.

Written from docs/learner.md by other hands than the core's, like `plain_experts`.
"""

import copy
import math
from collections.abc import Sequence

import numpy as np
from scipy.special import expit

from dtgol_core.types import FloatArray
from tests.support.plain_experts import Seen, clip

BLOCK = 48
CLASSES = (range(4), range(4, 8))
"""The components of each class."""

Posterior = tuple[float, list[float]]
"""Log-odds, and the share of every component inside its class."""


def inside_blocks(columns: int) -> FloatArray:
    """1 inside the blocks of the covariance, 0 outside."""
    block = np.arange(columns) // BLOCK
    return np.asarray(block[:, None] == block[None, :], dtype=np.float64)


class PlainMixture:
    """Four components for each class, and one scatter for all of them."""

    def __init__(self, columns: int) -> None:
        self.n = [0.0] * 8
        self.m: FloatArray = np.zeros((8, columns))
        self.a: FloatArray = np.zeros((8, columns))
        self.scatter: FloatArray = np.zeros((columns, columns))
        self.mass = 0.0
        self.precision: FloatArray = np.zeros((columns, columns))
        self.absorbed = 0
        self.blocks = inside_blocks(columns)

    def refresh(self) -> None:
        """Precision and a by today's scatter and means."""
        one = np.eye(self.m.shape[1])
        covariance = (self.scatter + 2.5 * one) / (self.mass + 5) + 0.001 * one
        self.precision = np.linalg.inv(covariance * self.blocks) * self.blocks
        self.a = self.m @ self.precision

    def posterior(self, x: FloatArray, prior: float) -> Posterior:
        """Which class, and which component of it, x belongs to."""
        shares = [0.0] * 8
        likelihoods = []
        for ks in CLASSES:
            live = [k for k in ks if self.n[k] > 0]
            if not live:
                continue
            s = {k: float(self.a[k] @ (x - self.m[k] / 2)) for k in live}
            top = max(s.values())
            e = {k: self.n[k] * math.exp(s[k] - top) for k in live}
            z, weight = sum(e.values()), sum(self.n[k] for k in live)
            for k in live:
                shares[k] = e[k] / z
            likelihoods.append(top + math.log(z / weight))
        logit = math.log(prior / (1 - prior))
        if len(likelihoods) == 2:
            logit += likelihoods[1] - likelihoods[0]
        return logit, shares

    def absorb(
        self, x: FloatArray, shares: Sequence[float], q: tuple[float, float], tau: float
    ) -> None:
        """Decay, then x joins the components by its shares."""
        self.scatter = math.exp(-1 / (3 * tau)) * self.scatter
        self.mass = math.exp(-1 / (3 * tau)) * self.mass + 1
        for k in range(8):
            decayed = math.exp(-1 / tau) * self.n[k]
            self.n[k] = 0.0 if decayed < 1e-9 else decayed
            of_class = q[k // 4]
            if of_class < 1e-6 or shares[k] < math.exp(-14):
                continue
            r = of_class * shares[k]
            self.n[k] += r
            gamma = r / self.n[k]
            delta = x - self.m[k]
            if r > 0.001:
                self.scatter += r * (1 - gamma) * np.outer(delta, delta) * self.blocks
            self.m[k] += gamma * delta
            self.a[k] += gamma * (self.precision @ x - self.a[k])

    def absorb_unlabelled(self, x: FloatArray, prior: float) -> None:
        """A record without its label, by its own posterior."""
        logit, shares = self.posterior(x, prior)
        q = float(expit(logit))
        self.absorb(x, shares, (1 - q, q), 60)
        self.absorbed += 1
        if self.absorbed % 20 == 0:
            self.refresh()

    def grow(self, columns: int) -> None:
        """New columns are 0 in means and scatter; nothing is known of their variance."""
        wide = ((0, 0), (0, columns))
        self.m, self.a = np.pad(self.m, wide), np.pad(self.a, wide)
        self.scatter = np.pad(self.scatter, (0, columns))
        self.precision = np.pad(self.precision, (0, columns))
        for j in range(self.m.shape[1] - columns, self.m.shape[1]):
            self.precision[j, j] = 1 / (2.5 / (self.mass + 5) + 0.001)
        self.blocks = inside_blocks(self.m.shape[1])


class PlainTracker:
    """`tracker`: verified, shadow and live mixture."""

    STEPS_MAX = 4096
    FEW_LABELS = 32
    """A shadow that left from fewer is given up."""

    def __init__(self) -> None:
        self.columns = 0
        self.verified = PlainMixture(0)
        self.shadow: PlainMixture | None = None
        self.live: PlainMixture | None = None
        self.cursor = 0
        self.waiting: dict[int, FloatArray] = {}
        self.kept_answers: dict[int, float] = {}
        """Of every record that waits: its answer on arrival, or that of the last shadow."""
        self.labels = 0
        self.mean_step = 0.0
        self.counts = [1.0, 1.0]

    @property
    def prior(self) -> float:
        """π by the true labels."""
        return min(max(self.counts[1] / (self.counts[0] + self.counts[1]), 0.01), 0.99)

    def input(self, instance: Seen) -> FloatArray:
        """`completed`, cut to ±5."""
        return np.clip(instance.vectors.completed.astype(np.float64), -5, 5)

    def observe(self, instance: Seen) -> Sequence[float]:
        if self.labels:
            self.carry_on(instance.step)
        self.kept_answers[instance.step] = self.answer_of_live(instance)
        self.waiting[instance.step] = self.input(instance)
        self.forget(instance.step - self.STEPS_MAX)
        return ()

    def carry_on(self, step: int) -> None:
        """Shadow goes on through the waiting records; live is renewed or goes on by one record."""
        if self.shadow is None:
            self.shadow = copy.deepcopy(self.verified)
            self.shadow.absorbed = 0
            self.cursor = math.floor(self.mean_step)
        ahead = sorted(waits for waits in self.waiting if waits >= self.cursor)
        for waits in ahead[:32]:
            x = self.waiting[waits]
            self.kept_answers[waits] = self.answer(self.shadow, x)
            self.shadow.absorb_unlabelled(x, self.prior)
            self.cursor = waits + 1
        if len(ahead) <= 32:
            self.live, self.shadow = self.shadow, None
        elif self.live is not None and step - 1 in self.waiting:
            self.live.absorb_unlabelled(self.waiting[step - 1], self.prior)

    def answer(self, mixture: PlainMixture, x: FloatArray) -> float:
        """P(y=1) by one of the mixtures."""
        return float(expit(clip(mixture.posterior(x, self.prior)[0], 8)))

    def answer_of_live(self, instance: Seen) -> float:
        """By verified while there is no live."""
        mixture = self.verified if self.live is None else self.live
        return self.answer(mixture, self.input(instance))

    def score(self, instance: Seen) -> float:
        if instance.step in self.waiting:
            return self.kept_answers[instance.step]
        return self.answer_of_live(instance)

    def learn(self, instance: Seen, label: int) -> None:
        x, verified = self.input(instance), self.verified
        self.forget(instance.step)
        self.labels += 1
        rate = max(1 / self.labels, 1 - math.exp(-1 / 100))
        self.mean_step += rate * (instance.step - self.mean_step)
        placed = self.place(x, label)
        if placed or self.labels < 20 or self.labels % 20 == 0:
            verified.refresh()
        self.counts = [math.exp(-1 / 200) * count for count in self.counts]
        self.counts[label] += 1
        if self.labels == self.FEW_LABELS:
            self.shadow = None

    def place(self, x: FloatArray, label: int) -> bool:
        """Verified absorbs x; True if a component was placed at x."""
        verified, ks = self.verified, CLASSES[label]
        empty = [k for k in ks if verified.n[k] == 0]
        distances = [float(np.sum((x - verified.m[k]) ** 2)) for k in ks if verified.n[k] > 0]
        apart = all(distance > 0.01 for distance in distances)
        sure = (1.0 - label, float(label))
        if apart and empty:
            verified.absorb(x, [float(k == empty[0]) for k in range(8)], sure, 100)
            return True
        verified.absorb(x, verified.posterior(x, self.prior)[1], sure, 100)
        lightest = min(ks, key=lambda k: verified.n[k])
        weight = sum(verified.n[k] for k in ks)
        if not apart or verified.n[lightest] >= 0.02 * weight / 4:
            return False
        verified.n[lightest] = 0.1 * weight / 4
        verified.m[lightest] = x
        return True

    def forget(self, step: int) -> None:
        self.waiting.pop(step, None)
        self.kept_answers.pop(step, None)

    def correct(self, step: int, label: int) -> bool:
        """Only waiting records are kept."""
        return False

    def grow(self, columns: int) -> None:
        self.columns += columns
        self.waiting = {step: np.pad(x, (0, columns)) for step, x in self.waiting.items()}
        for mixture in (self.verified, self.shadow, self.live):
            if mixture is not None:
                mixture.grow(columns)
