"""The `dtgol` command itself: its table, its start, and what an error becomes."""

import tomllib
from importlib.metadata import version
from pathlib import Path

import click
import pytest
from click.shell_completion import shell_complete as shell_completion
from click.testing import CliRunner

import pipeline.cli
from dtgol_core.config import ConfigError
from pipeline import errors
from pipeline.cli import COMMANDS, dtgol
from pipeline.runtime import warmup
from pipeline.sandbox.brokers import jars
from tests.support.commands import ROOT, python


def test_every_command_of_the_table_exists() -> None:
    context = click.Context(dtgol)
    for name in COMMANDS:
        assert isinstance(dtgol.get_command(context, name), click.Command)


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; from pipeline.cli import dtgol; dtgol(['--help'], standalone_mode=False);"
        "heavy = {'numpy', 'scipy', 'numba', 'faust', 'rich', 'dtgol_core'} & set(sys.modules);"
        "sys.exit(repr(heavy) if heavy else 0)"
    )
    run = python("-c", code)
    assert run.returncode == 0, run.stderr
    assert "backtest" in run.stdout


def test_the_module_is_the_command() -> None:
    run = python("-m", "pipeline", "backtest", "--help")
    assert run.returncode == 0
    assert run.stdout.startswith("Usage: dtgol backtest ")


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> list[BaseException]:
    """Every command raises what the test puts in."""
    raised: list[BaseException] = []

    def fail() -> None:
        raise raised[0]

    def command(name: str) -> click.Command:
        return click.Command(name, callback=fail)

    monkeypatch.setattr(type(dtgol), "get_command", lambda _, __, name: command(name))
    return raised


def test_ctrl_c_is_a_sentence_and_code_130(failing: list[BaseException]) -> None:
    """Seen: click's "Aborted!" with code 1, which is also that of a replay that differs."""
    failing.append(KeyboardInterrupt())
    done = CliRunner().invoke(dtgol, ["compare"])
    assert done.exit_code == 130
    assert done.stderr == "stopped; finished runs are kept: run it again, it goes on behind them\n"


@pytest.mark.parametrize(
    ("error", "process", "other"),
    [
        (errors.UnansweredError("the cluster does not answer"), 1, 2),
        (errors.RequestError("the request to the cluster failed"), 1, 2),
        (errors.DeliveryError("a record was not delivered"), 1, 2),
        (errors.StoreError("no space left"), 1, 2),
        (errors.DemoError("the worker has ended"), 1, 2),
        (errors.FencedError("another redrive has begun"), 1, 1),
        (errors.ClusterError("the cluster does not let us in"), 2, 2),
        (errors.RefusalError("no topic"), 2, 2),
        (errors.InputError("there is no file"), 2, 2),
        (errors.RefusedError("not-json", "x"), 2, 2),
        (errors.NoBrokerError("there is no docker command"), 2, 2),
        (ConfigError("no brokers are named"), 2, 2),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, Exception) else None,
)
def test_an_error_is_one_sentence_and_an_exit_code(
    failing: list[BaseException], error: Exception, process: int, other: int
) -> None:
    """For a process the code says who has to act; other commands have results of their own for 1.

    A `dtgol topics check` that cannot ask the cluster must not look as if topics differ.
    """
    failing.append(error)
    for name in COMMANDS:
        done = CliRunner().invoke(dtgol, [name])
        assert done.exit_code == (process if name in ("worker", "evaluator") else other), name
        assert (done.stdout, done.stderr) == ("", f"Error: {error}\n")


def test_a_bug_is_not_hidden(failing: list[BaseException]) -> None:
    failing.append(AssertionError("ours"))
    for name in COMMANDS:
        assert isinstance(CliRunner().invoke(dtgol, [name]).exception, AssertionError)


def test_the_version_is_the_packages() -> None:
    done = CliRunner().invoke(dtgol, ["--version"])
    assert done.exit_code == 0
    assert version("dtgol") in done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_there_for_every_shell(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    made = shell_completion(dtgol, {}, "dtgol", "_DTGOL_COMPLETE", f"{shell}_source")
    shown = capsys.readouterr()
    assert made == 0
    assert "_DTGOL_COMPLETE" in shown.out


def test_the_first_use_says_that_it_compiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    warmup.warm_up()
    assert capsys.readouterr().err == "compiling once, about 40 s\n"
    (tmp_path / "kernel.nbi").touch()
    warmup.warm_up()
    assert capsys.readouterr().err == ""


def test_the_package_carries_what_the_local_broker_needs() -> None:
    """Seen: a wheel whose local broker asked for a source checkout."""
    assert jars.POM.is_relative_to(Path(pipeline.cli.__file__).parents[1])
    kept = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns = kept["tool"]["setuptools"]["package-data"]["*"]
    for needed in (jars.POM, jars.LOGGING):
        assert needed.exists()
        assert any(needed.match(pattern) for pattern in patterns)
    assert jars.kafka_version()
