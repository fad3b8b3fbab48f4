"""A process that cannot outlive the one that started it.

`SupervisedProcess` is the only way brokers start programs: a session of its own (so Ctrl-C in the
terminal reaches the owner alone), output in a log file, and `supervisor.py` between owner and
program. It starts, ends and signals; whether the program works is for the caller to check.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from pipeline.errors import NoBrokerError

SUPERVISOR = Path(__file__).with_name("supervisor.py")
STOP_S = 30  # An orderly Kafka shutdown took about a second here; a loaded machine gets more.
GONE_S = 10  # A killed process goes at once; longer means that the machine is in trouble.


class SupervisedProcess:
    """One running program; `pid` is the program's own, not the supervisor's."""

    def __init__(
        self,
        command: Sequence[str],
        log_path: Path,
        *,
        last: Sequence[str] = (),
        remove: Sequence[Path] = (),
    ) -> None:
        order = {
            "command": list(command),
            "log": str(log_path),
            "last": list(last),
            "remove": [str(folder) for folder in remove],
        }
        # -I -S: site-packages and environment cannot change what the supervisor does.
        self._supervisor = subprocess.Popen(
            [sys.executable, "-I", "-S", str(SUPERVISOR), json.dumps(order)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._supervisor.stdout is not None
        first_line = self._supervisor.stdout.readline()
        if not first_line.strip():
            assert self._supervisor.stderr is not None
            reason = self._supervisor.stderr.read().decode(errors="replace")
            self.kill()
            raise NoBrokerError(f"{command[0]} could not be started: {reason[-500:]}")
        self.pid = int(first_line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def running(self) -> bool:
        return self._supervisor.poll() is None

    def signal(self, number: int) -> None:
        """Send one signal to the program itself (SIGSTOP and SIGCONT for the fault tests)."""
        os.kill(self.pid, number)

    def stop(self) -> None:
        """Ask it to end in good order; kill it if it does not within the limit."""
        if self.running:
            self._supervisor.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._supervisor.wait(STOP_S)
        self.kill()

    def kill(self) -> None:
        """End program and supervisor now; returns when both are gone."""
        supervisor = self._supervisor
        assert supervisor.stdin is not None
        assert supervisor.stdout is not None
        assert supervisor.stderr is not None
        if supervisor.stdout.closed:
            return
        if self.running:
            os.killpg(supervisor.pid, signal.SIGKILL)
        supervisor.wait()
        select.select([supervisor.stdout], [], [], GONE_S)
        for stream in (supervisor.stdin, supervisor.stdout, supervisor.stderr):
            stream.close()


def free_ports(count: int) -> list[int]:
    """That many different loopback ports that are free at this moment."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]
