"""`dtgol journal replay|archive|skip|retry|retype`: the journal again, in files, and decisions put
into it."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pipeline.cli.exit_codes import help_line
from pipeline.cli.options import (
    Target,
    choose_partitions,
    cluster_options,
    echo_json,
    json_option,
    partitions_option,
)
from pipeline.cli.progress import progress

if TYPE_CHECKING:
    from pipeline.ops.replay import Class, ReplayReport
    from topics.journal import Retry, Skip


@click.group()
def journal() -> None:
    """Compute past predictions again; decide about a parked record, or a feature's kind."""


def _decision_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        json_option,
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


@journal.command(epilog=help_line("journal skip"))
@_decision_options
def skip(target: Target, partition: int, offset: int, note: str, as_json: bool) -> None:
    """Leave out the record at which a partition is parked; cannot be undone.

    /readyz, /status and `dtgol doctor` say which it is. The decision is a record in the journal;
    the running worker takes it up within seconds, and the record itself becomes a dead letter
    with the reason `skipped`, from where it can be redriven once the bug is fixed. Refused where
    the partition is not parked at that offset.
    """
    from topics.journal import Skip

    _decide(target, partition, Skip(offset, note), as_json)


@journal.command(epilog=help_line("journal retry"))
@_decision_options
def retry(target: Target, partition: int, offset: int, note: str, as_json: bool) -> None:
    """Try again the record at which a partition is parked.

    For when the bug is fixed: start the new version first. The decision is a record in the
    journal and cannot be undone; crashes noted before it count no more.
    """
    from topics.journal import Retry

    _decide(target, partition, Retry(offset, note), as_json)


@journal.command(epilog=help_line("journal retype"))
@cluster_options
@click.option("--stream", default="default", show_default=True, help="The stream.")
@click.option("--feature", required=True, help="The feature's name.")
@click.option(
    "--kind",
    type=click.Choice(["continuous", "ordinal", "nominal"]),
    required=True,
    help="Its kind.",
)
@click.option("--note", required=True, help="Why; it stays in the journal.")
@json_option
def retype(target: Target, stream: str, feature: str, kind: str, note: str, as_json: bool) -> None:
    """Change the kind of one feature, without forgetting what its stream has learnt.

    For a feature whose first values were of the wrong kind; `dtgol snapshot inspect` shows how many
    cells were taken as missing because of it. The decision is a record in every partition of the
    journal and holds from there on; what was learnt from the feature so far stays in columns that
    are missing from now on. To go back, run it again with the old kind.
    """
    from pipeline.kafka.cluster import inspect_cluster
    from pipeline.ops.parked import append_control
    from topics.journal import FeatureKind, Retype

    settings = target.settings
    count = inspect_cluster(target.client, settings, ["journal"]).partitions
    decision = Retype(stream, feature, FeatureKind(kind), note)
    append_control(target.client, settings.topic("journal"), range(count), decision)
    if as_json:
        echo_json({"decided": "retype", "partitions": count, **asdict(decision)})
        return
    click.echo(
        f"decided: feature {feature} of stream {stream} is {kind} from now on, in {count} "
        f"partitions; the workers take it up within seconds"
    )


@journal.command(epilog=help_line("journal replay"))
@cluster_options
@partitions_option
@click.option(
    "--from",
    "start",
    type=click.Choice(["start", "snapshot"]),
    default="start",
    show_default=True,
    help="Begin at the start of the journal, or at the oldest snapshot kept.",
)
@click.option(
    "--archive",
    type=click.Path(path_type=Path, file_okay=False),
    help="A folder of `dtgol journal archive`, for what the journal does not have any more.",
)
@json_option
def replay(
    target: Target,
    partitions: tuple[int, ...],
    start: str,
    archive: Path | None,
    as_json: bool,
) -> None:
    """Compute predictions again, and compare with those on the topic.

    Equal means equal to the last byte, under the same key. Missing is a fault only where the
    worker has committed past the record and the predictions topic still reaches back so far.
    Equal bytes are promised only between machines with the same fingerprint, which /status shows:
    run this on a machine like the worker's.
    """
    reports = _replay(target, partitions, start, archive)
    faultless = all(report.faultless for report in reports)
    if as_json:
        from pipeline.runtime.fingerprint import fingerprint

        echo_json(
            {
                "equal": faultless,
                "from": start,
                "fingerprint": fingerprint(),
                "partitions": [asdict(report) for report in reports],
            }
        )
    else:
        for report in reports:
            _show(report)
        click.echo("all equal" if faultless else "not equal: see above")
    raise SystemExit(0 if faultless else 1)


