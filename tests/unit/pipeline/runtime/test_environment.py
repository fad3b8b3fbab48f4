"""What every entry point sets before numpy is imported."""

import os
from pathlib import Path

import pytest

from pipeline.runtime.environment import THREAD_VARIABLES, kernels_digest, prepare


def test_the_entry_point_pins_threads_and_names_the_kernel_cache() -> None:
    environ = {"OMP_NUM_THREADS": "8", "XDG_CACHE_HOME": "/cache"}
    prepare(environ)
    assert all(environ[name] == "1" for name in THREAD_VARIABLES)
    assert environ["NUMBA_CACHE_DIR"] == f"/cache/dtgol/kernels/{kernels_digest()}"
    for given, expected in (
        ({"DTGOL_CACHE_DIR": "/own"}, f"/own/kernels/{kernels_digest()}"),
        ({"NUMBA_CACHE_DIR": "/mine"}, "/mine"),
        ({}, str(Path.home() / ".cache/dtgol/kernels" / kernels_digest())),
    ):
        prepare(given)
        assert given["NUMBA_CACHE_DIR"] == expected
    assert os.environ["OPENBLAS_NUM_THREADS"] == "1"


def test_other_kernels_have_another_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numba kept loops that had been compiled with an older version of a function they call."""
    package = tmp_path / "dtgol_core"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "exponential.py").write_text("@compiled\ndef exp(x): ...\n")
    (package / "types.py").write_text("Name = str\n")
    spec = type("Spec", (), {"submodule_search_locations": [str(package)]})
    monkeypatch.setattr("pipeline.runtime.environment.find_spec", lambda name: spec)
    before = kernels_digest()
    (package / "types.py").write_text("Name = bytes\n")
    assert kernels_digest() == before
    (package / "exponential.py").write_text("@compiled\ndef exp(x): return 1\n")
    assert kernels_digest() != before


def test_kernels_that_cannot_be_written_beside_are_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container with a read-only root: its image has the kernels."""
    environ = {"DTGOL_CACHE_DIR": str(tmp_path)}
    prepare(environ)
    built = Path(environ.pop("NUMBA_CACHE_DIR"))
    (built / "dtgol_core").mkdir()
    (built / "dtgol_core" / "kernel.nbi").write_bytes(b"compiled")
    monkeypatch.setattr(os, "access", lambda *_: False)
    prepare(environ)
    copied = Path(environ["NUMBA_CACHE_DIR"])
    assert copied != built
    assert (copied / "dtgol_core" / "kernel.nbi").read_bytes() == b"compiled"
