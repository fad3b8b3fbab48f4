"""A finished comparison -> files: a page of tables, figures, and every run as CSV."""

import csv
import platform
from collections import defaultdict
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.errors import InputError
from pipeline.offline.compare.figures import critical_difference, curves
from pipeline.offline.compare.jobs import Job
from pipeline.offline.compare.markdown import table
from pipeline.offline.compare.methods import LEGEND, Method
from pipeline.offline.compare.report import BenchmarkPage
from pipeline.offline.compare.scores import Outcome
from pipeline.offline.compare.tally import METRICS, Comparison

WILCOXON = (
    "Wilcoxon p: signed-rank test of DT-GOL against one method over the streams, two-sided, not "
    "corrected for the number of methods."
)
PACKAGES = ("dtgol", "numpy", "scipy", "numba", "river", "scikit-learn")
BEGIN, END = "<!-- written by dtgol compare -->", "<!-- end of what dtgol compare has written -->"


def write(
    folder: Path,
    outcomes: Mapping[Job, Outcome],
    methods: Sequence[Method],
    command: str,
    page: Path | None = None,
) -> Comparison:
    """Write ``summary.csv``, ``runs.csv``, the page and its figures; returns the tally.

    The page is ``benchmark.md`` in the folder, or another; its figures are in ``figures`` beside
    it. Of a page that is there only the part between the two marks is written.
    """
    page = page or folder / "benchmark.md"
    folder.mkdir(parents=True, exist_ok=True)
    before, after = _around(page)
    tally = Comparison(outcomes)
    figures = _figures(tally, methods)
    (page.parent / "figures").mkdir(parents=True, exist_ok=True)
    for name, text in figures.items():
        (page.parent / "figures" / name).write_text(text, encoding="utf-8")
    links = [f"![{name}](figures/{name})" for name in figures]
    heading = [*_heading(tally, methods, command), *links, ""]
    report = BenchmarkPage(tally, methods).text(heading)
    page.write_text(f"{before}{BEGIN}\n\n{report}\n{END}\n{after}", encoding="utf-8")
    _write_runs(folder / "runs.csv", outcomes, methods)
    _write_summary(folder / "summary.csv", tally, methods)
    return tally


def check_page(page: Path) -> None:
    """Raise if a page cannot be written: better before a long run than after it."""
    if not page.parent.is_dir():
        raise InputError(f"cannot write {page}: there is no folder {page.parent}")
    _around(page)


def _around(page: Path) -> tuple[str, str]:
    """What a page has before and after the part that is written here."""
    try:
        text = page.read_text(encoding="utf-8")
    except FileNotFoundError:
        return "# Benchmark\n\n", ""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise InputError(
            f"{page} is there and has no part for the tables: put the lines {BEGIN} and {END} "
            "where they should stand, or name a new file"
        )
    return before, after.removeprefix("\n")


def as_json(tally: Comparison, methods: Sequence[Method]) -> dict[str, Any]:
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
                if tally.runs(stream, method.name)
            }
            for stream in tally.streams
        },
        "mean_rank": {
            metric: fifteen(tally).common(seven).ranking(seven, metric).ranks
            for metric in ("cer", "auc")
            if seven
        },
        "us_per_record": {method.name: tally.us_per_record(method.name)[0] for method in methods},
        "reconstructed": [method.name for method in methods if method.reconstructed],
    }


def _heading(tally: Comparison, methods: Sequence[Method], command: str) -> list[str]:
    return [
        "## What was run",
        "",
        f"`{command}`, {len(tally.streams)} streams, {len(tally.outcomes):,} runs. Python "
        f"{platform.python_version()}, {', '.join(_versions())}, {platform.machine()}.",
        "",
        *_runs_by_family(tally, methods),
        "",
        *_order_of_rows(tally),
        *([WILCOXON, ""] if any(method.name == "dt-gol" for method in methods) else []),
        *([LEGEND, ""] if any(method.reconstructed for method in methods) else []),
    ]


