"""What one step costs: one ``observe`` and one ``learn``, in processor time.

``make speed`` or ``python -m benchmarks.step``: the learner in two presets beside River's adaptive
random forest and its scaled logistic regression on the same records. Each is a process of its own;
all of them are pinned to one core and take turns of 200 records, so that a busy second hurts all
alike. ``--before CHECKOUT`` adds the learner of another checkout of this repository to the turns.

Other work on the machine still costs caches and clock speed: read the ratios first.
"""

import argparse
import gc
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.runtime.environment import prepare

prepare()

import numpy as np  # noqa: E402

from dtgol_core.config import Config  # noqa: E402
from dtgol_core.learner import Learner  # noqa: E402

DELAY = 200
TURN = 200
WARM = 1200
"""Records before the first that is timed: all windows are full, most trees have grown."""
PRESETS = ("default", "light")
RIVER = ("River ARFClassifier", "River scaled logistic regression")
Step = Callable[[int], None]
Stream = tuple[list[dict[str, float]], list[int]]


class Subject(NamedTuple):
    """What is timed: a preset or a River model, over so many columns, with settings of its own."""

    kind: str
    columns: int = 16
    rows: int = 3000
    delay: int = DELAY
    settings: dict[str, Any] = {}  # noqa: RUF012  # never changed


def stream(columns: int, rows: int, seed: int = 1) -> Stream:
    """Correlated numbers, half the cells missing, a linear concept with noise."""
    rng = np.random.default_rng(seed)
    mixing = rng.normal(size=(columns, columns)) / np.sqrt(columns)
    values = rng.normal(size=(rows, columns)) @ mixing
    seen = rng.random((rows, columns)) < 0.5
    concept = rng.normal(size=columns)
    labels = (values @ concept + 0.3 * rng.normal(size=rows) > 0).astype(int).tolist()
    names = [f"f{column}" for column in range(columns)]
    records = [
        {name: float(v) for name, v, s in zip(names, row, here, strict=True) if s}
        for row, here in zip(values, seen, strict=True)
    ]
    return records, labels


def learner_step(subject: Subject) -> tuple[Step, Learner]:
    """The learner's step i: the label of i − delay, then record i."""
    records, labels = stream(subject.columns, subject.rows)
    preset = {} if subject.kind == "default" else {"preset": subject.kind}
    learner, delay = Learner(Config.read(preset | subject.settings)), subject.delay

    def step(i: int) -> None:
        if i >= delay:
            learner.learn(str(i - delay), labels[i - delay])
        learner.observe(str(i), records[i])

    return step, learner


def river_step(subject: Subject) -> Step:
    """A River model's step i, with the same delay."""
    from river import compose, forest, linear_model, preprocessing  # noqa: PLC0415

    model: Any = forest.ARFClassifier(seed=1)
    if subject.kind != RIVER[0]:
        scaler, regression = preprocessing.StandardScaler(), linear_model.LogisticRegression()
        model = compose.Pipeline(scaler, regression)
    records, labels = stream(subject.columns, subject.rows)

    def step(i: int) -> None:
        if i >= subject.delay:
            model.learn_one(records[i - subject.delay], bool(labels[i - subject.delay]))
        model.predict_proba_one(records[i])

    return step


def serve(subject: Subject) -> None:
    """The child process: for each line ``first last`` the nanoseconds of each of these steps."""
    step = river_step(subject) if subject.kind in RIVER else learner_step(subject)[0]
    # As in a worker: what was loaded is not walked through again and again.
    gc.collect()
    gc.freeze()
    now = time.thread_time_ns
    for line in sys.stdin:
        taken = []
        for i in range(*map(int, line.split())):
            began = now()
            step(i)
            taken.append(now() - began)
        print(json.dumps(taken), flush=True)


