"""`dtgol compare`: what it runs, writes, prints and refuses."""

import csv
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dtgol_core.streams import MOVING, STREAMS
from pipeline.cli import dtgol
from pipeline.cli.compare import _blocks
from pipeline.offline.compare.jobs import Job, RunBlock, plan
from pipeline.offline.compare.methods import Method, all_methods, choose
from pipeline.offline.compare.output import BEGIN, END
from pipeline.offline.compare.run import RunStore, run_all, whole_seeds
from pipeline.offline.compare.sources import StreamSource, files, rows_of
from tests.support.commands import ROOT
from tests.support.comparisons import TIERS, csv_folder, small, two_streams
from tests.support.waiting import wait_until

FEW = "dt-gol,fobos,naive,no-softlabels,replay,last-label"


def call(*arguments: object) -> Result:
    return CliRunner().invoke(dtgol, ["compare", *map(str, arguments)], catch_exceptions=False)


@pytest.fixture(autouse=True)
def no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """CI names the real sets by the variable of `--data`."""
    monkeypatch.delenv("DTGOL_DATA", raising=False)


def test_without_river_a_line_names_what_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.offline.compare.methods.find_spec", lambda name: None)
    monkeypatch.setattr("pipeline.cli.compare._blocks", lambda *_: small())
    assert not {"river-lr", "river-srp", "retrained"} & set(all_methods())
    asked = call("--quick", "--methods", "naive,river-lr", "--out", tmp_path)
    assert asked.exit_code == 2
    assert asked.stderr == (
        'Error: River is not installed: there is no river-lr (pip install -e ".[bench]")\n'
    )
    everything = call("--quick", "--out", tmp_path, "--no-run")
    assert everything.stderr.splitlines()[:2] == [
        f'{library} is not installed: its learners are left out (pip install -e ".[bench]")'
        for library in ("River", "scikit-learn")
    ]
    few = call("--quick", "--methods", "naive", "--out", tmp_path, "--processes", 1)
    assert "River" not in few.stderr


def test_tables_can_be_written_of_what_is_there(tmp_path: Path) -> None:
    """Two seeds of one method, half a seed of another: the half is left out, and a line says so."""
    jobs = plan(small(seeds=2), choose(["naive", "fobos"]))
    whole = [each for each in jobs if each.method == "naive" or each.seed == 0]
    run_all(whole, RunStore(tmp_path / "runs"), processes=1)
    assert set(whole_seeds(jobs, RunStore(tmp_path / "runs"))) == set(whole)
    partly = plan(two_streams(), choose(["naive"]))
    assert not whole_seeds(partly, RunStore(tmp_path / "runs"))
    arguments = ("--quick", "--out", tmp_path, "--methods", "naive,fobos", "--no-run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipeline.cli.compare._blocks", lambda *_: small(seeds=2))
        assert call(*arguments).exit_code == 0
        page = (tmp_path / "benchmark.md").read_text()
        assert "| drift | none | fixed | 20 | 2 | naive |" in page
        assert "| drift | none | fixed | 20 | 1 | FOBOS |" in page
        nothing = call("--quick", "--out", tmp_path / "empty", "--methods", "naive", "--no-run")
    assert nothing.exit_code == 2
    assert "there is no whole seed of any method" in nothing.stderr


