"""`dtgol watch`: a live table of streams, their scores, the lag and the dead letters.

It reads predictions, scores and dead-letters without a group: nobody is disturbed.
"""

import json
import sys
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import click

from pipeline.cli import BadInput
from pipeline.cli.codes import codes
from pipeline.cli.connection import Target, cluster_options

if TYPE_CHECKING:
    from rich.console import RenderableType

    from pipeline.client.tail import Tail
    from pipeline.operators.board import Board, View
    from pipeline.operators.lag import Lag

CATCH_UP_S = 60.0
FRAME_S = 0.5
LAG_EVERY_S = 5.0
READ = ("predictions", "scores", "dead-letters")


@click.command(epilog=codes("watch"))
@cluster_options
@click.option(
    "--window",
    type=click.IntRange(min=1, max=100_000),
    default=500,
    show_default=True,
    help="How many of a stream's newest scores make its window.",
)
@click.option(
    "--last",
    type=click.IntRange(min=0),
    default=20_000,
    show_default=True,
    help="Begin this many records before each partition's end.",
)
@click.option("--all", "everything", is_flag=True, help="Begin at the oldest record kept.")
@click.option("--once", is_flag=True, help="Read up to the end, show the table, stop.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per table on stdout.")
def watch(
    target: Target,
    window: int,
    last: int,
    everything: bool,
    once: bool,
    as_json: bool,
) -> None:
    """Show every stream: records, predictions, labels joined, errors, what waits, what is behind.

    CER is the share of wrong answers, over all that was read (--last, --all) and over the window of
    the newest scores; beside each stands the naive learner's. Records are the learner's own count
    since its beginning, unverified are those whose label has not come, and α is how much the latent
    space counts in an answer. Ctrl-C ends it.
    """
    from pipeline.client.sending import ClusterError
    from pipeline.client.tail import Tail
    from pipeline.operators.board import Board

    board = Board(window)
    try:
        names = {target.settings.topic(name): name for name in READ}
        with Tail(target.client, list(names), None if everything else last) as tail:
            if len(tail.missing) == len(READ):
                raise BadInput(
                    f"the cluster has no {', '.join(tail.missing)}, or this user may not see them; "
                    "run: dtgol topics apply, or grant the user Read"
                )
            for message in tail.catch_up(CATCH_UP_S):
                feed(board, names[message.topic() or ""], message)
            if once:
                _show_once(target, board.view(), as_json, _lags(target))
                return
            _follow(target, board, tail, names, as_json)
    except ClusterError as error:
        raise BadInput(str(error)) from None
    except KeyboardInterrupt:
        return


def feed(board: "Board", name: str, message: Any) -> Any:
    """Give one message to the board; what it was."""
    if name == "predictions":
        return board.predicted(message.value())
    if name == "scores":
        return board.scored(message.value())
    return board.refused(message.headers() or [])


def _follow(
    target: Target, board: "Board", tail: "Tail", names: dict[str, str], as_json: bool
) -> None:
    """Until Ctrl-C: a table that moves on a terminal; elsewhere one every few seconds."""
    from rich.live import Live

    moving = sys.stdout.isatty() and not as_json
    with Live(auto_refresh=False) if moving else nullcontext() as live:
        lags, asked = _lags(target), time.monotonic()
        while True:
            until = time.monotonic() + (FRAME_S if moving else LAG_EVERY_S)
            while (left := until - time.monotonic()) > 0:
                for message in tail.read(min(left, FRAME_S)):
                    feed(board, names[message.topic() or ""], message)
            if time.monotonic() - asked > LAG_EVERY_S:
                lags, asked = _lags(target), time.monotonic()
            if live is None:
                _show_once(target, board.view(), as_json, lags)
            else:
                live.update(table(board.view(), lags, target.prompt), refresh=True)


def _show_once(target: Target, view: "View", as_json: bool, lags: "list[Lag]") -> None:
    from dataclasses import asdict

    from rich.console import Console

    from pipeline.operators.board import as_plain

    if as_json:
        click.echo(json.dumps({**as_plain(view), "lag": [asdict(each) for each in lags]}))
    else:
        Console(width=None if sys.stdout.isatty() else 140).print(table(view, lags, target.prompt))


def _lags(target: Target) -> "list[Lag]":
    from pipeline.operators.lag import group_lag

    return [
        lag
        for group, topics in target.groups.items()
        for lag in group_lag(target.client, group, topics)
    ]


def table(view: "View", lags: "list[Lag]", prompt: set[tuple[str, str]]) -> "RenderableType":
    """The whole picture for a terminal; ``prompt`` says whose lag is a lag."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    streams = Table(box=None, pad_edge=False, header_style="bold")
    streams.add_column("stream")
    for name in (
        "records",
        "predictions",
        "scored",
        "CER window",
        "naive",
        "CER read",
        "naive",
        "α",
        "unverified",
        "partitions",
    ):
        streams.add_column(name, justify="right")
    for each in view.streams:
        streams.add_row(
            each.stream,
            str(each.records),
            str(each.predictions),
            str(each.scored),
            _share(each.window.cer),
            _share(each.window.naive_cer),
            _share(each.total.cer),
            _share(each.total.naive_cer),
            f"{each.alpha:.2f}",
            str(each.unverified),
            str(each.partitions),
        )
    below = []
    if not view.streams:
        below.append("no predictions yet")
    for lag in lags:
        unit = "behind" if (lag.group, lag.topic) in prompt else "since its last snapshot"
        behind = "nothing committed yet" if lag.behind is None else f"{lag.behind} {unit}"
        below.append(f"{lag.group} on {lag.topic}: {lag.records} records, {behind}")
    dead = ", ".join(f"{reason} {count}" for reason, count in view.dead_letters.items())
    below.append(f"dead letters: {dead or 'none'}")
    return Group(streams, Text("\n".join(below), style="dim"))


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
