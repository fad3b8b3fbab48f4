"""`dtgol dead-letters`: its times and reasons; the commands run in tests/broker."""

import time

import pytest
from click.testing import CliRunner

from pipeline.cli import dtgol
from pipeline.cli.dead_letters import _moment
from pipeline.errors import InputError


def test_a_time_is_a_moment_or_so_long_ago() -> None:
    assert _moment("--since", None) is None
    assert _moment("--since", "2026-03-01T12:00") == 1_772_366_400_000
    assert _moment("--since", "2026-03-01T13:00+01:00") == 1_772_366_400_000
    now = time.time_ns() // 1_000_000
    assert abs((_moment("--since", "2h") or 0) - (now - 7_200_000)) < 60_000
    with pytest.raises(InputError, match="--since yesterday"):
        _moment("--since", "yesterday")


@pytest.mark.parametrize("wrong", ["--since=yesterday", "--reason=nonsense"])
@pytest.mark.parametrize("verb", ["list", "redrive"])
def test_a_wrong_option_is_exit_code_two_before_anybody_is_asked(verb: str, wrong: str) -> None:
    done = CliRunner().invoke(dtgol, ["dead-letters", verb, "--bootstrap", "nowhere:1", wrong])
    assert done.exit_code == 2
    assert done.stderr.startswith(f"Error: {wrong.replace('=', ' ')}: ")


def test_the_help_is_in_plain_words() -> None:
    """Seen: a renaming of classes had got into it."""
    for verb in ((), ("list",), ("redrive",)):
        shown = CliRunner().invoke(dtgol, ["dead-letters", *verb, "--help"]).output
        assert "Entry" not in shown
        assert "efused" in shown
