"""`dtgol watch`: a live table of streams, their scores, the lag and the dead letters.

It reads predictions, scores and dead-letters without a group, so no other reader is affected.
"""

import sys
import time
from contextlib import closing, nullcontext, suppress
from typing import TYPE_CHECKING

import click

from pipeline.cli.exit_codes import help_line
from pipeline.cli.options import Target, cluster_options, echo_json
from pipeline.errors import ClusterError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from pipeline.kafka.reader import Tail
    from pipeline.ops.lag import Lag
    from pipeline.ops.stream_table import StreamTable, View

CATCH_UP_S = 60.0
FRAME_S = 0.5
LAG_EVERY_S = 5.0
READ = ("predictions", "scores", "dead-letters")


@click.command(epilog=help_line("watch"))
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
    since its beginning, unverified are those whose label has not come, and experts are those that
    count in an answer, with their weights. Ctrl-C ends it.
    """
    from pipeline.kafka.reader import Tail
    from pipeline.ops.stream_table import StreamTable

    streams = StreamTable(window)
    names = {target.settings.topic(name): name for name in READ}
    tail = Tail(target.client, list(names), None if everything else last)
    with closing(tail), suppress(KeyboardInterrupt):
        if len(tail.missing) == len(READ):
            raise ClusterError(
                f"the cluster has no {', '.join(tail.missing)}, or this user may not see them; "
                "run: dtgol topics apply, or grant the user Read"
            )
        for record in tail.catch_up(CATCH_UP_S):
            streams.add(names[record.topic], record)
        if once:
            _show_once(target, streams.view(), as_json, _lags(target))
        else:
            _follow(target, streams, tail, names, as_json)


def _follow(
    target: Target, streams: "StreamTable", tail: "Tail", names: dict[str, str], as_json: bool
) -> None:
    """Until Ctrl-C: a table that moves on a terminal; elsewhere one every few seconds."""
    from rich.live import Live

    moving = sys.stdout.isatty() and not as_json
    with Live(auto_refresh=False) if moving else nullcontext() as live:
        lags, asked = _lags(target), time.monotonic()
        while True:
            until = time.monotonic() + (FRAME_S if moving else LAG_EVERY_S)
            while (left := until - time.monotonic()) > 0:
                for record in tail.poll(min(left, FRAME_S)):
                    streams.add(names[record.topic], record)
            if time.monotonic() - asked > LAG_EVERY_S:
                lags, asked = _lags(target), time.monotonic()
            if live is None:
                _show_once(target, streams.view(), as_json, lags)
            else:
                live.update(table(streams.view(), lags, target.committed_at_once), refresh=True)


def _show_once(target: Target, view: "View", as_json: bool, lags: "list[Lag]") -> None:
    from dataclasses import asdict

    from rich.console import Console

    from pipeline.ops.stream_table import as_plain

    if as_json:
        echo_json({**as_plain(view), "lag": [asdict(each) for each in lags]})
    else:
        Console(width=None if sys.stdout.isatty() else 140).print(
            table(view, lags, target.committed_at_once)
        )


def _lags(target: Target) -> "list[Lag]":
    from pipeline.ops.lag import group_lag

    return [
        lag
        for group, topics in target.groups.items()
        for lag in group_lag(target.client, group, topics)
    ]


def table(
    view: "View", lags: "list[Lag]", committed_at_once: set[tuple[str, str]]
) -> "RenderableType":
    """The whole picture for a terminal; lag of others counts since their snapshot."""
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
        "unverified",
        "partitions",
        "experts",
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
            str(each.unverified),
            str(each.partitions),
            _weights(each.expert_weights),
        )
    below = []
    if not view.streams:
        below.append("no predictions yet")
    for lag in lags:
        unit = (
            "behind" if (lag.group, lag.topic) in committed_at_once else "since its last snapshot"
        )
        behind = "nothing committed yet" if lag.behind is None else f"{lag.behind} {unit}"
        below.append(f"{lag.group} on {lag.topic}: {lag.records} records, {behind}")
    dead = ", ".join(f"{reason} {count}" for reason, count in view.dead_letters.items())
    below.append(f"dead letters: {dead or 'none'}")
    return Group(streams, Text("\n".join(below), style="dim"))


def _weights(weights: dict[str, float]) -> str:
    """The experts that count, the heaviest first."""
    ranked = sorted(weights.items(), key=lambda item: -abs(item[1]))
    return ", ".join(f"{name} {weight:.2f}" for name, weight in ranked if abs(weight) >= 0.005)


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
