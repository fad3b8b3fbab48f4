"""`dtgol snapshot list|inspect`: which snapshots are kept, and what a learner knows."""

import time
from dataclasses import asdict
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
from pipeline.errors import InputError

if TYPE_CHECKING:
    from pipeline.ops.snapshots import SnapshotEntry
    from pipeline.snapshots.store import Store

PAIRS = 10
"""Pairs of columns shown to people; a program gets them all."""


@click.group()
def snapshot() -> None:
    """Look at the state that workers keep; nothing is changed."""


@snapshot.command("list", epilog=help_line("snapshot list"))
@cluster_options
@partitions_option
@click.option(
    "--role",
    type=click.Choice(["worker", "evaluator"]),
    default="worker",
    show_default=True,
    help="Whose snapshots.",
)
@json_option
def list_command(target: Target, partitions: tuple[int, ...], role: str, as_json: bool) -> None:
    """Every snapshot of every partition, the newest first: whole or damaged, how old, how large.

    Nothing is lost by a damaged one as long as an older one is whole: the worker takes that and
    folds the journal from there.
    """
    from pipeline.ops.snapshots import list_snapshots

    store, numbers = _open(target, role, partitions)
    rows = []
    with progress(len(numbers), "partitions") as update:
        for done, number in enumerate(numbers, 1):
            rows += list_snapshots(store, number)
            update(done)
    now_ms = time.time_ns() // 1_000_000
    if as_json:
        echo_json({"role": role, "snapshots": [_plain(each, now_ms) for each in rows]})
    else:
        for each in rows:
            click.echo(_row(each, now_ms))
        kept = {each.partition for each in rows if each.damage is None}
        bare = [str(number) for number in numbers if number not in kept]
        click.echo(f"{len(rows)} snapshots of {len(kept)} partitions" + _without(bare))
    raise SystemExit(1 if any(each.damage is not None for each in rows) else 0)


@snapshot.command(epilog=help_line("snapshot inspect"))
@cluster_options
@partitions_option
@click.option("--stream", "streams", multiple=True, help="Only this one; may be given again.")
@click.option(
    "--levels",
    is_flag=True,
    help="Name undeclared levels too: these are values from your records.",
)
@json_option
def inspect(
    target: Target,
    partitions: tuple[int, ...],
    streams: tuple[str, ...],
    levels: bool,
    as_json: bool,
) -> None:
    """What each learner knew at its newest whole snapshot.

    Steps, labels learnt, features and their kinds, what each expert knows (its weights by column),
    the correlation. No values of records are shown; levels that are not declared are numbered.
    """
    from pipeline.ops.snapshots import about_partition, about_stream, newest_fold

    found_any = []
    store, numbers = _open(target, "worker", partitions)
    with progress(len(numbers), "partitions") as update:
        for done, number in enumerate(numbers, 1):
            found = newest_fold(store, number)
            update(done)
            if found is None:
                continue
            fold, manifest = found
            about = about_partition(fold, manifest, store.written_ms(number, manifest.name))
            about["streams"] = [
                about_stream(name, stream, manifest.blob_bytes(name), levels)
                for name, stream in fold.streams.items()
                if not streams or name in streams
            ]
            if about["streams"] or not streams:
                found_any.append(about)
    if not found_any:
        raise InputError("no whole snapshot holds that: dtgol snapshot list shows what there is")
    if as_json:
        echo_json({"partitions": found_any})
        return
    for about in found_any:
        _show_partition(about)


def _open(target: Target, role: str, partitions: tuple[int, ...]) -> "tuple[Store, list[int]]":
    """The store, and the partitions to look at: those named, else all there are."""
    from pipeline.kafka.cluster import inspect_cluster
    from pipeline.snapshots import make_store

    settings = target.settings
    count = inspect_cluster(target.client, settings, ["journal"]).partitions
    numbers = choose_partitions(partitions, count)
    return make_store(settings, target.client, role), numbers


def _plain(each: "SnapshotEntry", now_ms: int) -> dict[str, Any]:
    age = None if each.written_ms is None else (now_ms - each.written_ms) / 1000
    return {**asdict(each), "whole": each.damage is None, "age_s": age}


def _row(each: "SnapshotEntry", now_ms: int) -> str:
    state = "whole" if each.damage is None else f"damaged: {each.damage}"
    return (
        f"partition {each.partition}  offset {each.next_offset}  {_age(each.written_ms, now_ms)}  "
        f"{_size(each.size)}  {each.streams} streams  {state}"
    )


def _without(bare: list[str]) -> str:
    return f"; none that is whole of partition {', '.join(bare)}" if bare else ""


def _age(written_ms: int | None, now_ms: int) -> str:
    if written_ms is None:
        return "age unknown"
    seconds = max(0, now_ms - written_ms) / 1000
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit} old"
    return f"{seconds:.0f} s old"


def _size(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.1f} kB"


def _show_partition(about: dict[str, Any]) -> None:
    age = _age(about["written_ms"], time.time_ns() // 1_000_000)
    machine = ", ".join(f"{name} {value}" for name, value in about["fingerprint"].items())
    click.echo(
        f"partition {about['partition']}: journal offset {about['next_offset']}, {age}, "
        f"{_size(about['bytes'])}, config {about['config']}\n  {machine}"
    )
    for stream in about["streams"]:
        _show_stream(stream)


def _show_stream(about: dict[str, Any]) -> None:
    from pipeline.ops.snapshots import strongest

    click.echo(
        f"  stream {about['stream']}: step {about['step']}, "
        f"{about['labels_learnt']} labels learnt, {about['pending']} pending, "
        f"{about['held_labels']} held, {_size(about['bytes'])}, model {about['model']}"
    )
    for feature in about["features"]:
        click.echo(f"    {feature['feature']}: {_feature(feature)}")
    if about["guard"]:
        shares = (f"{name.replace('_', ' ')} {share:.3f}" for name, share in about["guard"].items())
        click.echo(f"    guard: {', '.join(shares)}")
    for name, expert in about["experts"].items():
        _show_expert(name, expert, ["(bias)", *about["columns"]])
    pairs = strongest(about, PAIRS)
    if pairs:
        click.echo("    strongest correlations")
    for one, other, value in pairs:
        click.echo(f"    {value:+.3f}  {one}, {other}")


def _show_expert(name: str, expert: dict[str, Any], columns: list[str]) -> None:
    numbers = (f"{each.replace('_', ' ')} {value:.3f}" for each, value in expert["numbers"].items())
    weight = f"weight {expert['weight']:.3f}"
    click.echo(f"    expert {', '.join([name, weight, *numbers])}")
    weights, width = expert["weights"], max(map(len, columns))
    if not weights:
        return
    heads = "".join(f"  {each.replace('_', ' '):>18}" for each in weights)
    click.echo(f"      {'weights':{width}}{heads}")
    for column in columns:
        row = "".join(f"  {each[column]:18.4f}" for each in weights.values())
        click.echo(f"      {column:{width}}{row}")


def _feature(about: dict[str, Any]) -> str:
    inferred = "provisional" if about["provisional"] else "inferred"
    text = f"{about['kind']}, {'declared' if about['declared'] else inferred}"
    if about["kind_conflicts"]:
        text += f", {about['kind_conflicts']} cells of another kind taken as missing"
    if "levels_known" in about:
        named = f" ({', '.join(about['levels'])})" if about["levels"] else ""
        text += f", {about['levels_known']} levels{named}"
    if "bounds" in about:
        low, high = about["bounds"]
        text += f", from {'any' if low is None else low} to {'any' if high is None else high}"
    return text
