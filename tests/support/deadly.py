"""The real command, with a learner that ends its process at one id, without raising anything.

``python -m tests.support.deadly HOW ID worker ...`` is ``dtgol worker ...`` with it. HOW is one of
`abort`, as compiled code does it; `kill`, as the kernel does it to a process that is out of memory;
`memory`: the process has a limit (`RLIMIT_AS`), and the record takes more; `hang`: it never ends,
and the watchdog ends the process.
"""

import os
import resource
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from dtgol_core.learner import Learner
from pipeline.cli import main

SPARE_BYTES = 1 << 30


def poison(how: str, id: str) -> None:
    """From now on a record with this id ends the process in the middle of the learner's work."""
    observe = Learner.observe

    def deadly(self: Learner, seen: str, *rest: Any, **more: Any) -> Any:
        forecast = observe(self, seen, *rest, **more)
        if seen == id:
            _die(how)
        return forecast

    Learner.observe = deadly  # type: ignore[method-assign, assignment]


def _die(how: str) -> None:
    if how == "abort":
        os.abort()
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "hang":
        threading.Event().wait()
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + SPARE_BYTES, used + SPARE_BYTES))
    bytearray(2 * SPARE_BYTES)


if __name__ == "__main__":
    _, how, id = sys.argv[:3]
    del sys.argv[1:3]
    poison(how, id)
    main()
