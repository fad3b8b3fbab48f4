"""`dtgol backtest`: the learner on a file, labels L steps late, without any broker."""

import csv
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pipeline.cli import BadInput
from pipeline.cli.codes import codes
from pipeline.cli.progress import progress
from pipeline.cli.rows import row_options

if TYPE_CHECKING:
    from dtgol_core.config import Config
    from pipeline.backtest import Backtest

WARM_UP_ROWS = 64
WARM_UP_WINDOW = 8
"""Small windows fill, overflow and are refreshed within the few rows of the warm-up, so that it
runs every kernel whatever the real windows are."""


@click.command(epilog=codes("backtest"))
@click.argument("file", type=click.Path(path_type=Path))
@row_options
@click.option(
    "--delay",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="How many records late a label is: with 50, that of record 1 is given just before record "
    "51. 0 is the same as 1.",
)
@click.option("--config", type=click.Path(path_type=Path), help="Settings of the learner, TOML.")
@click.option(
    "--ablate",
    default="",
    metavar="NAME,...",
    help="Parts to switch off: copula, marginals, softlabels, dual_track, risk.",
)
@click.option(
    "--predictions",
    type=click.Path(path_type=Path),
    help="Write step,id,p,naive,label of every prediction to this CSV file.",
)
@click.option("--json", "as_json", is_flag=True, help="One line of JSON on stdout.")
def backtest(
    file: Path,
    label: str,
    delay: int,
    missing: str,
    seed: int,
    shuffle: bool,
    config: Path | None,
    ablate: str,
    limit: int | None,
    predictions: Path | None,
    as_json: bool,
) -> None:
    """Run the learner on the records of FILE: CSV with a header line, or JSON lines (.jsonl).

    An empty cell is a missing value. Scores are prequential: every record is predicted before
    its label is given. AUC is exact. The time per record leaves out reading the file and
    compiling the kernels.
    """
    from dtgol_core.config import ConfigError
    from pipeline.files.records import Mask, RecordsError, read_records
    from pipeline.settings.files import read_config

    try:
        settings = read_config(config, filter(None, (name.strip() for name in ablate.split(","))))
        rows = list(
            read_records(
                file,
                label=label,
                mask=Mask.parse(missing),
                seed=seed,
                shuffle=shuffle,
                limit=limit,
            )
        )
    except (ConfigError, RecordsError) as error:
        raise BadInput(str(error)) from None
    if predictions is not None:
        _check_output(predictions, file)

    from dtgol_core.learner import Learner
    from pipeline.backtest import run_backtest

    # A throwaway run compiles or loads the kernels: the time per record is that of the learner.
    run_backtest(rows[:WARM_UP_ROWS], Learner(_small(settings)), 2 * WARM_UP_WINDOW)
    with progress(len(rows), "records") as update:
        result = run_backtest(rows, Learner(settings), max(1, delay), update)
    if predictions is not None:
        _write_predictions(predictions, result)
    _report_losses(result)
    click.echo(json.dumps(_as_json(result)) if as_json else _as_text(result, max(1, delay)))


def _small(settings: "Config") -> "Config":
    graph = replace(settings.graph, unverified=WARM_UP_WINDOW, verified=WARM_UP_WINDOW)
    return replace(settings, graph=graph, copula=replace(settings.copula, window=WARM_UP_WINDOW))


def _check_output(out: Path, file: Path) -> None:
    """Find out before the run, not after it, that its predictions cannot be written."""
    if out.exists() and out.samefile(file):
        raise BadInput(f"the predictions would overwrite {file}")
    try:
        out.open("a").close()
    except OSError as error:
        raise BadInput(f"cannot write {out}: {error.strerror}") from None


def _write_predictions(out: Path, result: "Backtest") -> None:
    with out.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["step", "id", "p", "naive", "label"])
        for step, row, p, naive, label in result.predictions:
            writer.writerow([step, row, repr(p), repr(naive), "" if label is None else label])


def _report_losses(result: "Backtest") -> None:
    """Say what is missing from the scores, or from what was learnt, and why."""
    if result.rejected:
        reasons = ", ".join(f"{reason} {count}" for reason, count in result.rejected.items())
        count = sum(result.rejected.values())
        click.echo(f"{count} records were refused and are not in the scores: {reasons}", err=True)
    lost = {outcome: count for outcome, count in result.labels.items() if outcome != "queued"}
    if lost:
        reasons = ", ".join(f"{outcome} {count}" for outcome, count in lost.items())
        click.echo(f"{sum(lost.values())} labels were not learnt: {reasons}", err=True)


def _as_json(result: "Backtest") -> dict[str, Any]:
    forecast, naive = result.scores()
    return {
        "records": len(result.predictions),
        "cer": forecast.cer,
        "auc": forecast.auc,
        "logloss": forecast.log_loss,
        "naive_cer": naive.cer,
        "naive_auc": naive.auc,
        "us_per_record": result.us_per_record,
    }


def _as_text(result: "Backtest", delay: int) -> str:
    forecast, naive = result.scores()
    late, late_naive = result.scores(first_step=delay + 1)
    lines = [f"{'':24}{'forecast':>10}{'naive':>10}"]
    for name, ours, theirs in (
        ("CER", forecast.cer, naive.cer),
        (f"CER from step {delay + 1}", late.cer, late_naive.cer),
        ("AUC", forecast.auc, naive.auc),
        ("log loss", forecast.log_loss, naive.log_loss),
    ):
        lines.append(f"{name:24}{_number(ours):>10}{_number(theirs):>10}")
    speed = result.us_per_record
    lines.append(
        f"{len(result.predictions)} records, {'-' if speed is None else f'{speed:.0f}'} µs each, "
        f"peak memory {_peak_memory_mb():.0f} MB"
    )
    return "\n".join(lines)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _peak_memory_mb() -> float:
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1 << 20 if sys.platform == "darwin" else 1 << 10)  # bytes there, KB elsewhere
