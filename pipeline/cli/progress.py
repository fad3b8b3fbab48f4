"""How far a long run is: a bar on a terminal, a line every five seconds elsewhere; on stderr.

What has no number is named instead: `status` shows what is being looked at.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

import click

LINE_SECONDS = 5.0
BAR_SECONDS = 0.2
"""Five frames a second: smooth enough to watch, under one per cent of the time to draw."""


@contextmanager
def progress(total: int, what: str) -> Iterator[Callable[[int], None]]:
    """A function to call with the number done, as often as one likes: mostly it reads a clock."""
    if sys.stderr.isatty():
        with _bar(total, what) as update:
            yield update
    else:
        yield _lines(total, what)


@contextmanager
def _bar(total: int, what: str) -> Iterator[Callable[[int], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), what, TimeRemainingColumn())
    # Drawn by the run itself: a drawing thread would take the interpreter from it at random.
    with Progress(*columns, console=Console(stderr=True), auto_refresh=False) as bar:
        task = bar.add_task(what, total=total)
        shown = monotonic()

        def update(done: int) -> None:
            nonlocal shown
            if monotonic() - shown >= BAR_SECONDS or done == total:
                bar.update(task, completed=done, refresh=True)
                shown = monotonic()

        yield update


def _lines(total: int, what: str) -> Callable[[int], None]:
    start = shown = monotonic()

    def update(done: int) -> None:
        nonlocal shown
        now = monotonic()
        if now - shown >= LINE_SECONDS:
            left = (now - start) * (total - done) / max(1, done)
            click.echo(
                f"{done} of {total} {what}, {now - start:.0f} s, about {left:.0f} s left", err=True
            )
            shown = now

    return update


@contextmanager
def status() -> Iterator[Callable[[str], None]]:
    """A function to call with what is being done now, and with an empty text before printing.

    On a terminal it is a line that the next text replaces. Elsewhere it is a line of its own, if
    nothing was shown for five seconds.
    """
    on_terminal, shown = sys.stderr.isatty(), monotonic()

    def show(text: str) -> None:
        nonlocal shown
        if on_terminal:
            click.echo(f"\r\x1b[2K{text}", err=True, nl=False)
        elif text and monotonic() - shown >= LINE_SECONDS:
            click.echo(f"{text} …", err=True)
            shown = monotonic()
        elif not text:
            shown = monotonic()

    try:
        yield show
    finally:
        if on_terminal:
            show("")
