"""A finished benchmark -> files in a folder: tables, figures, and every run as CSV."""

import csv
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.bench.figures import critical_difference, curves
from pipeline.bench.jobs import Job
from pipeline.bench.methods import LEGEND, Method
from pipeline.bench.report import Report
from pipeline.bench.scores import Outcome
from pipeline.bench.tally import METRICS, Tally

WILCOXON = (
    "Wilcoxon p: signed-rank test of DT-GOL against one method over the streams, two-sided, not "
    "corrected for the number of methods."
)
PACKAGES = ("dtgol", "numpy", "scipy", "numba", "river")


def write(
    folder: Path,
    outcomes: Mapping[Job, Outcome],
    methods: Sequence[Method],
    command: str,
) -> Tally:
    """Write ``benchmark.md``, ``summary.csv``, ``runs.csv`` and the figures; returns the tally."""
    tally = Tally(outcomes)
    folder.mkdir(parents=True, exist_ok=True)
    figures = _figures(tally, methods)
    for name, text in figures.items():
        (folder / name).write_text(text, encoding="utf-8")
    heading = [*_heading(tally, methods, command), *(f"![{name}]({name})" for name in figures), ""]
    report = Report(tally, methods).text(heading)
    (folder / "benchmark.md").write_text(report, encoding="utf-8")
    _write_runs(folder / "runs.csv", outcomes, methods)
    _write_summary(folder / "summary.csv", tally, methods)
    return tally


def as_json(tally: Tally, methods: Sequence[Method]) -> dict[str, Any]:
    """Mean scores by stream and mean ranks by group, for machines."""
    seven = [method.name for method in methods if method.group == "paper"]
    return {
        "streams": {
            stream: {
                method.name: {
                    metric: round(tally.on(stream, method.name, metric).mean, 6)
                    for metric in METRICS
                }
                for method in methods
            }
            for stream in tally.streams
        },
        "mean_rank": {
            metric: tally.ranking(seven, metric).ranks for metric in ("cer", "auc") if seven
        },
        "us_per_record": {method.name: tally.us_per_record(method.name)[0] for method in methods},
        "reconstructed": [method.name for method in methods if method.reconstructed],
    }


def _heading(tally: Tally, methods: Sequence[Method], command: str) -> list[str]:
    seeds = {
        method: len({job.seed for job in tally.outcomes if job.method == method.name})
        for method in methods
    }
    most = max(seeds.values())
    fewer = [f"{method.marked} {n}" for method, n in seeds.items() if n < most]
    return [
        "# Benchmark",
        "",
        f"`{command}`, {len(tally.streams)} streams, {most} seeds"
        f"{' (fewer: ' + ', '.join(fewer) + ')' if fewer else ''}. Python "
        f"{platform.python_version()}, {', '.join(_versions())}, {platform.machine()}.",
        "",
        *_order_of_rows(tally),
        *([WILCOXON, ""] if any(method.name == "dt-gol" for method in methods) else []),
        *([LEGEND, ""] if any(method.reconstructed for method in methods) else []),
    ]


def _order_of_rows(tally: Tally) -> list[str]:
    """Which files were shuffled: a result on rows in order of time is another result."""
    sources = {job.source for job in tally.outcomes if job.source.path}
    lines = []
    for text, shuffled in (("Shuffled by seed", True), ("In the order of the file", False)):
        names = sorted((s.name for s in sources if s.shuffled == shuffled), key=str.lower)
        lines += [f"{text}: {', '.join(names)}.", ""] if names else []
    return lines


def _versions() -> list[str]:
    known = []
    for package in PACKAGES:
        try:
            known.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return known


def _figures(tally: Tally, methods: Sequence[Method]) -> dict[str, str]:
    titles = {method.name: method.marked for method in methods}
    seven = [method.name for method in methods if method.group == "paper"]
    figures = {}
    if len(seven) > 1 and len(tally.streams) > 1:
        for metric in ("cer", "auc"):
            ranking = tally.ranking(seven, metric)
            figures[f"ranks-{metric}.svg"] = critical_difference(metric.upper(), ranking, titles)
    shown = [m.name for m in methods if m.group in ("paper", "naive")]
    for stream in tally.streams:
        runs = tally.runs(stream, shown[0]) if shown else []
        change = runs[0][0].source.change if runs else 0
        if change:
            lines = [(titles[name], _mean_curve(tally, stream, name)) for name in shown]
            zone = float(change), float(change + runs[0][0].delay)
            title = f"{stream}: accuracy over the last 100 records, mean over seeds"
            figures[f"curve-{stream}.svg"] = curves(title, lines, zone)
    return figures


def _mean_curve(tally: Tally, stream: str, method: str) -> list[tuple[float, float]]:
    every = [outcome.curve for _, outcome in tally.runs(stream, method)]
    points = min(len(curve) for curve in every)
    return [
        (float(every[0][i][0]), float(np.mean([curve[i][1] for curve in every])))
        for i in range(points)
    ]


def _write_runs(path: Path, outcomes: Mapping[Job, Outcome], methods: Sequence[Method]) -> None:
    reconstructed = {method.name: method.reconstructed for method in methods}
    fields = ("rows", "refused", "cer", "auc", "log_loss", "late_cer", "us_per_record")
    zone = ("accuracy", "drop", "recovery")
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        head = ["stream", "missing", "delay", "seed", "method", "reconstructed", *fields]
        writer.writerow([*head, *(f"blind_{name}" for name in zone)])
        for job, outcome in outcomes.items():
            row: list[object] = [job.source.name, job.missing, job.delay, job.seed, job.method]
            row += [reconstructed[job.method]]
            row += [getattr(outcome, name) for name in fields]
            blind = outcome.blind
            row += [None if blind is None else getattr(blind, name) for name in zone]
            writer.writerow(["" if value is None else value for value in row])


def _write_summary(path: Path, tally: Tally, methods: Sequence[Method]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        columns = [f"{metric}_{part}" for metric in METRICS for part in ("mean", "deviation")]
        writer.writerow(["stream", "half", "method", "reconstructed", *columns])
        for stream in tally.streams:
            for method in methods:
                spreads = [tally.on(stream, method.name, metric) for metric in METRICS]
                cells = [f"{x:.6f}" for each in spreads for x in (each.mean, each.deviation)]
                row = [stream, tally.half(stream), method.name, method.reconstructed]
                writer.writerow([*row, *cells])