def _runs_by_family(tally: Comparison, methods: Sequence[Method]) -> list[str]:
    """Which methods had how many seeds and delays: slow ones have fewer."""
    seeds: dict[tuple[object, ...], set[int]] = defaultdict(set)
    for job in tally.outcomes:
        seeds[job.method, job.source.family, job.missing, job.delay, job.late].add(job.seed)
    runs: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for method in methods:
        cells: dict[tuple[str, str, str, int], list[int]] = defaultdict(list)
        for (name, family, missing, delay, late), each in seeds.items():
            if name == method.name:
                cells[str(family), str(missing), str(late), len(each)].append(int(str(delay)))
        for (family, missing, late, count), delays in cells.items():
            listed = ", ".join(map(str, sorted(delays)))
            runs[family, missing, late, listed, str(count)].append(method.marked)
    rows = sorted([*cell, ", ".join(names)] for cell, names in runs.items())
    return table(["streams", "missing", "delays", "L", "seeds", "methods"], rows)


def fifteen(tally: Comparison) -> Comparison:
    """Of the sets and the streams with one change, which methods are ranked on."""
    return tally.where(lambda job: job.source.family in ("sets", "drift"))


def _order_of_rows(tally: Comparison) -> list[str]:
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


def _figures(tally: Comparison, methods: Sequence[Method]) -> dict[str, str]:
    titles = {method.name: method.marked for method in methods}
    seven = [method.name for method in methods if method.group == "paper"]
    figures = {}
    ranked = fifteen(tally).common(seven)
    if len(seven) > 1 and len(ranked.streams) > 1:
        for metric in ("cer", "auc"):
            ranking = ranked.ranking(seven, metric)
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


def _mean_curve(tally: Comparison, stream: str, method: str) -> list[tuple[float, float]]:
    every = [outcome.curve for _, outcome in tally.runs(stream, method)]
    points = min(len(curve) for curve in every)
    return [
        (float(every[0][i][0]), float(np.mean([curve[i][1] for curve in every])))
        for i in range(points)
    ]


def _write_runs(path: Path, outcomes: Mapping[Job, Outcome], methods: Sequence[Method]) -> None:
    reconstructed = {method.name: method.reconstructed for method in methods}
    fields = (
        "rows", "refused", "cer", "auc", "log_loss", "ece", "average_precision", "late_cer",
        "first_cer", "us_per_record",
    )  # fmt: skip
    zone, prefix = ("accuracy", "drop", "recovery"), ("nats", "errors")
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        head = ["stream", "missing", "delay", "delays", "seed", "method", "reconstructed", *fields]
        head += [f"blind_{name}" for name in zone] + [f"worst_{name}" for name in prefix]
        writer.writerow(head)
        for job, outcome in outcomes.items():
            row: list[object] = [job.source.name, job.missing, job.delay, job.late, job.seed]
            row += [job.method, reconstructed[job.method]]
            row += [getattr(outcome, name) for name in fields]
            for part, names in ((outcome.blind, zone), (outcome.worst, prefix)):
                row += [None if part is None else getattr(part, name) for name in names]
            writer.writerow(["" if value is None else value for value in row])


def _write_summary(path: Path, tally: Comparison, methods: Sequence[Method]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        columns = [f"{metric}_{part}" for metric in METRICS for part in ("mean", "deviation")]
        writer.writerow(["stream", "half", "method", "reconstructed", *columns])
        for stream in tally.streams:
            for method in methods:
                if not tally.runs(stream, method.name):
                    continue
                spreads = [tally.on(stream, method.name, metric) for metric in METRICS]
                cells = [f"{x:.6f}" for each in spreads for x in (each.mean, each.deviation)]
                row = [stream, tally.half(stream), method.name, method.reconstructed]
                writer.writerow([*row, *cells])
