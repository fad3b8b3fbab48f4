"""`dtgol worker`: sequencer and learner; start as many as there are partitions, or fewer.

Exit code 0: told to end, and ended in good order. 1: it failed, start it again. 2: an operator
must decide something first; one sentence says what.
"""

from pathlib import Path
from typing import Any

import click

from pipeline.cli.process import (
    prepared,
    process_options,
    run_app,
    set_up_logging,
    settings_from,
)
from pipeline.settings.page import help_text


@click.command(epilog=help_text())
@process_options
@click.option(
    "--accept-gap",
    is_flag=True,
    help="Go on although records are gone that were never read; says which.",
)
@click.option(
    "--reset-changed",
    is_flag=True,
    help="Let streams start anew whose settings cannot change in flight, and did.",
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
