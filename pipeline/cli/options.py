"""Options that several commands share, and what they are turned into.

Those of a cluster go through the settings, so the environment, the file and the security settings
hold for every command as they do for the worker; ``--bootstrap`` and ``--prefix`` are short for two
of them.
"""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from dtgol_core.config import ColumnsConfig
from pipeline.errors import InputError

if TYPE_CHECKING:
    from pipeline.offline.files.records import Mask, Row
    from pipeline.offline.files.source import InputFile
    from pipeline.offline.files.tables import Layout, Table
    from pipeline.settings import Settings

Command = Callable[..., Any]

READS = {"worker": ("features", "labels", "journal"), "evaluator": ("predictions", "labels")}
"""The topics that each role's consumer group reads."""
COMMITTED_AT_ONCE = {"worker": ("features", "labels")}
"""Of these, what is committed within a second; the rest waits for the next snapshot."""
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


class Target(NamedTuple):
    """The cluster a command works on: the settings, and librdkafka's (they may hold secrets)."""

    settings: "Settings"
    client: dict[str, Any]

    @property
    def prefix(self) -> str:
        """What every topic's name begins with."""
        return self.settings.kafka.prefix

    @property
    def committed_at_once(self) -> set[tuple[str, str]]:
        """Groups and topics whose committed offsets are up to date."""
        settings = self.settings
        return {
            (settings.group(role), settings.topic(name))
            for role, names in COMMITTED_AT_ONCE.items()
            for name in names
        }

    @property
    def groups(self) -> dict[str, list[str]]:
        """The consumer groups, each with the full names of the topics it reads."""
        return {
            self.settings.group(role): [self.settings.topic(name) for name in names]
            for role, names in READS.items()
        }


