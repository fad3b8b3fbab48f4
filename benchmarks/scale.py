"""One partition with many streams: memory, time per record, snapshots, restore; the evaluator too.

``make speed`` or ``python -m benchmarks.scale``. A fold with few and with many streams is given the
same number of records per stream, one stream after the other; then a snapshot of it is written by a
thread while records go on, and it is restored. The evaluator is given predictions and labels of ten
and a hundred thousand streams. Held: how long the event loop could do nothing else, at most; the
work on one record included. Time is processor time where nothing waits.
"""

import argparse
import gc
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

from pipeline.runtime.environment import prepare

prepare()

from benchmarks.report import table, write_section  # noqa: E402
from benchmarks.step import stream  # noqa: E402
from dtgol_core.config import preset  # noqa: E402
from dtgol_core.state import encode  # noqa: E402
from pipeline.evaluation.pairing import BLOB, Bounds, Evaluation  # noqa: E402
from pipeline.evaluation.view import streams_page  # noqa: E402
from pipeline.faust_ext.app import GC_THRESHOLDS, SWITCH_S  # noqa: E402
from pipeline.kafka.record import Record  # noqa: E402
from pipeline.learning.fold import Fold  # noqa: E402
from pipeline.learning.fold_config import FoldConfig  # noqa: E402
from pipeline.learning.metrics import LearnerMetrics  # noqa: E402
from pipeline.learning.outputs import PartitionRef  # noqa: E402
from pipeline.runtime.warmup import warm_up  # noqa: E402
from pipeline.snapshots.directory import DirectoryStore  # noqa: E402
from pipeline.snapshots.repository import SnapshotRepository  # noqa: E402
from topics.codec import read_prediction, write_features, write_label, write_score  # noqa: E402
from topics.features import Features  # noqa: E402
from topics.journal import NO_OFFSET, CopyHeaders  # noqa: E402
from topics.labels import Label  # noqa: E402
from topics.predictions import Prediction  # noqa: E402

REF = PartitionRef("id", "journal", 0, "features", "labels")
COLUMNS = 16
FEW = 10
EVALUATED = (10_000, 100_000)
Row = list[str]
Given = TypeVar("Given")
Made = TypeVar("Made")


class Journal:
    """Makes the journal records of pairs: features of a stream, and the label of its last ones."""

    def __init__(self) -> None:
        self._offset = 0
        self._writers = [CopyHeaders(name, f"id-{name}", 0) for name in ("features", "labels")]
        self._rows, self._labels = stream(COLUMNS, 2_000)

    def pair(self, name: str, number: int) -> list[Record]:
        x, y = self._rows[number % 2_000], self._labels[number % 2_000]
        values = (
            write_features(Features(name, f"i{number}", x, 1_000)),
            write_label(Label(name, f"i{number}", y, 1_000)),
        )
        made = []
        for side, value in enumerate(values):
            at = self._offset // 2
            headers = self._writers[side].write(at, at - 1 if at else NO_OFFSET, 1_000)
            key = f"i{number}".encode()
            made.append(Record("journal", 0, self._offset, 1_000, key, value, headers))
            self._offset += 1
        return made


