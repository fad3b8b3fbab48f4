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

from pipeline.demo.play import Moment, Played
from pipeline.demo.stories import Story
from pipeline.demo.tally import Accuracy, Tally
from pipeline.operators.board import Board

LINE_S = 5.0
FRAME_S = 0.25
STEP_LINE_S = 5.0


class Step:
    """One step of the preparations: said at once, and again while it takes long."""

    def __init__(self, what: str) -> None:
        self._start = self._said = time.monotonic()
        click.echo(f"{what} …")

    def still(self, why: str = "") -> None:
        """Call it while waiting: every few seconds a line says that nothing hangs."""
        if time.monotonic() - self._said >= STEP_LINE_S:
            self._said = time.monotonic()
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

    def show(self, moment: Moment, tally: Tally, board: Board) -> None:
        """Call it as often as one likes: mostly it reads a clock."""
        every = LINE_S if self._live is None else FRAME_S
        if time.monotonic() - self._shown < every:
            return
        self._shown = time.monotonic()
        if self._live is None:
            self._tell(moment, tally)
        else:
            self._live.update(self._picture(moment, tally, board), refresh=True)

    def _tell(self, moment: Moment, tally: Tally) -> None:
        recent = tally.recently()
        click.echo(
            f"day {moment.day:4.1f} of {self._story.days:.0f}: {moment.sent} sent, "
            f"{tally.answered} answered, {tally.scored} scored; "
            f"accuracy of the last {recent.scored}: {_share(recent.forecast)} "
            f"(naive {_share(recent.naive)}){self._where(moment)}"
        )
        if tally.newest:
            said = tally.newest[-1]
            click.echo(
                f"    {said.id}: p = {said.p:.3f}, naive {said.naive:.3f}; "
                f"{said.labels_learnt} labels learnt, {said.unverified} awaited"
            )

    def _where(self, moment: Moment) -> str:
        blind = self._story.blind
        if moment.sent in blind:
            return "  [blind zone]"
        return "" if moment.sent < blind.start else "  [changed world]"

    def _picture(self, moment: Moment, tally: Tally, board: Board) -> RenderableType:
        total = len(self._story.cases)
        recent = tally.recently()
        head = Text(f"day {moment.day:.1f} of {self._story.days:.0f}{self._where(moment)}")
        bar = ProgressBar(total=total, completed=moment.sent, width=60)
        counts = Text(
            f"{moment.sent} of {total} records sent, {tally.answered} answered; "
            f"{moment.labels_sent} labels sent, {tally.scored} joined and scored"
        )
        score = Text(
            f"accuracy of the last {recent.scored}: {_share(recent.forecast)}, "
            f"naive {_share(recent.naive)}",
            style="bold",
        )
        dead = board.view().dead_letters
        parts: list[RenderableType] = [head, bar, counts, score, _answers(tally)]
        if dead:
            parts.append(Text(f"dead letters: {dead}", style="red"))
        rows = Table.grid()
        for part in parts:
            rows.add_row(part)
        return rows


def _answers(tally: Tally) -> Table:
    table = Table(box=None, header_style="dim")
    for name in ("newest answers", "p", "naive", "labels learnt", "labels awaited"):
        table.add_column(name, justify="left" if name == "newest answers" else "right")
    for said in tally.newest:
        table.add_row(
            said.id,
            f"{said.p:.3f}",
            f"{said.naive:.3f}",
            str(said.labels_learnt),
            str(said.unverified),
        )
    return table


def summary(story: Story, played: Played) -> None:
    """The end of the demo."""
    tally, labels, dead_letters = played
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 100)
    click.echo(
        f"\n{story.name}: {len(story.cases)} records, {tally.answered} predictions, "
        f"{tally.scored} of {labels} labels joined"
    )
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("accuracy")
    for name in ("records", "scored", "forecast", "naive"):
        table.add_column(name, justify="right")
    for zone, found in tally.zones().items():
        table.add_row(zone, *_cells(found))
    console.print(table)
    click.echo(
        "The blind zone: the world has changed, and every label still speaks of the old one."
    )
    if dead_letters:
        said = ", ".join(f"{reason} {count}" for reason, count in dead_letters.items())
        click.echo(f"dead letters: {said}")


def _cells(found: Accuracy) -> tuple[str, ...]:
    return str(found.records), str(found.scored), _share(found.forecast), _share(found.naive)


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
