"""`dtgol topics apply|check`: the topics of a cluster against the catalog."""

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from pipeline.cli import BadInput
from pipeline.cli.codes import codes
from pipeline.cli.connection import Target, cluster_options

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

    from pipeline.operators.topics_admin import Difference
    from topics.catalog import Wish

PARTITIONS = 4


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
            help="How long Kafka keeps the records of a topic, -1 for ever; may be given again. "
            "Without it: 30 days, and a topic that keeps them longer is left so.",
        ),
        click.option(
            "--replication",
            type=click.IntRange(min=1),
            default=1,
            show_default=True,
            help="Copies of every record; take 3 on a real cluster.",
        ),
        click.option(
            "--partitions",
            type=click.IntRange(min=1),
            help="Partitions of every topic, fixed for life: the most workers that can share the "
            f"work.  [default: as the topics there have; {PARTITIONS} if there are none]",
        ),
        cluster_options,
    ):
        command = option(command)
    return command


@topics.command(epilog=codes("topics check"))
@_shared
def check(target: Target, as_json: bool, **wanted: Any) -> None:
    """Say what differs from what dtgol needs; change nothing."""
    from pipeline.operators.topics_admin import AdminError, inspect

    try:
        admin, wishes = _wishes(target, **wanted)
        differences = inspect(admin, wishes)
    except AdminError as error:
        raise BadInput(str(error)) from None
    if as_json:
        _echo_json(ok=not differences, differences=[_plain(each) for each in differences])
    else:
        for each in differences:
            click.echo(str(each))
        click.echo(f"{len(wishes)} topics, {len(differences)} differences")
    raise SystemExit(1 if differences else 0)


@topics.command(epilog=codes("topics apply"))
@_shared
def apply(target: Target, as_json: bool, **wanted: Any) -> None:
    """Create missing topics and alter settings; never partitions or replication.

    Retention is made shorter only where --retention says so: Kafka deletes what is older.
    """
    from pipeline.operators.topics_admin import AdminError, apply

    try:
        admin, wishes = _wishes(target, **wanted)
        done = apply(admin, wishes)
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
            warning = f" ({each.warning})" if each.warning else ""
            click.echo(
                f"{each.topic}: {each.setting} was {each.actual}, is now {each.wished}{warning}"
            )
        for each in done.left:
            click.echo(f"left as it is: {each}")
        click.echo(
            f"{len(wishes)} topics: {len(done.created)} created, "
            f"{len(done.altered)} settings altered, {len(done.left)} left"
        )
    raise SystemExit(1 if done.left else 0)


def _wishes(
    target: Target, partitions: int | None, replication: int, retention: tuple[str, ...]
) -> "tuple[AdminClient, tuple[Wish, ...]]":
    """The cluster, and how its topics should be; wrong options are found before it is asked."""
    from pipeline.operators.topics_admin import as_there, connect
    from topics.catalog import DAY_MS, wishes

    kept = {}
    for given in retention:
        name, _, days = given.partition("=")
        try:
            kept[name] = -1 if days == "-1" else round(float(days) * DAY_MS)
        except (ValueError, OverflowError):
            raise BadInput(f"--retention {given}: give TOPIC=DAYS") from None
    try:
        wished = wishes(target.prefix, partitions or PARTITIONS, replication, retention_ms=kept)
    except ValueError as error:
        raise BadInput(str(error)) from None
    admin = connect(target.client)
    return admin, as_there(admin, wished) if partitions is None else wished


def _plain(each: "Difference") -> dict[str, str]:
    return {
        "topic": each.topic,
        "setting": each.setting,
        "is": each.actual,
        "should_be": each.wished,
        "advice": each.advice,
        "warning": each.warning,
    }


def _echo_json(**said: Any) -> None:
    click.echo(json.dumps(said))
