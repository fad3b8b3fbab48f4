"""Losses and log-odds of probabilities, in nats: every logarithm of a probability is taken here.

The compiled loops of the soft labels have an entropy of their own, because Numba's cache does not
notice when a function of another file changes.
"""

import math

P_CLIP = 1e-12
"""Probabilities are clipped to [1e-12, 1 − 1e-12] before a logarithm, and nowhere else."""


def log_loss(p: float, y: int) -> float:
    """Cross entropy of p when the label is 0 or 1.

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


def log_odds(p: float) -> float:
    """The inverse of `sigmoid`.

    >>> log_odds(0.5), round(log_odds(0.0), 3)
    (0.0, -27.631)
    """
    clipped = min(max(p, P_CLIP), 1.0 - P_CLIP)
    return math.log(clipped / (1.0 - clipped))


def sigmoid(logit: float) -> float:
    """The probability with these log-odds, without overflow.

    >>> sigmoid(0.0), sigmoid(-1000.0)
    (0.5, 0.0)
    """
    if logit >= 0.0:
        return 1.0 / (1.0 + math.exp(-logit))
    e = math.exp(logit)
    return e / (1.0 + e)
