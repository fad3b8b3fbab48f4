"""`dtgol backtest`: the learner on a file, labels L steps late, without any broker."""

import csv
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pipeline.cli.exit_codes import help_line
from pipeline.cli.options import (
    RowSource,
    comma_list,
    echo_json,
    json_option,
    row_options,
)
from pipeline.cli.progress import progress
from pipeline.errors import InputError

if TYPE_CHECKING:
    from dtgol_core.config import DecisionConfig
    from pipeline.offline.backtest import Backtest, Scores
    from pipeline.offline.files.source import Source


@click.command(epilog=help_line("backtest"))
@row_options
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
@click.option(
    "--report",
    type=click.Path(path_type=Path),
    help="Write curves, calibration, weights, features by importance and a comparison to this HTML "
    "file, which needs no network.",
)
@json_option
def backtest(
    file: RowSource,
    delay: int,
    config: Path | None,
    ablate: str,
    predictions: Path | None,
    report: Path | None,
    as_json: bool,
) -> None:
    """Run the learner on the records of FILE: CSV with a header line, or JSON lines (.jsonl).

    Columns of a CSV file are separated by comma, semicolon or tab. FILE may be gzipped (.gz), or -
    for standard input. What each column is taken for is printed first. Scores are prequential:
    every record is predicted before its label is given. AUC is exact. The time per record leaves
    out reading the file and compiling the kernels; with --report it has the reasons of some records
    in it.
    """
    from pipeline.settings.files import read_config

    settings = read_config(config, comma_list(ablate))
    for name, out in (("predictions", predictions), ("report", report)):
        if out is not None:
            _check_output(out, file.source, name)
    rows, table = file.read()
    click.echo("\n".join(table.describe()), err=True)

    from dtgol_core.learner import Learner
    from pipeline.offline.backtest import run_backtest
    from pipeline.runtime.warmup import warm_up

    warm_up()  # the time per record is that of the learner
    learner: Any = Learner(settings)
    if report is not None:
        from pipeline.offline.report import ReportedLearner

        learner = ReportedLearner(learner, rows, settings.decision.label_1_above)
    with progress(len(rows), "records") as update:
        threshold = settings.decision.label_1_above
        result = run_backtest(rows, learner, max(1, delay), update, threshold)
    if report is not None:
        title = Path(str(file.source)).name
        report.write_text(learner.report(result, title, max(1, delay)), encoding="utf-8")
    if predictions is not None:
        _write_predictions(predictions, result, {row.number: row.id for row in rows if row.id})
    _report_losses(result)
    if as_json:
        echo_json(_as_json(result, settings.decision))
    else:
        click.echo(_as_text(result, max(1, delay), settings.decision))


def _check_output(out: Path, source: "Source", what: str) -> None:
    """Check before the run that what it gives can be written."""
    if source.is_file(out):
        raise InputError(f"the {what} would overwrite {source}")
    try:
        out.open("a").close()
    except OSError as error:
        raise InputError(f"cannot write {out}: {error.strerror}") from None


def _write_predictions(out: Path, result: "Backtest", ids: dict[int, str]) -> None:
    with out.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["step", "id", "p", "naive", "label"])
        for step, row, p, naive, label, _ in result.predictions:
            writer.writerow(
                [step, ids.get(row, row), repr(p), repr(naive), "" if label is None else label]
            )


def _report_losses(result: "Backtest") -> None:
    """Report what is missing from the scores, or from what was learnt, and why."""
    if result.rejected:
        reasons = ", ".join(f"{reason} {count}" for reason, count in result.rejected.items())
        count = sum(result.rejected.values())
        click.echo(f"{count} records were refused and are not in the scores: {reasons}", err=True)
    lost = {outcome: count for outcome, count in result.labels.items() if outcome != "queued"}
    if lost:
        reasons = ", ".join(f"{outcome} {count}" for outcome, count in lost.items())
        click.echo(f"{sum(lost.values())} labels were not learnt: {reasons}", err=True)
    for setting, count in result.late.items():
        click.echo(
            f"{count} labels came after their instances had expired by {setting}: raise it, or set "
            f"delay.expired to learn a default label then",
            err=True,
        )


