"""A sealed snapshot that is wrong is refused by name, or harmless: tests/support/damage.py.

With checked bounds, for the loops of stages and experts read and write past the end of their arrays
otherwise. Regression: a queued label of -1, a settled step of -1 and a step that had not been ended
in corrupted memory, a NaN among the correlations in a loop without end.
"""

import json
import os
import subprocess
import sys

import pytest

from pipeline.runtime.environment import kernel_cache
from tests.support.commands import ROOT

PARTS = 4
"""One of so many damages is tried, and all of them with --long."""


def test_a_damaged_snapshot_is_refused_or_harmless(request: pytest.FixtureRequest) -> None:
    environ = {
        **os.environ,
        "NUMBA_BOUNDSCHECK": "1",
        "NUMBA_CACHE_DIR": f"{kernel_cache(os.environ)}-checked",
    }
    parts = 1 if request.config.getoption("--long") else PARTS
    command = [sys.executable, "-m", "tests.support.damage", "3", "0", str(parts)]
    done = subprocess.run(
        command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    found = json.loads(done.stdout)
    assert found["found"] == []
    assert found["tried"] > 2_500 // parts
