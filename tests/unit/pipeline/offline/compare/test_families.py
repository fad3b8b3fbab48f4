"""Tables of moving classes, of single families and of the experts."""

from dataclasses import replace

from pipeline.offline.compare.families import (
    experts_alone,
    family_tables,
    moving_classes,
    without_one_expert,
    worst_prefixes,
)
from pipeline.offline.compare.jobs import Job
from pipeline.offline.compare.methods import choose
from pipeline.offline.compare.report import BenchmarkPage
from pipeline.offline.compare.scores import ExpertScore, Outcome, WorstPrefix
from pipeline.offline.compare.tally import Comparison
from tests.support.comparisons import job, outcome


def cells(lines: list[str], first: str) -> list[str]:
    """The cells of the row that begins with a text."""
    (row,) = [line for line in lines if line.startswith(f"| {first} |")]
    return [cell.strip() for cell in row.strip("|").split("|")]


def tables(lines: list[str]) -> list[list[str]]:
    """The rows of each table."""
    blocks = "\n".join(lines).split("\n\n")
    return [block.split("\n") for block in blocks if block.startswith("| method |")]


def test_moving_classes_have_a_column_by_delay_and_by_stream_at_the_longest() -> None:
    runs = {}
    for stream, ours in (("4CR", 0.1), ("UG", 0.3)):
        for delay, more in ((50, 0.0), (2000, 0.1)):
            runs[job(stream, "dt-gol", 0, delay, "moving files")] = outcome(ours + more)
            runs[job(stream, "naive", 0, delay, "moving files")] = outcome(0.5)
    runs[job("4CR", "fobos", 0, 50, "moving files")] = outcome(0.25)
    lines = moving_classes(Comparison(runs), choose(["dt-gol", "naive", "fobos", "lach"]))
    assert "### Moving files, fixed delays" in lines
    full, fewer = tables(lines)
    assert cells(full, "method")[1:-1] == ["L = 50", "L = 2000", "4CR", "UG"]
    assert cells(full, "DT-GOL")[1:] == ["**0.200**", "**0.300**", "**0.200**", "**0.400**", "100"]
    assert cells(fewer, "method")[1:-1] == ["L = 50", "4CR"]
    assert cells(fewer, "DT-GOL")[1:-1] == ["**0.100**", "**0.100**"]
    assert cells(fewer, "FOBOS")[1:-1] == ["0.250", "0.250"]
    assert not [line for line in lines if "LACH" in line]
    assert moving_classes(Comparison({job("sea", "naive"): outcome(0.1)}), choose(["naive"])) == []


def test_methods_with_fewer_runs_have_a_table_of_their_own_beside_dt_gol() -> None:
    """DT-GOL's mean over two delays must not stand beside another's mean over one."""
    runs: dict[Job, Outcome] = {}
    for delay, ours in ((10, 0.1), (50, 0.3)):
        runs[job("electricity", "dt-gol", 0, delay, "large")] = outcome(ours)
        runs[job("electricity", "naive", 0, delay, "large")] = outcome(0.4)
    runs[job("electricity", "fobos", 0, 50, "large")] = outcome(0.35)
    methods = choose(["dt-gol", "naive", "fobos"])
    lines = family_tables(Comparison(runs), methods, "large", "Larger", ("cer",))
    shown = [line for line in lines if line.startswith("| DT-GOL")]
    assert shown == ["| DT-GOL | **0.200** | 100 |", "| DT-GOL | **0.300** | 100 |"]
    assert "electricity: none L = 50; seeds: 1." in lines


def test_experts_are_shown_with_their_own_cer_and_weight() -> None:
    scores = {"naive": ExpertScore(0.2, 0.5, 0.25), "paper": ExpertScore(0.1, 0.4, 0.75)}
    runs = {
        job("sea", "dt-gol"): replace(outcome(0.15), experts=scores),
        job("4CR", "dt-gol", 0, 500, "moving files"): replace(outcome(0.25), experts=scores),
    }
    lines = experts_alone(Comparison(runs))
    assert cells(lines, "sea") == ["sea", "0.150", "0.200 (0.25)", "**0.100 (0.75)**"]
    assert cells(lines, "4CR, L = 500")[1] == "0.250"


def test_leaving_an_expert_out_costs_the_difference_on_the_shared_runs() -> None:
    (naive,) = choose(["naive"])
    ablation = replace(naive, name="without-paper", title="without paper", group="ablation")
    runs = {
        job("a", "dt-gol"): outcome(0.10),
        job("b", "dt-gol"): outcome(0.20),
        job("a", "without-paper"): outcome(0.13),
        job("b", "without-paper"): outcome(0.21),
        job("b", "dt-gol", 1): outcome(0.90),
    }
    lines = without_one_expert(Comparison(runs), [*choose(["dt-gol"]), ablation])
    assert cells(lines, "sets") == ["sets", "0.1500", "+0.0200"]


def test_the_worst_prefix_of_any_run_is_named_with_its_stream() -> None:
    runs = {
        job("a", "dt-gol"): replace(outcome(0.1), worst=WorstPrefix(2.5, 1)),
        job("b", "dt-gol"): replace(outcome(0.1), worst=WorstPrefix(0.5, 7)),
        job("a", "naive"): replace(outcome(0.1), worst=WorstPrefix(0.0, 0)),
    }
    lines = worst_prefixes(Comparison(runs), choose(["dt-gol", "naive"]))
    assert cells(lines, "DT-GOL") == ["DT-GOL", "2.5 (a)", "7 (b)"]
    assert not [line for line in lines if line.startswith("| naive")]


def test_the_summary_is_first_and_says_what_was_lost_too() -> None:
    runs = {}
    for stream, ours, theirs in (("a", 0.1, 0.2), ("b", 0.4, 0.2), ("c", 0.5, 0.2)):
        runs[job(stream, "dt-gol")] = replace(outcome(ours), worst=WorstPrefix(3.0, 4))
        runs[job(stream, "naive")] = outcome(theirs)
    runs[job("4CR", "dt-gol", 0, 2000, "moving files")] = outcome(0.1)
    runs[job("4CR", "naive", 0, 2000, "moving files")] = outcome(0.5)
    text = BenchmarkPage(Comparison(runs), choose(["dt-gol", "naive"])).text(["## What was run"])
    assert text.startswith("## In short")
    assert (
        "- **DT-GOL against naive**: 1 of 3 streams better and 2 worse in CER, mean 0.3333 against "
        "0.2000; moving classes with labels 2,000 late 0.1000 against 0.5000."
    ) in text
    assert "3.0 nats behind (c), 4 errors behind (c)" in text
