"""The exponential of numbers up to 0, from multiplications and additions alone.

The C library's is a call per number; this one is a few lines that the compiler takes into a loop
and computes for several numbers at once. Its bits are the same on every machine, whatever C
library there is. Do not change it: Numba's cache does not notice that a function of another file
has changed, and every stored state would be another one.
"""

from dtgol_core.compiled import bits_of, compiled, float_of

LEAST = -708.0
"""Smaller numbers are taken as this one: its exponential, 3e-308, is the least normal number."""
_PER_LN2 = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
"""ln 2 in two parts; a whole number of up to 10 bits times the first is exact."""
_ROUND = 6755399441055744.0
"""1.5·2⁵²: a number added to it is rounded to a whole one, which stands in the lowest bits."""


@compiled
def exp(x: float) -> float:
    """eˣ for x ≤ 0, to about one unit of the last place.

    ``x = k·ln 2 + r`` with a whole k and ``|r| ≤ ½ ln 2``; then ``eˣ = 2ᵏ·eʳ``, the latter by its
    Taylor series up to r¹³.
    """
    x = LEAST if x < LEAST else x
    rounded = x * _PER_LN2 + _ROUND
    k = rounded - _ROUND
    r = (x - k * _LN2_HIGH) - k * _LN2_LOW
    series = r * (1.0 / 6227020800.0) + 1.0 / 479001600.0
    series = r * series + 1.0 / 39916800.0
    series = r * series + 1.0 / 3628800.0
    series = r * series + 1.0 / 362880.0
    series = r * series + 1.0 / 40320.0
    series = r * series + 1.0 / 5040.0
    series = r * series + 1.0 / 720.0
    series = r * series + 1.0 / 120.0
    series = r * series + 1.0 / 24.0
    series = r * series + 1.0 / 6.0
    series = r * series + 0.5
    power: float = float_of((bits_of(rounded) + 1023) << 52)
    return (1.0 + (r + r * r * series)) * power


@compiled
def sigmoid(logit: float) -> float:
    """The probability with these log-odds: ``1/(1 + e⁻ˣ)``, for x < 0 as ``eˣ/(1 + eˣ)``."""
    e = exp(-abs(logit))
    return (1.0 if logit >= 0.0 else e) / (1.0 + e)
