"""What a record costs, in instructions under callgrind: also what happens inside the compiled
loops, of which `test_counts.py` sees the calls alone.

The loops are compiled for one processor (Haswell: Valgrind knows AVX2, not AVX-512), so the numbers
are the same on every machine. Another build of Python changes them by a few percent.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.runtime.environment import kernel_cache
from tests.support.commands import ROOT
from tests.support.fixed_run import COUNTED

TODAY = {"default": 1_181_000, "light": 392_000, "paper": 1_097_000}  # per record, Python 3.11
LEAST, MOST = 0.7, 1.1  # of today; like the limits of `test_counts.py` it follows every gain
CPUINFO = Path("/proc/cpuinfo")


def test_instructions_per_record(tmp_path: Path) -> None:
    if not shutil.which("valgrind"):
        pytest.skip("valgrind is not installed (Debian: apt-get install valgrind)")
    if not CPUINFO.exists() or "avx2" not in CPUINFO.read_text(encoding="utf-8").split():
        pytest.skip("instructions are counted on Linux, on an x86-64 processor with AVX2")
    program = [sys.executable, "-m", "tests.support.instructions", *TODAY]
    callgrind = ["valgrind", "-q", "--tool=callgrind", "--instr-atstart=no"]
    environ = {
        **os.environ,
        "NUMBA_CACHE_DIR": f"{kernel_cache(os.environ)}-haswell",
        "NUMBA_CPU_NAME": "haswell",
        "NUMBA_CPU_FEATURES": "",
        "PYTHONHASHSEED": "0",
    }
    # First without callgrind, under which compiling would take many minutes.
    for command in (program, [*callgrind, f"--callgrind-out-file={tmp_path}/out", *program]):
        subprocess.run(command, cwd=ROOT, env=environ, check=True, timeout=600)
    counted = {}
    for number, preset in enumerate(TODAY, 1):
        written = (tmp_path / f"out.{number}").read_text(encoding="utf-8")
        [total] = re.findall(r"^totals: (\d+)$", written, re.MULTILINE)
        counted[preset] = int(total) // COUNTED
    for preset, today in TODAY.items():
        assert LEAST * today <= counted[preset] <= MOST * today, f"instructions: {counted}"
