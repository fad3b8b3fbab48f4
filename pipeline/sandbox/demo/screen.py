"""What the demo shows: a picture that moves on a terminal, a line every few seconds elsewhere."""

import sys
import time
from types import TracebackType
from typing import Self

import click
from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from pipeline.ops.stream_table import StreamTable
from pipeline.sandbox.demo.play import Moment, Played
from pipeline.sandbox.demo.results import Accuracy, PlayResults
from pipeline.sandbox.demo.stories import Story
from topics.predictions import Prediction

LINE_S = 5.0
FRAME_S = 0.25
STEP_LINE_S = 5.0


class Step:
    """One step of the preparations: shown at once, and again while it takes long."""

    def __init__(self, what: str) -> None:
        self._start = self._shown_at = time.monotonic()
        click.echo(f"{what} …")

    def still(self, why: str = "") -> None:
        """Call it while waiting: every few seconds a line says that nothing hangs."""
        if time.monotonic() - self._shown_at >= STEP_LINE_S:
            self._shown_at = time.monotonic()
            more = f" ({why})" if why else ""
            click.echo(f"  still at it, {self.seconds:.0f} s{more}")

    def done(self, more: str = "") -> None:
        """It is done."""
        click.echo(f"  done in {self.seconds:.1f} s{f': {more}' if more else ''}")

    @property
    def seconds(self) -> float:
        """Since its beginning."""
        return time.monotonic() - self._start


class Screen:
    """Shows the play; a context manager."""

    def __init__(self, story: Story) -> None:
        self._story = story
        self._live = Live(auto_refresh=False, transient=True) if sys.stdout.isatty() else None
        self._shown = 0.0

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, moment: Moment, results: PlayResults, board: StreamTable) -> None:
        """Call it as often as one likes: mostly it reads a clock."""
        every = LINE_S if self._live is None else FRAME_S
        if time.monotonic() - self._shown < every:
            return
        self._shown = time.monotonic()
        if self._live is None:
            self._tell(moment, results)
        else:
            self._live.update(self._picture(moment, results, board), refresh=True)

    def _tell(self, moment: Moment, results: PlayResults) -> None:
        recent = results.recently()
        click.echo(
            f"day {moment.day:4.1f} of {self._story.days:.0f}: {moment.sent} sent, "
            f"{results.answered} answered, {results.scored} scored; "
            f"accuracy of the last {recent.scored}: {_share(recent.forecast)} "
            f"(naive {_share(recent.naive)}){self._where(moment)}"
        )
        if results.newest:
            newest = results.newest[-1]
            click.echo(
                f"    {newest.id}: p = {newest.p:.3f}, naive {newest.naive:.3f}; "
                f"{newest.labels_learnt} labels learnt, {newest.unverified} awaited; "
                f"weights: {_weights(newest)}"
            )

    def _where(self, moment: Moment) -> str:
        blind = self._story.blind
        if moment.sent in blind:
            return "  [blind zone]"
        return "" if moment.sent < blind.start else "  [changed world]"

    def _picture(self, moment: Moment, results: PlayResults, board: StreamTable) -> RenderableType:
        total = len(self._story.cases)
        recent = results.recently()
        head = Text(f"day {moment.day:.1f} of {self._story.days:.0f}{self._where(moment)}")
        bar = ProgressBar(total=total, completed=moment.sent, width=60)
        counts = Text(
            f"{moment.sent} of {total} records sent, {results.answered} answered; "
            f"{moment.labels_sent} labels sent, {results.scored} joined and scored"
        )
        score = Text(
            f"accuracy of the last {recent.scored}: {_share(recent.forecast)}, "
            f"naive {_share(recent.naive)}",
            style="bold",
        )
        dead = board.view().dead_letters
        parts: list[RenderableType] = [head, bar, counts, score, _answers(results)]
        if results.newest:
            parts.append(Text(f"weights of the experts: {_weights(results.newest[-1])}"))
        if dead:
            parts.append(Text(f"dead letters: {dead}", style="red"))
        rows = Table.grid()
        for part in parts:
            rows.add_row(part)
        return rows


def _answers(results: PlayResults) -> Table:
    table = Table(box=None, header_style="dim")
    for name in ("newest answers", "p", "naive", "labels learnt", "labels awaited"):
        table.add_column(name, justify="left" if name == "newest answers" else "right")
    for each in results.newest:
        table.add_row(
            each.id,
            f"{each.p:.3f}",
            f"{each.naive:.3f}",
            str(each.labels_learnt),
            str(each.unverified),
        )
    return table


def summary(story: Story, played: Played) -> None:
    """The end of the demo."""
    results, labels, dead_letters = played
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 100)
    click.echo(
        f"\n{story.name}: {len(story.cases)} records, {results.answered} predictions, "
        f"{results.scored} of {labels} labels joined"
    )
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("accuracy")
    for name in ("records", "scored", "forecast", "naive"):
        table.add_column(name, justify="right")
    for zone, found in results.zones().items():
        table.add_row(zone, *_cells(found))
    console.print(table)
    click.echo(
        "The blind zone: the world has changed, and all labels so far are about the old one."
    )
    if dead_letters:
        listed = ", ".join(f"{reason} {count}" for reason, count in dead_letters.items())
        click.echo(f"dead letters: {listed}")


def _cells(found: Accuracy) -> tuple[str, ...]:
    return str(found.records), str(found.scored), _share(found.forecast), _share(found.naive)


def _weights(prediction: Prediction) -> str:
    """What each expert is worth at the moment, the heaviest first."""
    heaviest = sorted(prediction.experts.items(), key=lambda item: -item[1].weight)
    return ", ".join(f"{name} {expert.weight:.2f}" for name, expert in heaviest)


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
