"""What a step costs, by counts: a guard that no busy machine can fail.

Calls of compiled loops and of Python functions per record, for a fixed run. The limits are a little
above what is counted today, and a test fails when they are far above: raise one only with a
measurement of what it buys, lower it with every gain (docs/speed.md).
"""

import sys
from types import FrameType

import pytest

from tests.support.fixed_run import COUNTED, Run

LOOPS_MAX = {"default": 22, "light": 16, "paper": 10}
CALLS_MAX = {"default": 118, "light": 90, "paper": 86}


@pytest.mark.parametrize("preset", LOOPS_MAX)
def test_compiled_loops_per_record(preset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each costs about half a microsecond before it begins to compute."""
    run, calls = Run(preset), 0

    def counted(loop: object) -> object:
        def call(*arguments: object) -> object:
            nonlocal calls
            calls += 1
            return loop(*arguments)  # type: ignore[operator]

        return call

    modules = [each for name, each in list(sys.modules.items()) if name.startswith("dtgol_core")]
    for module in modules:
        for name, value in list(vars(module).items()):
            if hasattr(value, "signatures"):
                monkeypatch.setattr(module, name, counted(value))
    run.go_on()
    assert LOOPS_MAX[preset] - 5 <= calls / COUNTED <= LOOPS_MAX[preset]


@pytest.mark.parametrize("preset", CALLS_MAX)
def test_python_calls_per_record(preset: str) -> None:
    """Calls of Python functions; with the glue around them about a fifth of a microsecond each."""
    run, calls = Run(preset), 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        run.go_on()
    finally:
        sys.setprofile(before)
    assert CALLS_MAX[preset] - 20 <= calls / COUNTED <= CALLS_MAX[preset]
