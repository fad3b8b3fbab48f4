"""`dtgol snapshot list|inspect`: which snapshots are kept, and what a learner knows."""

import json
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from pipeline.cli import BadInput
from pipeline.cli.codes import codes
from pipeline.cli.connection import Target, asking, cluster_options

if TYPE_CHECKING:
    from pipeline.operators.inspection import Listed
    from pipeline.snapshots import Store

PAIRS = 10
"""Pairs of columns shown to people; a program gets them all."""


@click.group()
def snapshot() -> None:
    """Look at the state that workers keep; nothing is changed."""


@snapshot.command("list", epilog=codes("snapshot list"))
@cluster_options
@click.option(
    "--partition",
    "partitions",
    type=click.IntRange(min=0),
    multiple=True,
    help="Only this one; may be given again.",
)
@click.option(
    "--role",
    type=click.Choice(["worker", "evaluator"]),
    default="worker",
    show_default=True,
    help="Whose snapshots.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def list_snapshots(target: Target, partitions: tuple[int, ...], role: str, as_json: bool) -> None:
    """Every snapshot of every partition, the newest first: whole or damaged, how old, how large.

    A damaged one is no loss as long as an older one is whole: the worker takes that and folds the
    journal from there.
    """
    from pipeline.operators.inspection import listed

    with asking():
        store, numbers = _open(target, role, partitions)
        rows = [each for number in numbers for each in listed(store, number)]
    now_ms = time.time_ns() // 1_000_000
    if as_json:
        click.echo(json.dumps({"role": role, "snapshots": [_plain(each, now_ms) for each in rows]}))
    else:
        for each in rows:
            click.echo(_row(each, now_ms))
        kept = {each.partition for each in rows if each.damage is None}
        bare = [str(number) for number in numbers if number not in kept]
        click.echo(f"{len(rows)} snapshots of {len(kept)} partitions" + _without(bare))
    raise SystemExit(1 if any(each.damage is not None for each in rows) else 0)


@snapshot.command(epilog=codes("snapshot inspect"))
@cluster_options
@click.option(
    "--partition",
    "partitions",
    type=click.IntRange(min=0),
    multiple=True,
    help="Only this one; may be given again.",
)
@click.option("--stream", "streams", multiple=True, help="Only this one; may be given again.")
@click.option(
    "--levels",
    is_flag=True,
    help="Name undeclared levels too: these are values from your records.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def inspect(
    target: Target,
    partitions: tuple[int, ...],
    streams: tuple[str, ...],
    levels: bool,
    as_json: bool,
) -> None:
    """What each learner knew at its newest whole snapshot.

    Steps, labels learnt, features and their kinds, the weights of both spaces by column, the
    correlation. No values of records are shown; levels that are not declared are numbered.
    """
    from pipeline.operators.inspection import about_partition, about_stream, newest_fold

    found_any = []
    with asking():
        store, numbers = _open(target, "worker", partitions)
        for number in numbers:
            found = newest_fold(store, number)
            if found is None:
                continue
            fold, manifest = found
            written = store.written_ms(number, manifest.name)
            about = about_partition(fold, manifest, written)
            about["streams"] = [
                about_stream(name, stream, manifest.stream_bytes(name), levels)
                for name, stream in fold.streams.items()
                if not streams or name in streams
            ]
            if about["streams"] or not streams:
                found_any.append(about)
    if not found_any:
        raise BadInput("no whole snapshot holds that: dtgol snapshot list shows what there is")
    if as_json:
        click.echo(json.dumps({"partitions": found_any}))
        return
    for about in found_any:
        _show_partition(about)


def _open(target: Target, role: str, partitions: tuple[int, ...]) -> "tuple[Store, list[int]]":
    """The store, and the partitions to look at: those named, else all there are."""
    from pipeline.cluster import look
    from pipeline.stores import make_store

    settings = target.settings
    count = look(target.client, settings, ["journal"]).partitions
    wrong = [each for each in partitions if each >= count]
    if wrong:
        raise BadInput(f"--partition {wrong[0]}: there are {count}, from 0 on")
    store = make_store(settings, target.client, role)
    return store, sorted(set(partitions)) or list(range(count))


def _plain(each: "Listed", now_ms: int) -> dict[str, Any]:
    age = None if each.written_ms is None else (now_ms - each.written_ms) / 1000
    return {**asdict(each), "whole": each.damage is None, "age_s": age}


def _row(each: "Listed", now_ms: int) -> str:
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
        f"{_size(about['bytes'])}, rules {about['rules']}\n  {machine}"
    )
    for stream in about["streams"]:
        _show_stream(stream)


def _show_stream(about: dict[str, Any]) -> None:
    from pipeline.operators.inspection import strongest

    click.echo(
        f"  stream {about['stream']}: step {about['step']}, "
        f"{about['labels_learnt']} labels learnt, {about['pending']} pending, "
        f"{about['held_labels']} held, {_size(about['bytes'])}, "
        f"model {about['model']}, latent weight {about['latent_weight']:.3f}"
    )
    for feature in about["features"]:
        click.echo(f"    {feature['feature']}: {_feature(feature)}")
    weights = about["weights"]
    width = max(len(name) for name in weights["latent"])
    heads = "".join(f"  {space.replace('_', ' '):>18}" for space in weights)
    click.echo(f"    {'weights':{width}}{heads}")
    for name in weights["latent"]:
        row = "".join(f"  {weights[space][name]:18.4f}" for space in weights)
        click.echo(f"    {name:{width}}{row}")
    pairs = strongest(about, PAIRS)
    if pairs:
        click.echo("    strongest correlations")
    for one, other, value in pairs:
        click.echo(f"    {value:+.3f}  {one}, {other}")


def _feature(about: dict[str, Any]) -> str:
    said = f"{about['kind']}, {'declared' if about['declared'] else 'inferred'}"
    if "levels_known" in about:
        named = f" ({', '.join(about['levels'])})" if about["levels"] else ""
        said += f", {about['levels_known']} levels{named}"
    if "bounds" in about:
        low, high = about["bounds"]
        said += f", from {'any' if low is None else low} to {'any' if high is None else high}"
    return said
