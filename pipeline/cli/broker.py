"""`dtgol broker`: a broker to try things on, until Ctrl-C; its address on stdout."""

import time

import click

from pipeline.cli.exit_codes import help_line
from pipeline.cli.options import echo_json, json_option
from pipeline.cli.signals import stop_on_signals

LOOK_S = 1.0


@click.command(epilog=help_line("broker"))
@click.option(
    "--broker",
    "kind",
    type=click.Choice(["auto", "docker", "local", "embedded"]),
    default="auto",
    show_default=True,
    help="docker: a container; local: Apache Kafka in Java; embedded: a small imitation in this "
    "process, without groups to rely on; auto: the first of them that can be had.",
)
@json_option
def broker(kind: str, as_json: bool) -> None:
    """Start a broker, print its address, and end it with Ctrl-C; its data go with it.

    On this machine only, and no way to run production. In another terminal:

    \b
      export KAFKA_BOOTSTRAP_SERVERS=ADDRESS
      dtgol topics apply
      dtgol worker
    """
    stop_on_signals()
    from pipeline.sandbox.brokers import open_broker

    try:
        with open_broker(kind) as opened:  # type: ignore[arg-type]
            if as_json:
                echo_json({"bootstrap": opened.bootstrap, "kind": opened.kind})
            else:
                click.echo(opened.bootstrap)
                click.echo(f"{opened.version or opened.kind}; Ctrl-C ends it", err=True)
            while True:
                time.sleep(LOOK_S)
    except KeyboardInterrupt:
        click.echo("stopped", err=True)
