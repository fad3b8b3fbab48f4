"""`dtgol bench`: every method on every stream. Resumable: finished runs are kept on disk."""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipeline.cli import BadInput
from pipeline.cli.codes import codes
from pipeline.cli.progress import progress

if TYPE_CHECKING:
    from dtgol_core.streams import Delays
    from pipeline.bench.jobs import Protocol

DRIFT_ROWS, DRIFT_DELAY = 10_000, 500
QUICK_ROWS, QUICK_DELAY, QUICK_SEEDS = 2_000, 100, 1
SEEDS = 5


@click.command(epilog=codes("bench"))
@click.option("--quick", is_flag=True, help="Generated streams only, short: under two minutes.")
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    envvar="DTGOL_DATA",
    help="Folder with CSV files, the label in the column `label`, rows in the order of time.  "
    "[env: DTGOL_DATA]",
)
@click.option(
    "--shuffle",
    is_flag=True,
    help="Shuffle the rows of every file by the seed. Without it only the paper's sets that have "
    "no order in time are shuffled (australian, credit, …, known by name).",
)
@click.option("--large", is_flag=True, help="With the larger sets too: magic04, electricity.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("bench-results"),
    show_default=True,
    help="Folder for tables and figures; finished runs are kept in it too.",
)
@click.option(
    "--delays",
    type=click.Choice(["fixed", "uniform", "geometric"]),
    default="fixed",
    show_default=True,
    help="All labels equally late, or by chance with the same mean.",
)
@click.option("--seeds", type=click.IntRange(min=1), help=f"Default {SEEDS}, quick {QUICK_SEEDS}.")
@click.option("--methods", default="", metavar="NAME,...", help="Only these; default all.")
@click.option("--processes", type=click.IntRange(min=1), help="Default: one per core.")
@click.option("--no-run", is_flag=True, help="Run nothing; write the tables of the finished seeds.")
@click.option("--json", "as_json", is_flag=True, help="One line of JSON on stdout.")
def bench(
    quick: bool,
    data: Path | None,
    shuffle: bool,
    large: bool,
    out: Path,
    delays: "Delays",
    seeds: int | None,
    methods: str,
    processes: int | None,
    no_run: bool,
    as_json: bool,
) -> None:
    """Run all methods on the same streams, masks and delays, and say which is best.

    Writes benchmark.md, summary.csv, runs.csv and SVG figures to the output folder. A run that was
    stopped goes on where it was; code or settings that changed are run again.
    """
    from pipeline.bench import output
    from pipeline.bench.jobs import plan
    from pipeline.bench.methods import LEGEND, NO_RIVER, MethodError, choose, without_river
    from pipeline.bench.run import Store, remaining_records, run_all, whole_seeds
    from pipeline.files.records import RecordsError

    try:
        chosen = choose(filter(None, (name.strip() for name in methods.split(","))))
        protocol = replace(_protocol(quick, data, large, seeds, shuffle), late=delays)
    except (MethodError, RecordsError) as error:
        raise BadInput(str(error)) from None
    if not methods and without_river():
        click.echo(NO_RIVER.format("its learners are left out"), err=True)
    jobs = plan(protocol, chosen)
    try:
        store = Store(out / "runs")
    except OSError as error:
        raise BadInput(f"cannot write to {out}: {error.strerror}") from None
    if no_run:
        outcomes = whole_seeds(jobs, store)
        there = {job.method for job in outcomes}
        chosen = [method for method in chosen if method.name in there]
        if not chosen:
            raise BadInput(
                f"there is no whole seed of any method in {out}: run it without --no-run"
            )
    else:
        with progress(remaining_records(jobs, store), "records") as update:
            outcomes = run_all(jobs, store, processes or _cores(), update)
    tally = output.write(out, outcomes, chosen, _command())
    if as_json:
        click.echo(json.dumps(output.as_json(tally, chosen)))
        return
    seven = {method.name: method.marked for method in chosen if method.group == "paper"}
    if len(seven) > 1:
        names = list(seven)
        click.echo(
            _ranks(seven, tally.ranking(names, "cer").ranks, tally.ranking(names, "auc").ranks)
        )
        if any(method.reconstructed for method in chosen):
            click.echo(LEGEND)
    click.echo(f"The tables are in {out / 'benchmark.md'}")


def _protocol(
    quick: bool, data: Path | None, large: bool, seeds: int | None, shuffle: bool
) -> "Protocol":
    from pipeline.bench.jobs import Protocol
    from pipeline.bench.sources import files, generated

    if quick:
        streams = tuple(generated(QUICK_ROWS))
        return Protocol((), streams, QUICK_DELAY, seeds or QUICK_SEEDS)
    if data is None:
        raise BadInput("the full benchmark needs --data DIR, a folder with CSV files; or --quick")
    streams = tuple(generated(DRIFT_ROWS))
    return Protocol(tuple(files(data, large, shuffle)), streams, DRIFT_DELAY, seeds or SEEDS)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _command() -> str:
    return " ".join(["dtgol", *sys.argv[1:]])


def _ranks(titles: dict[str, str], cer: dict[str, float], auc: dict[str, float]) -> str:
    lines = [f"{'mean rank':16}{'CER':>8}{'AUC':>8}"]
    for name in sorted(titles, key=lambda name: cer[name]):
        lines.append(f"{titles[name]:16}{cer[name]:8.2f}{auc[name]:8.2f}")
    return "\n".join(lines)
