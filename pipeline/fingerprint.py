"""What decides the bits besides the journal: the machine's kind and the numeric libraries.

Bits are promised within one fingerprint; it stands in `/status` and in every manifest.
"""

from __future__ import annotations

import platform
from functools import cache
from typing import Any

import numba
import numpy as np
import scipy


@cache
def fingerprint() -> dict[str, str]:
    """CPU family, numpy, scipy, numba and BLAS build."""
    config: Any = np.show_config(mode="dicts")
    blas = config.get("Build Dependencies", {}).get("blas", {}) if config else {}
    features = config.get("SIMD Extensions", {}).get("found", []) if config else []
    return {
        "machine": platform.machine(),
        "simd": features[-1] if features else "baseline",
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "numba": numba.__version__,
        "blas": f"{blas.get('name', 'unknown')} {blas.get('version', '')}".strip(),
    }
