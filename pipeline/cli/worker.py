"""`dtgol worker`: sequencer and learner; start as many as there are partitions, or fewer."""

from typing import TYPE_CHECKING

import click

from pipeline.cli.exit_codes import help_line
from pipeline.cli.options import process_options
from pipeline.settings.page import help_text

if TYPE_CHECKING:
    from pipeline.settings import Settings


@click.command(epilog=f"{help_line('worker')}\n\n{help_text()}")
@process_options
@click.option(
    "--reset-changed",
    is_flag=True,
    help="Streams with a changed setting that cannot change in flight start anew: this forgets all "
    "that they have learnt and their pending instances, and cannot be undone.",
)
def worker(settings: "Settings", log_level: str, accept_gap: bool, reset_changed: bool) -> None:
    """Answer features, learn from labels."""
    from pipeline.worker import StartOptions, make_worker

    make_worker(settings, StartOptions(accept_gap, reset_changed)).app.run(log_level)
