"""Every target for a bounded time, and everything that was ever found, again.

The quick run gives each target a few seconds with a fixed seed, all in one process; ``--long``
gives each a few minutes of its own, guided by coverage where atheris is installed. A find is kept
in tests/golden/found/TARGET/ and repaired; then it is a seed and a test for good.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.fuzz.seeds import FOUND, seeds
from tests.fuzz.targets import TARGETS
from tests.support.forkserver import run

SHORT_S, LONG_S = 1, 300
SLOW = {"fold": 4, "snapshot": 4, "manifest": 3, "evaluation": 2}
"""Targets of which one input costs milliseconds, with their seconds in the quick run."""
START_S = 300
"""How long a busy machine may take besides."""


def search(finds: Path, *targets: str, seconds: float) -> None:
    environ = {**os.environ, "PYTHONHASHSEED": "0"}
    limit_s = seconds + START_S
    done = run("tests.fuzz.run", *targets, "--finds", str(finds), environ=environ, timeout=limit_s)
    found = [path.read_bytes()[:2000] for path in finds.iterdir()]
    assert (done.returncode, found) == (0, []), done.stdout[-3000:] + done.stderr[-1000:]


def test_nothing_is_found_in_a_while(tmp_path: Path) -> None:
    seconds = {target: SLOW.get(target, SHORT_S) for target in TARGETS}
    listed = [f"{target}={each}" for target, each in seconds.items()]
    search(tmp_path, *listed, seconds=sum(seconds.values()))


@pytest.mark.long
@pytest.mark.parametrize("target", TARGETS)
def test_nothing_is_found_in_a_long_while(target: str, tmp_path: Path) -> None:
    search(tmp_path, f"{target}={LONG_S}", seconds=LONG_S)


@pytest.mark.parametrize("target", TARGETS)
def test_seeds_and_finds_are_refused_or_come_through(target: str) -> None:
    for data in seeds(target):
        TARGETS[target](data)


def test_every_find_belongs_to_a_target() -> None:
    assert {folder.name for folder in FOUND.iterdir()} <= set(TARGETS)
