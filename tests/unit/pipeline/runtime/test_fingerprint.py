"""The fingerprint: what decides the bits is in it."""

import math
import os
import subprocess
import sys

import numpy as np
import pytest

from pipeline.runtime import fingerprint as module
from pipeline.runtime.fingerprint import fingerprint, probe

PROBE = "from pipeline.runtime.fingerprint import probe; print(probe())"


def test_the_c_library_and_what_it_computes_are_in_it() -> None:
    found = fingerprint()
    assert found["libc"]
    assert found["probe"] == probe()


def test_another_last_bit_of_exp_is_another_fingerprint(monkeypatch: pytest.MonkeyPatch) -> None:
    before = probe()
    monkeypatch.setattr(module, "ndtri", lambda x: np.nextafter(np.exp(x), 9))
    assert probe() != before


def test_a_variant_of_glibc_without_fma_is_another_fingerprint() -> None:
    """It changed 1,303 of 4,000 predictions under the same fingerprint."""
    tunables = "glibc.cpu.hwcaps=-AVX2_Usable,-FMA_Usable,-AVX2,-FMA,-FMA4_Usable"
    variant = os.environ | {"GLIBC_TUNABLES": tunables}
    made = [
        subprocess.run(
            [sys.executable, "-c", PROBE], env=env, capture_output=True, text=True, check=True
        ).stdout
        for env in (dict(os.environ), variant)
    ]
    changed = subprocess.run(
        [sys.executable, "-c", "import math; print([math.exp(k / 97) for k in range(9000)])"],
        env=variant, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    differs = changed.strip() != str([math.exp(k / 97) for k in range(9000)])
    assert (made[0] != made[1]) == differs
