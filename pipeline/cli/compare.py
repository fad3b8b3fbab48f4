"""`dtgol compare`: every method on every stream. Resumable: finished runs are kept on disk."""

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipeline.cli.exit_codes import help_line
from pipeline.cli.options import comma_list, echo_json, json_option
from pipeline.cli.progress import progress
from pipeline.errors import InputError

if TYPE_CHECKING:
    from dtgol_core.streams import Delays
    from pipeline.offline.compare.jobs import Job, RunBlock

DRIFT_ROWS, MOVING_ROWS, RARE_ROWS = 10_000, 8_000, 10_000
QUICK_ROWS, QUICK_DELAY, QUICK_SEEDS = 2_000, 100, 1
SEEDS = 5


@click.command(epilog=help_line("compare"))
@click.option(
    "--quick",
    is_flag=True,
    help=f"Short: one delay, {QUICK_SEEDS} seed, no slow methods. On generated streams, in under "
    f"two minutes; with --data on the first {QUICK_ROWS:,} rows of each of its files.",
)
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    envvar="DTGOL_DATA",
    help="Run on the CSV files of this folder, and on nothing else unless --generated is given: "
    "the label in the column `label`, rows in the order of time. Files in its sub-folder `moving` "
    "are streams whose classes move.  [env: DTGOL_DATA]",
)
@click.option(
    "--generated",
    is_flag=True,
    help="Run on the generated streams too; without --data on these alone.",
)
@click.option(
    "--shuffle",
    is_flag=True,
    help="Shuffle the rows of every file by the seed, those of `moving` excepted. Without it only "
    "the paper's sets that have no order in time are shuffled (australian, …, known by name).",
)
@click.option(
    "--large",
    is_flag=True,
    help="Every delay, fixed and geometric, and slow methods on more of it: some three hours on "
    "two cores.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("compare-results"),
    show_default=True,
    help="Folder for tables and figures; finished runs are kept in it too.",
)
@click.option(
    "--report",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the tables to this page in place of benchmark.md in the output folder, figures "
    "beside it. Of a page that is there only the part between its two marks is written.",
)
@click.option(
    "--delays",
    type=click.Choice(["fixed", "uniform", "geometric"]),
    help="All labels equally late, or by chance with the same mean.  [default: fixed, and "
    "geometric too on moving clouds]",
)
@click.option("--seeds", type=click.IntRange(min=1), help=f"Default {SEEDS}, quick {QUICK_SEEDS}.")
@click.option("--methods", default="", metavar="NAME,...", help="Only these; default all.")
@click.option("--processes", type=click.IntRange(min=1), help="Default: one per core.")
@click.option("--plan", "plan_only", is_flag=True, help="Show what would be run, and stop.")
@click.option("--no-run", is_flag=True, help="Run nothing; write the tables of the finished seeds.")
@json_option
def compare(
    quick: bool,
    data: Path | None,
    generated: bool,
    shuffle: bool,
    large: bool,
    out: Path,
    report: Path | None,
    delays: "Delays | None",
    seeds: int | None,
    methods: str,
    processes: int | None,
    plan_only: bool,
    no_run: bool,
    as_json: bool,
) -> None:
    """Run all methods on the same streams, masks and delays, and rank them.

    Writes benchmark.md, summary.csv, runs.csv and SVG figures to the output folder. A run that was
    stopped goes on where it was; code or settings that changed are run again. docs/benchmark.md is
    --data with --generated, sized for 40 minutes on two cores: slow methods and ablations have
    fewer seeds and delays, and the page says so.
    """
    from pipeline.offline.compare import output
    from pipeline.offline.compare.jobs import plan
    from pipeline.offline.compare.methods import (
        LEGEND,
        LIBRARIES,
        NO_PEERS,
        absent_libraries,
        choose,
    )
    from pipeline.offline.compare.run import RunStore, remaining_seconds, run_all, whole_seeds
    from pipeline.runtime.warmup import warm_up

    chosen = choose(comma_list(methods))
    blocks = _blocks(quick, data, generated, large, seeds, shuffle)
    if delays is not None:
        blocks = [replace(block, late=delays) for block in blocks]
    for library in absent_libraries() if not methods else ():
        left_out = NO_PEERS.format(LIBRARIES[library], "its learners are left out")
        click.echo(left_out, err=True)
    jobs = plan(blocks, chosen)
    if plan_only:
        click.echo(_show_plan(jobs, processes or _cores()))
        return
    try:
        store = RunStore(out / "runs")
    except OSError as error:
        raise InputError(f"cannot write to {out}: {error.strerror}") from None
    if report is not None:
        output.check_page(report)
    if no_run:
        outcomes = whole_seeds(jobs, store)
        there = {job.method for job in outcomes}
        chosen = [method for method in chosen if method.name in there]
        if not chosen:
            raise InputError(
                f"there is no whole seed of any method in {out}: run it without --no-run"
            )
    else:
        left = remaining_seconds(jobs, store)
        used = processes or _cores()
        click.echo(
            f"{len(jobs)} runs, about {left / 60:.0f} minutes of processor time left, "
            f"{left / 60 / used:.0f} on {used} processes",
            err=True,
        )
        if left:
            warm_up()  # once here, so that no two processes compile the same
        with progress(round(left), "processor seconds (estimate)") as update:
            outcomes = run_all(jobs, store, used, update)
    comparison = output.write(out, outcomes, chosen, _command(), report)
    if as_json:
        echo_json(output.as_json(comparison, chosen))
        return
    seven = {method.name: method.marked for method in chosen if method.group == "paper"}
    if len(seven) > 1:
        names = list(seven)
        ranked = output.fifteen(comparison).common(names)
        click.echo(
            _ranks(seven, ranked.ranking(names, "cer").ranks, ranked.ranking(names, "auc").ranks)
        )
        if any(method.reconstructed for method in chosen):
            click.echo(LEGEND)
    click.echo(f"The tables are in {report or out / 'benchmark.md'}")


