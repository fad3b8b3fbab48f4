"""A wish to end is heeded even where Python has dropped the exception."""

import subprocess
import sys

import pytest

LOST_IN_A_DESTRUCTOR = """
import os, signal
from pipeline.cli.signals import stop_on_signals, raise_if_stopped

class Careless:
    def __del__(self):
        os.kill(os.getpid(), signal.{name})
        sum(range(1000))  # the signal's handler runs here, and Python ignores what it raises

stop_on_signals()
raise_if_stopped()
made = Careless()
del made
print("went on", flush=True)
try:
    raise_if_stopped()
except KeyboardInterrupt:
    print("heeded")
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_an_interrupt_lost_in_a_destructor_is_heeded(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOST_IN_A_DESTRUCTOR.format(name=name)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.split("\n")[:2] == ["went on", "heeded"], done.stderr
    assert "Exception ignored" in done.stderr
