"""The list of exit codes: it names every command, `--help` and the docs show it."""

from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from pipeline.cli import dtgol
from pipeline.cli.exit_codes import CODES, DONE, STOPPED, help_line, page, stopped

DOCS = Path(__file__).parents[4] / "docs" / "guide-operations.md"


def leaves(group: click.Group, before: str = "") -> Iterator[tuple[str, click.Command]]:
    """Every command that does something, by its full name."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from leaves(command, f"{before}{name} ")
        elif command is not None:
            yield f"{before}{name}", command


COMMANDS = dict(leaves(dtgol))


def test_the_list_names_every_command() -> None:
    assert CODES.keys() == COMMANDS.keys()


@pytest.mark.parametrize("name", [name for name, each in CODES.items() if each is not DONE])
def test_help_shows_what_the_codes_mean(name: str) -> None:
    command = COMMANDS[name]
    shown = command.get_help(click.Context(command, info_name=name))
    assert help_line(name) in " ".join(shown.split())


def test_the_docs_show_the_list() -> None:
    shown = DOCS.read_text().partition("<!-- codes -->\n")[2].partition("<!-- /codes -->")[0]
    assert shown == page(), (
        "run: python -m pipeline.cli.exit_codes, and put it into docs/guide-operations.md"
    )


def test_what_stands_after_ctrl_c_is_said_of_commands_there_are() -> None:
    assert STOPPED.keys() <= CODES.keys()
    assert stopped(["journal", "archive", "--to", "x"]).startswith("stopped; the files")
    assert stopped(["produce", "rows.csv"]).startswith("stopped; what was sent stays")
    assert stopped(["backtest", "rows.csv"]) == stopped([]) == "stopped"