def test_reconstructed_methods_are_marked_wherever_they_stand(tmp_path: Path) -> None:
    arguments = ("--quick", "--out", tmp_path, "--methods", "fobos,lach", "--processes", 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipeline.cli.compare._blocks", lambda *_: two_streams())
        shown, as_json = call(*arguments), call(*arguments, "--json")
    assert "LACH (r)" in shown.stdout
    assert "(r): reconstructed" in shown.stdout
    assert json.loads(as_json.stdout)["reconstructed"] == ["lach"]
    figures = [f"figures/{name}.svg" for name in ("ranks-cer", "ranks-auc", "curve-sea")]
    for name in ("benchmark.md", *figures):
        text = (tmp_path / name).read_text()
        assert "LACH (r)" in text, name
        assert text.count("LACH") == text.count("LACH (r)"), name
        assert "FOBOS (r)" not in text, name
    for name in ("runs.csv", "summary.csv"):
        with (tmp_path / name).open() as file:
            marks = {row["method"]: row["reconstructed"] for row in csv.DictReader(file)}
        assert marks == {"fobos": "False", "lach": "True"}


def test_the_command_writes_tables_figures_and_runs(tmp_path: Path) -> None:
    folder = csv_folder(tmp_path)
    out = tmp_path / "out"
    sets = tuple(source for source in files(folder) if source.family == "sets")
    short = [
        RunBlock(sets, (5,), 2, TIERS, ("none", "pairs")),
        RunBlock((StreamSource("sea", 300, change=150),), (50,), 2, TIERS),
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipeline.cli.compare._blocks", lambda *_: short)
        result = call("--data", folder, "--out", out, "--methods", FEW, "--processes", 1)
    assert result.exit_code == 0
    assert "mean rank" in result.stdout
    report = (out / "benchmark.md").read_text()
    assert "In the order of the file: Alpha, beta." in report
    assert "Shuffled by seed" not in report
    for heading in ("In short", "All measures", "seven methods", "controls", "peers",
                    "mask and delay", "Blind zone", "Worst prefix", "Time per record",
                    "the paper's own"):  # fmt: skip
        assert heading in report, heading
    assert {path.name for path in out.glob("figures/*.svg")} == {
        "ranks-cer.svg", "ranks-auc.svg", "curve-sea.svg",
    }  # fmt: skip
    with (out / "runs.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == (2 * 2 + 1) * 2 * 6
    assert {row["method"] for row in rows} == set(FEW.split(","))
    with (out / "summary.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 3 * 6


def test_json_is_one_line(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipeline.cli.compare._blocks", lambda *_: small())
        result = call("--quick", "--out", tmp_path, "--methods", FEW, "--processes", 1, "--json")
    shown = json.loads(result.stdout)
    assert set(shown) == {"streams", "mean_rank", "us_per_record", "reconstructed"}
    assert 0.0 < shown["streams"]["sea"]["dt-gol"]["cer"] < 0.5


def test_bad_input_is_one_sentence(tmp_path: Path) -> None:
    unknown = call("--quick", "--methods", "magic", "--out", tmp_path)
    nowhere = call("--out", tmp_path)
    empty = call("--data", tmp_path, "--out", tmp_path)
    for result in (unknown, nowhere, empty):
        assert result.exit_code == 2
        assert result.stderr.startswith("Error: ")
        assert result.stderr.count("\n") == 1


def test_quick_needs_no_files_and_is_short() -> None:
    jobs = plan(_blocks(True, None, False, False, None, False), choose([]))
    assert {job.source.path for job in jobs} == {""}
    assert sum(job.seconds_estimate for job in jobs) < 120


def streams_of(*arguments: object) -> list[str]:
    """The streams that a plan runs on, from the options alone."""
    asked: list[RunBlock] = []

    def planned(blocks: list[RunBlock], methods: list[Method]) -> list[Job]:
        asked.extend(blocks)
        return plan(blocks, methods)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipeline.offline.compare.jobs.plan", planned)
        shown = call(*arguments, "--plan", "--methods", "naive")
    assert shown.exit_code == 0, shown.output
    return sorted({stream.name for block in asked for stream in block.streams})


def test_data_is_run_on_alone_and_with_generated_streams_if_these_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = csv_folder(tmp_path)
    own, made = ["Alpha", "beta", "magic04"], sorted([*STREAMS, *MOVING])
    assert streams_of("--data", folder) == own
    assert streams_of("--data", folder, "--large") == own
    assert streams_of("--quick", "--data", folder) == own
    assert streams_of("--generated") == streams_of("--quick") == made
    assert streams_of("--data", folder, "--generated") == sorted([*own, *made])
    assert streams_of("--quick", "--data", folder, "--generated") == sorted([*own, *made])
    monkeypatch.setenv("DTGOL_DATA", str(folder))
    assert streams_of() == streams_of("--quick") == own


def test_quick_takes_the_first_rows_of_a_long_file(tmp_path: Path) -> None:
    (tmp_path / "long.csv").write_text("a,label\n" + "1,0\n2,1\n" * 5_000)
    ((stream,),) = [block.streams for block in _blocks(True, tmp_path, False, False, None, False)]
    assert stream.rows == len(rows_of(stream, "none", 0)) == 2_000
    whole = {each for block in _blocks(False, tmp_path, False, False, None, False)
             for each in block.streams}  # fmt: skip
    assert [each.rows for each in whole] == [10_000]


def test_own_files_alone_give_a_whole_page(tmp_path: Path) -> None:
    folder = csv_folder(tmp_path)
    arguments = ("--quick", "--data", folder, "--out", tmp_path, "--methods", "naive,fobos,lach")
    result = call(*arguments, "--processes", 1)
    assert result.exit_code == 0, result.output
    page = (tmp_path / "benchmark.md").read_text()
    assert "3 streams, 9 runs" in page
    assert not any(f"| {name} |" in page for name in [*STREAMS, *MOVING])


def test_it_says_once_that_kernels_are_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "empty"))
    arguments = ("--quick", "--methods", "naive", "--out", tmp_path, "--processes", 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipeline.cli.compare._blocks", lambda *_: small())
        first, again = call(*arguments), call(*arguments)
    assert first.stderr.count("compiling once, about 40 s\n") == 1
    assert "compiling" not in again.stderr, "nothing is left to run"


def test_ctrl_c_ends_all_processes_with_one_sentence(tmp_path: Path) -> None:
    """A terminal sends it to the children too."""
    command = ("-m", "pipeline", "compare", "--quick", "--methods", "dt-gol,naive")
    arguments = ("--processes", "2", "--out", str(tmp_path))
    with subprocess.Popen(
        [sys.executable, *command, *arguments],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as child:
        runs = tmp_path / "runs"
        wait_until(lambda: any(runs.rglob("*.json")), "a run", 120, lambda: child.poll() is None)
        os.killpg(child.pid, signal.SIGINT)
        _, shown = child.communicate(timeout=60)
    assert child.returncode == 130, shown
    assert "Traceback" not in shown
    assert shown.splitlines()[-1].startswith("stopped; finished runs are kept")


def test_the_full_run_is_sized_for_forty_minutes_on_two_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With stand-ins of the sizes of the real files; ablations are counted as if there were six.

    All peers are counted, also those that are not installed here.
    """
    monkeypatch.setattr("pipeline.offline.compare.methods.find_spec", lambda name: object())
    sizes = {"electricity": 45_312, "magic04": 19_020, "kr-vs-kp": 3_196, "LUdata": 1_901}
    others = {f"set{number}": 700 for number in range(8)}
    for name, rows in (sizes | others).items():
        (tmp_path / f"{name}.csv").write_text("label\n" + "0\n" * rows)
    (tmp_path / "moving").mkdir()
    for number in range(6):
        (tmp_path / "moving" / f"m{number}.csv").write_text("label\n" + "0\n" * 16_000)
    methods = [method for method in choose([]) if method.group != "ablation"]
    (ours,) = choose(["dt-gol"])
    methods += [
        replace(ours, name=f"without-{n}", group="ablation", settings=str(n)) for n in range(6)
    ]
    jobs = plan(_blocks(False, tmp_path, True, False, None, False), methods)
    assert 40 < sum(job.seconds_estimate for job in jobs) / 60 < 80
    large = plan(_blocks(False, tmp_path, True, True, None, False), methods)
    assert {job.key for job in jobs} < {job.key for job in large}


def test_a_plan_can_be_seen_without_running_it(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipeline.cli.compare._blocks", lambda *_: small(seeds=2))
        shown = call("--quick", "--plan", "--methods", "naive", "--out", tmp_path / "out")
    lines = [line.split() for line in shown.stdout.splitlines()]
    assert ["drift", "2", "400", "0.0"] in lines
    assert ["all", "2", "400", "0.0"] in lines
    assert not (tmp_path / "out").exists()


def test_a_report_keeps_what_stands_around_its_part(tmp_path: Path) -> None:
    page = tmp_path / "docs" / "benchmark.md"
    page.parent.mkdir()
    arguments = ("--quick", "--methods", "naive", "--out", tmp_path, "--processes", 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipeline.cli.compare._blocks", lambda *_: small())
        page.write_text("# Ours\n\nby hand\n")
        refused = call(*arguments, "--report", page)
        assert refused.exit_code == 2
        assert "has no part for the tables" in refused.stderr
        assert not list(tmp_path.glob("runs/*/*.json")), "refused before anything was run"
        page.write_text(f"# Ours\n\nbefore\n\n{BEGIN}\nold\n{END}\n\nafter\n")
        first = call(*arguments, "--report", page)
        written = page.read_text()
        again = call(*arguments, "--report", page)
    assert first.exit_code == again.exit_code == 0
    assert written.startswith(f"# Ours\n\nbefore\n\n{BEGIN}\n")
    assert written.endswith(f"{END}\n\nafter\n")
    assert "old" not in written
    assert "## Time per record" in written
    assert page.read_text() == written
    assert (page.parent / "figures" / "curve-sea.svg").exists()
