"""What is to be run, and the key that names a result."""

from dataclasses import replace
from pathlib import Path

from pipeline.offline.compare.jobs import RunBlock, code_digest, plan
from pipeline.offline.compare.methods import US_PER_RECORD, Method, choose
from pipeline.offline.compare.sources import StreamSource, files, generated


def test_a_plan_has_every_cell_of_its_blocks_once_and_seed_by_seed(folder: Path) -> None:
    sets, drift = tuple(files(folder)), tuple(generated(10_000))
    blocks = [
        RunBlock(sets, (10, 50), 5, ("main",), ("none", "pairs")),
        RunBlock(drift, (500,), 5, ("main",)),
        RunBlock(drift, (500,), 2, ("main", "part")),
    ]
    jobs = plan(blocks, choose(["dt-gol", "naive", "no-risk"]))
    cells = len(sets) * 2 * 2 + 5
    assert len(jobs) == cells * 5 * 2 + 5 * 2
    assert len({each.key for each in jobs}) == len(jobs)
    assert [each.seed for each in jobs] == sorted(each.seed for each in jobs)
    assert {each.seed for each in jobs if each.method == "no-risk"} == {0, 1}


def test_a_job_is_expected_to_take_its_rows_times_the_methods_time() -> None:
    (each,) = plan(
        [RunBlock((StreamSource("sea", 10_000),), (10,), 1, ("main",))], choose(["lach"])
    )
    assert each.seconds_estimate == 10_000 * US_PER_RECORD["lach"] / 1e6


def test_a_key_names_what_decides_a_result() -> None:
    (method,) = choose(["dt-gol"])
    source = StreamSource("sea", 100, change=50)

    def key(source: StreamSource, delay: int, method: Method) -> str:
        return plan([RunBlock((source,), (delay,), 1, ("main",))], [method])[0].key

    base = key(source, 10, method)
    assert key(source, 10, method) == base
    other_delay = key(source, 20, method)
    other_rows = key(replace(source, rows=99), 10, method)
    other_settings = key(source, 10, replace(method, settings="x"))
    moved = key(replace(source, path="/elsewhere"), 10, method)
    assert len({base, other_delay, other_rows, other_settings}) == 4
    assert moved == base


def test_the_code_of_a_method_counts_with_all_that_it_imports() -> None:
    assert code_digest("dtgol_core.baselines.lach") != code_digest("dtgol_core.baselines.naive")
    assert code_digest("dtgol_core.learner") != code_digest("dtgol_core.baselines.naive")