class Child:
    """A process that runs one subject, from this checkout or another one."""

    def __init__(self, subject: Subject, checkout: Path | None = None) -> None:
        # The file and not the module: the other checkout's package comes first on the path.
        path = {"PYTHONPATH": str(checkout or Path(__file__).parents[1])}
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--serve", json.dumps(subject._asdict())],
            env={**os.environ, **path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, first: int, last: int) -> list[float]:
        """Microseconds of processor time of each of these steps."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        print(first, last, file=stdin, flush=True)
        return [nanoseconds / 1e3 for nanoseconds in json.loads(stdout.readline())]

    def close(self) -> None:
        """End it."""
        self._process.communicate()


def in_turns(children: dict[str, Child], warm: int, rows: int) -> dict[str, list[list[float]]]:
    """Microseconds of each step by turns, of every child; they end afterwards."""
    for child in children.values():
        child.run(0, warm)
    turns: dict[str, list[list[float]]] = defaultdict(list)
    for first in range(warm, rows, TURN):
        for name, child in children.items():
            turns[name].append(child.run(first, min(first + TURN, rows)))
    for child in children.values():
        child.close()
    return turns


def per_record(turns: list[list[float]]) -> float:
    """The median over turns of the mean of a turn."""
    return statistics.median(statistics.fmean(turn) for turn in turns)


def against_river(rows: int, before: Path | None) -> None:
    """Mean and quantiles of a step, all in one run."""
    children = {f"dtgol, {kind}": Child(Subject(kind, rows=rows)) for kind in PRESETS}
    if before is not None:
        for kind in PRESETS:
            children[f"dtgol, {kind}, before"] = Child(Subject(kind, rows=rows), before)
    children |= {kind: Child(Subject(kind, rows=rows)) for kind in RIVER}
    turns = in_turns(children, WARM, rows)
    forest = per_record(turns[RIVER[0]])
    print("\n| learner | µs per record | ratio to ARF | p50 | p99 | p99.9 | largest |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for name, taken in turns.items():
        mean, steps = per_record(taken), np.concatenate(taken)
        quantiles = np.quantile(steps, (0.5, 0.99, 0.999, 1.0))
        cells = " | ".join(f"{each:.0f}" for each in quantiles)
        print(f"| {name} | {mean:.0f} | {mean / forest:.3f} | {cells} |")


def compare(
    title: str, subjects: Sequence[tuple[str, dict[str, Subject]]], before: Path | None
) -> None:
    """A table with one row for each of the subjects, by preset."""
    presets = list(subjects[0][1])
    columns = [each for name in presets for each in (name, f"{name}, before")[: 1 + bool(before)]]
    print(f"\n| {title} | {' | '.join(columns)} |\n|---:|{'---:|' * len(columns)}", flush=True)
    for name, by_preset in subjects:
        children = {}
        for preset, subject in by_preset.items():
            children[preset] = Child(subject)
            if before is not None:
                children[f"{preset}, before"] = Child(subject, before)
        rows = next(iter(by_preset.values())).rows
        turns = in_turns(children, rows - 5 * TURN, rows)
        cells = " | ".join(f"{per_record(taken):.0f}" for taken in turns.values())
        print(f"| {name} | {cells} |", flush=True)


def growth(rows: int, before: Path | None) -> None:
    """How the cost grows with columns and with the buffer of the graph."""
    wide = [
        (str(columns), {kind: Subject(kind, columns, rows) for kind in PRESETS})
        for columns in (4, 8, 16, 32, 64, 128, 256, 512)
    ]
    compare("columns: µs per record", wide, before)
    buffers = []
    for nodes in (100, 200, 500, 1000, 2000):
        unverified = nodes * 2 // 3
        graph = {"graph": {"unverified": unverified, "verified": nodes - unverified}}
        subject = Subject("default", 16, 2 * nodes + 5 * TURN, unverified, graph)
        buffers.append((str(nodes), {"default": subject}))
    compare("nodes of the graph: µs per record", buffers, before)


@contextmanager
def stage_clock(learner: Learner) -> Iterator[dict[str, float]]:
    """Seconds spent in the methods of each stage and expert, patched from outside the core."""
    spent: dict[str, float] = defaultdict(float)
    stages = {
        "columns": learner.columns,
        "delay table": learner.delay,
        "marginals": learner.marginals,
        "scales": learner.scales,
        "copula": learner.copula,
        "combination": learner.combination,
        "sets": learner.sets,
        **learner.experts,
    }
    inside: list[str] = []

    def timed(stage: str, method: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **kwargs: object) -> object:
            if inside:
                return method(*args, **kwargs)
            inside.append(stage)
            began = time.thread_time()
            try:
                return method(*args, **kwargs)
            finally:
                spent[stage] += time.thread_time() - began
                inside.pop()

        return call

    for stage, holder in stages.items():
        for name in dir(holder):
            method = getattr(holder, name)
            if not name.startswith("_") and callable(method):
                setattr(holder, name, timed(stage, method))
    yield spent


def where_time_goes(rows: int) -> None:
    """Shares of stages and experts, in this process."""
    for kind in PRESETS:
        step, learner = learner_step(Subject(kind, rows=rows))
        for i in range(WARM):
            step(i)
        with stage_clock(learner) as spent:
            began = time.thread_time()
            for i in range(WARM, rows):
                step(i)
            whole = time.thread_time() - began
        print(f"\n| {kind}: stage or expert | share of a step |\n|---|---:|")
        for stage, seconds in sorted(spent.items(), key=lambda item: -item[1]):
            print(f"| {stage} | {seconds / whole:.0%} |")
        print(f"| the rest (and the clock itself) | {1 - sum(spent.values()) / whole:.0%} |")


def repeated(before: Path | None) -> None:
    """What the answer to an id costs that was answered before, which must change nothing."""
    program = (
        "import sys, time\n"
        "from step import Subject, learner_step, stream\n"
        "for kind in ('default', 'light'):\n"
        "    step, learner = learner_step(Subject(kind, delay=2000))\n"
        "    for i in range(2500): step(i)\n"
        "    record, taken = stream(16, 3000)[0][2499], []\n"
        "    for _ in range(40):\n"
        "        began = time.thread_time(); learner.observe('2499', record)\n"
        "        taken.append(time.thread_time() - began)\n"
        "    print(kind, sorted(taken)[20] * 1e6)\n"
    )
    print("\n| a repeated id, 2,000 records waiting | µs |\n|---|---:|")
    for suffix, checkout in (("", Path(__file__).parents[1]), (", before", before)):
        if checkout is not None:
            path = f"{checkout}{os.pathsep}{Path(__file__).parent}"
            environment = {**os.environ, "PYTHONPATH": path}
            command = [sys.executable, "-c", program]
            run = subprocess.run(command, env=environment, capture_output=True, check=True)
            for line in run.stdout.decode().splitlines():
                kind, microseconds = line.split()
                print(f"| {kind}{suffix} | {float(microseconds):.0f} |")


def compilation() -> None:
    """Seconds from importing the learner to its second answer, without and with a kept cache."""
    program = (
        "import time\n"
        "from dtgol_core.config import Config; from dtgol_core.learner import Learner\n"
        "learner = Learner(Config()); learner.observe('a', {'x': 1.5, 'y': 1})\n"
        "learner.learn('a', 1); learner.observe('b', {'x': 2.5})\n"
        "print(time.process_time())"
    )
    print()
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
        for start in ("cold", "warm"):
            taken = subprocess.run(
                [sys.executable, "-c", program], env=environment, capture_output=True, check=True
            )
            seconds = float(taken.stdout)
            print(f"{start} start: {seconds:.1f} s of processor time to the second answer")


def print_tables(rows: int, before: Path | None, only: str | None) -> None:
    """All tables, or the first one only."""
    print(f"python -m benchmarks.step --rows {rows}{' --before CHECKOUT' * bool(before)}:")
    print("16 columns, half the cells missing,")
    window, graph = Config().copula.window, Config().graph
    print(f"window {window}, {graph.unverified} unverified + {graph.verified} verified,")
    print(f"labels {DELAY} records late; processor time on one core", flush=True)
    against_river(rows, before)
    if only:
        return
    repeated(before)
    where_time_goes(rows)
    compilation()
    growth(2200, before)


class Copied(io.StringIO):
    """Text that is printed and kept for the report."""

    def write(self, text: str) -> int:
        sys.__stdout__.write(text)  # type: ignore[union-attr]
        sys.__stdout__.flush()  # type: ignore[union-attr]
        return super().write(text)


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5200, help="records per learner")
    parser.add_argument("--before", type=Path, help="another checkout, to compare with")
    parser.add_argument("--only", choices=["steps"], help="leave out all but the first table")
    parser.add_argument("--report", type=Path, help="a page whose section gets the tables")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.only and given.report:
        parser.error("--only prints one table, and the section of the page is for all of them")
    if given.serve:
        serve(Subject(**json.loads(given.serve)))
        return
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    printed = Copied()
    with redirect_stdout(printed):
        print_tables(given.rows, given.before, given.only)
    if given.report:
        # Not at the top: a child finds this file beside the package of another checkout.
        from benchmarks.report import write_section  # noqa: PLC0415

        write_section(given.report, "step", printed.getvalue())


if __name__ == "__main__":
    main()