@journal.command(epilog=help_line("journal archive"))
@cluster_options
@partitions_option
@click.option(
    "--to",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="The folder; one for each prefix.",
)
@json_option
def archive(target: Target, partitions: tuple[int, ...], folder: Path, as_json: bool) -> None:
    """Copy the journal to files, from where the last run ended; run it more often than retention.

    With these files and an archived snapshot (snapshots.archive_ms), or with files from the
    beginning on, `dtgol journal replay --archive` computes any past prediction again. The files
    hold what producers sent, ids and values: keep them as you keep those.
    """
    from pipeline.kafka.cluster import inspect_cluster
    from pipeline.ops.journal_archive import JournalArchive, archive_partition

    settings = target.settings
    cluster = inspect_cluster(target.client, settings, ["journal"])
    files = JournalArchive(folder, cluster.topic_ids["journal"])
    numbers = choose_partitions(partitions, cluster.partitions)
    name, done = settings.topic("journal"), {}
    for number in numbers:
        reading = partial(progress, what=f"records of partition {number}")
        done[number] = archive_partition(files, target.client, name, number, reading)
    if as_json:
        echo_json({"records": done})
        return
    for number, count in done.items():
        click.echo(f"partition {number}: {count} records")


def _replay(
    target: Target, partitions: tuple[int, ...], start: str, folder: Path | None
) -> "list[ReplayReport]":
    from pipeline.kafka.cluster import inspect_cluster
    from pipeline.kafka.reader import committed_offsets
    from pipeline.learning.outputs import PartitionRef
    from pipeline.ops.journal_archive import JournalArchive
    from pipeline.ops.replay import ReplayTarget, replay
    from pipeline.snapshots import make_store

    settings, client = target.settings, target.client
    topics = ["features", "labels", "journal", "predictions"]
    cluster = inspect_cluster(client, settings, topics)
    numbers = choose_partitions(partitions, cluster.partitions)
    features, labels, journal, predictions = map(settings.topic, topics)
    committed = committed_offsets(client, settings.group("worker"), journal, numbers)
    store = make_store(settings, client, "worker") if start == "snapshot" else None
    archive = None
    if folder is not None:
        archive = JournalArchive(folder, cluster.topic_ids["journal"])
    made = []
    for number in numbers:
        ref = PartitionRef(cluster.topic_ids["journal"], journal, number, features, labels)
        replayed = ReplayTarget(client, ref, predictions, committed[number] or 0)
        reading = partial(progress, what=f"records of partition {number}")
        made.append(replay(replayed, store, reading, archive))
    return made


WORDS: "Mapping[Class, str]" = {
    "equal": "equal",
    "missing": "missing",
    "different": "different",
    "other_model": "of another model",
    "other_version": "not comparable: by another version of the software",
    "unexpected": "on the topic, but not by this journal",
    "behind": "not predicted yet",
    "trimmed": "not comparable: trimmed",
}


def _show(report: "ReplayReport") -> None:
    counted = [f"{count} {WORDS[kind]}" for kind in WORDS if (count := report.classes.get(kind, 0))]
    click.echo(
        f"partition {report.partition}, journal {report.start} to {report.end}: "
        + (", ".join(counted) or "no predictions")
    )
    for kind, offsets in report.examples.items():
        if offsets:
            click.echo(f"  {WORDS[kind]}, at journal offset {', '.join(map(str, offsets))}")
    if report.parked_at is not None:
        click.echo(f"  parked at {report.parked_at}: nothing behind it was predicted")
    if report.bug is not None:
        click.echo(f"  stopped by a bug: {report.bug}")


def _decide(target: Target, partition: int, decision: "Skip | Retry", as_json: bool) -> None:
    from pipeline.kafka.cluster import inspect_cluster
    from pipeline.ops.parked import JournalPartition

    settings = target.settings
    choose_partitions(
        (partition,), inspect_cluster(target.client, settings, ["journal"]).partitions
    )
    journal, group = settings.topic("journal"), settings.group("worker")
    parked = JournalPartition(target.client, journal, group, partition).decide(decision)
    verb = type(decision).__name__.lower()
    if as_json:
        echo_json({"decided": verb, **asdict(parked), "note": decision.note})
        return
    what = "is left out" if verb == "skip" else "is tried again"
    click.echo(
        f"decided: partition {partition}, journal offset {decision.offset} {what}; "
        f"the worker takes it up within seconds"
    )
