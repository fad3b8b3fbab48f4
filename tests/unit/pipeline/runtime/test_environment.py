"""What every entry point sets before numpy is imported."""

import os
from pathlib import Path

from pipeline.runtime.environment import THREAD_VARIABLES, prepare


def test_the_entry_point_pins_threads_and_names_the_kernel_cache() -> None:
    environ = {"OMP_NUM_THREADS": "8", "XDG_CACHE_HOME": "/cache"}
    prepare(environ)
    assert all(environ[name] == "1" for name in THREAD_VARIABLES)
    assert environ["NUMBA_CACHE_DIR"] == "/cache/dtgol/kernels"
    for given, expected in (
        ({"DTGOL_CACHE_DIR": "/own"}, "/own/kernels"),
        ({"NUMBA_CACHE_DIR": "/mine"}, "/mine"),
        ({}, str(Path.home() / ".cache/dtgol/kernels")),
    ):
        prepare(given)
        assert given["NUMBA_CACHE_DIR"] == expected
    assert os.environ["OPENBLAS_NUM_THREADS"] == "1"
