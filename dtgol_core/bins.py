"""Numbers to bins, by integer arithmetic alone: the bins of the scores.

Bins rise with the value, their relative width is bounded, and no edge depends on the last bit
of a logarithm, so every machine counts the same value in the same bin.
"""

_P_SCALE = 1 << 27
_P_BITS = 7


def exponential_bin(value: int, bits: int) -> int:
    """Number of the bin of a whole number: exact below ``2**bits``, then ``2**bits`` per octave.

    Bins rise with the value and none is wider than ``value / 2**bits``. Integer shifts only, so
    an edge never depends on a logarithm's last bit.

    >>> [exponential_bin(value, 3) for value in (0, 7, 8, 15, 16, 17, 18, 32)]
    [0, 7, 8, 15, 16, 16, 17, 24]
    """
    shift = max(0, value.bit_length() - bits - 1)
    return (shift << bits) + (value >> shift)


def exponential_bin_top(number: int, bits: int) -> int:
    """The largest whole number in a bin of `exponential_bin`.

    >>> [exponential_bin_top(number, 3) for number in (0, 7, 15, 16, 24)]
    [0, 7, 15, 17, 35]
    """
    shift = max(0, (number >> bits) - 1)
    return ((number - (shift << bits) + 1) << shift) - 1


_P_MIDDLE = exponential_bin(_P_SCALE >> 1, _P_BITS)


def probability_bin(p: float) -> int:
    """Number of the AUC bin of a probability; rises with p, and ½ ends the lower half.

    Two probabilities in one bin differ by less than ``max(2⁻²⁷, min(p, 1−p) / 128)``: as fine
    for rare events near 0 and 1 as around ½. There are 5121 bins.

    >>> probability_bin(0.0), probability_bin(0.5), probability_bin(1.0)
    (0, 2560, 5120)
    """
    if p <= 0.5:
        return exponential_bin(int(p * _P_SCALE), _P_BITS)
    return 2 * _P_MIDDLE - exponential_bin(int((1.0 - p) * _P_SCALE), _P_BITS)
