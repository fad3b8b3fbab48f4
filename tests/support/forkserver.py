"""Python programs as real processes that start at once: forked from a server that is warmed up.

`python -m MODULE ARGUMENTS` takes three seconds to import Faust and Numba and to load the kernels,
and a suite starts some hundred of them. The server (multiprocessing's own) has done that once, so
a program starts within a few hundredths of a second. What runs is the same program in a process
of its own: it is killed, frozen and watched like any other.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

STOP_S = 90
LIMIT_S = 90

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.support.preload"])


class Child:
    """A running program, with the verbs of `subprocess.Popen`."""

    def __init__(
        self,
        module: str,
        arguments: Sequence[str],
        stdout: Path,
        stderr: Path,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        paths = str(stdout), str(stderr)
        given = module, list(arguments), paths, dict(environ or os.environ)
        self._process = _context.Process(target=_run, args=given, daemon=True)
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit code, minus the signal's number if one killed it; None while it runs."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """The exit code, or None while it runs."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, once it has ended."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        """Nothing if it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


@contextlib.contextmanager
def running(module: str, arguments: Sequence[str], log_path: Path) -> Iterator[Child]:
    """`python -m module arguments` for the length of the block; then asked to end, which it must.

    Its log is written to stderr when the block fails, where pytest shows it.
    """
    log_path.touch()
    child = Child(module, arguments, log_path, log_path)
    try:
        yield child
        child.terminate()
        child.wait(STOP_S)
    except BaseException:
        sys.stderr.write(f"--- {log_path.name}\n{log_path.read_text(errors='replace')[-6000:]}\n")
        raise
    finally:
        child.kill()
        child.wait()


class Command:
    """A command that was started; its outputs are kept apart, and read when it has ended."""

    def __init__(self, module: str, *arguments: str, environ: Mapping[str, str] | None = None):
        self._folder = tempfile.TemporaryDirectory(prefix="dtgol-command-")
        self._stdout, self._stderr = (Path(self._folder.name, name) for name in ("out", "err"))
        self.child = Child(module, arguments, self._stdout, self._stderr, environ)

    def finish(self, timeout: float = LIMIT_S) -> subprocess.CompletedProcess[str]:
        """Wait for its end; killed and an error if that does not come in time."""
        try:
            code = self.child.wait(timeout)
        finally:
            self.child.kill()
            self.child.wait()
        stdout, stderr = self._stdout.read_text(), self._stderr.read_text()
        self._folder.cleanup()
        return subprocess.CompletedProcess([], code, stdout, stderr)


def run(
    module: str,
    *arguments: str,
    environ: Mapping[str, str] | None = None,
    timeout: float = LIMIT_S,
) -> subprocess.CompletedProcess[str]:
    """`python -m module arguments`, and how it ended."""
    return Command(module, *arguments, environ=environ).finish(timeout)


def _run(
    module: str, arguments: list[str], paths: tuple[str, str], environ: dict[str, str]
) -> None:
    """In the child: `python -m module arguments`, with its output in files."""
    for number, path in zip((1, 2), paths, strict=True):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(file, number)
        os.close(file)
    sys.stdin = open(os.devnull)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(environ)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