def _as_json(result: "Backtest", decision: "DecisionConfig") -> dict[str, Any]:
    forecast, naive = result.scores()
    sets = result.set_scores()
    return {
        "records": len(result.predictions),
        "cer": forecast.cer,
        "auc": forecast.auc,
        "logloss": forecast.log_loss,
        "naive_cer": naive.cer,
        "naive_auc": naive.auc,
        "majority_cer": result.majority_cer,
        "us_per_record": result.us_per_record,
        "refused": dict(result.rejected),
        "labels": dict(result.labels),
        "labels_late": dict(result.late),
        "threshold": result.threshold,
        "precision": forecast.precision,
        "recall": forecast.recall,
        "false_positives": forecast.false_positives,
        "false_negatives": forecast.false_negatives,
        "cost": _cost(forecast, decision),
        "naive_precision": naive.precision,
        "naive_recall": naive.recall,
        "naive_cost": _cost(naive, decision),
        "coverage_asked": decision.coverage,
        "coverage": sets.coverage,
        "coverage_0": sets.coverage_0,
        "coverage_1": sets.coverage_1,
        "undecided": sets.undecided,
    }


def _cost(scores: "Scores", decision: "DecisionConfig") -> float | None:
    """What the wrong hard labels cost together; with equal costs of 1, their number."""
    if scores.cer is None:
        return None
    return decision.cost_fp * scores.false_positives + decision.cost_fn * scores.false_negatives


def _as_text(result: "Backtest", delay: int, decision: "DecisionConfig") -> str:
    forecast, naive = result.scores()
    late, late_naive = result.scores(first_step=delay + 1)
    lines = [f"{'':24}{'forecast':>10}{'naive':>10}"]
    for name, ours, theirs in (
        ("CER", forecast.cer, naive.cer),
        (f"CER from step {delay + 1}", late.cer, late_naive.cer),
        ("AUC", forecast.auc, naive.auc),
        ("log loss", forecast.log_loss, naive.log_loss),
        ("precision", forecast.precision, naive.precision),
        ("recall", forecast.recall, naive.recall),
    ):
        lines.append(f"{name:24}{_number(ours):>10}{_number(theirs):>10}")
    costs = (_cost(each, decision) for each in (forecast, naive))
    lines.append(f"{_costs_words(decision):24}" + "".join(f"{_plain(each):>10}" for each in costs))
    lines += _set_lines(result, decision)
    lines.append(f"{'CER of the more frequent label':34}{_number(result.majority_cer):>10}")
    lines.append(
        f"CER: share of wrong answers, 1 where p is above {result.threshold:g}; AUC: 0.5 is "
        f"chance, 1 is all"
    )
    speed = result.us_per_record
    lines.append(
        f"{len(result.predictions)} records, {'-' if speed is None else f'{speed:.0f}'} µs each, "
        f"peak memory {_peak_memory_mb():.0f} MB"
    )
    return "\n".join(lines)


def _costs_words(decision: "DecisionConfig") -> str:
    if decision.cost_fp == decision.cost_fn == 1.0:
        return "wrong answers"
    return f"cost, fp {decision.cost_fp:g}, fn {decision.cost_fn:g}"


def _set_lines(result: "Backtest", decision: "DecisionConfig") -> list[str]:
    """How often the label was in the set that was left open, and what sets left to a human."""
    sets = result.set_scores()
    return [
        f"{f'in the set, {decision.coverage:g} asked':24}{_number(sets.coverage):>10}   "
        f"label 0 {_number(sets.coverage_0)}, label 1 {_number(sets.coverage_1)}",
        f"{'set [0, 1]: to a human':24}{_number(sets.undecided):>10}",
    ]


def _plain(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _peak_memory_mb() -> float:
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1 << 20 if sys.platform == "darwin" else 1 << 10)  # bytes there, KB elsewhere
