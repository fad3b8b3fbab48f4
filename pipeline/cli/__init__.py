"""The `dtgol` command: a table of commands, each loaded only when it is called.

A new command is one line in ``COMMANDS``: its name, where its click command lives, and the line
`dtgol --help` shows. Nothing heavy (numpy, faust) may be imported from here.
"""

from importlib import import_module
from typing import NamedTuple

import click

from pipeline.environment import prepare


class Entry(NamedTuple):
    """Where a command lives, as ``module:attribute``, and what it does in one line."""

    target: str
    help: str


COMMANDS = {
    "backtest": Entry(
        "pipeline.cli.backtest:backtest", "Run the learner on a file, without a broker."
    ),
    "worker": Entry("pipeline.cli.worker:worker", "Answer features, learn from labels."),
    "evaluator": Entry("pipeline.cli.evaluator:evaluator", "Score predictions against labels."),
    "topics": Entry("pipeline.cli.topics:topics", "Create the topics, or say how they differ."),
    "demo": Entry("pipeline.cli.demo:demo", "Everything at once, with its own broker."),
    "doctor": Entry("pipeline.cli.doctor:doctor", "Look for what is wrong with a cluster."),
    "play": Entry("pipeline.cli.play:play", "Send a demo story to a cluster, round after round."),
    "produce": Entry("pipeline.cli.produce:produce", "Send a file as features and late labels."),
    "snapshot": Entry(
        "pipeline.cli.snapshot:snapshot", "What learners know, and where it is kept."
    ),
    "journal": Entry(
        "pipeline.cli.journal:journal", "Replay the journal; decide about a parked record."
    ),
    "dead-letters": Entry(
        "pipeline.cli.dead_letters:dead_letters", "List refused records, and send them back."
    ),
    "watch": Entry("pipeline.cli.watch:watch", "A live table of streams and their scores."),
    "bench": Entry(
        "pipeline.cli.bench:bench",
        "Compare all methods on the same streams, and say which is best.",
    ),
}


class BadInput(click.ClickException):
    """Something the user gave cannot be used: one sentence on stderr, exit code 2."""

    exit_code = 2


class LazyGroup(click.Group):
    """A group whose commands are imported when they are run, not when they are listed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of the table, in its order."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command; ``None`` if the table has no such name."""
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name].target.partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands with the lines of the table, loading none of them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
def dtgol() -> None:
    """Online learning on Kafka for streams whose labels come late."""


def main() -> None:
    """The entry point: prepare the process, then run the command."""
    prepare()
    dtgol(prog_name="dtgol")
