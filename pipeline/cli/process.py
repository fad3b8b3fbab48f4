"""What `dtgol worker` and `dtgol evaluator` share: options, settings, logging, the run."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pipeline.cli import BadInput

if TYPE_CHECKING:
    from pipeline.settings import Settings

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


def process_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of a long-running process."""
    for option in (
        click.option(
            "--log-level",
            type=click.Choice(LEVELS, case_sensitive=False),
            default="INFO",
            envvar="DTGOL_LOG_LEVEL",
            show_default=True,
            show_envvar=True,
            help="The least grave lines that are logged.",
        ),
        click.option(
            "--set",
            "overrides",
            multiple=True,
            metavar="SECTION.KEY=VALUE",
            help="Any setting below; wins over environment and file; may be given again.",
        ),
        click.option("--web-port", type=int, help="Port of /livez, /readyz, /metrics, /status."),
        click.option("--prefix", help="What every topic's name begins with."),
        click.option(
            "--bootstrap", help="Brokers, host:port,...  [env var: KAFKA_BOOTSTRAP_SERVERS]"
        ),
        click.option(
            "--config",
            type=click.Path(path_type=Path),
            help="Settings file, TOML.  [env var: DTGOL_CONFIG]",
        ),
    ):
        command = option(command)
    return command


def settings_from(
    config: Path | None,
    bootstrap: str | None,
    prefix: str | None,
    web_port: int | None,
    overrides: tuple[str, ...],
) -> Settings:
    """The settings in force, or one sentence and exit code 2."""
    from dtgol_core.config import ConfigError
    from pipeline.settings import read_settings

    given: dict[str, str] = {}
    for text in overrides:
        key, found, value = text.partition("=")
        if not found:
            raise BadInput(f"--set takes SECTION.KEY=VALUE, not {text!r}")
        given[key] = value
    named = {"kafka.bootstrap_servers": bootstrap, "kafka.prefix": prefix, "web.port": web_port}
    given |= {key: str(value) for key, value in named.items() if value is not None}
    try:
        return read_settings(os.environ, config, given)
    except ConfigError as error:
        raise BadInput(str(error)) from None


def prepared(prepare: Callable[[], Any]) -> Any:
    """What is ready to run, or one sentence: exit code 2 to an operator, 1 to a supervisor.

    A cluster that is away while we start is no matter for an operator: the next start may find it.
    """
    from confluent_kafka import KafkaException

    from dtgol_core.config import ConfigError
    from pipeline.cluster import UnansweredError
    from pipeline.snapshots import RefusalError

    try:
        return prepare()
    except (ConfigError, RefusalError) as error:
        raise BadInput(str(error)) from None
    except UnansweredError as error:
        raise click.ClickException(f"{error}; to be started again") from None
    except KafkaException as error:
        said = error.args[0].str()
        raise click.ClickException(
            f"the cluster did not do as it was asked: {said}; to be started again"
        ) from None


def run_app(app: Any, log_level: str) -> None:
    """Run a Faust app until it is told to end; leaves by exit code."""
    import faust

    from pipeline.engine.faustapp import say_what_crashed

    worker = faust.Worker(
        app,
        quiet=True,
        redirect_stdouts=False,
        override_logging=False,
        daemon=True,
        workdir=os.getcwd(),
        loglevel=log_level,
    )
    try:
        worker.execute_from_commandline()
    finally:
        say_what_crashed(worker.crash_reason)


def set_up_logging(log_level: str) -> None:
    """One line per event on stderr; the libraries' chatter only from WARNING on."""
    import logging

    from pipeline.engine.repeats import Repeats

    logging.basicConfig(
        level=log_level.upper(),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        force=True,
    )
    if log_level.upper() != "DEBUG":
        for chatty in ("faust", "mode", "aiokafka", "asyncio", "aiohttp"):
            logging.getLogger(chatty).setLevel(logging.WARNING)
        for handler in logging.getLogger().handlers:
            handler.addFilter(Repeats("aiokafka"))
