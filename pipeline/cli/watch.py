"""`dtgol watch`: a live table of the lag, the streams, their scores and the dead letters.

It reads predictions, scores and dead-letters without a group, so no other reader is affected.
"""

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing, nullcontext, suppress
from typing import TYPE_CHECKING, NamedTuple

import click

from pipeline.cli.exit_codes import help_line
from pipeline.cli.options import Target, cluster_options, echo_json, tail_options
from pipeline.cli.progress import progress
from pipeline.errors import ClusterError

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from pipeline.kafka.reader import Tail
    from pipeline.ops.lag import Lag
    from pipeline.ops.stream_table import StreamRow, StreamTable, View

CATCH_UP_S = 60.0
FRAME_S = 0.5
LAG_EVERY_S = 5.0
READ = ("predictions", "scores", "dead-letters")
WIDE_COLUMNS = 120
"""From this width on of a terminal all columns are shown; the others fit into 80."""
GAP = 2
"""Between two columns."""
NAME_WIDTH = 15
EXPERT_WIDTH = len("linear_fast -0.75")
"""What is left to names and to experts, however long the others are: both fit into 80 columns."""


class Shown(NamedTuple):
    """What of a table is asked for."""

    streams: Sequence[str]
    """Only these; empty for all."""
    sort: str

    def of(self, view: "View") -> "View":
        """The view with these streams, in this order."""
        from dataclasses import replace

        chosen = [each for each in view.streams if not self.streams or each.stream in self.streams]
        return replace(view, streams=tuple(sorted(chosen, key=SORTS[self.sort])))


def _worst(value: float | None) -> tuple[bool, float]:
    """The largest first, streams without a score last."""
    return value is None, -(value or 0.0)


SORTS: "dict[str, Callable[[StreamRow], tuple[object, ...]]]" = {
    "stream": lambda each: (each.stream,),
    "records": lambda each: (-each.records, each.stream),
    "unverified": lambda each: (-each.unverified, each.stream),
    "cer": lambda each: (*_worst(each.window.cer), each.stream),
    "gain": lambda each: (*_worst(_gain(each)), each.stream),
}


def _gain(each: "StreamRow") -> float | None:
    """By how much more often than naive a stream is wrong, in its window."""
    cer, naive = each.window.cer, each.window.naive_cer
    return None if cer is None or naive is None else cer - naive


@click.command(epilog=help_line("watch"))
@cluster_options
@click.option("--stream", "streams", multiple=True, help="Only this one; may be given again.")
@click.option(
    "--sort",
    type=click.Choice(["stream", "records", "unverified", "cer", "gain"]),
    default="stream",
    show_default=True,
    help="By name, or what has most of it first: records, unverified; the worst first: cer, gain "
    "(over naive).",
)
@click.option(
    "--window",
    type=click.IntRange(min=1, max=100_000),
    default=500,
    show_default=True,
    help="How many of a stream's newest scores make its window.",
)
@tail_options(last=20_000)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per table on stdout.")
def watch(
    target: Target,
    streams: tuple[str, ...],
    sort: str,
    window: int,
    last: int | None,
    once: bool,
    as_json: bool,
) -> None:
    """Show what is behind, and every stream: records, labels joined, errors, what waits.

    CER is the share of wrong answers over the window of the newest scores; beside it stands the
    naive learner's. Records are the learner's own count since its beginning, unverified are those
    whose label has not come, and experts are those that count in an answer, with their weights.
    A terminal of 120 columns or more also shows predictions, partitions, the CER over all that was
    read (--last, --all) and all experts; else it is the weightiest of them. Ctrl-C ends it.
    """
    from pipeline.kafka.reader import Tail
    from pipeline.ops.stream_table import StreamTable

    table = StreamTable(window)
    names = {target.settings.topic(name): name for name in READ}
    with closing(Tail(target.client, list(names), last)) as tail, suppress(KeyboardInterrupt):
        if len(tail.missing) == len(READ):
            raise ClusterError(
                f"the cluster has no {', '.join(tail.missing)}, or this user may not see them; "
                "run: dtgol topics apply, or grant the user Read"
            )
        with progress(tail.behind_at_start, "records") as update:
            for number, record in enumerate(tail.catch_up(CATCH_UP_S), 1):
                table.add(names[record.topic], record)
                update(number)
        shown = Shown(streams, sort)
        if once:
            _show_once(target, shown.of(table.view()), as_json, _lags(target))
        else:
            _follow(target, table, tail, names, shown, as_json)


