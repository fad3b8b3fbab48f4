"""Scores of methods over streams -> mean ranks, Friedman test, Nemenyi distance, Wilcoxon test.

Demšar (2006), Statistical comparisons of classifiers over multiple data sets, JMLR 7.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

ALPHA = 0.05


@dataclass(frozen=True, slots=True)
class Ranking:
    """``ranks``: mean rank of each method, 1 is best. Two methods whose mean ranks are closer than
    ``distance`` (Nemenyi, α = 0.05) cannot be told apart. ``p``: of the Friedman test."""

    ranks: dict[str, float]
    streams: int
    p: float
    distance: float


def rank(scores: dict[str, list[float]], smaller_is_better: bool) -> Ranking:
    """Rank methods by their scores on the same streams, given in the same order.

    >>> ranking = rank({"a": [0.1, 0.2, 0.3], "b": [0.2, 0.3, 0.4], "c": [0.2, 0.5, 0.5]}, True)
    >>> ranking.ranks
    {'a': 1.0, 'b': 2.166..., 'c': 2.833...}
    """
    table = np.array(list(scores.values()), dtype=np.float64).T
    ranks = rank_rows(table if smaller_is_better else -table)
    streams, methods = table.shape
    return Ranking(
        ranks=dict(zip(scores, ranks.mean(axis=0).tolist(), strict=True)),
        streams=streams,
        p=_friedman(ranks),
        distance=nemenyi(methods, streams),
    )


def rank_rows(table: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Ranks within each row, ties shared. Scores are compared to six digits."""
    ranks: npt.NDArray[np.float64] = stats.rankdata(np.round(table, 6), axis=1)
    return ranks


def nemenyi(methods: int, streams: int) -> float:
    """The critical difference of mean ranks.

    >>> round(nemenyi(4, 14), 2)
    1.25
    """
    if methods < 2 or streams < 1:
        return math.inf
    q = float(stats.studentized_range.ppf(1.0 - ALPHA, methods, np.inf)) / math.sqrt(2.0)
    return q * math.sqrt(methods * (methods + 1) / (6.0 * streams))


def signed_rank(gaps: Sequence[float]) -> float:
    """p of the Wilcoxon signed-rank test of two methods, from their gaps on the same streams.

    Two-sided. Gaps are compared to six digits; streams without a gap are left out.

    >>> signed_rank([0.1, 0.2, -0.3, 0.4, 0.5, 0.0])
    0.3125
    """
    known = np.round([gap for gap in gaps if not math.isnan(gap)], 6)
    known = known[known != 0.0]
    return float(stats.wilcoxon(known).pvalue) if len(known) else 1.0


def _friedman(ranks: npt.NDArray[np.float64]) -> float:
    streams, methods = ranks.shape
    if methods < 3 or streams < 2 or np.all(ranks == ranks[:, :1]):
        return 1.0
    return float(stats.friedmanchisquare(*ranks.T).pvalue)
