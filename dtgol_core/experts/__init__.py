"""The experts: learners that answer every record, each on its own, and the list of them.

A new expert is one file in this folder, one line in `EXPERTS` and its name in
`config.EXPERT_NAMES`: forecasts, predictions, snapshots, inspection and the conformance tests
follow the list. Which of them a stream has, `Config.experts` says.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol, Self

from dtgol_core.config import Config
from dtgol_core.experts.forest import Forest
from dtgol_core.experts.linear import Linear, LinearFast
from dtgol_core.experts.naive import Naive
from dtgol_core.experts.paper import Paper
from dtgol_core.experts.recent import Recent
from dtgol_core.experts.tracker import Tracker
from dtgol_core.types import FloatArray, Inspection, Instance


class Expert(Protocol):
    """One learner under the verbs that the learner calls on all of them.

    An expert depends on these calls and on nothing else: no clock, no chance, no other expert.
    Labels come in any order and late, so `learn` and `forget` are about instances observed long
    before. Before the first label every answer is exactly ½.

    Parameters
    ----------
    config
        All settings of the stream; an expert takes those that are its own.

    Attributes
    ----------
    name
        Its name in forecasts, predictions and snapshots.
    kept
        Names of the numbers that `observe` wants back with the label. They wait in
        ``instance.numbers``, in this order.
    at
        Where they begin there; the learner sets it.
    scales
        Names of the `Vectors.scores` that it uses. If an expert of a stream names ``completed`` all
        three are computed and stored, if one names anything the two others, and else none.
    """

    name: ClassVar[str]
    kept: ClassVar[tuple[str, ...]]
    scales: ClassVar[tuple[str, ...]]
    at: int

    def __init__(self, config: Config) -> None: ...

    def observe(self, instance: Instance) -> float:
        """Answer a record that has arrived, without its label: P(y=1) by all that is known.

        Called once for each record. What it wants back with the label it writes to
        ``instance.numbers`` from `at` on. An expert that learns from labels alone changes nothing.
        """

    def score(self, instance: Instance) -> float:
        """What it would answer today for a record that was observed before. Changes nothing."""

    def learn(self, instance: Instance, label: int) -> float:
        """Learn the label, 0 or 1, of an observed instance. Returns its `score` before that."""

    def forget(self, step: int) -> None:
        """The instance that was observed at a step will never get a label, or is erased.

        Its vectors go from what the expert keeps; those of an erased one also after its label was
        learnt. What has gone into weights stays there.
        """

    def correct(self, step: int, label: int) -> bool:
        """The label that was learnt for the instance of a step was wrong: it is this one.

        What has gone into weights stays there: to learn the other label as well would count the
        instance twice. An expert that keeps instances with their labels replaces the label while it
        has it; all others do nothing. The label may also be the one it has.

        Returns
        -------
        Whether it had the instance.
        """

    def grow(self, columns: int) -> None:
        """Add so many columns, in which all past records are 0."""

    def contributions(self, instance: Instance) -> FloatArray:
        """What each column adds to the log-odds of `score`, shape (columns,). Changes nothing.

        Columns that have no part in the answer, and answers that cannot be split, are 0.
        """

    def inspect(self) -> Inspection:
        """Numbers and weights that show what has been learnt."""

    def snapshot(self) -> dict[str, Any]:
        """All state as named arrays (copies) and JSON values; equal states give equal snapshots."""

    @classmethod
    def restore(cls, config: Config, snapshot: Mapping[str, Any], columns: int) -> Self:
        """The expert that `snapshot` described, which goes on to the same bits.

        Raises
        ------
        SnapshotError, ValueError, LookupError, TypeError
            If the snapshot is not that of this expert with so many columns.
        """


EXPERTS: tuple[type[Expert], ...] = (
    Naive,
    Paper,
    Linear,
    LinearFast,
    Forest,
    Recent,
    Tracker,
)
