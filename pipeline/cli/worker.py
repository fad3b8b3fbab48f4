"""`dtgol worker`: sequencer and learner; start as many as there are partitions, or fewer."""

from pathlib import Path
from typing import Any

import click

from pipeline.cli.codes import codes
from pipeline.cli.process import (
    prepared,
    process_options,
    run_app,
    set_up_logging,
    settings_from,
)
from pipeline.settings.page import help_text


@click.command(epilog=f"{codes('worker')}\n\n{help_text()}")
@process_options
@click.option(
    "--accept-gap",
    is_flag=True,
    help="Go on although Kafka has deleted records that were never read; the log says which.",
)
@click.option(
    "--reset-changed",
    is_flag=True,
    help="Streams with a changed setting that cannot change in flight start anew: this forgets all "
    "that they have learnt and who waits for a label, and cannot be undone.",
)
def worker(
    config: Path | None, log_level: str, accept_gap: bool, reset_changed: bool, **named: Any
) -> None:
    """Answer features, learn from labels."""
    settings = settings_from(config, **named)
    set_up_logging(log_level)

    from pipeline.worker import Choices, prepare_worker

    ready = prepared(lambda: prepare_worker(settings, Choices(accept_gap, reset_changed)))
    run_app(ready.app, log_level)
