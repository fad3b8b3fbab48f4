"""The methods: named, marked, and each runs."""

from dataclasses import replace

import pytest

from dtgol_core.experts import EXPERTS
from pipeline.errors import InputError
from pipeline.offline.compare import paper
from pipeline.offline.compare.jobs import RunBlock, plan
from pipeline.offline.compare.methods import all_methods, choose
from pipeline.offline.compare.run import run
from pipeline.offline.compare.sources import StreamSource
from tests.support.comparisons import TIERS, small


def test_methods_are_named_and_reconstructed_ones_are_marked() -> None:
    methods = all_methods()
    assert [name for name in methods if methods[name].group == "paper"] == [
        "dt-gol", "fobos", "ovfm", "oslmf", "iwms", "ol-mdisf", "lach",
    ]  # fmt: skip
    assert set(paper.METHODS) == {n for n, method in methods.items() if method.group == "paper"}
    assert [name for name, method in methods.items() if method.marked.endswith(" (r)")] == [
        "ovfm", "oslmf", "iwms", "ol-mdisf", "lach",
    ]  # fmt: skip
    assert methods["lach"].marked == "LACH (r)"
    with pytest.raises(InputError, match="there is no method 'magic'"):
        choose(["magic"])


@pytest.mark.parametrize("name", all_methods())
def test_every_method_runs_and_gives_the_same_again(name: str) -> None:
    (method,) = choose([name])
    block = RunBlock((StreamSource("moving", 120, change=60),), (10,), 1, TIERS)
    (each,) = plan([block], [method])
    once, again = run(each), run(each)
    assert replace(once, us_per_record=None) == replace(again, us_per_record=None)
    assert once.rows == 120
    assert once.refused == 0
    assert once.blind is not None


def test_an_ablation_is_not_the_whole_and_not_another() -> None:
    groups = ("ablation", "part")
    names = [name for name, method in all_methods().items() if method.group in groups]
    names.remove("no-marginals")  # the same where nothing is missing, as here
    jobs = plan(small(), choose(["dt-gol", "naive", *names]))
    losses = {each.method: run(each).log_loss for each in jobs}
    assert len(set(losses.values())) == len(losses)


def test_every_expert_but_naive_has_its_ablation() -> None:
    named = {name for name, method in all_methods().items() if method.group == "ablation"}
    wanted = {f"without-{expert.name}" for expert in EXPERTS if expert.name != "naive"}
    assert named == wanted


def test_tiers_follow_the_expected_time_and_the_group() -> None:
    pytest.importorskip("river")
    pytest.importorskip("sklearn")
    methods = all_methods()
    assert {methods[name].tier for name in ("dt-gol", "lach", "naive", "river-lr")} == {"main"}
    assert {methods[name].tier for name in ("ovfm", "river-hat", "last-label")} == {"fifteen"}
    assert methods["no-risk"].tier == methods["as-printed"].tier == "part"
    assert methods["river-arf"].tier == methods["retrained"].tier == "slow"
    assert methods["river-srp"].tier == "slowest"
