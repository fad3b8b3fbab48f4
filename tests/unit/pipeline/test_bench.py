"""`dtgol bench`: what is run, what is kept, what the numbers mean, and what is written."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from pipeline.bench import output, paper
from pipeline.bench.figures import critical_difference, curves
from pipeline.bench.jobs import Job, Protocol, code_digest, plan
from pipeline.bench.methods import MethodError, all_methods, choose
from pipeline.bench.peers import LastLabel
from pipeline.bench.run import Store, _delays, run, run_all, whole_seeds
from pipeline.bench.scores import BlindZone, Outcome, blind_zone, moving_accuracy
from pipeline.bench.sources import CHOSEN_ON, REPORTED_ON, Source, files, generated, rows_of
from pipeline.bench.stats import nemenyi, rank, signed_rank
from pipeline.bench.tally import Tally, spread
from pipeline.cli.bench import _protocol, bench
from pipeline.files.records import RecordsError

FEW = "dt-gol,fobos,naive,no-softlabels,replay,last-label"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    generator = np.random.default_rng(1)
    data = tmp_path / "data"
    data.mkdir()
    for name in ("beta", "Alpha", "magic04"):
        lines = ["a,b,c,label"]
        for _ in range(150):
            y = int(generator.integers(2))
            a, b, c = generator.normal(2.0 * y - 1.0, 1.0, size=3).round(3)
            lines.append(f"{a},{b},{c},{y}")
        (data / f"{name}.csv").write_text("\n".join(lines) + "\n")
    return data


def call(*arguments: object) -> Result:
    return CliRunner().invoke(bench, [str(each) for each in arguments], catch_exceptions=False)


def outcome(cer: float, us: float = 100.0, blind: BlindZone | None = None) -> Outcome:
    return Outcome(100, 0, cer, 1.0 - cer, 0.5, cer, us, ((50, 0.8), (100, 0.9)), blind)


def job(stream: str, method: str, seed: int = 0, delay: int = 10) -> Job:
    return Job(Source(stream, 100), "none", delay, seed, method, f"{stream}{method}{seed}{delay}")


def small(seeds: int = 1) -> Protocol:
    return Protocol((), (Source("sea", 200, change=100),), 20, seeds)


def test_the_full_protocol_has_every_cell(folder: Path) -> None:
    protocol = Protocol(tuple(files(folder, large=False)), tuple(generated(10_000)), 500, seeds=5)
    cells = list(protocol.cells())
    assert len(cells) == 2 * 2 * 3 + 5
    jobs = plan(protocol, choose(["dt-gol", "naive"]))
    assert len(jobs) == len(cells) * 5 * 2
    assert len({each.key for each in jobs}) == len(jobs)
    assert [each.seed for each in jobs] == sorted(each.seed for each in jobs)


def test_the_larger_sets_come_only_when_asked_for(folder: Path) -> None:
    assert [source.name for source in files(folder, large=False)] == ["Alpha", "beta"]
    assert len(files(folder, large=True)) == 3
    assert [source.rows for source in files(folder, large=False)] == [150, 150]


def test_a_file_keeps_its_order_unless_it_is_known_to_have_none(folder: Path) -> None:
    """Somebody's own rows are in the order of time; the paper's magic04 is sorted by class."""
    for source in files(folder, large=True):
        numbers = [row.number for row in rows_of(source, "none", 1)]
        assert (numbers == list(range(150))) == (source.name != "magic04")
        assert sorted(numbers) == list(range(150))
    kept, shuffled = files(folder, large=False)[0], files(folder, large=False, shuffle=True)[0]
    numbers = [row.number for row in rows_of(shuffled, "none", 1)]
    assert numbers != list(range(150))
    assert numbers != [row.number for row in rows_of(shuffled, "none", 2)]
    keys = {
        plan(Protocol((each,), (), 10, 1), choose(["naive"]))[0].key for each in (kept, shuffled)
    }
    assert len(keys) == 2


def test_of_the_papers_sets_two_have_an_order_in_time(tmp_path: Path) -> None:
    for name in paper.CER:
        (tmp_path / f"{name}.csv").write_text("a,label\n1,0\n")
    in_order = {source.name for source in files(tmp_path, large=True) if not source.shuffled}
    assert in_order - {"sea", "agrawal"} == {"LUdata", "chesswaka"}


def test_the_fifteen_streams_are_halved_in_alphabetical_order_whatever_the_case() -> None:
    order = sorted(CHOSEN_ON | REPORTED_ON, key=str.lower)
    assert len(order) == 15
    assert set(order) == set(paper.CER) | {source.name for source in generated(100)}
    assert frozenset(order[0::2]) == CHOSEN_ON


def test_halves_are_named_only_for_the_streams_that_were_halved(tmp_path: Path) -> None:
    fifteen = sorted(CHOSEN_ON | REPORTED_ON)
    for streams, halved in ((fifteen, True), ([*fifteen, "magic04"], False), (["a", "b"], False)):
        runs = {job(s, name): outcome(0.1) for s in streams for name in ("dt-gol", "fobos")}
        tally = output.write(tmp_path, runs, choose(["dt-gol", "fobos"]), "dtgol bench")
        assert tally.halved == halved
        report = (tmp_path / "benchmark.md").read_text()
        assert ("chosen on" in report) == ("sea (odd)" in report) == halved
        with (tmp_path / "summary.csv").open() as file:
            halves = {row["stream"]: row["half"] for row in csv.DictReader(file)}
        assert set(halves.values()) == ({"odd", "even"} if halved else {""})
        assert not halved or (halves["sea"], halves["wbc"]) == ("odd", "even")


def test_a_folder_without_csv_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordsError, match="no CSV files"):
        files(tmp_path, large=False)


def test_a_key_names_what_decides_a_result() -> None:
    (method,) = choose(["dt-gol"])
    source = Source("sea", 100, change=50)
    base = plan(Protocol((), (source,), 10, 1), [method])[0].key
    assert plan(Protocol((), (source,), 10, 1), [method])[0].key == base
    other_delay = plan(Protocol((), (source,), 20, 1), [method])[0].key
    other_rows = plan(Protocol((), (replace(source, rows=99),), 10, 1), [method])[0].key
    other_settings = plan(Protocol((), (source,), 10, 1), [replace(method, settings="x")])[0].key
    moved = plan(Protocol((), (replace(source, path="/elsewhere"),), 10, 1), [method])[0].key
    assert len({base, other_delay, other_rows, other_settings}) == 4
    assert moved == base


def test_the_code_of_a_method_counts_with_all_that_it_imports() -> None:
    assert code_digest("dtgol_core.baselines.lach") != code_digest("dtgol_core.baselines.naive")
    assert code_digest("dtgol_core.learner") != code_digest("dtgol_core.baselines.naive")


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
    with pytest.raises(MethodError, match="there is no method 'magic'"):
        choose(["magic"])


def test_without_river_it_is_said_that_its_learners_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.bench.methods.find_spec", lambda name: None)
    monkeypatch.setattr("pipeline.cli.bench._protocol", lambda *_: small())
    assert not [name for name in all_methods() if name.startswith("river")]
    asked = call("--quick", "--methods", "naive,river-lr", "--out", tmp_path)
    assert asked.exit_code == 2
    assert asked.stderr == (
        'Error: River is not installed: there is no river-lr (pip install -e ".[bench]")\n'
    )
    everything = call("--quick", "--out", tmp_path, "--no-run")
    first = everything.stderr.splitlines()[0]
    assert first == (
        'River is not installed: its learners are left out (pip install -e ".[bench]")'
    )
    few = call("--quick", "--methods", "naive", "--out", tmp_path, "--processes", 1)
    assert "River" not in few.stderr


@pytest.mark.parametrize("maker", ["logistic_regression", "adaptive_tree", "adaptive_forest"])
def test_a_river_peer_changes_only_when_a_label_comes(maker: str) -> None:
    river_peers = pytest.importorskip("pipeline.bench.river_peers")
    make = getattr(river_peers, maker)
    peer = make() if maker == "logistic_regression" else make(1)

    def says() -> dict[int, float]:
        return dict(peer._model.predict_proba_one({"x": 1.0}))

    for number in range(20):
        peer.observe(str(number), {"x": float(number % 2), "y": None})
    untaught = says()
    for number in range(20, 40):
        peer.observe(str(number), {"x": float(number % 2)})
    assert says() == untaught
    taught: list[tuple[dict[str, float], int]] = []
    learn_one = peer._model.learn_one

    def spy(x: dict[str, float], y: int) -> None:
        taught.append((x, y))
        learn_one(x, y)

    peer._model.learn_one = spy
    kept = dict(peer._waiting["1"])
    peer.learn("1", 1)
    assert taught == [(kept, 1)]
    assert says() != untaught
    assert says()[1] > 0.5


def test_time_per_record_is_the_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    (each,) = plan(small(), choose(["last-label"]))
    run(each)
    clock = iter([10.0, 10.2])
    monkeypatch.setattr("pipeline.bench.run.process_time", lambda: next(clock))
    assert run(each).us_per_record == pytest.approx(1000.0)


@pytest.mark.parametrize("name", all_methods())
def test_every_method_runs_and_gives_the_same_again(name: str) -> None:
    (method,) = choose([name])
    protocol = Protocol((), (Source("moving", 120, change=60),), 10, 1)
    (each,) = plan(protocol, [method])
    once, again = run(each), run(each)
    assert replace(once, us_per_record=None) == replace(again, us_per_record=None)
    assert once.rows == 120
    assert once.refused == 0
    assert once.blind is not None


def test_an_ablation_is_not_the_whole_and_not_another() -> None:
    names = [name for name, method in all_methods().items() if method.group == "ablation"]
    names.remove("no-marginals")  # the same where nothing is missing, as here
    jobs = plan(small(), choose(["dt-gol", "naive", *names]))
    said = {each.method: run(each).log_loss for each in jobs}
    assert len(set(said.values())) == len(said)


def test_random_delays_are_the_same_for_every_method_and_have_their_own_key() -> None:
    fixed = plan(small(), choose(["naive", "fobos"]))
    drawn = plan(replace(small(), late="geometric"), choose(["naive", "fobos"]))
    assert not {each.key for each in fixed} & {each.key for each in drawn}
    assert _delays(fixed[0], 200) == 20
    delays = _delays(drawn[0], 200)
    assert delays == _delays(drawn[1], 200)
    assert isinstance(delays, list)
    assert len(set(delays)) > 20
    assert run(drawn[0]).cer != run(fixed[0]).cer


def test_the_last_label_is_the_last_that_has_arrived() -> None:
    peer = LastLabel()
    assert peer.observe("a", {"x": 1.0}).p == 0.5
    peer.observe("b", {"x": 1.0})
    peer.learn("a", 1)
    assert peer.observe("c", {"x": None}).p == 1.0


def test_masks_drop_the_same_cells_for_every_method() -> None:
    source = Source("hyperplane", 50, change=25)
    once, again = rows_of(source, "pairs", 3), rows_of.__wrapped__(source, "pairs", 3)
    assert once == again
    assert all(len(row.record) == 5 for row in once)
    assert all(len(row.record) == 10 for row in rows_of(source, "none", 3))


def test_a_run_that_was_stopped_goes_on_where_it_was(tmp_path: Path) -> None:
    jobs = plan(small(seeds=2), choose(["naive", "fobos"]))
    store = Store(tmp_path)
    first = run_all(jobs[:2], store, processes=1)
    told: list[int] = []
    everything = run_all(jobs, store, processes=1, progress=told.append)
    assert told == [200, 400]
    assert {each: everything[each] for each in jobs[:2]} == first
    assert run_all(jobs, store, processes=1) == everything


def test_tables_can_be_written_of_what_is_there(tmp_path: Path) -> None:
    """Two seeds of one method, half a seed of another: the half is left out and it is said."""
    jobs = plan(small(seeds=2), choose(["naive", "fobos"]))
    whole = [each for each in jobs if each.method == "naive" or each.seed == 0]
    run_all(whole, Store(tmp_path / "runs"), processes=1)
    assert set(whole_seeds(jobs, Store(tmp_path / "runs"))) == set(whole)
    two = Protocol((), (Source("sea", 200, change=100), Source("rbf", 200, change=100)), 20, 1)
    partly = plan(two, choose(["naive"]))
    assert not whole_seeds(partly, Store(tmp_path / "runs"))
    arguments = ("--quick", "--out", tmp_path, "--methods", "naive,fobos", "--no-run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipeline.cli.bench._protocol", lambda *_: small(seeds=2))
        assert call(*arguments).exit_code == 0
        assert "2 seeds (fewer: FOBOS 1)" in (tmp_path / "benchmark.md").read_text()
        nothing = call("--quick", "--out", tmp_path / "empty", "--methods", "naive", "--no-run")
    assert nothing.exit_code == 2
    assert "there is no whole seed of any method" in nothing.stderr


def test_processes_give_the_same_numbers(tmp_path: Path) -> None:
    jobs = plan(small(), choose(["naive", "fobos"]))
    alone = run_all(jobs, Store(tmp_path / "a"), processes=1)
    together = run_all(jobs, Store(tmp_path / "b"), processes=2)
    assert [replace(each, us_per_record=None) for each in alone.values()] == [
        replace(each, us_per_record=None) for each in together.values()
    ]


def test_an_outcome_survives_its_trip_to_disk(tmp_path: Path) -> None:
    store = Store(tmp_path)
    kept = outcome(0.1, blind=BlindZone(0.5, 0.1, None))
    store.keep(job("sea", "naive"), kept)
    assert store.find(job("sea", "naive")) == kept
    assert store.find(job("sea", "fobos")) is None


def test_blind_zone_of_a_learner_that_fails_and_comes_back() -> None:
    right = np.ones(1000)
    right[500:600] = 0.0
    zone = blind_zone(right, change=500, delay=200)
    assert zone == BlindZone(accuracy=0.5, drop=1.0, recovery=200)
    never = right.copy()
    never[500:] = 0.0
    assert blind_zone(never, change=500, delay=200).recovery is None


def test_moving_accuracy_is_of_the_last_hundred() -> None:
    right = np.concatenate([np.ones(100), np.zeros(100)])
    moving = moving_accuracy(right)
    assert moving[[0, 99, 149, 199]].tolist() == [1.0, 1.0, 0.5, 0.0]


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


def test_the_tally_averages_delays_within_a_seed_and_then_over_seeds() -> None:
    tally = Tally(
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
    assert Tally(runs).wins("dt-gol", "fobos", "cer") == (1, 1)
    assert Tally(runs).wins("dt-gol", "fobos", "auc") == (1, 1)


def test_wilcoxon_leaves_out_what_is_equal_and_knows_no_direction() -> None:
    gaps = [0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.0, 1e-9]
    # All six of one sign: 2 of the 2⁶ ways are as far out.
    assert signed_rank(gaps) == signed_rank([-gap for gap in gaps]) == pytest.approx(2 / 64)
    assert signed_rank([0.0, 0.0]) == 1.0
    runs = {}
    for stream, gap in enumerate(gaps):
        runs[job(f"s{stream}", "dt-gol")] = outcome(0.1)
        runs[job(f"s{stream}", "fobos")] = outcome(0.1 + gap)
    assert Tally(runs).p_value("dt-gol", "fobos", "cer") == pytest.approx(2 / 64)


def test_cer_from_step_l_plus_1_has_its_own_ranks(tmp_path: Path) -> None:
    runs = {}
    for stream in "abc":
        runs[job(stream, "dt-gol")] = replace(outcome(0.1), late_cer=0.3)
        runs[job(stream, "fobos")] = replace(outcome(0.2), late_cer=0.2)
    output.write(tmp_path, runs, choose(["dt-gol", "fobos"]), "dtgol bench")
    report = (tmp_path / "benchmark.md").read_text().splitlines()
    assert "| mean rank | 1.00 | 2.00 |" in report
    assert "| mean rank from step L + 1 on | 2.00 | 1.00 |" in report
    assert "| DT-GOL wins–losses |  | 3–0 |" in report
    assert "| Wilcoxon p |  | 0.25 |" in report


def test_reconstructed_methods_are_marked_wherever_they_stand(tmp_path: Path) -> None:
    two = Protocol((), (Source("sea", 200, change=100), Source("rbf", 200, change=100)), 20, 1)
    arguments = ("--quick", "--out", tmp_path, "--methods", "fobos,lach", "--processes", 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipeline.cli.bench._protocol", lambda *_: two)
        said, as_json = call(*arguments), call(*arguments, "--json")
    assert "LACH (r)" in said.stdout
    assert "(r): reconstructed" in said.stdout
    assert json.loads(as_json.stdout)["reconstructed"] == ["lach"]
    for name in ("benchmark.md", "ranks-cer.svg", "ranks-auc.svg", "curve-sea.svg"):
        text = (tmp_path / name).read_text()
        assert "LACH (r)" in text, name
        assert text.count("LACH") == text.count("LACH (r)"), name
        assert "FOBOS (r)" not in text, name
    for name in ("runs.csv", "summary.csv"):
        with (tmp_path / name).open() as file:
            marks = {row["method"]: row["reconstructed"] for row in csv.DictReader(file)}
        assert marks == {"fobos": "False", "lach": "True"}


def test_figures_are_whole_svg() -> None:
    drawn = curves("a & b", [("DT-GOL", [(1.0, 0.5), (2.0, 0.9)])], shaded=(1.0, 1.5))
    ranking = rank({"a": [0.1, 0.2], "b": [0.2, 0.3], "c": [0.3, 0.1]}, smaller_is_better=True)
    for figure in (drawn, critical_difference("CER", ranking, {"a": "A"})):
        assert figure.startswith("<svg")
        assert figure.endswith("</svg>\n")
    assert "a &amp; b" in drawn


def test_the_command_writes_tables_figures_and_runs(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    short = Protocol(
        tuple(files(folder, large=False)), (Source("sea", 300, change=150),), 50, 2, (5,)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipeline.cli.bench._protocol", lambda *_: short)
        result = call("--data", folder, "--out", out, "--methods", FEW, "--processes", 1)
    assert result.exit_code == 0
    assert "mean rank" in result.stdout
    report = (out / "benchmark.md").read_text()
    assert "In the order of the file: Alpha, beta." in report
    assert "Shuffled by seed" not in report
    for heading in ("seven methods", "controls", "Ablations", "peers", "mask and delay",
                    "Blind zone", "Time per record", "the paper's own"):  # fmt: skip
        assert heading in report, heading
    assert {path.name for path in out.glob("*.svg")} == {
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
        patch.setattr("pipeline.cli.bench._protocol", lambda *_: small())
        result = call("--quick", "--out", tmp_path, "--methods", FEW, "--processes", 1, "--json")
    said = json.loads(result.stdout)
    assert set(said) == {"streams", "mean_rank", "us_per_record", "reconstructed"}
    assert 0.0 < said["streams"]["sea"]["dt-gol"]["cer"] < 0.5


def test_bad_input_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DTGOL_DATA", raising=False)
    unknown = call("--quick", "--methods", "magic", "--out", tmp_path)
    nowhere = call("--out", tmp_path)
    empty = call("--data", tmp_path, "--out", tmp_path)
    for result in (unknown, nowhere, empty):
        assert result.exit_code == 2
        assert result.stderr.startswith("Error: ")
        assert result.stderr.count("\n") == 1


def test_quick_needs_no_files_and_is_short() -> None:
    quick = _protocol(True, None, False, None, False)
    assert quick.files == ()
    assert sum(source.rows for source, _, _ in quick.cells()) * quick.seeds <= 20_000
