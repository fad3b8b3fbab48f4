"""The values that are handed from room to room.

All of them are frozen. A refused record is a value too (`Rejection`): the learner answers
bad input, it does not raise on it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

FloatArray: TypeAlias = npt.NDArray[np.float64]
IntArray: TypeAlias = npt.NDArray[np.int64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]

Value: TypeAlias = float | int | bool | str | None
"""What a feature may carry; ``None`` is missing, the same as an absent name."""

Record: TypeAlias = Mapping[str, Value]


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
    CORRECTED_IGNORED = "corrected-ignored"
    """Another value, too late or ``corrected = "first"``: ignored here; the evaluator re-scores."""
    CORRECTED_REPLACED = "corrected-replaced"
    """Another value before the first was learnt, ``corrected = "last"``: replaces it."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """A record that was refused; nothing but a counter has changed.

    ``detail`` names features and limits, never values.
    """

    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class LabelReceipt:
    """The answer to ``learn``: the outcome, and the ids of held labels given up because of it."""

    outcome: LabelOutcome
    orphans: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Contribution:
    """How much one feature moved the log-odds of a forecast; never the feature's value."""

    feature: str
    log_odds: float


@dataclass(frozen=True, slots=True)
class Forecast:
    """What the learner says about one record.

    ``latent_*`` and ``original_*`` are the probabilities of the four tracks; before the first
    label is learnt there is no transient track and it equals the persistent one.
    """

    step: int
    p: float
    label: int
    naive: float
    latent_weight: float
    latent_persistent: float
    latent_transient: float
    original_persistent: float
    original_transient: float
    labels_learnt: int
    unverified: int
    observed_share: float
    uncertainty: float
    repeat: bool = False
    why: tuple[Contribution, ...] = ()
    learnt: tuple[str, ...] = ()
    """Ids whose labels were learnt at the start of this step, in order."""
    expired: tuple[str, ...] = ()
    """Ids of instances that left unanswered at this step."""
    orphans: tuple[str, ...] = ()
    """Ids of held labels given up at this step: dead letters ``label-orphan``."""
