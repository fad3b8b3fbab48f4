"""A supervisor for a broker: runs one command and kills it when its owner is gone.

A script of its own, standard library only, started by `process.py`. It holds the read end of a pipe
whose other end only the owner has: the pipe closes however the owner ends, kill -9 included. The
command then dies at once, a last command is run (`docker rm`) and the data directory goes. Should
the supervisor itself be killed, Linux kills the command too. One argument, JSON: `command`, `log`,
`last` (a command or nothing), `remove` (folders that only an owner would still need).
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
from types import FrameType

OWNER = os.getppid()
POLL_S = 0.5  # Only for an owner that forked and left the pipe open in a copy of itself.
LAST_COMMAND_S = 30


def die_with_parent() -> None:
    """In the child, before exec: PR_SET_PDEATHSIG, where there is such a thing."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def owner_is_gone() -> bool:
    """Wait a moment for the pipe to close; anything written to it is ignored."""
    readable, _, _ = select.select([0], [], [], POLL_S)
    return (bool(readable) and os.read(0, 4096) == b"") or os.getppid() != OWNER


def main() -> int:
    """Run the command to its end or to the owner's, whichever is first."""
    order = json.loads(sys.argv[1])
    alive = os.dup(1)  # The command holds it too: the owner reads its end when both are gone.
    with open(order["log"], "ab", buffering=0) as log:
        child = subprocess.Popen(
            order["command"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=[alive],
            preexec_fn=die_with_parent,
        )

    def pass_on(number: int, _: FrameType | None) -> None:
        child.send_signal(number)

    signal.signal(signal.SIGTERM, pass_on)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.write(1, f"{child.pid}\n".encode())
    os.close(alive)
    while child.poll() is None:
        if owner_is_gone():
            child.kill()
            child.wait()
            if order["last"]:
                subprocess.run(
                    order["last"], capture_output=True, timeout=LAST_COMMAND_S, check=False
                )
            for folder in order["remove"]:
                shutil.rmtree(folder, ignore_errors=True)
    return child.returncode


if __name__ == "__main__":
    sys.exit(main())
