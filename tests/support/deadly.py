"""The real command, with a learner, or an evaluator, that ends its process at one id, without
raising anything: the learner at its features, the evaluator at its label.

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
from pipeline.evaluation.pairing import Evaluation
from topics.labels import Label

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
    label = Evaluation.label

    def deadly_label(self: Evaluation, seen: Label, offset: int) -> Any:
        scores = label(self, seen, offset)
        if seen.id == id:
            _die(how)
        return scores

    Evaluation.label = deadly_label  # type: ignore[method-assign, assignment]


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
