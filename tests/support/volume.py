"""A small volume of its own for one test: a tmpfs that can be filled to the last byte.

Only root may mount. A full volume cannot be played with mode bits: root writes over them. Where
mounting is not permitted the test is skipped on a laptop and fails in CI, as without a broker.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

CHUNK = b"\0" * 4096


@dataclass(frozen=True)
class Volume:
    """Where it is mounted."""

    path: Path

    def fill(self) -> None:
        """Take all the space that is left; again, if some was freed meanwhile."""
        with contextlib.suppress(OSError), self._filler.open("ab", buffering=0) as file:
            while True:
                file.write(CHUNK)

    def free_space(self) -> None:
        """Free it again."""
        self._filler.unlink()

    @property
    def _filler(self) -> Path:
        return self.path / "filler"


@contextlib.contextmanager
def small_volume(path: Path, size_mb: int) -> Iterator[Volume]:
    """A volume for the length of the block."""
    path.mkdir()
    order = ["mount", "-t", "tmpfs", "-o", f"size={size_mb}m", "tmpfs", str(path)]
    try:
        done = subprocess.run(order, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        refuse(f"there is no program {error.filename}")
    if done.returncode != 0:
        refuse(done.stderr.strip() or f"mount ended with {done.returncode}")
    try:
        yield Volume(path)
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def refuse(why: str) -> None:
    """Skip: a failure where nothing may be left out (`tests/conftest.py`)."""
    reason = f"a small volume cannot be mounted here (user {os.geteuid()}): {why}"
    pytest.skip(reason)
