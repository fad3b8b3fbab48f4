"""Means over seeds, streams, delays and masks."""

from pipeline.offline.compare.tally import Comparison, spread
from tests.support.comparisons import job, outcome


def test_the_tally_averages_delays_within_a_seed_and_then_over_seeds() -> None:
    tally = Comparison(
        {
            job("sea", "naive", 0, 10): outcome(0.1),
            job("sea", "naive", 0, 50): outcome(0.3),
            job("sea", "naive", 1, 10): outcome(0.4),
        }
    )
    assert str(tally.on("sea", "naive", "cer")) == "0.300 ± 0.141"
    assert str(spread([])) == "–"


def test_wins_count_streams() -> None:
    runs = {}
    for stream, ours, theirs in (("a", 0.1, 0.2), ("b", 0.3, 0.2), ("c", 0.1, 0.1)):
        runs[job(stream, "dt-gol")] = outcome(ours)
        runs[job(stream, "fobos")] = outcome(theirs)
    assert Comparison(runs).wins("dt-gol", "fobos", "cer") == (1, 1)
    assert Comparison(runs).wins("dt-gol", "fobos", "auc") == (1, 1)
