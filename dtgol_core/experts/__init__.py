"""The experts: learners that answer every record, each on its own, and the list of them.

A new expert is one file in this folder, one line in `EXPERTS` and its name in
`config.EXPERT_NAMES`: forecasts, predictions, snapshots, inspection and the conformance tests
follow the list. Which of them a stream has, `Config.experts` says.
"""

from collections.abc import Mapping, Sequence
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
    before. Before the first label `score` is exactly ½.

    Parameters
    ----------
    config
        All settings of the stream; an expert takes those that are its own.

    Attributes
    ----------
    name
        Its name in forecasts, predictions and snapshots.
    kept
        Names of the numbers that `observe` returns. They wait with the instance and come back as
        ``instance.kept``, in the same order.
    scales
        Names of the fields of `Vectors`, besides latent and original, that it uses. What no expert
        of a stream names is neither computed nor stored, and is empty in ``instance.vectors``.
    """

    name: ClassVar[str]
    kept: ClassVar[tuple[str, ...]]
    scales: ClassVar[tuple[str, ...]]

    def __init__(self, config: Config) -> None: ...

    def observe(self, instance: Instance) -> Sequence[float]:
        """A record has arrived, without its label. Called once, before the first `score` of it.

        Returns
        -------
        The numbers that are wanted back with the instance, one for each name in `kept`. An expert
        that learns from labels alone returns an empty tuple and does nothing.
        """

    def score(self, instance: Instance) -> float:
        """P(y=1) by all that is known now. Changes nothing, so it may be called again later.

        While the instance waits the combination may ask again, and once more with its label.
        """

    def learn(self, instance: Instance, label: int) -> None:
        """The label of an observed instance is 0 or 1."""

    def forget(self, step: int) -> None:
        """The instance that was observed at a step will never get a label."""

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
