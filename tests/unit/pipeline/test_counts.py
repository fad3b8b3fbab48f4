"""What a pair costs the pipeline, by counts: a guard that no busy machine can fail.

Calls of Python functions per pair through the Fold and through the evaluator's pairing, and the
memory blocks that a pair leaves behind, for a fixed run. The limits are a little above what is
counted today, and a test fails when they are far above (docs/speed.md).
"""

import gc
import sys
from collections.abc import Callable
from dataclasses import replace
from types import FrameType

import pytest

from dtgol_core.config import preset
from pipeline.evaluation.pairing import Bounds, Evaluation
from pipeline.kafka.record import Record
from pipeline.learning.fold import Fold
from pipeline.learning.fold_config import FoldConfig
from pipeline.learning.outputs import PartitionRef
from topics.codec import read_prediction, write_features, write_label, write_score
from topics.features import Features
from topics.journal import NO_OFFSET, CopyHeaders
from topics.labels import Label
from topics.predictions import Prediction

REF = PartitionRef("id", "journal", 0, "features", "labels")
COLUMNS, WARM, COUNTED = 16, 300, 200
FOLD_CALLS_MAX = 65
"""Of the pipeline and its contracts, without those inside the learner."""
PAIRING_CALLS_MAX = 175
FOLD_BLOCKS_MAX, PAIRING_BLOCKS_MAX = 8, 5


def journal(streams: int = 1) -> list[list[Record]]:
    """The journal records of each pair, streams in turn; half the cells missing."""
    copies = [CopyHeaders(name, f"id-{name}", 0) for name in ("features", "labels")]
    pairs = []
    for number in range(WARM + COUNTED):
        turn, stream = divmod(number, streams)
        x = {f"f{n}": (number * 7 + n * 3) % 11 / 11 for n in range(COLUMNS) if (turn + n) % 2}
        values = (
            write_features(Features(f"s{stream}", f"i{number}", x, 1_000)),
            write_label(Label(f"s{stream}", f"i{number}", number % 2, 1_000)),
        )
        before = number - 1 if number else NO_OFFSET
        pairs.append(
            [
                Record(
                    "journal",
                    0,
                    2 * number + side,
                    1_000,
                    b"k",
                    value,
                    copies[side].write(number, before, 1_000),
                )
                for side, value in enumerate(values)
            ]
        )
    return pairs


def fold_run(streams: int = 1) -> Callable[[range], None]:
    """Applies pairs to a fold."""
    fold, pairs = Fold(REF, replace(FoldConfig(), learner=preset("light"))), journal(streams)

    def run(numbers: range) -> None:
        for number in numbers:
            for record in pairs[number]:
                fold.apply(record)

    return run


def pairing_run() -> Callable[[range], None]:
    """Gives predictions and their labels to an evaluation, and writes the scores."""
    (output,) = Fold(REF).apply(journal()[0][0])
    like = read_prediction(output.value)
    assert isinstance(like, Prediction)
    state = Evaluation("id", 0, Bounds())
    made = [
        replace(like, id=f"i{n}", at=replace(like.at, offset=n), step=n + 1)
        for n in range(WARM + COUNTED)
    ]

    def run(numbers: range) -> None:
        for number in numbers:
            state.predict(made[number])
            for score in state.label(Label(like.stream, f"i{number}", number % 2, 2_000), number):
                write_score(score)

    return run


RUNS = {
    "fold": (fold_run, FOLD_CALLS_MAX, FOLD_BLOCKS_MAX),
    "pairing": (pairing_run, PAIRING_CALLS_MAX, PAIRING_BLOCKS_MAX),
}


def calls_per_pair(run: Callable[[range], None], packages: tuple[str, ...]) -> float:
    """Calls of Python functions in these packages."""
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        if event == "call":
            calls += frame.f_globals.get("__name__", "").startswith(packages)

    run(range(WARM))
    before = sys.getprofile()
    sys.setprofile(count)
    try:
        run(range(WARM, WARM + COUNTED))
    finally:
        sys.setprofile(before)
    return calls / COUNTED


@pytest.mark.parametrize("name", RUNS)
def test_python_calls_per_pair(name: str) -> None:
    """Without those inside the learner, which has a guard of its own."""
    make, most, _ = RUNS[name]
    packages = ("pipeline", "topics") if name == "fold" else ("",)
    assert most * 0.8 <= calls_per_pair(make(), packages) <= most


def test_a_pair_takes_as_many_calls_with_many_streams_as_with_one() -> None:
    """What it takes more of time is caches that do not hold all of them (docs/speed.md)."""
    one, many = (calls_per_pair(fold_run(streams), ("pipeline", "topics")) for streams in (1, 50))
    assert many == pytest.approx(one, rel=0.02)


@pytest.mark.parametrize("name", RUNS)
def test_memory_blocks_that_a_pair_leaves(name: str) -> None:
    """What is allocated and kept: ids, rows, waiting labels; a leak shows here."""
    make, _, most = RUNS[name]
    run = make()
    run(range(WARM))
    gc.collect()
    before = sys.getallocatedblocks()
    run(range(WARM, WARM + COUNTED))
    gc.collect()
    assert (sys.getallocatedblocks() - before) / COUNTED <= most
