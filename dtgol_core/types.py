"""The values that stages and experts hand to each other.

Nobody changes one that was handed out, but for the row of an `Instance` that has just arrived:
`DelayTable.reserve` hands it out to be written.
A refused record is a value too (`Rejection`): the learner answers bad input, it does not raise.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from dtgol_core.compiled import in_place

FloatArray: TypeAlias = npt.NDArray[np.float64]
SingleArray: TypeAlias = npt.NDArray[np.float32]
IntArray: TypeAlias = npt.NDArray[np.int64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]

SlotVectors: TypeAlias = tuple[FloatArray, FloatArray]
"""Vectors in numbered slots as rows, (slots, columns), and the same as columns."""

Value: TypeAlias = float | int | bool | str | None
"""What a feature may carry; ``None`` is missing, the same as an absent name."""

FeatureValues: TypeAlias = Mapping[str, Value]
"""One record: its values by feature name."""

RejectionReason: TypeAlias = Literal[
    "kind-conflict",
    "out-of-range",
    "not-finite",
    "out-of-bounds",
    "too-many-columns",
    "feature-name",
]


class LabelOutcome(StrEnum):
    """What became of one label event, by the label policy."""

    QUEUED = "queued"
    """On time: its instance waits; it is learnt when due."""
    EARLY = "early"
    """Before its features: held."""
    LATE = "late"
    """Its instance has expired: dead letter ``label-late``."""
    REPEATED = "repeated"
    """The same value again: ignored."""
    ERASED = "erased"
    """Its instance was erased on request: ignored."""
    CONFIRMED = "confirmed"
    """The default label was learnt at expiry, and this is the same."""
    CORRECTED_IGNORED = "corrected-ignored"
    """Another value, ``corrected = "first"``: ignored here; the evaluator re-scores."""
    CORRECTED_REPLACED = "corrected-replaced"
    """Another value before the first was learnt, ``corrected = "last"``: replaces it."""
    CORRECTED_RELABELLED = "corrected-relabelled"
    """Another value after the first (or the default) was learnt: replaced in the memory of the
    experts that still rehearse the instance. What has gone into weights stays there."""
    CORRECTION_TOO_LATE = "correction-too-late"
    """The same, and no expert has the instance any more: dead letter ``correction-too-late``."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """A record that was refused; nothing but a counter has changed.

    ``detail`` names features and limits, never values.
    """

    reason: RejectionReason
    detail: str


class RejectedError(ValueError):
    """What a strict learner raises in place of a `Rejection`."""

    def __init__(self, rejection: Rejection) -> None:
        super().__init__(f"{rejection.reason}: {rejection.detail}")
        self.rejection = rejection


@dataclass(frozen=True, slots=True)
class LabelReceipt:
    """The answer to ``learn``: the outcome, and the ids of held labels given up because of it.

    ``setting`` names the bound by which the instance of a late label expired.
    """

    outcome: LabelOutcome
    orphans: tuple[str, ...] = ()
    setting: str | None = None


class Vectors(NamedTuple):
    """One record in every scale, without the constant 1 of a bias.

    Attributes
    ----------
    spaces : (2, columns)
        ``latent``, the copula's score, and ``original``, the standard score over its window.
    scores : (0, 2 or 3; columns), float32
        ``cumulative`` and ``fast`` are standardised by running moments, 0 where missing;
        ``completed`` is ``cumulative`` with its missing cells filled by the copula. The first 0, 2
        or 3 of them are kept, by what the listed experts name in `Expert.scales`.

    Notes
    -----
    Two arrays and not five: a row of the delay table is read and written without copies, and a
    compiled loop pays a tenth of a microsecond for each array that it is given.
    """

    spaces: FloatArray
    scores: SingleArray

    @property
    def latent(self) -> FloatArray:
        """The copula's scores, shape (columns,), as the following ones."""
        latent: FloatArray = self.spaces[0]
        return latent

    @property
    def original(self) -> FloatArray:
        """Standard scores over the window."""
        original: FloatArray = self.spaces[1]
        return original

    @property
    def cumulative(self) -> SingleArray:
        """Standard scores by all values so far."""
        cumulative: SingleArray = self.scores[0]
        return cumulative

    @property
    def fast(self) -> SingleArray:
        """Standard scores by about the last hundred values."""
        fast: SingleArray = self.scores[1]
        return fast

    @property
    def completed(self) -> SingleArray:
        """The cumulative ones with missing cells filled."""
        completed: SingleArray = self.scores[2]
        return completed

    @property
    def design(self) -> FloatArray:
        """x of a regression over the columns, shape (3·columns + 1,)."""
        x = np.empty(3 * self.spaces.shape[1] + 1)
        design(self.spaces, self.scores, x)
        return x

    def padded(self, columns: int) -> "Vectors":
        """The same record with 0 in the columns that came after it."""
        missing = columns - self.spaces.shape[1]
        if not missing:
            return self
        wider = ((0, 0), (0, missing))
        return Vectors(np.pad(self.spaces, wider), np.pad(self.scores, wider))

    @staticmethod
    def of(latent: FloatArray, original: FloatArray, *scores: SingleArray) -> "Vectors":
        """From one array for each scale; scores in the order cumulative, fast, completed."""
        packed = np.empty((len(scores), len(latent)), dtype=np.float32)
        for place, each in enumerate(scores):
            packed[place] = each
        return Vectors(np.array([latent, original]), packed)


