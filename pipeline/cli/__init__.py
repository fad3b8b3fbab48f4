"""The `dtgol` command: a table of commands, each loaded only when it is called.

A new command is one file and one line in ``COMMANDS``: its name, where its click command lives, and
the line that `dtgol --help` shows. Nothing heavy (numpy, faust) may be imported from here. Errors
of the pipeline become one sentence on stderr and an exit code here, for all commands.
"""

import sys
from importlib import import_module
from typing import Any, NamedTuple

import click

from pipeline.runtime.environment import prepare


class Entry(NamedTuple):
    """Where a command lives, as ``module:attribute``, and what it does in one line."""

    target: str
    help: str


COMMANDS = {
    "backtest": Entry("backtest:backtest", "Run the learner on a file, without a broker."),
    "worker": Entry("worker:worker", "Answer features, learn from labels."),
    "evaluator": Entry("evaluator:evaluator", "Score predictions against labels."),
    "topics": Entry("topics:topics", "Create the topics, or show how they differ."),
    "demo": Entry("demo:demo", "Everything at once, with its own broker."),
    "doctor": Entry("doctor:doctor", "Look for what is wrong with a cluster."),
    "play": Entry("play:play", "Send a demo story to a cluster, round after round."),
    "produce": Entry("produce:produce", "Send a file as features and late labels."),
    "snapshot": Entry("snapshot:snapshot", "List snapshots; show what a learner knows."),
    "journal": Entry("journal:journal", "Replay the journal; decide about a parked record."),
    "dead-letters": Entry("dead_letters:dead_letters", "List refused records; send them back."),
    "erase": Entry("erase:erase", "Forget an instance, and say where else it stands."),
    "predictions": Entry("predictions:predictions", "Show predictions as they come."),
    "broker": Entry("broker:broker", "Start a broker to try things on."),
    "watch": Entry("watch:watch", "A live table of streams and their scores."),
    "compare": Entry("compare:compare", "Compare methods on the same streams: which is best?"),
}


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
        command: click.Command = getattr(import_module(f"pipeline.cli.{module}"), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands with the lines of the table, loading none of them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; an error whose text is a sentence ends it with an exit code.

        Ctrl-C ends it with a sentence too, which says what stands and what to do.
        """
        arguments = list(ctx.args)  # behind the command's name
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            from pipeline.cli.exit_codes import INTERRUPTED, stopped

            # A terminal has written ^C into the line.
            sentence = stopped([ctx.invoked_subcommand or "", *arguments])
            click.echo(("\n" if sys.stderr.isatty() else "") + sentence, err=True)
            ctx.exit(INTERRUPTED)
        except Exception as error:
            from pipeline.cli.exit_codes import code_for

            code = code_for(ctx.invoked_subcommand or "", error)
            if code is None:
                raise
            failure = click.ClickException(str(error))
            failure.exit_code = code
            raise failure from None


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="dtgol")
def dtgol() -> None:
    """Online learning on Kafka for streams whose labels come late."""


def main() -> None:
    """The entry point: prepare the process, then run the command."""
    prepare()
    dtgol(prog_name="dtgol")