def _follow(
    target: Target,
    table: "StreamTable",
    tail: "Tail",
    names: dict[str, str],
    shown: Shown,
    as_json: bool,
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
                    table.add(names[record.topic], record)
            if time.monotonic() - asked > LAG_EVERY_S:
                lags, asked = _lags(target), time.monotonic()
            view = shown.of(table.view())
            if live is None:
                _show_once(target, view, as_json, lags)
            else:
                width = live.console.width
                live.update(picture(view, behind(target, lags), width), refresh=True)


def _show_once(target: Target, view: "View", as_json: bool, lags: "list[Lag]") -> None:
    from dataclasses import asdict

    from rich.console import Console

    from pipeline.ops.stream_table import as_plain

    if as_json:
        echo_json({**as_plain(view), "lag": [asdict(each) for each in lags]})
    else:
        console = Console()  # in a pipe 80 columns, or COLUMNS
        console.print(picture(view, behind(target, lags), console.width))


def _lags(target: Target) -> "list[Lag]":
    from pipeline.ops.lag import group_lag

    return [
        lag
        for group, topics in target.groups.items()
        for lag in group_lag(target.client, group, topics)
    ]


class Behind(NamedTuple):
    """One line about the lag: who reads what, and how much of it is not read."""

    reader: str
    records: int
    text: str


def behind(target: Target, lags: "Sequence[Lag]") -> list[Behind]:
    """The lag without prefixes; what is committed with snapshots counts since the last one."""
    roles = {target.settings.group(role): role for role in ("worker", "evaluator")}
    lines = []
    for lag in lags:
        at_once = (lag.group, lag.topic) in target.committed_at_once
        unit = "behind" if at_once else "since its last snapshot"
        text = "nothing committed yet" if lag.behind is None else f"{lag.behind} {unit}"
        topic = lag.topic.removeprefix(target.prefix)
        lines.append(Behind(f"{roles.get(lag.group, lag.group)} on {topic}", lag.records, text))
    return lines


def picture(view: "View", lags: Sequence[Behind], width: int) -> "RenderableType":
    """The whole picture for a terminal of this many columns, the lag first."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    lag = Table(box=None, pad_edge=False, header_style="bold")
    lag.add_column("lag", no_wrap=True)
    for name in ("records", "not read"):
        lag.add_column(name, justify="right", no_wrap=True)
    for each in lags:
        lag.add_row(each.reader, _count(each.records), each.text)
    dead = ", ".join(f"{reason} {count}" for reason, count in view.dead_letters.items())
    letters = Text(f"dead letters: {dead or 'none'}", style="dim")
    if not view.streams:
        return Group(lag, letters, Text("\nno predictions yet", style="dim"))
    return Group(lag, letters, Text(), _streams(view, width))


def _streams(view: "View", width: int) -> "Table":
    """A row for each stream; a name that is too long is cut, a number never."""
    from rich.table import Table

    wide = width >= WIDE_COLUMNS
    heads = ["records", "scored", "CER", "naive", "unverified"]
    heads += ["predictions", "CER read", "naive", "partitions"] if wide else []
    rows = [_numbers(each, wide) for each in view.streams]
    experts = [_weights(each.expert_weights) for each in view.streams]
    if not wide:
        experts = [each.partition(",")[0] for each in experts]
    # Given to rich as they are: it would take room from numbers before it cuts a name.
    taken = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    free = width - sum(taken) - GAP * (len(taken) + 1)
    names_width, experts_width = _divide(
        free, max(len(each.stream) for each in view.streams), max(map(len, experts))
    )
    streams = Table(box=None, pad_edge=False, header_style="bold")
    streams.add_column("stream", no_wrap=True, max_width=names_width)
    for head, size in zip(heads, taken, strict=True):
        streams.add_column(head, justify="right", no_wrap=True, min_width=size)
    streams.add_column("experts", no_wrap=True, max_width=max(len("experts"), experts_width))
    for each, numbers, weights in zip(view.streams, rows, experts, strict=True):
        streams.add_row(each.stream, *numbers, weights)
    return streams


def _divide(free: int, names: int, experts: int) -> tuple[int, int]:
    """The widths of names and of experts, of which each may be longer than there is room for."""
    names = max(len("stream"), min(names, max(NAME_WIDTH, free - experts)))
    return names, min(experts, max(EXPERT_WIDTH, free - names))


def _numbers(each: "StreamRow", wide: bool) -> list[str]:
    """The numbers of one stream."""
    cells = [_count(each.records), _count(each.scored)]
    cells += [_share(each.window.cer), _share(each.window.naive_cer), _count(each.unverified)]
    if wide:
        cells += [_count(each.predictions), _share(each.total.cer)]
        cells += [_share(each.total.naive_cer), str(each.partitions)]
    return cells


def _weights(weights: dict[str, float]) -> str:
    """The experts that count, the heaviest first."""
    ranked = sorted(weights.items(), key=lambda item: -abs(item[1]))
    return ", ".join(f"{name} {weight:.2f}" for name, weight in ranked if abs(weight) >= 0.005)


def _count(value: int) -> str:
    """A number of at most eight characters."""
    return f"{value}" if value < 10**8 else f"{value / 1e6:.0f}M"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
