"""How the numeric loops of stages and experts are compiled.

Every loop over columns or nodes is a plain Python function marked ``@in_place``, or ``@compiled``
if it makes arrays; Numba turns it into machine code at its first call and keeps the result in
``NUMBA_CACHE_DIR``. Fast-math stays off: sums are added in the order in which they are written, and
a product is rounded before it is added unless `fma` is written, so the bits do not depend on the
processor. The measurement behind this is in ``docs/decisions/0002-compiled-kernels.md``.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
from numba.core import types
from numba.extending import intrinsic

Function = TypeVar("Function", bound=Callable[..., object])


_OPTIONS: Any = {"cache": True, "fastmath": False, "error_model": "numpy", "nogil": True}


def compiled(function: Function) -> Function:
    """Compile a loop; division by zero gives infinity or NaN as in numpy, not an exception."""
    return cast(Function, numba.njit(function, **_OPTIONS))


def in_place(function: Function) -> Function:
    """Compile a loop that works on the arrays it is given, and neither makes nor returns any.

    It calls only such functions. References are not counted in them: elsewhere every slice, a row
    in a loop for example, is counted up and down by atomic instructions, which took a tenth of the
    time of a record. ``_nrt`` is a private option of Numba; ``tests/unit/core/test_compiled.py``
    holds all loops to its rules.
    """
    options = {**_OPTIONS, "_nrt": False}
    return cast(Function, numba.njit(function, **options))


def _bitcast(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    return builder.bitcast(arguments[0], context.get_value_type(signature.return_type))


def _read_bits(context: Any, number: Any) -> Any:
    return types.int64(types.float64), _bitcast


def _read_float(context: Any, bits: Any) -> Any:
    return types.float64(types.int64), _bitcast


def _multiply_add(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    return builder.fma(*arguments)


def _three_floats(context: Any, a: Any, b: Any, c: Any) -> Any:
    return types.float64(types.float64, types.float64, types.float64), _multiply_add


fma = cast(Callable[[float, float, float], float], intrinsic(_three_floats))
"""``a·b + c``, rounded once: one instruction in place of two. A processor that has no such
instruction gives the same bits, slowly. For compiled loops only."""
bits_of: Any = intrinsic(_read_bits)
"""The 64 bits of a float as an integer; for compiled loops only."""
float_of: Any = intrinsic(_read_float)
"""The float that has these 64 bits; for compiled loops only."""
