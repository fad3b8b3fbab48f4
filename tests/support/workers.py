"""A Python program of the pipeline as a child process, with its log at hand when a test fails."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

STOP_S = 90


@contextlib.contextmanager
def running(arguments: Sequence[str], log_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`python <arguments>` for the length of the block; then asked to end, which it must.

    Its log is written to stderr when the block fails, where pytest shows it.
    """
    with log_path.open("ab") as log:
        child = subprocess.Popen(
            [sys.executable, *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
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
