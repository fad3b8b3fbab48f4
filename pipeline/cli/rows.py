"""The options by which a command chooses the rows of a file, the same for all of them."""

from collections.abc import Callable
from typing import Any

import click


def row_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--label --missing --seed --shuffle --limit``."""
    for option in (
        click.option("--limit", type=click.IntRange(min=1), help="Stop after this many records."),
        click.option("--shuffle", is_flag=True, help="Shuffle the rows by the seed."),
        click.option(
            "--seed",
            type=click.IntRange(min=0),
            default=0,
            show_default=True,
            help="The same seed hides the same values and shuffles in the same way.",
        ),
        click.option(
            "--missing",
            default="none",
            show_default=True,
            metavar="none|pairs|RATE",
            help="Values to hide: none; pairs: one of each two neighbouring columns; or a share of "
            "all, such as 0.3.",
        ),
        click.option(
            "--label", default="label", show_default=True, help="Column with the label, 0 or 1."
        ),
    ):
        command = option(command)
    return command
