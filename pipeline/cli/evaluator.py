"""`dtgol evaluator`: every prediction against its label, as it was made at the time."""

from typing import TYPE_CHECKING

import click

from pipeline.cli.exit_codes import help_line
from pipeline.cli.options import process_options
from pipeline.settings.page import help_text

if TYPE_CHECKING:
    from pipeline.settings import Settings


@click.command(epilog=f"{help_line('evaluator')}\n\n{help_text()}")
@process_options
def evaluator(settings: "Settings", log_level: str, accept_gap: bool) -> None:
    """Score predictions against labels."""
    from pipeline.evaluator import make_evaluator

    make_evaluator(settings, accept_gap).app.run(log_level)
