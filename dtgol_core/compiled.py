"""How the numeric loops of stages and experts are compiled.

Every loop over columns or nodes is a plain Python function marked ``@compiled``; Numba turns it
into machine code at its first call and keeps the result in ``NUMBA_CACHE_DIR``. Fast-math stays
off: sums are added in the order in which they are written, so the bits do not depend on how wide
the processor's registers are. The measurement behind this is in
``docs/decisions/0002-compiled-kernels.md``.
"""

from collections.abc import Callable
from typing import TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., object])


def compiled(function: Function) -> Function:
    """Compile a loop; division by zero gives infinity or NaN as in numpy, not an exception."""
    return cast(
        Function,
        numba.njit(function, cache=True, fastmath=False, error_model="numpy", nogil=True),
    )