def resident_mb() -> float:
    """Memory of this process now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def best_ms(work: Callable[[], object]) -> float:
    """Milliseconds that a call takes, the best of three."""
    taken = []
    for _ in range(3):
        began = time.perf_counter()
        work()
        taken.append(time.perf_counter() - began)
    return min(taken) * 1e3


def held(work: Callable[[Given], Made], given: Given) -> tuple[Made, float]:
    """What a call gives, and how many seconds it has held the loop, see `while_saved`."""
    clock, processor = time.perf_counter(), time.process_time()
    made = work(given)
    return made, min(time.perf_counter() - clock, time.process_time() - processor)


def fill(fold: Fold, journal: Journal, streams: int, records: int) -> float:
    """Give every stream its records; CPU microseconds per pair of the last tenth."""
    last = max(1, records // 10)
    used = 0.0
    for number in range(records):
        for each in range(streams):
            pair = journal.pair(f"s{each}", number)
            began = time.process_time()
            for record in pair:
                fold.apply(record)
            used += (time.process_time() - began) * (number >= records - last)
    return used / (last * streams) * 1e6


def while_saved(fold: Fold, journal: Journal, streams: int, folder: str) -> tuple[float, float]:
    """A snapshot is written while records go on: seconds it took, longest hold in milliseconds.

    A hold is the time of one call, on the clock or of the processor time of the whole process,
    whichever is less: what the thread that writes takes from it counts, other programs do not.
    Collector and threads are set as in a worker.
    """
    repository = SnapshotRepository(DirectoryStore(Path(folder)), 0, {})
    gc.collect()
    gc.freeze()
    began, (taken, longest) = time.perf_counter(), held(fold.snapshot_changed, repository.stored)
    thread = threading.Thread(target=repository.save, args=(taken,))
    thread.start()
    number = 0
    while thread.is_alive():
        pair = journal.pair(f"s{number % streams}", 10_000 + number // streams)
        for record in pair:
            longest = max(longest, held(fold.apply, record)[1])
        number += 1
    return time.perf_counter() - began, longest * 1e3


def streams_row(name: str, streams: int, records: int) -> tuple[Row, Row]:
    """What so many streams of a preset cost."""
    config = replace(
        FoldConfig(), learner=preset(name), streams_max=streams, state_bytes_max=1 << 40
    )
    few = fill(Fold(REF, config), Journal(), FEW, records)
    before, fold, journal = resident_mb(), Fold(REF, config), Journal()
    many = fill(fold, journal, streams, records)
    memory_mb = (resident_mb() - before) / streams
    with tempfile.TemporaryDirectory(prefix="dtgol-scale-") as folder:
        saved_s, longest_ms = while_saved(fold, journal, streams, folder)
        scrape_ms = best_ms(lambda: list(LearnerMetrics(20).fold_samples(fold)))
        counted = fold.streams.state_bytes / streams / 1e6
        fold = Fold(REF)  # the memory of the first goes
        repository = SnapshotRepository(DirectoryStore(Path(folder)), 0, {})
        began = time.perf_counter()
        found = repository.load(lambda *parts: Fold.restore(REF, *parts))
        restored_s = time.perf_counter() - began
        assert found is not None
        assert len(found.streams) == streams
    memory = [f"{counted:.2f}", f"{memory_mb:.2f}"]
    times = [f"{few:.0f}", f"{many:.0f}", f"{restored_s:.1f}"]
    pauses = [f"{saved_s:.1f}", f"{longest_ms:.1f}", f"{scrape_ms:.1f}"]
    return [name, str(streams), *memory, *times], [name, str(streams), *pauses]


def in_its_own_process(name: str, streams: int, records: int) -> tuple[Row, Row]:
    """`streams_row` in a new process: memory that another preset has left would not be seen."""
    context = get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context, initializer=as_a_worker) as pool:
        return pool.submit(streams_row, name, streams, records).result()


def as_a_worker() -> None:
    """Kernels, collector and threads as in a worker."""
    warm_up()
    gc.set_threshold(*GC_THRESHOLDS)
    sys.setswitchinterval(SWITCH_S)


def a_prediction() -> Prediction:
    """One that a fold has made."""
    (output,) = Fold(REF).apply(Journal().pair("s", 0)[0])
    made = read_prediction(output.value)
    assert isinstance(made, Prediction)
    return made


def evaluator_row(streams: int, pairs: int) -> Row:
    """Predictions and labels round and round the streams, as an evaluator takes them in."""
    state, like = Evaluation("id", 0, Bounds()), a_prediction()
    used = 0.0
    for number in range(pairs):
        name, id = f"s{number % streams}", f"i{number}"
        made = replace(like, stream=name, id=id, at=replace(like.at, offset=number), step=1)
        began = time.process_time()
        state.predict(made)
        for score in state.label(Label(name, id, number % 2, 2_000), number):
            write_score(score)
        used += time.process_time() - began
    per_pair = used / pairs * 1e6
    # Rows are kept until they change: the first call makes all of them, as no slice of a page does.
    began = time.perf_counter()
    streams_page({0: state.view}, None, None)
    shown = (time.perf_counter() - began) * 1e3
    saved_s, longest_ms = while_packed(state)
    numbers = f"{saved_s:.1f}", f"{longest_ms:.1f}", f"{shown:.1f}"
    return [f"{streams:,}", f"{1e6 / per_pair:.0f}", f"{per_pair:.0f}", *numbers]


def while_packed(state: Evaluation) -> tuple[float, float]:
    """A thread makes a snapshot: seconds it took, longest hold of others in milliseconds."""
    gc.collect()
    gc.freeze()
    began, (copy, longest) = time.perf_counter(), held(lambda _: state.copy(), None)
    thread = threading.Thread(target=lambda: encode(copy.snapshot().changed[BLOB]))
    thread.start()
    while thread.is_alive():
        longest = max(longest, held(sum, range(100))[1])
    return time.perf_counter() - began, longest * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=1_000)
    parser.add_argument("--records", type=int, default=50, help="pairs per stream")
    parser.add_argument("--pairs", type=int, default=200_000, help="pairs for the evaluator")
    parser.add_argument("--report", type=Path, help="a page whose section gets the tables")
    asked = parser.parse_args()
    as_a_worker()
    presets = "light", "default"
    rows = [in_its_own_process(name, asked.streams, asked.records) for name in presets]
    scored = [evaluator_row(streams, asked.pairs) for streams in EVALUATED]
    head = ["preset", "streams", "MB per learner, counted", "MB per learner, resident"]
    times = [f"CPU µs per pair with {FEW} streams", "with all", "restore, s"]
    pauses = ["preset", "streams", "snapshot, s", "longest hold meanwhile, ms", "/metrics, ms"]
    evaluator = ["streams of the evaluator", "pairs/s", "CPU µs per pair"]
    evaluator += ["snapshot, s", "longest hold meanwhile, ms", "/page.json, ms"]
    about = (
        f"{asked.records} pairs per stream of {COLUMNS} columns, half the cells missing. "
        "`/page.json` is its first call, which makes the rows of all streams; the page itself does "
        "that in slices of 3 ms."
    )
    found = "\n\n".join(
        [
            about,
            table([*head, *times], [row for row, _ in rows]),
            table(pauses, [row for _, row in rows]),
            table(evaluator, scored),
        ]
    )
    print(found)
    if asked.report:
        write_section(asked.report, "scale", found)


if __name__ == "__main__":
    main()
