"""`dtgol topics apply|check`: the topics of a cluster against the catalog."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from pipeline.cli.exit_codes import help_line
from pipeline.cli.options import Target, cluster_options, echo_json, json_option
from pipeline.errors import InputError

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

    from pipeline.kafka.topic_admin import Difference
    from topics.catalog import TopicSpec

PARTITIONS = 4


@click.group()
def topics() -> None:
    """Create the topics, or see how they differ from what dtgol needs."""


def _shared(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that apply and check have in common."""
    for option in (
        json_option,
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
            help="Copies of every record; take 3 on a real cluster. A new topic never has fewer "
            "than the topics there.  [default: as they have; the brokers' own if there are none]",
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


@topics.command(epilog=help_line("topics check"))
@_shared
def check(target: Target, as_json: bool, **wanted: Any) -> None:
    """Show what differs from what dtgol needs; change nothing."""
    from pipeline.kafka.topic_admin import inspect

    admin, specs = _desired(target, **wanted)
    differences = inspect(admin, specs)
    if as_json:
        echo_json({"ok": not differences, "differences": [_plain(each) for each in differences]})
    else:
        for each in differences:
            click.echo(str(each))
        click.echo(f"{len(specs)} topics, {len(differences)} differences")
    raise SystemExit(1 if differences else 0)


@topics.command(epilog=help_line("topics apply"))
@_shared
def apply(target: Target, as_json: bool, **wanted: Any) -> None:
    """Create missing topics and alter settings; never partitions or replication.

    Retention is made shorter only with --retention: Kafka deletes what is older.
    """
    from pipeline.kafka.topic_admin import apply

    admin, specs = _desired(target, **wanted)
    done = apply(admin, specs)
    if as_json:
        echo_json(
            {
                "ok": not done.left,
                "created": list(done.created),
                "altered": [_plain(each) for each in done.altered],
                "left": [_plain(each) for each in done.left],
            }
        )
    else:
        for name in done.created:
            click.echo(f"{name}: created")
        for each in done.altered:
            warning = f" ({each.warning})" if each.warning else ""
            click.echo(
                f"{each.topic}: {each.setting} was {each.actual}, is now {each.desired}{warning}"
            )
        for each in done.left:
            click.echo(f"left as it is: {each}")
        click.echo(
            f"{len(specs)} topics: {len(done.created)} created, "
            f"{len(done.altered)} settings altered, {len(done.left)} left"
        )
    raise SystemExit(1 if done.left else 0)


def _desired(
    target: Target, partitions: int | None, replication: int | None, retention: tuple[str, ...]
) -> "tuple[AdminClient, tuple[TopicSpec, ...]]":
    """The cluster, and how its topics should be; wrong options are found before it is asked."""
    from pipeline.kafka.clients import MonitoredAdmin
    from pipeline.kafka.topic_admin import replication_for, with_existing_partitions
    from topics.catalog import DAY_MS, desired_topics

    kept = {}
    for given in retention:
        name, _, days = given.partition("=")
        try:
            kept[name] = -1 if days == "-1" else round(float(days) * DAY_MS)
        except (ValueError, OverflowError):
            raise InputError(f"--retention {given}: give TOPIC=DAYS") from None
    try:
        names = [spec.name for spec in desired_topics(target.prefix, 1, 1, retention_ms=kept)]
    except ValueError as error:
        raise InputError(str(error)) from None
    admin = MonitoredAdmin(target.client)
    copies = replication_for(admin, names, replication)
    specs = desired_topics(target.prefix, partitions or PARTITIONS, copies, retention_ms=kept)
    return admin, specs if partitions else with_existing_partitions(admin, specs)


def _plain(each: "Difference") -> dict[str, str]:
    return {
        "topic": each.topic,
        "setting": each.setting,
        "is": each.actual,
        "should_be": each.desired,
        "advice": each.advice,
        "warning": each.warning,
    }
