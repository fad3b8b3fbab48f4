"""The plans of `dtgol compare`: quick, the full run, and the large one without limits.

Methods that take more than half a millisecond per record (River's forests, retrained boosting) and
the ablations of DT-GOL have fewer seeds and delays in the full run, and the weaker methods of the
paper's table are run on its fifteen streams alone; a table with them has only the runs that all of
its methods share.
"""

from collections.abc import Sequence
from typing import get_args

from dtgol_core.streams import Delays
from pipeline.offline.compare.jobs import RunBlock
from pipeline.offline.compare.methods import Tier
from pipeline.offline.compare.sources import Family, StreamSource

SET_DELAYS = (10, 50, 100)
"""Sets have from 350 rows on: longer delays would leave nothing to learn."""
MOVING_DELAYS = (10, 50, 200, 500, 2000)
DRIFT_DELAY = 500
MASKS = ("none", "pairs")
HALF = ("0.5",)
LATE: tuple[Delays, ...] = ("fixed", "geometric")
EVERY: tuple[Tier, ...] = get_args(Tier)


def quick(streams: Sequence[StreamSource], seeds: int, delay: int) -> list[RunBlock]:
    """One delay, nothing hidden: all but what is slow."""
    return [RunBlock(tuple(streams), (delay,), seeds, ("main", "fifteen", "ablation"))]


def full(streams: Sequence[StreamSource], seeds: int) -> list[RunBlock]:
    """The tables of docs/benchmark.md."""
    few = min(seeds, 2)
    sets, drift, large, files, clouds, rare = _families(streams)
    return [
        RunBlock(sets, SET_DELAYS, seeds, ("main", "fifteen"), MASKS),
        RunBlock(sets, (10, 100), few, ("ablation",), MASKS),
        RunBlock(sets, (50,), 1, ("part", "slow", "slowest"), MASKS),
        RunBlock(drift, (DRIFT_DELAY,), seeds, ("main",)),
        RunBlock(drift, (DRIFT_DELAY,), few, ("fifteen", "ablation")),
        RunBlock(drift, (DRIFT_DELAY,), 1, ("part", "slow", "slowest")),
        RunBlock(large, SET_DELAYS, 1, ("main",), MASKS),
        RunBlock(large, (50,), 1, ("slow",)),
        # No seed decides anything of a file that keeps its order.
        RunBlock(files, (50, 500, 2000), 1, ("main",)),
        RunBlock(files, (2000,), 1, ("ablation",)),
        RunBlock(files, (500,), 1, ("slow",)),
        RunBlock(clouds, MOVING_DELAYS, few, ("main",)),
        RunBlock(clouds, (500, 2000), 1, ("ablation",)),
        RunBlock(clouds, (500,), 1, ("slow", "slowest")),
        RunBlock(clouds, (2000,), 1, ("main",), HALF),
        RunBlock(clouds, (500, 2000), 1, ("main",), late="geometric"),
        RunBlock(rare, (50, 500), few, ("main",)),
        RunBlock(rare, (500,), 1, ("ablation", "slow")),
    ]


def large(streams: Sequence[StreamSource], seeds: int) -> list[RunBlock]:
    """The full run, and beside it all delays, fixed and geometric, with every method."""
    few = min(seeds, 2)
    sets, drift, large, files, clouds, rare = _families(streams)
    blocks = full(streams, seeds)
    for kind in LATE:
        blocks += [
            RunBlock(sets, SET_DELAYS, seeds, ("main", "fifteen"), MASKS, kind),
            RunBlock(sets, SET_DELAYS, 1, EVERY, MASKS, kind),
            RunBlock(drift, (DRIFT_DELAY,), seeds, ("main", "fifteen", "ablation"), late=kind),
            RunBlock(large, SET_DELAYS, 1, ("main", "ablation", "slow"), MASKS, kind),
            RunBlock(files, MOVING_DELAYS, 1, ("main", "ablation", "slow"), late=kind),
            RunBlock(clouds, MOVING_DELAYS, few, ("main", "ablation"), ("none", *HALF), kind),
            RunBlock(clouds, MOVING_DELAYS, 1, ("slow",), ("none", *HALF), kind),
            RunBlock(rare, MOVING_DELAYS, seeds, ("main", "ablation"), late=kind),
        ]
    return blocks


def _families(streams: Sequence[StreamSource]) -> list[tuple[StreamSource, ...]]:
    """The streams by family, in the order of `Family`."""
    return [
        tuple(stream for stream in streams if stream.family == family)
        for family in get_args(Family)
    ]
