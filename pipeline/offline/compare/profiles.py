"""The plans of `dtgol compare`: quick, the full run, and the large one without limits.

Methods that take more than half a millisecond per record (River's forests, retrained boosting) and
the ablations of DT-GOL have fewer seeds and delays in the full run, and the weaker methods of the
paper's table are run on its fifteen streams alone; a table with them has only the runs that all of
its methods share.
"""

from collections.abc import Sequence
from typing import get_args

from dtgol_core.streams import Delays
from pipeline.offline.compare.jobs import Block
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


def quick(streams: Sequence[StreamSource], seeds: int, delay: int) -> list[Block]:
    """One delay, nothing hidden: all but what is slow."""
    return [Block(tuple(streams), (delay,), seeds, ("main", "fifteen", "ablation"))]


def full(streams: Sequence[StreamSource], seeds: int) -> list[Block]:
    """The tables of docs/benchmark.md."""
    few = min(seeds, 2)
    sets, drift, large, files, clouds, rare = _families(streams)
    return [
        Block(sets, SET_DELAYS, seeds, ("main", "fifteen"), MASKS),
        Block(sets, (10, 100), few, ("ablation",), MASKS),
        Block(sets, (50,), 1, ("part", "slow", "slowest"), MASKS),
        Block(drift, (DRIFT_DELAY,), seeds, ("main",)),
        Block(drift, (DRIFT_DELAY,), few, ("fifteen", "ablation")),
        Block(drift, (DRIFT_DELAY,), 1, ("part", "slow", "slowest")),
        Block(large, SET_DELAYS, 1, ("main",), MASKS),
        Block(large, (50,), 1, ("slow",)),
        # No seed decides anything of a file that keeps its order.
        Block(files, (50, 500, 2000), 1, ("main",)),
        Block(files, (2000,), 1, ("ablation",)),
        Block(files, (500,), 1, ("slow",)),
        Block(clouds, MOVING_DELAYS, few, ("main",)),
        Block(clouds, (500, 2000), 1, ("ablation",)),
        Block(clouds, (500,), 1, ("slow", "slowest")),
        Block(clouds, (2000,), 1, ("main",), HALF),
        Block(clouds, (500, 2000), 1, ("main",), late="geometric"),
        Block(rare, (50, 500), few, ("main",)),
        Block(rare, (500,), 1, ("ablation", "slow")),
    ]


def large(streams: Sequence[StreamSource], seeds: int) -> list[Block]:
    """The full run, and beside it all delays, fixed and geometric, with every method."""
    few = min(seeds, 2)
    sets, drift, large, files, clouds, rare = _families(streams)
    blocks = full(streams, seeds)
    for kind in LATE:
        blocks += [
            Block(sets, SET_DELAYS, seeds, ("main", "fifteen"), MASKS, kind),
            Block(sets, SET_DELAYS, 1, EVERY, MASKS, kind),
            Block(drift, (DRIFT_DELAY,), seeds, ("main", "fifteen", "ablation"), late=kind),
            Block(large, SET_DELAYS, 1, ("main", "ablation", "slow"), MASKS, kind),
            Block(files, MOVING_DELAYS, 1, ("main", "ablation", "slow"), late=kind),
            Block(clouds, MOVING_DELAYS, few, ("main", "ablation"), ("none", *HALF), kind),
            Block(clouds, MOVING_DELAYS, 1, ("slow",), ("none", *HALF), kind),
            Block(rare, MOVING_DELAYS, seeds, ("main", "ablation"), late=kind),
        ]
    return blocks


def _families(streams: Sequence[StreamSource]) -> list[tuple[StreamSource, ...]]:
    """The streams by family, in the order of `Family`."""
    return [
        tuple(stream for stream in streams if stream.family == family)
        for family in get_args(Family)
    ]
