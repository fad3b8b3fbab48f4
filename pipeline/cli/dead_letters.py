"""`dtgol dead-letters list|redrive`: refused records, and sending them back once."""

import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from pipeline.cli import BadInput
from pipeline.cli.codes import codes
from pipeline.cli.connection import Target, asking, cluster_options

if TYPE_CHECKING:
    from pipeline.operators.letters import Filter, Refused, Topic

_UNITS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@click.group()
def dead_letters() -> None:
    """Refused records: list them, and send them back once their cause is mended."""


def _filters(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that list and redrive have in common; the command gets a `Filter`."""
    when = "a time (2026-03-01T12:00, in UTC if it names no zone) or how long ago (90m, 12h, 3d)"
    for option in (
        click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout."),
        click.option("--until", metavar="TIME", help=f"Refused before: {when}."),
        click.option("--since", metavar="TIME", help=f"Refused at or after: {when}."),
        click.option(
            "--reason", "reasons", multiple=True, help="Only this reason; may be given again."
        ),
    ):
        command = option(command)
    return cluster_options(command)


@dead_letters.command("list", epilog=codes("dead-letters list"))
@_filters
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="Show at most this many, the newest.",
)
def list_letters(
    target: Target,
    reasons: tuple[str, ...],
    since: str | None,
    until: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """Show reason, source, time, size, and whether it was sent back; never what is in a record.

    A record that was written more than once is one row.
    """
    from pipeline.operators.letters import read_letters

    wanted = _filter(reasons, since, until)
    with asking():
        found = [each for each in read_letters(_topic(target)) if wanted.takes(each)]
    shown = found[-limit:]
    if as_json:
        letters = [_plain(each) for each in shown]
        click.echo(json.dumps({"matched": len(found), "letters": letters}))
        return
    for each in shown:
        click.echo(_row(each))
    left = len(found) - len(shown)
    click.echo(f"{len(found)} dead letters" + (f", {left} older ones not shown" if left else ""))


@dead_letters.command(epilog=codes("dead-letters redrive"))
@_filters
@click.option(
    "--limit", type=click.IntRange(min=1), help="Send at most this many, the oldest first."
)
@click.option("--dry-run", is_flag=True, help="Send nothing; only say what would be sent.")
def redrive(
    target: Target,
    reasons: tuple[str, ...],
    since: str | None,
    until: str | None,
    limit: int | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Send refused records back to their topic and partition: same key, value and headers.

    Each once, however often this runs: record and marker are one Kafka transaction. A record that
    is refused again is a new dead letter. One that was cut (too-large) cannot be sent back.
    """
    from pipeline.operators.letters import (
        FencedError,
        Redrive,
        read_letters,
        source_counts,
        why_not,
    )

    wanted, topic = _filter(reasons, since, until), _topic(target)
    names = [target.settings.topic(name) for name in ("features", "labels")]
    with asking():
        sources = source_counts(topic, names)
        # The markers are read when nobody else can write any: first the id, then the topic.
        producer = None if dry_run else Redrive(topic)
        found = [each for each in read_letters(topic) if wanted.takes(each)]
        judged = [(each, why_not(each, sources)) for each in found if not each.redriven]
        able = [each for each, why in judged if why is None][:limit]
        left = [(each, why) for each, why in judged if why is not None]
        try:
            sent = 0 if producer is None else _send(producer, able)
        except FencedError as error:
            raise click.ClickException(str(error)) from None
    before = sum(each.redriven for each in found)
    _tell(able if dry_run else None, sent, before, left, as_json)
    raise SystemExit(1 if left else 0)


def _send(producer: Any, letters: "Sequence[Refused]") -> int:
    from pipeline.cli.progress import progress

    with progress(len(letters), "letters") as tell:
        sent: int = producer.send(letters, tell)
    return sent


def _tell(
    would: "Sequence[Refused] | None",
    sent: int,
    before: int,
    left: "Sequence[tuple[Refused, str]]",
    as_json: bool,
) -> None:
    if as_json:
        said: dict[str, Any] = {
            "dry_run": would is not None,
            "sent": sent,
            "sent_before": before,
            "left": [{**_plain(each), "why": why} for each, why in left],
        }
        if would is not None:
            said["would_send"] = [_plain(each) for each in would]
        click.echo(json.dumps(said))
        return
    for each in would or ():
        click.echo(f"would send {_row(each)}")
    for each, why in left:
        click.echo(f"left: {each.letter.reason} at {_place(each)} {why}")
    done = f"{len(would)} would be sent" if would is not None else f"{sent} sent back"
    click.echo(f"{done}, {before} were before, {len(left)} cannot be")


def _topic(target: Target) -> "Topic":
    from pipeline.operators.letters import Topic

    return Topic(target.client, target.settings.topic("dead-letters"), target.prefix)


def _filter(reasons: tuple[str, ...], since: str | None, until: str | None) -> "Filter":
    from pipeline.operators.letters import Filter
    from topics.deadletters import FoldReason
    from topics.refusals import Reason

    known = {*map(str, Reason), *map(str, FoldReason)}
    wrong = [each for each in reasons if each not in known]
    if wrong:
        raise BadInput(f"--reason {wrong[0]}: the reasons are {', '.join(sorted(known))}")
    return Filter(reasons, _moment("--since", since), _moment("--until", until))


def _moment(option: str, text: str | None) -> int | None:
    """Epoch milliseconds of a time, or of so long ago."""
    if text is None:
        return None
    ago = re.fullmatch(r"(\d+)([smhd])", text)
    if ago is not None:
        return time.time_ns() // 1_000_000 - int(ago[1]) * _UNITS[ago[2]]
    try:
        given = datetime.fromisoformat(text)
    except ValueError:
        raise BadInput(f"{option} {text}: give 2026-03-01T12:00 or 90m, 12h, 3d") from None
    aware = given if given.tzinfo is not None else given.replace(tzinfo=UTC)
    return round(aware.timestamp() * 1000)


def _plain(each: "Refused") -> dict[str, Any]:
    about = asdict(each.letter)
    return {
        "reason": about["reason"],
        "detail": about["detail"],
        "source": {name: about[name] for name in ("topic", "partition", "offset")},
        "letter": {"partition": each.partition, "offset": each.offset},
        "time_ms": each.time_ms,
        "bytes": each.size,
        "cut": each.letter.length is not None,
        "copies": each.copies,
        "redriven": each.redriven,
    }


def _place(each: "Refused") -> str:
    return f"{each.letter.topic}[{each.letter.partition}]@{each.letter.offset}"


def _row(each: "Refused") -> str:
    at = datetime.fromtimestamp(each.time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    redriven = "  redriven" if each.redriven else ""
    return (
        f"{at}  {each.letter.reason}  {_place(each)}  {each.size} bytes{redriven}  "
        f"{each.letter.detail}"
    )
