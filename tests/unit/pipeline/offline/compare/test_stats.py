"""Ranks, and the tests of Friedman, Nemenyi and Wilcoxon."""

import pytest

from pipeline.offline.compare.stats import nemenyi, rank, signed_rank
from pipeline.offline.compare.tally import Comparison
from tests.support.comparisons import job, outcome


def test_ranks_share_ties_and_know_which_way_is_better() -> None:
    scores = {"a": [0.1, 0.2], "b": [0.1, 0.3], "c": [0.5, 0.1]}
    assert rank(scores, smaller_is_better=True).ranks == {"a": 1.75, "b": 2.25, "c": 2.0}
    assert rank(scores, smaller_is_better=False).ranks == {"a": 2.25, "b": 1.75, "c": 2.0}


def test_friedman_tells_a_clear_order_from_none() -> None:
    clear = {name: [place + 0.01 * s for s in range(12)] for place, name in enumerate("abcd")}
    assert rank(clear, smaller_is_better=True).p < 0.001
    same = {name: [0.5] * 12 for name in "abcd"}
    assert rank(same, smaller_is_better=True).p == 1.0
    # Demšar (2006), section 3.2.2: CD of 4 methods on 14 sets is 1.25
    assert nemenyi(4, 14) == pytest.approx(1.25, abs=0.005)


def test_wilcoxon_leaves_out_what_is_equal_and_knows_no_direction() -> None:
    gaps = [0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.0, 1e-9]
    # All six of one sign: 2 of the 2⁶ ways are as far out.
    assert signed_rank(gaps) == signed_rank([-gap for gap in gaps]) == pytest.approx(2 / 64)
    assert signed_rank([0.0, 0.0]) == 1.0
    runs = {}
    for stream, gap in enumerate(gaps):
        runs[job(f"s{stream}", "dt-gol")] = outcome(0.1)
        runs[job(f"s{stream}", "fobos")] = outcome(0.1 + gap)
    assert Comparison(runs).p_value("dt-gol", "fobos", "cer") == pytest.approx(2 / 64)
