"""`dtgol dead-letters list|redrive`: refused records, and sending them back once."""

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from pipeline.cli.exit_codes import help_line
from pipeline.cli.options import Target, cluster_options, echo_json, json_option
from pipeline.cli.progress import progress
from pipeline.errors import InputError

if TYPE_CHECKING:
    from pipeline.ops.dead_letters import DeadLetterEntry, DeadLetterTopic, Filter

_UNITS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@click.group()
def dead_letters() -> None:
    """Refused records: list them, and send them back once their cause is removed."""


def _filters(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that list and redrive have in common; the command gets a `Filter`."""
    when = "a time (2026-03-01T12:00, in UTC if it names no zone) or how long ago (90m, 12h, 3d)"
    for option in (
        json_option,
        click.option("--until", metavar="TIME", help=f"Refused before: {when}."),
        click.option("--since", metavar="TIME", help=f"Refused at or after: {when}."),
        click.option(
            "--reason", "reasons", multiple=True, help="Only this reason; may be given again."
        ),
    ):
        command = option(command)
    return cluster_options(command)


@dead_letters.command("list", epilog=help_line("dead-letters list"))
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
    from pipeline.ops.dead_letters import read_dead_letters

    wanted = _filter(reasons, since, until)
    reading = partial(progress, what="records")
    found = [each for each in read_dead_letters(_topic(target), reading) if wanted.takes(each)]
    shown = found[-limit:]
    if as_json:
        echo_json({"matched": len(found), "letters": [_plain(each) for each in shown]})
        return
    for each in shown:
        click.echo(_row(each))
    left = len(found) - len(shown)
    click.echo(f"{len(found)} dead letters" + (f", {left} older ones not shown" if left else ""))


@dead_letters.command(epilog=help_line("dead-letters redrive"))
@_filters
@click.option(
    "--limit", type=click.IntRange(min=1), help="Send at most this many, the oldest first."
)
@click.option(
    "--again",
    is_flag=True,
    help="Also records that were sent back before and refused for the same reason.",
)
@click.option("--dry-run", is_flag=True, help="Send nothing; only show what would be sent.")
def redrive(
    target: Target,
    reasons: tuple[str, ...],
    since: str | None,
    until: str | None,
    limit: int | None,
    again: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Send refused records back to their topic and partition: same key, value and headers.

    Each once, however often this runs: record and marker are one Kafka transaction. A record that
    is refused again is a new dead letter; if for the same reason, it is left unless --again is
    given. One that was truncated (too-large) cannot be sent back.
    """
    from pipeline.ops.dead_letters import Redrive, read_dead_letters, source_counts, why_not

    wanted, topic = _filter(reasons, since, until), _topic(target)
    names = [target.settings.topic(name) for name in ("features", "labels")]
    sources = source_counts(topic, names)
    # First the transactional id, then the topic: after it no other redrive can write markers.
    producer = None if dry_run else Redrive(topic)
    reading = partial(progress, what="records")
    found = [each for each in read_dead_letters(topic, reading) if wanted.takes(each)]
    checked = [(each, why_not(each, sources, again)) for each in found if not each.redriven]
    able = [each for each, why in checked if why is None][:limit]
    left = [(each, why) for each, why in checked if why is not None]
    sent = 0 if producer is None else _send(producer, able)
    before = sum(each.redriven for each in found)
    _report(able if dry_run else None, sent, before, left, as_json)
    raise SystemExit(1 if left else 0)


def _send(producer: Any, letters: "Sequence[DeadLetterEntry]") -> int:
    with progress(len(letters), "letters") as update:
        sent: int = producer.send(letters, update)
    return sent


def _report(
    would: "Sequence[DeadLetterEntry] | None",
    sent: int,
    before: int,
    left: "Sequence[tuple[DeadLetterEntry, str]]",
    as_json: bool,
) -> None:
    if as_json:
        content: dict[str, Any] = {
            "dry_run": would is not None,
            "sent": sent,
            "sent_before": before,
            "left": [{**_plain(each), "why": why} for each, why in left],
        }
        if would is not None:
            content["would_send"] = [_plain(each) for each in would]
        echo_json(content)
        return
    for each in would or ():
        click.echo(f"would send {_row(each)}")
    for each, why in left:
        click.echo(f"left: {each.letter.reason} at {_place(each)} {why}")
    done = f"{len(would)} would be sent" if would is not None else f"{sent} sent back"
    click.echo(f"{done}, {before} were before, {len(left)} cannot be")


def _topic(target: Target) -> "DeadLetterTopic":
    from pipeline.ops.dead_letters import DeadLetterTopic

    return DeadLetterTopic(target.client, target.settings.topic("dead-letters"), target.prefix)


def _filter(reasons: tuple[str, ...], since: str | None, until: str | None) -> "Filter":
    from pipeline.ops.dead_letters import Filter
    from topics.reasons import Reason

    known = set(map(str, Reason))
    wrong = [each for each in reasons if each not in known]
    if wrong:
        raise InputError(f"--reason {wrong[0]}: the reasons are {', '.join(sorted(known))}")
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
        raise InputError(f"{option} {text}: give 2026-03-01T12:00 or 90m, 12h, 3d") from None
    aware = given if given.tzinfo is not None else given.replace(tzinfo=UTC)
    return round(aware.timestamp() * 1000)


def _plain(each: "DeadLetterEntry") -> dict[str, Any]:
    about = asdict(each.letter)
    return {
        "reason": about["reason"],
        "detail": about["detail"],
        "source": {name: about[name] for name in ("topic", "partition", "offset")},
        "letter": {"partition": each.partition, "offset": each.offset},
        "time_ms": each.time_ms,
        "bytes": each.size,
        "truncated": each.letter.length is not None,
        "copies": each.copies,
        "redriven": each.redriven,
        "refused_again": each.refused_again,
    }


def _place(each: "DeadLetterEntry") -> str:
    return f"{each.letter.topic}[{each.letter.partition}]@{each.letter.offset}"


def _row(each: "DeadLetterEntry") -> str:
    at = datetime.fromtimestamp(each.time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    redriven = "  redriven" if each.redriven else ""
    return (
        f"{at}  {each.letter.reason}  {_place(each)}  {each.size} bytes{redriven}  "
        f"{each.letter.detail}"
    )
