"""`dtgol journal replay|skip|retry`: the journal again, and decisions about a parked record."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from pipeline.cli import BadInput
from pipeline.cli.codes import codes
from pipeline.cli.connection import Target, asking, cluster_options

if TYPE_CHECKING:
    from pipeline.operators.replay import Class, Report
    from topics.journal import Retry, Skip


@click.group()
def journal() -> None:
    """Compute past predictions again; decide about a record on which the worker fails."""


def _decision_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout."),
        click.option("--note", required=True, help="Why; it stays in the journal."),
        click.option(
            "--offset", type=click.IntRange(min=0), required=True, help="Its journal offset."
        ),
        click.option(
            "--partition", type=click.IntRange(min=0), required=True, help="The parked partition."
        ),
    ):
        command = option(command)
    return cluster_options(command)


@journal.command(epilog=codes("journal skip"))
@_decision_options
def skip(target: Target, partition: int, offset: int, note: str, as_json: bool) -> None:
    """Leave out the record at which a partition is parked; cannot be undone.

    /readyz, /status and `dtgol doctor` say which it is. The decision is a record in the journal;
    the running worker takes it up within seconds, and the record itself becomes a dead letter
    with the reason `skipped`, from where it can be redriven once the bug is mended. Refused where
    the partition is not parked at that offset.
    """
    from topics.journal import Skip

    _decide(target, partition, Skip(offset, note), as_json)


@journal.command(epilog=codes("journal retry"))
@_decision_options
def retry(target: Target, partition: int, offset: int, note: str, as_json: bool) -> None:
    """Try again the record at which a partition is parked.

    For when the bug is mended: start the new version first. The decision is a record in the
    journal and cannot be undone; crashes noted before it count no more.
    """
    from topics.journal import Retry

    _decide(target, partition, Retry(offset, note), as_json)


@journal.command(epilog=codes("journal replay"))
@cluster_options
@click.option(
    "--partition",
    "partitions",
    type=click.IntRange(min=0),
    multiple=True,
    help="Only this one; may be given again.",
)
@click.option(
    "--from",
    "start",
    type=click.Choice(["start", "snapshot"]),
    default="start",
    show_default=True,
    help="Begin at the start of the journal, or at the oldest snapshot kept.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def replay(target: Target, partitions: tuple[int, ...], start: str, as_json: bool) -> None:
    """Compute predictions again, and compare with what was said.

    Equal means equal to the last byte, under the same key. Missing is a fault only where the
    worker has committed past the record and the predictions topic still reaches back so far.
    Equal bytes are promised only between machines with the same fingerprint, which /status shows:
    run this on a machine like the worker's.
    """
    reports = _replay(target, partitions, start)
    faultless = all(report.faultless for report in reports)
    if as_json:
        from pipeline.fingerprint import fingerprint

        said = {
            "equal": faultless,
            "from": start,
            "fingerprint": fingerprint(),
            "partitions": [asdict(report) for report in reports],
        }
        click.echo(json.dumps(said))
    else:
        for report in reports:
            _show(report)
        click.echo("all equal" if faultless else "not equal: see above")
    raise SystemExit(0 if faultless else 1)


def _replay(target: Target, partitions: tuple[int, ...], start: str) -> "list[Report]":
    from pipeline.answers import Place
    from pipeline.cli.progress import progress
    from pipeline.cluster import look, offsets_of_group
    from pipeline.operators.replay import Route, replay
    from pipeline.stores import make_store

    settings, client = target.settings, target.client
    topics = ["features", "labels", "journal", "predictions"]
    with asking():
        cluster = look(client, settings, topics)
        numbers = _numbers(partitions, cluster.partitions)
        names = {name: settings.topic(name) for name in topics}
        group = settings.group("worker")
        committed = offsets_of_group(client, group, names["journal"], numbers)
        store = make_store(settings, client, "worker") if start == "snapshot" else None
        made = []
        for number in numbers:
            place = Place(
                cluster.topic_ids["journal"],
                names["journal"],
                number,
                names["features"],
                names["labels"],
            )
            route = Route(client, place, names["predictions"], committed[number] or 0)
            made.append(replay(route, store, lambda total: progress(total, "records")))
    return made


def _numbers(partitions: tuple[int, ...], count: int) -> list[int]:
    wrong = [each for each in partitions if each >= count]
    if wrong:
        raise BadInput(f"--partition {wrong[0]}: there are {count}, from 0 on")
    return sorted(set(partitions)) or list(range(count))


WORDS: "Mapping[Class, str]" = {
    "equal": "equal",
    "missing": "missing",
    "different": "different",
    "other_model": "of another model",
    "unexpected": "said, but not by this journal",
    "behind": "not said yet",
    "trimmed": "not comparable: trimmed",
}


def _show(report: "Report") -> None:
    counted = [f"{count} {WORDS[kind]}" for kind in WORDS if (count := report.classes.get(kind, 0))]
    click.echo(
        f"partition {report.partition}, journal {report.start} to {report.end}: "
        + (", ".join(counted) or "no predictions")
    )
    for kind, offsets in report.examples.items():
        if offsets:
            click.echo(f"  {WORDS[kind]}, at journal offset {', '.join(map(str, offsets))}")
    if report.parked_at is not None:
        click.echo(f"  parked at {report.parked_at}: nothing behind it was said")
    if report.bug is not None:
        click.echo(f"  stopped by a bug: {report.bug}")


def _decide(target: Target, partition: int, decision: "Skip | Retry", as_json: bool) -> None:
    from pipeline.cluster import look
    from pipeline.operators.parked import JournalPartition

    settings = target.settings
    with asking():
        count = look(target.client, settings, ["journal"]).partitions
        if partition >= count:
            raise BadInput(f"--partition {partition}: the journal has {count}, from 0 on")
        place = JournalPartition(
            target.client, settings.topic("journal"), settings.group("worker"), partition
        )
        parked = place.decide(decision)
    verb = type(decision).__name__.lower()
    if as_json:
        click.echo(json.dumps({"decided": verb, **asdict(parked), "note": decision.note}))
        return
    what = "is left out" if verb == "skip" else "is tried again"
    click.echo(
        f"decided: partition {partition}, journal offset {decision.offset} {what}; "
        f"the worker takes it up within seconds"
    )
