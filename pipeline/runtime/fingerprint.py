"""What decides the bits besides the journal: the machine's kind and the numeric libraries.

The C library chooses its exp and log by the processor's features and by tunables at run time: two
processes with the same versions of everything can differ in the last bit. So some values of the
learner's functions and of those of the libraries are computed, and their hash is part of the
fingerprint.
Equal bits are promised within one fingerprint; `/status` and every manifest show it.
"""

from __future__ import annotations

import hashlib
import math
import platform
from functools import cache
from typing import Any

import numba
import numpy as np
import scipy
from scipy.special import expit, ndtri

from dtgol_core.compiled import compiled
from dtgol_core.elementary import exp, log, normal_quantile, sigmoid
from dtgol_core.types import FloatArray


@cache
def fingerprint() -> dict[str, str]:
    """CPU family, C library, numpy, scipy, numba, BLAS, and a hash of what they compute."""
    config: Any = np.show_config(mode="dicts")
    blas = config.get("Build Dependencies", {}).get("blas", {}) if config else {}
    features = config.get("SIMD Extensions", {}).get("found", []) if config else []
    return {
        "machine": platform.machine(),
        "simd": features[-1] if features else "baseline",
        "libc": " ".join(platform.libc_ver()).strip() or "unknown",
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "numba": numba.__version__,
        "blas": f"{blas.get('name', 'unknown')} {blas.get('version', '')}".strip(),
        "probe": probe(),
    }


def probe() -> str:
    """Sixteen hex digits of exp, log and the normal quantile at values spread over their ranges.

    From numpy (its own kernels), from libm by way of `math`, and from compiled code (numba): what
    LLVM has linked, and the learner's own functions, which need nothing but multiply and add.
    """
    x = np.linspace(-30.0, 30.0, 4001)
    shares = np.linspace(1e-6, 1.0 - 1e-6, 4001)
    plain = [f(each) for f in (math.exp, math.expm1) for each in x.tolist()]
    plain += [f(each) for f in (math.log, math.log1p) for each in shares.tolist()]
    parts = (np.exp(x), np.log(shares), expit(x), ndtri(shares), np.array(plain), _compiled(x))
    return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()[:16]


@compiled
def _compiled(x: FloatArray) -> FloatArray:
    made = np.empty((4, len(x)))
    for place in range(len(x)):
        made[0, place] = math.exp(x[place])
        made[1, place] = math.log(1.0 + math.exp(x[place]))
        made[2, place] = log(1.0 + exp(-abs(x[place])))
        made[3, place] = normal_quantile(sigmoid(x[place] / 2.0))
    return made
