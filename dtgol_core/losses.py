"""Losses and log-odds of probabilities, in nats. Compiled, for loops and for Python alike."""

from dtgol_core.compiled import in_place
from dtgol_core.elementary import log

P_CLIP = 1e-12
"""Probabilities are clipped to [1e-12, 1 − 1e-12] before a logarithm, and nowhere else."""


@in_place
def log_loss(p: float, y: int) -> float:
    """Cross entropy of p when the label is 0 or 1."""
    clipped = min(max(p, P_CLIP), 1.0 - P_CLIP)
    return -log(clipped if y else 1.0 - clipped)


@in_place
def entropy(p: float) -> float:
    """Uncertainty of p."""
    clipped = min(max(p, P_CLIP), 1.0 - P_CLIP)
    return -(clipped * log(clipped) + (1.0 - clipped) * log(1.0 - clipped))


@in_place
def log_odds(p: float) -> float:
    """The inverse of the logistic function."""
    clipped = min(max(p, P_CLIP), 1.0 - P_CLIP)
    return log(clipped / (1.0 - clipped))
