"""Instances for the tests of stages and experts, and how they come into a delay table."""

from collections.abc import Sequence

from dtgol_core.delay import DelayTable, Departure
from dtgol_core.ids import id_hash
from dtgol_core.types import Vectors


def let_in(
    table: DelayTable,
    id: str,
    step: int,
    vectors: Vectors,
    numbers: Sequence[float],
    event_time_ms: int | None = None,
) -> list[Departure]:
    """What the learner does with a record that it has answered."""
    row = table.reserve(step, vectors.spaces.shape[1])
    row.vectors.spaces[:] = vectors.spaces
    row.vectors.scores[:] = vectors.scores
    row.numbers[:] = numbers
    return table.open(id, id_hash(id), step, event_time_ms)
