"""How the numeric loops of stages and experts are compiled.

Every loop over columns or nodes is a plain Python function marked ``@compiled``; Numba turns it
into machine code at its first call and keeps the result in ``NUMBA_CACHE_DIR``. Fast-math stays
off: sums are added in the order in which they are written, so the bits do not depend on how wide
the processor's registers are. The measurement behind this is in
``docs/decisions/0002-compiled-kernels.md``.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
from numba.core import types
from numba.extending import intrinsic

Function = TypeVar("Function", bound=Callable[..., object])


def compiled(function: Function) -> Function:
    """Compile a loop; division by zero gives infinity or NaN as in numpy, not an exception."""
    return cast(
        Function,
        numba.njit(function, cache=True, fastmath=False, error_model="numpy", nogil=True),
    )


def _bitcast(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    return builder.bitcast(arguments[0], context.get_value_type(signature.return_type))


def _read_bits(context: Any, number: Any) -> Any:
    return types.int64(types.float64), _bitcast


def _read_float(context: Any, bits: Any) -> Any:
    return types.float64(types.int64), _bitcast


bits_of: Any = intrinsic(_read_bits)
"""The 64 bits of a float as an integer; for compiled loops only."""
float_of: Any = intrinsic(_read_float)
"""The float that has these 64 bits; for compiled loops only."""
