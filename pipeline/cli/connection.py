"""The options by which a command finds its cluster, the same for all of them.

They go through the settings, so the environment, the file and the security settings hold here as
they do for the worker; ``--bootstrap`` and ``--prefix`` are short for two of them.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from pipeline.cli import BadInput

if TYPE_CHECKING:
    from ssl import SSLContext

    from pipeline.settings import Settings

READS = {"worker": ("features", "labels", "journal"), "evaluator": ("predictions", "labels")}
"""The topics that each role's consumer group reads."""
PROMPT = {"worker": ("features", "labels")}
"""Of these, what is committed within a second; the rest waits for the next snapshot."""


class Target(NamedTuple):
    """Where a command works: the settings, and librdkafka's (they may hold secrets)."""

    settings: "Settings"
    client: dict[str, Any]
    tls: "SSLContext | None" = None

    @property
    def prefix(self) -> str:
        """What every topic's name begins with."""
        return self.settings.kafka.prefix

    @property
    def prompt(self) -> set[tuple[str, str]]:
        """Groups and topics whose committed offsets are up to date."""
        settings = self.settings
        return {
            (settings.group(role), settings.topic(name))
            for role, names in PROMPT.items()
            for name in names
        }

    @property
    def groups(self) -> dict[str, list[str]]:
        """The consumer groups, each with the full names of the topics it reads."""
        return {
            self.settings.group(role): [self.settings.topic(name) for name in names]
            for role, names in READS.items()
        }


def cluster_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options, and hand the command a `Target` as ``target`` in their place."""

    @wraps(command)
    def connected(
        bootstrap: str | None,
        prefix: str | None,
        config: Path | None,
        overrides: tuple[str, ...],
        **rest: Any,
    ) -> Any:
        return command(target=open_target(bootstrap, prefix, config, overrides), **rest)

    wrapped: Callable[..., Any] = connected
    for option in (
        click.option(
            "--set",
            "overrides",
            multiple=True,
            metavar="SECTION.KEY=VALUE",
            help="Any setting (docs/settings.md); may be given again.",
        ),
        click.option(
            "--config",
            type=click.Path(path_type=Path),
            help="Settings file, TOML.  [env var: DTGOL_CONFIG]",
        ),
        click.option("--prefix", help="What every topic's name begins with."),
        click.option(
            "--bootstrap", help="Brokers, host:port,...  [env var: KAFKA_BOOTSTRAP_SERVERS]"
        ),
    ):
        wrapped = option(wrapped)
    return wrapped


def open_target(
    bootstrap: str | None, prefix: str | None, config: Path | None, overrides: tuple[str, ...]
) -> Target:
    """The cluster that options and settings name; `BadInput` if they cannot be used."""
    from dtgol_core.config import ConfigError
    from pipeline.access.security import Security
    from pipeline.cli.process import settings_from

    settings = settings_from(config, bootstrap, prefix, None, overrides)
    try:
        security = Security.of(settings)
        tls = security.ssl_context() if security.encrypted else None
        return Target(settings, security.librdkafka(), tls)
    except ConfigError as error:
        raise BadInput(str(error)) from None


@contextmanager
def asking() -> Iterator[None]:
    """What the cluster or the snapshot store refuses is one sentence and exit code 2."""
    from confluent_kafka import KafkaException

    from pipeline.access.door import ClusterError, said
    from pipeline.cluster import UnansweredError
    from pipeline.snapshots import RefusalError, StoreError

    try:
        yield
    except (RefusalError, UnansweredError, ClusterError, StoreError) as error:
        raise BadInput(str(error)) from None
    except KafkaException as error:
        raise BadInput(f"the cluster did not do as it was asked: {said(error.args[0])}") from None
