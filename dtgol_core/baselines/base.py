"""The corridor of the baselines: the learner's verbs, the same columns, masks and delays.

A baseline says what it does in four places: `_widen` (more columns), `_teach` (a true label is
learnt), `_answer` (a record is predicted, and whatever its method does with unlabelled records)
and `_forget` (an instance expired). Everything else is shared with the learner, room by room, so
that a difference in a table is a difference of methods.
"""

import copy
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from dtgol_core.columns import Columns, Reading
from dtgol_core.config import Config
from dtgol_core.copula import Copula
from dtgol_core.delay import DelayTable, Ticket
from dtgol_core.losses import entropy
from dtgol_core.marginals import Marginals
from dtgol_core.types import FloatArray, Forecast, LabelReceipt, Record, Rejection


@dataclass(frozen=True, slots=True)
class Point:
    """A record in both spaces, shape (columns,) each; the bias is left to the baseline."""

    latent: FloatArray
    original: FloatArray


@dataclass(frozen=True, slots=True)
class Answer:
    """What a baseline says: p, and what its two spaces said if it has two."""

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
        self.delay = DelayTable(config.delay)
        self.marginals = Marginals(config.copula.window)
        self.copula = Copula(config.copula)
        self.generator = generator or np.random.default_rng(0)
        self.step = 0
        self.labels_learnt = 0

    def observe(self, id: str, x: Record) -> Forecast | Rejection:
        """Answer a record and let it wait for its label."""
        reading = self.columns.read(x)
        if isinstance(reading, Rejection):
            return reading
        if self.delay.knows(id):
            return replace(self._look(reading), repeat=True)
        return self._walk(id, reading)

    def learn(self, id: str, y: int) -> LabelReceipt:
        """Queue a label; it is learnt at the start of the step at which it is due."""
        if y not in (0, 1):
            raise ValueError(f"a label is 0 or 1, not {y!r}")
        outcome, orphans = self.delay.file(id, int(y), self.step)
        return LabelReceipt(outcome, tuple(orphans))

    def peek(self, x: Record) -> Forecast | Rejection:
        """What `observe` would say now. Changes nothing."""
        reading = self.columns.read(x)
        return reading if isinstance(reading, Rejection) else self._look(reading)

    @abstractmethod
    def _widen(self, columns: int) -> None:
        """Make room for that many new columns."""

    @abstractmethod
    def _teach(self, ticket: Ticket, point: Point, label: int) -> None:
        """Learn a true label of an instance, as it was seen on arrival."""

    @abstractmethod
    def _answer(self, point: Point) -> Answer:
        """Predict the record of this step; unlabelled records may teach something here."""

    def _forget(self, step: int) -> None:
        """The instance of a step has left unanswered."""
        return

    def _walk(self, id: str, reading: Reading) -> Forecast:
        self.step += 1
        for ticket, label in self.delay.settle_due(self.step):
            self.labels_learnt += 1
            point = Point(self._padded(ticket.latent), self._padded(ticket.original))
            self._teach(ticket, point, label)
        for _, step in self.delay.expire(self.step, None):
            self._forget(step)
        self.delay.give_up(self.step)
        waiting = len(self.delay)
        point = self._encode(reading)
        answer = self._answer(point)
        said = answer.latent, answer.original
        self.delay.open(Ticket(id, self.step, point.latent, point.original, *said, None))
        return Forecast(
            step=self.step,
            p=answer.p,
            label=int(answer.p > 0.5),
            naive=answer.p,
            latent_weight=answer.latent_weight,
            latent_persistent=answer.latent,
            latent_transient=answer.latent,
            original_persistent=answer.original,
            original_transient=answer.original,
            labels_learnt=self.labels_learnt,
            unverified=waiting,
            observed_share=reading.observed / max(1, len(self.columns.features)),
            uncertainty=entropy(answer.p),
        )

    def _look(self, reading: Reading) -> Forecast:
        return copy.deepcopy(self)._walk("", reading)

    def _encode(self, reading: Reading) -> Point:
        """Both vectors of a row; columns, marginals and correlation learn it."""
        self.columns.absorb(reading)
        fresh = len(reading.additions)
        if fresh:
            self.marginals.grow(fresh, [addition.sibling for addition in reading.additions])
            self.copula.grow(fresh)
            self._widen(fresh)
        self.marginals.absorb(reading.row)
        scores = self.marginals.score(reading.row, self.columns.kinds)
        latent = self.copula.absorb(scores.latent, scores.spread, self.step)
        return Point(latent, scores.original)

    def _padded(self, vector: FloatArray) -> FloatArray:
        missing = self.columns.width - len(vector)
        return np.concatenate([vector, np.zeros(missing)]) if missing else vector


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