def _options(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Options in the order in which `--help` shows them."""

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


_settings_options = _options(
    click.option("--bootstrap", help="Brokers, host:port,...  [env var: KAFKA_BOOTSTRAP_SERVERS]"),
    click.option("--prefix", help="What every topic's name begins with."),
    click.option(
        "--config",
        type=click.Path(path_type=Path),
        help="Settings file, TOML.  [env var: DTGOL_CONFIG]",
    ),
    click.option(
        "--set",
        "overrides",
        multiple=True,
        metavar="SECTION.KEY=VALUE",
        help="Any setting (docs/settings.md); wins over environment and file; may be given again.",
    ),
)

_MISSING = ",".join(text for text in ColumnsConfig().missing if text)

_row_options = _options(
    click.option(
        "--label", default="label", show_default=True, help="Column with the label, 0 or 1."
    ),
    click.option("--positive", metavar="VALUE", help="A label that is VALUE is 1, any other is 0."),
    click.option(
        "--id", "id_column", metavar="COLUMN", help="Column with the id; it is no feature."
    ),
    click.option(
        "--time",
        "time_column",
        metavar="COLUMN",
        help="Column with the event time, ISO 8601 or epoch s or ms; it is no feature.",
    ),
    click.option(
        "--drop", default="", metavar="COLUMN,...", help="Columns that are not to be features."
    ),
    click.option(
        "--na",
        default=_MISSING,
        show_default=True,
        metavar="TEXT,...",
        help="Cells with one of these texts, in any case, are missing; empty ones are always.",
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
        "--seed",
        type=click.IntRange(min=0),
        default=0,
        show_default=True,
        help="The same seed hides the same values and shuffles in the same way.",
    ),
    click.option("--shuffle", is_flag=True, help="Shuffle the rows by the seed."),
    click.option("--limit", type=click.IntRange(min=1), help="Stop after this many records."),
    click.option(
        "--delay",
        type=click.IntRange(min=0),
        default=1,
        show_default=True,
        help="How many records late a label is: with 50, that of record 1 comes just before record "
        "51. 0 is the same as 1.",
    ),
)


class RowSource(NamedTuple):
    """The table that the options name, and what is to become of its rows."""

    source: "InputFile"
    layout: "Layout"
    mask: "Mask"
    seed: int
    shuffle: bool
    limit: int | None

    def read(self, key_column: str | None = None) -> "tuple[list[Row], Table]":
        """The rows, and the table they are from, which can describe itself."""
        from pipeline.offline.files.records import open_table, rows_of

        table = open_table(self.source, replace(self.layout, key=key_column))
        rows = rows_of(
            table, mask=self.mask, seed=self.seed, shuffle=self.shuffle, limit=self.limit
        )
        return list(rows), table


def row_options(command: Command) -> Command:
    """Add FILE and the options of its rows; the command gets a `RowSource` as ``file``."""

    @wraps(command)
    def opened(
        file: Path,
        label: str,
        positive: str | None,
        id_column: str | None,
        time_column: str | None,
        drop: str,
        na: str,
        missing: str,
        seed: int,
        shuffle: bool,
        limit: int | None,
        **rest: Any,
    ) -> Any:
        from pipeline.offline.files.records import Mask
        from pipeline.offline.files.source import InputFile
        from pipeline.offline.files.tables import Layout

        layout = Layout(
            label=label,
            id=id_column,
            time=time_column,
            drop=tuple(comma_list(drop)),
            positive=positive,
            missing=("", *comma_list(na)),
        )
        mask = Mask.parse(missing)
        rows = RowSource(InputFile(file), layout, mask, seed, shuffle, limit)
        return command(file=rows, **rest)

    return click.argument("file", type=click.Path(path_type=Path))(_row_options(opened))


partitions_option = click.option(
    "--partition",
    "partitions",
    type=click.IntRange(min=0),
    multiple=True,
    help="Only this one; may be given again.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")


def tail_options(last: int) -> Callable[[Command], Command]:
    """Where to begin reading the newest records, ``last`` by default, and whether to go on.

    The command gets ``last`` (None for ``--all``) and ``once``.
    """
    options = _options(
        click.option(
            "--last",
            type=click.IntRange(min=0),
            default=last,
            show_default=True,
            help="Begin this many records before each partition's end.",
        ),
        click.option("--all", "everything", is_flag=True, help="Begin at the oldest record kept."),
        click.option("--once", is_flag=True, help="Stop at the end instead of waiting for more."),
    )

    def add(command: Command) -> Command:
        @wraps(command)
        def begun(last: int, everything: bool, **rest: Any) -> Any:
            return command(last=None if everything else last, **rest)

        return options(begun)

    return add


def story_options(
    records: int | None, seconds: float, records_help: str, seconds_help: str
) -> Callable[[Command], Command]:
    """The options by which a demo story is chosen."""
    return _options(
        click.option(
            "--records",
            type=click.IntRange(min=20),
            default=records,
            show_default=records is not None,
            help=records_help,
        ),
        click.option(
            "--seconds",
            type=click.FloatRange(min=1),
            default=seconds,
            show_default=True,
            help=seconds_help,
        ),
        click.option(
            "--seed",
            type=click.IntRange(min=0),
            default=0,
            show_default=True,
            help="The same seed gives the same records.",
        ),
    )


def cluster_options(command: Command) -> Command:
    """Add the options of a cluster; the command gets a `Target` as ``target`` in their place."""

    @wraps(command)
    def connected(
        bootstrap: str | None,
        prefix: str | None,
        config: Path | None,
        overrides: tuple[str, ...],
        **rest: Any,
    ) -> Any:
        return command(target=open_target(bootstrap, prefix, config, overrides), **rest)

    return _settings_options(connected)


def open_target(
    bootstrap: str | None = None,
    prefix: str | None = None,
    config: Path | None = None,
    overrides: tuple[str, ...] = (),
) -> Target:
    """The cluster that options and settings name."""
    from pipeline.kafka.auth import Security

    settings = _read_settings(config, overrides, bootstrap, prefix)
    return Target(settings, Security.of(settings).librdkafka())


def process_options(command: Command) -> Command:
    """Add the options of a long-running process; the command gets ``settings`` and log level."""

    @wraps(command)
    def started(
        bootstrap: str | None,
        prefix: str | None,
        config: Path | None,
        overrides: tuple[str, ...],
        web_port: int | None,
        log_level: str,
        **rest: Any,
    ) -> Any:
        settings = _read_settings(config, overrides, bootstrap, prefix, web_port)
        set_up_logging(log_level)
        return command(settings=settings, log_level=log_level, **rest)

    return _options(
        _settings_options,
        click.option("--web-port", type=int, help="Port of /livez, /readyz, /metrics, /status."),
        click.option(
            "--accept-gap",
            is_flag=True,
            help="Go on although Kafka has deleted records that were never read; the log "
            "names them.",
        ),
        click.option(
            "--log-level",
            type=click.Choice(LEVELS, case_sensitive=False),
            default="INFO",
            envvar="DTGOL_LOG_LEVEL",
            show_default=True,
            show_envvar=True,
            help="The least severe lines that are logged.",
        ),
    )(started)


def _read_settings(
    config: Path | None,
    overrides: tuple[str, ...],
    bootstrap: str | None,
    prefix: str | None,
    web_port: int | None = None,
) -> "Settings":
    from pipeline.settings import read_settings

    given: dict[str, str] = {}
    for text in overrides:
        key, found, value = text.partition("=")
        if not found:
            raise InputError(f"--set takes SECTION.KEY=VALUE, not {text!r}")
        given[key] = value
    named = {"kafka.bootstrap_servers": bootstrap, "kafka.prefix": prefix, "web.port": web_port}
    given |= {key: str(value) for key, value in named.items() if value is not None}
    return read_settings(os.environ, config, given)


def set_up_logging(log_level: str) -> None:
    """One line per event on stderr; those of libraries only from WARNING on."""
    import logging

    from pipeline.runtime.log_filter import RepeatFilter

    logging.basicConfig(
        level=log_level.upper(),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        force=True,
    )
    if log_level.upper() != "DEBUG":
        for library in ("faust", "mode", "aiokafka", "asyncio", "aiohttp"):
            logging.getLogger(library).setLevel(logging.WARNING)
        for handler in logging.getLogger().handlers:
            handler.addFilter(RepeatFilter("aiokafka"))


def choose_partitions(given: tuple[int, ...], count: int) -> list[int]:
    """The partitions named, else all there are."""
    wrong = [each for each in given if each >= count]
    if wrong:
        raise InputError(f"--partition {wrong[0]}: there are {count}, from 0 on")
    return sorted(set(given)) or list(range(count))


def comma_list(text: str) -> list[str]:
    """The names in ``a, b,c``."""
    return [name for name in (part.strip() for part in text.split(",")) if name]


def echo_json(content: Any) -> None:
    """One line of JSON on stdout."""
    click.echo(json.dumps(content))
