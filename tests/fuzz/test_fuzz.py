"""Every door for a bounded time, and everything that was ever found, again.

CI gives each target a few seconds with a fixed seed; ``--long`` gives each a few minutes. A find
is kept in tests/golden/found/TARGET/ and mended; then it is a seed and a test for good.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.seeds import FOUND, seeds
from tests.fuzz.targets import TARGETS

SHORT_S, LONG_S = 2, 300
SLOW = {"fold": 5, "snapshot": 5, "manifest": 5, "evaluation": 3}
"""Targets of which one input costs milliseconds, with their seconds in CI: a minute for all."""
START_S = 300
"""How long a busy machine may take to import everything, compile what it must, and end."""
ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize("target", TARGETS)
def test_nothing_is_found_in_a_while(
    target: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    long = request.config.getoption("--long", default=False)
    seconds = LONG_S if long else SLOW.get(target, SHORT_S)
    command = [sys.executable, "-m", "tests.fuzz.run", target, "--finds", str(tmp_path)]
    done = subprocess.run(
        [*command, "--seconds", str(seconds)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=seconds + START_S,
        check=False,
        env={**os.environ, "PYTHONHASHSEED": "0"},
    )
    finds = [path.read_bytes()[:2000] for path in tmp_path.iterdir()]
    assert (done.returncode, finds) == (0, []), done.stdout[-3000:] + done.stderr[-1000:]


@pytest.mark.parametrize("target", TARGETS)
def test_seeds_and_finds_are_refused_or_come_through(target: str) -> None:
    for data in seeds(target):
        TARGETS[target](data)


def test_every_find_belongs_to_a_target() -> None:
    assert {folder.name for folder in FOUND.iterdir()} <= set(TARGETS)
