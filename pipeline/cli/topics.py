"""`dtgol topics apply|check`: the topics of a cluster against the catalog.

Exit code 0: as wished. 1: something differs (`check`) or was left for you to decide (`apply`).
2: wrong options, or the cluster did not answer.
"""

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from pipeline.cli import BadInput
from pipeline.cli.connection import Target, cluster_options

if TYPE_CHECKING:
    from pipeline.operators.topics_admin import Difference
    from topics.catalog import Wish


@click.group()
def topics() -> None:
    """Create the topics, or see how they differ from what dtgol needs."""


def _shared(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that apply and check have in common."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout."),
        click.option(
            "--retention",
            multiple=True,
            metavar="TOPIC=DAYS",
            help="Keep a topic's records so long, -1 for ever; may be given again.  [default: 30]",
        ),
        click.option(
            "--replication",
            type=click.IntRange(min=1),
            default=1,
            show_default=True,
            help="Copies of every record; 3 on a real cluster.",
        ),
        click.option(
            "--partitions",
            type=click.IntRange(min=1),
            default=4,
            show_default=True,
            help="Partitions of every topic, fixed for life: the most workers that can share.",
        ),
        cluster_options,
    ):
        command = option(command)
    return command


@topics.command()
@_shared
def check(target: Target, as_json: bool, **wanted: Any) -> None:
    """Say precisely what differs; change nothing."""
    from pipeline.operators.topics_admin import AdminError, connect, inspect

    wishes = _wishes(target.prefix, **wanted)
    try:
        differences = inspect(connect(target.client), wishes)
    except AdminError as error:
        raise BadInput(str(error)) from None
    if as_json:
        _echo_json(ok=not differences, differences=[_plain(each) for each in differences])
    else:
        for each in differences:
            click.echo(str(each))
        click.echo(f"{len(wishes)} topics, {len(differences)} differences")
    raise SystemExit(1 if differences else 0)


@topics.command()
@_shared
def apply(target: Target, as_json: bool, **wanted: Any) -> None:
    """Create missing topics and alter settings; never partitions or replication."""
    from pipeline.operators.topics_admin import AdminError, apply, connect

    wishes = _wishes(target.prefix, **wanted)
    try:
        done = apply(connect(target.client), wishes)
    except AdminError as error:
        raise BadInput(str(error)) from None
    if as_json:
        _echo_json(
            ok=not done.left,
            created=list(done.created),
            altered=[_plain(each) for each in done.altered],
            left=[_plain(each) for each in done.left],
        )
    else:
        for name in done.created:
            click.echo(f"{name}: created")
        for each in done.altered:
            click.echo(f"{each.topic}: {each.setting} was {each.actual}, is now {each.wished}")
        for each in done.left:
            click.echo(f"left as it is: {each}")
        click.echo(
            f"{len(wishes)} topics: {len(done.created)} created, "
            f"{len(done.altered)} settings altered, {len(done.left)} left"
        )
    raise SystemExit(1 if done.left else 0)


def _wishes(
    prefix: str, partitions: int, replication: int, retention: tuple[str, ...]
) -> "tuple[Wish, ...]":
    from topics.catalog import DAY_MS, wishes

    kept = {}
    for given in retention:
        name, _, days = given.partition("=")
        try:
            kept[name] = -1 if days == "-1" else round(float(days) * DAY_MS)
        except (ValueError, OverflowError):
            raise BadInput(f"--retention {given}: give TOPIC=DAYS") from None
    try:
        return wishes(prefix, partitions, replication, retention_ms=kept)
    except ValueError as error:
        raise BadInput(str(error)) from None


def _plain(each: "Difference") -> dict[str, str]:
    return {
        "topic": each.topic,
        "setting": each.setting,
        "is": each.actual,
        "should_be": each.wished,
        "advice": each.advice,
    }


def _echo_json(**said: Any) -> None:
    click.echo(json.dumps(said))
