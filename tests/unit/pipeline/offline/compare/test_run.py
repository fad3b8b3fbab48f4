"""Jobs become outcomes: the same in any process, kept on disk, timed by the processor."""

from dataclasses import replace
from pathlib import Path

import pytest

from dtgol_core.experts import EXPERTS
from pipeline.offline.compare.jobs import plan
from pipeline.offline.compare.methods import choose
from pipeline.offline.compare.run import RunStore, _delays, remaining_seconds, run, run_all
from pipeline.offline.compare.scores import BlindZone, ExpertScore, WorstPrefix
from tests.support.comparisons import job, outcome, small


def test_time_per_record_is_the_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    (each,) = plan(small(), choose(["last-label"]))
    run(each)
    clock = iter([10.0, 10.2])
    monkeypatch.setattr("pipeline.offline.compare.run.process_time", lambda: next(clock))
    assert run(each).us_per_record == pytest.approx(1000.0)


def test_random_delays_are_the_same_for_every_method_and_have_their_own_key() -> None:
    fixed = plan(small(), choose(["naive", "fobos"]))
    drawn = plan(small(late="geometric"), choose(["naive", "fobos"]))
    assert not {each.key for each in fixed} & {each.key for each in drawn}
    assert _delays(fixed[0], 200) == 20
    delays = _delays(drawn[0], 200)
    assert delays == _delays(drawn[1], 200)
    assert isinstance(delays, list)
    assert len(set(delays)) > 20
    assert run(drawn[0]).cer != run(fixed[0]).cer


def test_a_run_that_was_stopped_goes_on_where_it_was(tmp_path: Path) -> None:
    planned = plan(small(seeds=2), choose(["naive", "fobos"]))
    jobs = [replace(each, us_estimate=1_000_000) for each in planned]
    store = RunStore(tmp_path)
    assert remaining_seconds(jobs, store) == 800
    first = run_all(jobs[:2], store, processes=1)
    assert remaining_seconds(jobs, store) == 400
    done: list[int] = []
    everything = run_all(jobs, store, processes=1, progress=done.append)
    assert done == [200, 400]
    assert {each: everything[each] for each in jobs[:2]} == first
    assert run_all(jobs, store, processes=1) == everything


def test_processes_give_the_same_numbers(tmp_path: Path) -> None:
    jobs = plan(small(), choose(["naive", "fobos"]))
    alone = run_all(jobs, RunStore(tmp_path / "a"), processes=1)
    together = run_all(jobs, RunStore(tmp_path / "b"), processes=2)
    assert [replace(each, us_per_record=None) for each in alone.values()] == [
        replace(each, us_per_record=None) for each in together.values()
    ]


def test_an_outcome_survives_its_trip_to_disk(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    kept = replace(
        outcome(0.1, blind=BlindZone(0.5, 0.1, None)),
        worst=WorstPrefix(1.5, 2),
        experts={"naive": ExpertScore(0.1, 0.3, 1.0)},
    )
    store.keep(job("sea", "naive"), kept)
    assert store.find(job("sea", "naive")) == kept
    assert store.find(job("sea", "fobos")) is None


def test_a_run_is_compared_with_naive_and_scores_each_expert() -> None:
    ours, naive = (run(each) for each in plan(small(), choose(["dt-gol", "naive"])))
    assert naive.worst == WorstPrefix(0.0, 0)
    assert ours.worst is not None
    assert ours.worst.nats > 0.0
    assert set(ours.experts) == {expert.name for expert in EXPERTS}
    assert ours.experts["naive"].cer == naive.cer
    assert ours.experts["naive"].log_loss == pytest.approx(naive.log_loss)
    assert naive.experts == {}