@in_place
def design(spaces: FloatArray, scores: SingleArray, x: FloatArray) -> None:
    """Write ``[1, then (latent, cumulative, fast) of each column]`` to x.

    The latent score is rounded to float32 as the others are, so that a memory of float32 rows holds
    exactly what was learnt.
    """
    latent, cumulative, fast = spaces[0], scores[0], scores[1]
    x[0] = 1.0
    for column in range(len(latent)):
        x[3 * column + 1] = np.float32(latent[column])
        x[3 * column + 2] = cumulative[column]
        x[3 * column + 3] = fast[column]


class Instance(NamedTuple):
    """One record as the experts see it, on arrival and again when its label comes.

    ``vectors`` are those of its arrival, padded to the columns of today. ``numbers`` is its row of
    numbers in the delay table: each expert has a part of it, which begins at `Expert.at`.
    """

    step: int
    vectors: Vectors
    numbers: FloatArray


@dataclass(frozen=True, slots=True)
class Inspection:
    """What an expert knows, for people to look at.

    ``weights`` have the shape (columns + 1,), the bias first.
    """

    numbers: Mapping[str, float]
    weights: Mapping[str, FloatArray]


class ExpertAnswer(NamedTuple):
    """The probability that one expert gave, and its weight.

    The weight is by how much the forecast's log-odds move with the expert's: the sum of its
    coefficients in the stacks, each times the stack's weight in the guard; for ``naive`` its weight
    in the guard. It may be negative, and weights need not sum to 1. Where one expert decides, it
    has 1 and all others 0.
    """

    p: float
    weight: float


@dataclass(frozen=True, slots=True)
class Contribution:
    """How much one feature moved the log-odds of a forecast; never the feature's value."""

    feature: str
    log_odds: float


@dataclass(slots=True)
class Forecast:
    """The answer to one record.

    Not frozen, which would double the time that it takes to make one. ``naive`` is the answer of
    the expert of that name, the measure of what the others add; ``unverified`` counts the instances
    that waited for their label when the record came.
    """

    step: int
    p: float
    label: int
    naive: float
    labels_learnt: int
    unverified: int
    observed_share: float
    uncertainty: float
    experts: Mapping[str, ExpertAnswer] = field(default_factory=dict)
    """By name, in the order of the list of experts; empty for a learner that has none."""
    guard: Mapping[str, float] = field(default_factory=dict)
    """Weights in ``p`` of the stacks and of ``naive``, which sum to 1; empty where one expert
    decides."""
    set: tuple[int, ...] = (0, 1)
    """The classes it leaves open (`dtgol_core.conformal`); ``(0, 1)``: not decided."""
    repeat: bool = False
    conflicts: int = 0
    """Cells of another kind than their feature, taken as missing."""
    missing: tuple[str, ...] = ()
    """Known features that were not observed, by name, sorted; the first 50 of them."""
    why: tuple[Contribution, ...] = ()
    learnt: tuple[str, ...] = ()
    """Ids whose labels were learnt at the start of this step, in order."""
    expired: tuple[str, ...] = ()
    """Ids of instances that left unanswered at this step."""
    defaulted: tuple[str, ...] = ()
    """Those of them whose default label (``delay.expired``) was learnt in place of a true one."""
    orphans: tuple[str, ...] = ()
    """Ids of held labels given up at this step: dead letters ``label-orphan``."""
