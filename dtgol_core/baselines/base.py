"""What the baselines have in common: the learner's verbs, the same columns, masks and delays.

A baseline implements four methods: `_widen` (more columns), `_teach` (a true label is learnt),
`_answer` (a record is predicted, and whatever its method does with unlabelled records) and
`_forget` (an instance expired). Everything else is shared with the learner, stage by stage, so
that a difference in a table is a difference of methods.
"""

import copy
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from dtgol_core.columns import Columns, EncodedRecord
from dtgol_core.config import Config
from dtgol_core.copula import Copula
from dtgol_core.delay import DelayTable
from dtgol_core.ids import id_hash
from dtgol_core.losses import entropy
from dtgol_core.marginals import Marginals
from dtgol_core.types import (
    FeatureValues,
    FloatArray,
    Forecast,
    Instance,
    LabelReceipt,
    Rejection,
    Vectors,
)


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a baseline: p, and those of its two spaces if it has two."""

    p: float
    latent: float
    original: float
    latent_weight: float


class Baseline(ABC):
    """One of the other learners of the paper's table.

    Parameters
    ----------
    config
        The learner's settings: windows, copula and delay policy are taken from it.
    generator
        The chance of a sampling baseline; the others do not touch it.
    """

    title: ClassVar[str]
    reference: ClassVar[str]
    reconstructed: ClassVar[bool] = False
    """Rebuilt from an abstract or from public code: only FOBOS is printed for our setting."""

    def __init__(self, config: Config, generator: np.random.Generator | None = None) -> None:
        self.config = config
        self.columns = Columns(config)
        self.delay = DelayTable(config.delay, numbers=2)
        self.marginals = Marginals(config.copula.window)
        self.copula = Copula(config.copula)
        self.generator = generator or np.random.default_rng(0)
        self.step = 0
        self.labels_learnt = 0

    def observe(self, id: str, x: FeatureValues) -> Forecast | Rejection:
        """Answer a record and let it wait for its label."""
        record = self.columns.read(x)
        if isinstance(record, Rejection):
            return record
        if self.delay.knows(id, id_hash(id)):
            return replace(self._peek(record), repeat=True)
        return self._step(id, record)

    def learn(self, id: str, y: int) -> LabelReceipt:
        """Queue a label; it is learnt at the start of the step at which it is due."""
        if y not in (0, 1):
            raise ValueError(f"a label is 0 or 1, not {y!r}")
        outcome, orphans = self.delay.add_label(id, int(y), self.step)
        return LabelReceipt(outcome, tuple(orphans))

    def peek(self, x: FeatureValues) -> Forecast | Rejection:
        """The answer that `observe` would give now. Changes nothing."""
        record = self.columns.read(x)
        return record if isinstance(record, Rejection) else self._peek(record)

    @abstractmethod
    def _widen(self, columns: int) -> None:
        """Add that many new columns."""

    @abstractmethod
    def _teach(self, instance: Instance, label: int) -> None:
        """Learn a true label of an instance; its numbers are both answers of its arrival."""

    @abstractmethod
    def _answer(self, vectors: Vectors) -> Answer:
        """Predict the record of this step; unlabelled records may teach something here."""

    def _forget(self, step: int) -> None:
        """The instance of a step has left unanswered."""
        return

    def _step(self, id: str, record: EncodedRecord) -> Forecast:
        self.step += 1
        for _, waited, label in self.delay.settle_due(self.step):
            self.labels_learnt += 1
            self._teach(waited, label)
        for left in self.delay.expire(self.step, None):
            self._forget(left.instance.step)
        self.delay.expire_early(self.step)
        waiting = len(self.delay)
        instance = self._encode(record)
        answer = self._answer(instance.vectors)
        instance.numbers[:] = answer.latent, answer.original
        for left in self.delay.open(id, id_hash(id), self.step, None):
            self._forget(left.instance.step)
        return Forecast(
            step=self.step,
            p=answer.p,
            label=int(answer.p > 0.5),
            naive=answer.p,
            labels_learnt=self.labels_learnt,
            unverified=waiting,
            observed_share=record.observed / max(1, len(self.columns.features)),
            uncertainty=entropy(answer.p),
        )

    def _peek(self, record: EncodedRecord) -> Forecast:
        return copy.deepcopy(self)._step("", record)

    def _encode(self, record: EncodedRecord) -> Instance:
        """A record with both its vectors; columns, marginals and correlation learn from it."""
        self.columns.absorb(record)
        fresh = len(record.additions)
        if fresh:
            self.marginals.grow(fresh, [addition.sibling for addition in record.additions])
            self.copula.grow(fresh)
            self._widen(fresh)
        instance = self.delay.reserve(self.step, self.columns.width)
        spaces = instance.vectors.spaces
        spread = self.marginals.absorb(record.row, self.columns.kinds, spaces)
        self.copula.absorb(spaces[0], spread, self.step)
        return instance


def sigmoid(logit: float) -> float:
    """The logistic function, without overflow.

    >>> sigmoid(0.0), sigmoid(-1000.0)
    (0.5, 0.0)
    """
    if logit >= 0.0:
        return 1.0 / (1.0 + math.exp(-logit))
    e = math.exp(logit)
    return e / (1.0 + e)


def with_bias(vector: FloatArray) -> FloatArray:
    """The vector behind a constant 1."""
    biased = np.empty(len(vector) + 1)
    biased[0] = 1.0
    biased[1:] = vector
    return biased
