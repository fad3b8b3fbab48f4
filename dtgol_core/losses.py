"""Losses of probabilities, in nats. A leaf: every logarithm of a probability goes through here.

The compiled loops of the soft labels carry their own entropy, because Numba does not notice when
a function of another file changes.
"""

import math

P_CLIP = 1e-12
"""Probabilities are clipped to [1e-12, 1 − 1e-12] before a logarithm, and nowhere else."""


def log_loss(p: float, y: int) -> float:
    """Cross entropy of saying p when the label is 0 or 1.

    >>> round(log_loss(0.5, 1), 6), round(log_loss(0.0, 1), 3)
    (0.693147, 27.631)
    """
    clipped = min(max(p, P_CLIP), 1.0 - P_CLIP)
    return -math.log(clipped) if y else -math.log1p(-clipped)


def entropy(p: float) -> float:
    """Uncertainty of p.

    >>> round(entropy(0.5), 6), entropy(0.0) < 1e-10
    (0.693147, True)
    """
    clipped = min(max(p, P_CLIP), 1.0 - P_CLIP)
    return -(clipped * math.log(clipped) + (1.0 - clipped) * math.log1p(-clipped))
