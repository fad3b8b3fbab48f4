"""A process that cannot outlive the one that started it.

`Tethered` is the only way brokers start programs: own session (so Ctrl-C in the terminal reaches
the owner alone), output in a log file, and `tether.py` between owner and program. It starts, ends
and signals; whether the program is any good is for the caller to ask.
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

from pipeline.brokers.broker import NoBrokerError

TETHER = Path(__file__).with_name("tether.py")
STOP_S = 30  # An orderly Kafka shutdown took about a second here; a loaded machine gets more.
GONE_S = 10  # A killed process goes at once; past this the machine itself is in trouble.


class Tethered:
    """One running program; `pid` is the program's own, not the leash's."""

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
        # -I -S: nobody's site-packages or environment can change what the leash does.
        self._leash = subprocess.Popen(
            [sys.executable, "-I", "-S", str(TETHER), json.dumps(order)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._leash.stdout is not None
        first_line = self._leash.stdout.readline()
        if not first_line.strip():
            assert self._leash.stderr is not None
            reason = self._leash.stderr.read().decode(errors="replace")
            self.kill()
            raise NoBrokerError(f"{command[0]} could not be started: {reason[-500:]}")
        self.pid = int(first_line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def running(self) -> bool:
        return self._leash.poll() is None

    def signal(self, number: int) -> None:
        """Send one signal to the program itself (SIGSTOP and SIGCONT for the fault tests)."""
        os.kill(self.pid, number)

    def stop(self) -> None:
        """Ask it to end in good order; kill it if it does not within the limit."""
        if self.running:
            self._leash.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._leash.wait(STOP_S)
        self.kill()

    def kill(self) -> None:
        """End program and leash now; returns when both are gone."""
        leash = self._leash
        assert leash.stdin is not None
        assert leash.stdout is not None
        assert leash.stderr is not None
        if leash.stdout.closed:
            return
        if self.running:
            os.killpg(leash.pid, signal.SIGKILL)
        leash.wait()
        select.select([leash.stdout], [], [], GONE_S)
        for stream in (leash.stdin, leash.stdout, leash.stderr):
            stream.close()


def free_ports(count: int) -> list[int]:
    """That many different loopback ports that nobody uses at this moment."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]
