"""`dtgol evaluator`: every prediction against its label, as it was said at the time."""

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


@click.command(epilog=f"{codes('evaluator')}\n\n{help_text()}")
@process_options
@click.option(
    "--accept-gap",
    is_flag=True,
    help="Go on although Kafka has deleted records that were never read; the log says which.",
)
def evaluator(config: Path | None, log_level: str, accept_gap: bool, **named: Any) -> None:
    """Score predictions against labels."""
    settings = settings_from(config, **named)
    set_up_logging(log_level)

    from pipeline.evaluator import prepare_evaluator

    ready = prepared(lambda: prepare_evaluator(settings, accept_gap))
    run_app(ready.app, log_level)
