"""Exponential, logarithm and normal quantile, from multiplications, additions and divisions.

The C library's are a call per number; these are a few lines without a branch, which the compiler
takes into a loop and computes for several numbers at once. Their bits are the same on every
machine, whatever C library there is. Do not change them: every stored state would be another one.
"""

import math

from dtgol_core.compiled import bits_of, float_of, fma, in_place

LEAST = -708.0
"""Smaller numbers are taken as this one: its exponential, 3e-308, is nearly the least normal
number."""
_PER_LN2 = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
"""ln 2 in two parts; a whole number of up to 11 bits times the first is exact."""
_ROUND = 6755399441055744.0
"""1.5·2⁵²: a number added to it is rounded to a whole one, which stands in the lowest bits."""
_ROOT_HALF = 0x3FE6A09E667F3BCD
"""The bits of √½."""
_ONE = 0x3FF0000000000000
_FRACTION = 0x000FFFFFFFFFFFFF
_WHOLE = 0x4330000000000000
"""The bits of 2⁵²; with a small whole number in the lowest ones it is 2⁵² plus that number."""
_WHOLE_AND_BIAS = 4503599627370496.0 + 1023.0


@in_place
def exp(x: float) -> float:
    """eˣ for x ≤ 0, to about one unit of the last place.

    ``x = k·ln 2 + r`` with a whole k and ``|r| ≤ ½ ln 2``; then ``eˣ = 2ᵏ·eʳ``, the latter by its
    Taylor series up to r¹³.
    """
    x = LEAST if x < LEAST else x
    rounded = fma(x, _PER_LN2, _ROUND)
    k = rounded - _ROUND
    r = fma(-k, _LN2_LOW, fma(-k, _LN2_HIGH, x))
    series = fma(r, 1.0 / 6227020800.0, 1.0 / 479001600.0)
    series = fma(r, series, 1.0 / 39916800.0)
    series = fma(r, series, 1.0 / 3628800.0)
    series = fma(r, series, 1.0 / 362880.0)
    series = fma(r, series, 1.0 / 40320.0)
    series = fma(r, series, 1.0 / 5040.0)
    series = fma(r, series, 1.0 / 720.0)
    series = fma(r, series, 1.0 / 120.0)
    series = fma(r, series, 1.0 / 24.0)
    series = fma(r, series, 1.0 / 6.0)
    series = fma(r, series, 0.5)
    power: float = float_of((bits_of(rounded) + 1023) << 52)
    return (1.0 + fma(r * r, series, r)) * power


@in_place
def log(x: float) -> float:
    """ln x for a normal x > 0, to about one unit of the last place.

    ``x = 2ᵏ·(1 + f)`` with 1 + f between √½ and √2; with ``s = f/(2 + f)`` the series of the area
    tangent gives ``ln(1 + f) = 2s + s·R = f − s·(f − R)``, ``R = ⅔s² + ⅖s⁴ + …`` up to s²⁰.
    """
    shifted = bits_of(x) + (_ONE - _ROOT_HALF)
    k = float_of((shifted >> 52) | _WHOLE) - _WHOLE_AND_BIAS
    f = float_of((shifted & _FRACTION) + _ROOT_HALF) - 1.0
    s = f / (2.0 + f)
    z = s * s
    series = fma(z, 2.0 / 21.0, 2.0 / 19.0)
    series = fma(z, series, 2.0 / 17.0)
    series = fma(z, series, 2.0 / 15.0)
    series = fma(z, series, 2.0 / 13.0)
    series = fma(z, series, 2.0 / 11.0)
    series = fma(z, series, 2.0 / 9.0)
    series = fma(z, series, 2.0 / 7.0)
    series = fma(z, series, 2.0 / 5.0)
    series = fma(z, series, 2.0 / 3.0)
    small = fma(s, f - z * series, -k * _LN2_LOW)
    logarithm: float = k * _LN2_HIGH + (f - small)
    return logarithm


@in_place
def sigmoid(logit: float) -> float:
    """The probability with these log-odds: ``1/(1 + e⁻ˣ)``, for x < 0 as ``eˣ/(1 + eˣ)``."""
    e = exp(-abs(logit))
    return (1.0 if logit >= 0.0 else e) / (1.0 + e)


@in_place
def normal_quantile(share: float) -> float:
    """Φ⁻¹, to about 1e-15: below which number a standard normal one falls with this probability.

    For shares from 1e-11 to 1 − 1e-11, and exactly 0 and 1. Rational functions of degree 7 by
    Wichura (1988), Algorithm AS 241, Applied Statistics; the third of them, for shares beyond, is
    left out.
    """
    if share <= 0.0 or share >= 1.0:
        return -math.inf if share <= 0.0 else math.inf
    middle = share - 0.5
    if abs(middle) <= 0.425:
        r = 0.180625 - middle * middle
        above = fma(r, 2509.0809287301226727, 33430.575583588128105)
        above = fma(r, above, 67265.770927008700853)
        above = fma(r, above, 45921.953931549871457)
        above = fma(r, above, 13731.693765509461125)
        above = fma(r, above, 1971.5909503065514427)
        above = fma(r, above, 133.14166789178437745)
        above = fma(r, above, 3.3871328727963666080)
        below = fma(r, 5226.4952788528545610, 28729.085735721942674)
        below = fma(r, below, 39307.895800092710610)
        below = fma(r, below, 21213.794301586595867)
        below = fma(r, below, 5394.1960214247511077)
        below = fma(r, below, 687.18700749205790830)
        below = fma(r, below, 42.313330701600911252)
        below = fma(r, below, 1.0)
        return middle * above / below
    r = math.sqrt(-log(share if middle < 0.0 else 1.0 - share)) - 1.6
    above = fma(r, 7.74545014278341407640e-4, 2.27238449892691845833e-2)
    above = fma(r, above, 2.41780725177450611770e-1)
    above = fma(r, above, 1.27045825245236838258)
    above = fma(r, above, 3.64784832476320460504)
    above = fma(r, above, 5.76949722146069140550)
    above = fma(r, above, 4.63033784615654529590)
    above = fma(r, above, 1.42343711074968357734)
    below = fma(r, 1.05075007164441684324e-9, 5.47593808499534494600e-4)
    below = fma(r, below, 1.51986665636164571966e-2)
    below = fma(r, below, 1.48103976427480074590e-1)
    below = fma(r, below, 6.89767334985100004550e-1)
    below = fma(r, below, 1.67638483018380384940)
    below = fma(r, below, 2.05319162663775882187)
    below = fma(r, below, 1.0)
    return above / below if middle > 0.0 else -above / below
