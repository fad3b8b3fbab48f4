"""What one step costs: one ``observe`` and one ``learn``, in one process and one thread.

``make speed`` or ``python -m benchmarks.step``: the learner beside River's adaptive random forest
and its scaled logistic regression on the same records in the same run, where the time goes, how
the cost grows with columns and buffers, and what compilation costs. Machines are noisy: read the
ratios, not the microseconds. Timed in turns of 200 records each, so that a busy second hurts all
of them alike.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pipeline.runtime.environment import prepare

prepare()

import numpy as np  # noqa: E402

from dtgol_core.config import Config  # noqa: E402
from dtgol_core.experts.paper import Paper  # noqa: E402
from dtgol_core.learner import Learner  # noqa: E402

DELAY = 200
TURN = 200
TRACK = ["score", "answer", "learn", "rehearse", "branch", "restart"]
EXPERT = ["observe", "score", "learn", "forget"]
Step = Callable[[int], None]
Stream = tuple[list[dict[str, float]], list[int]]


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


def dtgol_step(data: Stream, config: Config, delay: int = DELAY) -> tuple[Step, Learner]:
    """The learner's step i: the label of i − delay, then record i."""
    records, labels = data
    learner = Learner(config)

    def step(i: int) -> None:
        if i >= delay:
            learner.learn(str(i - delay), labels[i - delay])
        learner.observe(str(i), records[i])

    return step, learner


def river_step(data: Stream, model: Any) -> Step:
    """A River model's step i, with the same delay."""
    records, labels = data

    def step(i: int) -> None:
        if i >= DELAY:
            model.learn_one(records[i - DELAY], bool(labels[i - DELAY]))
        model.predict_proba_one(records[i])

    return step


def in_turns(steps: dict[str, Step], warm: int, rows: int) -> dict[str, float]:
    """Median microseconds per record of each, measured in interleaved turns."""
    for step in steps.values():
        for i in range(warm):
            step(i)
    turns: dict[str, list[float]] = defaultdict(list)
    for start in range(warm, rows, TURN):
        for name, step in steps.items():
            began = time.perf_counter()
            for i in range(start, min(start + TURN, rows)):
                step(i)
            turns[name].append((time.perf_counter() - began) / TURN * 1e6)
    return {name: statistics.median(taken) for name, taken in turns.items()}


@contextmanager
def stage_clock(learner: Learner) -> Iterator[dict[str, float]]:
    """Seconds spent in the methods of each stage and expert, patched from outside the core."""
    spent: dict[str, float] = defaultdict(float)
    paper = learner.experts["paper"]
    assert isinstance(paper, Paper)
    stages: dict[str, tuple[Any, list[str]]] = {
        "columns": (learner.columns, ["read", "absorb"]),
        "delay table": (
            learner.delay,
            ["open", "add_label", "settle_due", "expire", "expire_early"],
        ),
        "marginals": (learner.marginals, ["absorb", "score"]),
        "scales": (learner.scales, ["absorb", "complete"]),
        "copula": (learner.copula, ["absorb"]),
        "combination": (learner.combination, ["combine", "learn"]),
        "paper: fine buffer": (
            paper.geometry.buffer,
            ["enter", "join_window", "verify", "leave"],
        ),
        "paper: graph": (paper.geometry.graph, ["insert", "evict", "update"]),
        "paper: soft labels": (paper.softlabels, ["spread", "seed"]),
        "paper: track, latent": (paper.latent, TRACK),
        "paper: track, original": (paper.original, TRACK),
    }
    for name, expert in learner.experts.items():
        if expert is not paper:
            stages[name] = (expert, EXPERT)

    def timed(stage: str, method: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **kwargs: object) -> object:
            began = time.perf_counter()
            try:
                return method(*args, **kwargs)
            finally:
                spent[stage] += time.perf_counter() - began

        return call

    for stage, (object_, methods) in stages.items():
        for method in methods:
            setattr(object_, method, timed(stage, getattr(object_, method)))
    yield spent


def against_river(rows: int) -> None:
    from river import compose, forest, linear_model, preprocessing  # noqa: PLC0415

    data = stream(16, rows)
    logistic = compose.Pipeline(preprocessing.StandardScaler(), linear_model.LogisticRegression())
    taken = in_turns(
        {
            "dtgol": dtgol_step(data, Config())[0],
            "River ARFClassifier": river_step(data, forest.ARFClassifier(seed=1)),
            "River scaled logistic regression": river_step(data, logistic),
        },
        warm=600,
        rows=rows,
    )
    print("\n| learner | µs per record | ratio to ARF |\n|---|---:|---:|")
    for name, microseconds in taken.items():
        ratio = microseconds / taken["River ARFClassifier"]
        print(f"| {name} | {microseconds:.0f} | {ratio:.2f} |")


def where_time_goes(rows: int) -> None:
    step, learner = dtgol_step(stream(16, rows), Config())
    for i in range(600):
        step(i)
    with stage_clock(learner) as spent:
        began = time.perf_counter()
        for i in range(600, rows):
            step(i)
        whole = time.perf_counter() - began
    print("\n| stage | share of a step |\n|---|---:|")
    for stage, seconds in sorted(spent.items(), key=lambda item: -item[1]):
        print(f"| {stage} | {seconds / whole:.0%} |")
    print(f"| the rest (and the clock itself) | {1 - sum(spent.values()) / whole:.0%} |")


def growth(rows: int) -> None:
    print("\n| columns | µs per record |\n|---:|---:|")
    for columns in (4, 8, 16, 32, 64, 128):
        step, _ = dtgol_step(stream(columns, rows), Config())
        taken = in_turns({"dtgol": step}, warm=600, rows=rows)
        print(f"| {columns} | {taken['dtgol']:.0f} |")
    print("\n| fine buffer (unverified + verified) | µs per record |\n|---:|---:|")
    for nodes in (100, 200, 300, 500, 1000, 2000):
        unverified = nodes * 2 // 3
        graph = {"unverified": unverified, "verified": nodes - unverified}
        more = rows + 2 * nodes
        step, _ = dtgol_step(stream(16, more), Config.read({"graph": graph}), delay=unverified)
        taken = in_turns({"dtgol": step}, warm=2 * nodes, rows=more)
        print(f"| {nodes} | {taken['dtgol']:.0f} |")


def compilation() -> None:
    """Seconds from importing the learner to its second answer, without and with a kept cache."""
    program = (
        "import time; began = time.perf_counter()\n"
        "from dtgol_core.config import Config; from dtgol_core.learner import Learner\n"
        "learner = Learner(Config()); learner.observe('a', {'x': 1.5, 'y': 1})\n"
        "learner.learn('a', 1); learner.observe('b', {'x': 2.5})\n"
        "print(time.perf_counter() - began)"
    )
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
        for start in ("cold", "warm"):
            taken = subprocess.run(
                [sys.executable, "-c", program], env=environment, capture_output=True, check=True
            )
            print(f"{start} start: {float(taken.stdout):.1f} s from import to the second answer")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=3000, help="records per measurement")
    rows = parser.parse_args().rows
    print(f"python -m benchmarks.step --rows {rows}: 16 columns, half the cells missing,")
    window, graph = Config().copula.window, Config().graph
    print(f"window {window}, {graph.unverified} unverified + {graph.verified} verified,")
    print(f"labels {DELAY} records late")
    against_river(rows)
    where_time_goes(rows)
    compilation()
    growth(rows // 2)


if __name__ == "__main__":
    main()
