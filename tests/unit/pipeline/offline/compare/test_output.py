"""The files of a finished comparison."""

import csv
from dataclasses import replace
from pathlib import Path

from pipeline.offline.compare import output
from pipeline.offline.compare.methods import choose
from pipeline.offline.compare.sources import CHOSEN_ON, REPORTED_ON
from tests.support.comparisons import job, outcome


def test_halves_are_named_only_for_the_streams_that_were_halved(tmp_path: Path) -> None:
    fifteen = sorted(CHOSEN_ON | REPORTED_ON)
    for streams, halved in ((fifteen, True), ([*fifteen, "magic04"], False), (["a", "b"], False)):
        runs = {job(s, name): outcome(0.1) for s in streams for name in ("dt-gol", "fobos")}
        tally = output.write(tmp_path, runs, choose(["dt-gol", "fobos"]), "dtgol compare")
        assert tally.halved == halved
        report = (tmp_path / "benchmark.md").read_text()
        assert ("chosen on" in report) == ("sea (odd)" in report) == halved
        with (tmp_path / "summary.csv").open() as file:
            halves = {row["stream"]: row["half"] for row in csv.DictReader(file)}
        assert set(halves.values()) == ({"odd", "even"} if halved else {""})
        assert not halved or (halves["sea"], halves["wbc"]) == ("odd", "even")


def test_cer_from_step_l_plus_1_has_its_own_ranks(tmp_path: Path) -> None:
    runs = {}
    for stream in "abc":
        runs[job(stream, "dt-gol")] = replace(outcome(0.1), late_cer=0.3)
        runs[job(stream, "fobos")] = replace(outcome(0.2), late_cer=0.2)
    output.write(tmp_path, runs, choose(["dt-gol", "fobos"]), "dtgol compare")
    report = (tmp_path / "benchmark.md").read_text().splitlines()
    assert "| mean rank | 1.00 | 2.00 |" in report
    assert "| mean rank from step L + 1 on | 2.00 | 1.00 |" in report
    assert "| DT-GOL wins–losses |  | 3–0 |" in report
    assert "| Wilcoxon p |  | 0.25 |" in report