def _blocks(
    quick: bool,
    data: Path | None,
    generated: bool,
    large: bool,
    seeds: int | None,
    shuffle: bool,
) -> "list[RunBlock]":
    from pipeline.offline.compare import profiles, sources

    if not (quick or generated or data is not None):
        raise InputError(
            "name what to run on: --data DIR, a folder with CSV files; --generated; "
            "both; or --quick"
        )
    streams = []
    if data is not None:
        limit = QUICK_ROWS if quick else None
        streams += sources.files(data, shuffle, limit) + sources.moving_files(data, limit)
    if generated or data is None:
        drift, moving, rare = [QUICK_ROWS] * 3 if quick else (DRIFT_ROWS, MOVING_ROWS, RARE_ROWS)
        streams += sources.generated(drift) + sources.generated_moving(moving, rare)
    if quick:
        return profiles.quick(streams, seeds or QUICK_SEEDS, QUICK_DELAY)
    return (profiles.large if large else profiles.full)(streams, seeds or SEEDS)


def _show_plan(jobs: "list[Job]", processes: int) -> str:
    """Runs, records and expected processor minutes by family of streams and by method."""
    lines = [f"{'':20}{'runs':>8}{'records':>14}{'minutes':>9}"]

    def add(title: str, some: "list[Job]") -> None:
        records = sum(job.source.rows for job in some)
        minutes = sum(job.seconds_estimate for job in some) / 60
        lines.append(f"{title:20}{len(some):8}{records:14,}{minutes:9.1f}")

    for family in dict.fromkeys(job.source.family for job in jobs):
        add(family, [job for job in jobs if job.source.family == family])
    for method in dict.fromkeys(job.method for job in jobs):
        add(method, [job for job in jobs if job.method == method])
    add("all", jobs)
    minutes = sum(job.seconds_estimate for job in jobs) / 60 / processes
    lines.append(f"about {minutes:.0f} minutes on {processes} processes")
    return "\n".join(lines)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _command() -> str:
    return " ".join(["dtgol", *sys.argv[1:]])


def _ranks(titles: dict[str, str], cer: dict[str, float], auc: dict[str, float]) -> str:
    lines = [f"{'mean rank':16}{'CER':>8}{'AUC':>8}"]
    for name in sorted(titles, key=lambda name: cer[name]):
        lines.append(f"{titles[name]:16}{cer[name]:8.2f}{auc[name]:8.2f}")
    return "\n".join(lines)
