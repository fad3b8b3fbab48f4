"""The backtest: when labels are given, what is scored, what the command prints and refuses."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import click
import pytest
from click.testing import CliRunner, Result

from dtgol_core.config import Config
from dtgol_core.types import Forecast, LabelOutcome, LabelReceipt, Record, Rejection
from pipeline.backtest import run_backtest
from pipeline.cli import COMMANDS, dtgol
from pipeline.cli.progress import progress
from pipeline.environment import THREAD_VARIABLES, prepare
from pipeline.files.records import Row

JSON_KEYS = ["records", "cer", "auc", "logloss", "naive_cer", "naive_auc", "us_per_record"]


class FakeLearner:
    """Says the feature ``p`` of a record, refuses records with ``bad``, notes every call."""

    made: "list[FakeLearner]" = []  # noqa: RUF012 - emptied by the fixture

    def __init__(self, config: Config | None = None) -> None:
        self.config = config
        self.calls: list[tuple[str, str]] = []
        self.step = 0
        FakeLearner.made.append(self)

    def observe(
        self, id: str, x: Record, event_time_ms: int | None = None, why: int = 0
    ) -> Forecast | Rejection:
        self.calls.append(("observe", id))
        if x.get("bad"):
            return Rejection("out-of-range", "bad is out of range")
        self.step += 1
        p = float(x.get("p") or 0.5)
        return Forecast(
            step=self.step,
            p=p,
            label=int(p > 0.5),
            naive=0.5,
            latent_weight=0.5,
            latent_persistent=p,
            latent_transient=p,
            original_persistent=p,
            original_transient=p,
            labels_learnt=0,
            unverified=0,
            observed_share=1.0,
            uncertainty=0.0,
        )

    def learn(self, id: str, y: int, event_time_ms: int | None = None) -> LabelReceipt:
        self.calls.append((f"learn {y}", id))
        return LabelReceipt(LabelOutcome.LATE if id == "13" else LabelOutcome.QUEUED)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts the fake in the place of the real learner for the command."""
    module = ModuleType("dtgol_core.learner")
    module.__dict__["Learner"] = FakeLearner
    monkeypatch.setitem(sys.modules, "dtgol_core.learner", module)
    monkeypatch.setattr(FakeLearner, "made", [])


@pytest.fixture
def stream(tmp_path: Path) -> Path:
    path = tmp_path / "stream.csv"
    rows = [(0.9, 1), (0.2, 0), (0.3, 1), (0.1, 0), (0.8, 1), (0.7, 0), (1 / 3, 0), (0.6, 1)]
    lines = [f"{p!r},{row % 3},{y}" for row, (p, y) in enumerate(rows)]
    path.write_text("p,other,label\n" + "\n".join(lines) + "\n")
    return path


def call(*arguments: object) -> Result:
    return CliRunner().invoke(dtgol, ["backtest", *map(str, arguments)])


def test_the_label_of_step_t_minus_l_is_given_before_t_is_observed() -> None:
    learner = FakeLearner()
    rows = [Row(number, {"p": 0.9}, number % 2) for number in (4, 2, 7, 5)]
    result = run_backtest(rows, learner, delay_steps=2)
    assert learner.calls == [
        ("observe", "4"),
        ("observe", "2"),
        ("learn 0", "4"),
        ("observe", "7"),
        ("learn 0", "2"),
        ("observe", "5"),
    ]
    assert [(said.step, said.row, said.label) for said in result.predictions] == [
        (1, 4, 0),
        (2, 2, 0),
        (3, 7, 1),
        (4, 5, 1),
    ]
    assert result.labels == {"queued": 2}


def test_labels_may_overtake_each_other() -> None:
    learner = FakeLearner()
    rows = [Row(number, {"p": 0.9}, 1) for number in range(4)]
    run_backtest(rows, learner, delay_steps=[3, 1, 1, 9])
    assert learner.calls == [
        ("observe", "0"),
        ("observe", "1"),
        ("learn 1", "1"),
        ("observe", "2"),
        ("learn 1", "0"),
        ("learn 1", "2"),
        ("observe", "3"),
    ]


def test_refused_records_take_no_step_and_are_not_scored() -> None:
    learner = FakeLearner()
    rows = [Row(0, {"p": 0.9}, 1), Row(1, {"bad": True}, 0), Row(2, {"p": 0.9}, 1)]
    result = run_backtest(rows, learner, delay_steps=1)
    assert result.rejected == {"out-of-range": 1}
    assert [said.row for said in result.predictions] == [0, 2]
    assert [said.step for said in result.predictions] == [1, 2]
    assert learner.calls.count(("learn 1", "0")) == 1
    assert ("learn 0", "1") not in learner.calls
    assert result.scores()[0].cer == 0


def test_a_row_without_label_is_predicted_but_neither_learnt_nor_scored() -> None:
    learner = FakeLearner()
    rows = [Row(0, {"p": 0.1}, None), Row(1, {"p": 0.9}, 1), Row(2, {"p": 0.8}, 1)]
    result = run_backtest(rows, learner, delay_steps=1)
    assert len(result.predictions) == 3
    assert result.labels == {"queued": 1}
    forecast, _ = result.scores()
    assert forecast.cer == 0
    assert forecast.auc is None


def test_scores_can_start_after_the_first_labels() -> None:
    rows = [Row(0, {"p": 0.1}, 1), Row(1, {"p": 0.9}, 1), Row(2, {"p": 0.1}, 0)]
    result = run_backtest(rows, FakeLearner(), delay_steps=1)
    assert result.scores()[0].cer == pytest.approx(1 / 3)
    assert result.scores(first_step=2)[0].cer == 0
    assert result.scores(first_step=9)[0].cer is None


def test_a_label_cannot_come_before_its_prediction() -> None:
    with pytest.raises(ValueError, match="delay_steps must be >= 1"):
        run_backtest([], FakeLearner(), delay_steps=0)
    with pytest.raises(ValueError, match="delay_steps must be >= 1"):
        run_backtest([Row(0, {}, 1), Row(1, {}, 1)], FakeLearner(), delay_steps=[1, 0])
    assert run_backtest([], FakeLearner(), delay_steps=1).us_per_record is None


def test_progress_is_told_every_few_rows_and_at_the_end() -> None:
    told: list[int] = []
    run_backtest([Row(n, {}, 0) for n in range(70)], FakeLearner(), 5, told.append)
    assert told == [0, 32, 64, 70]


@pytest.mark.usefixtures("fake")
def test_json_has_the_promised_keys_and_the_plain_scores(stream: Path) -> None:
    result = call(stream, "--delay", 2, "--json")
    assert result.exit_code == 0
    said = json.loads(result.stdout)
    assert list(said) == JSON_KEYS
    assert said["records"] == 8
    assert said["cer"] == 2 / 8
    assert said["auc"] == 13 / 16
    assert said["naive_cer"] == 0.5
    assert said["naive_auc"] == 0.5
    assert said["us_per_record"] > 0


@pytest.mark.usefixtures("fake")
def test_text_names_both_forecasts_speed_and_memory(stream: Path) -> None:
    result = call(stream, "--delay", 3)
    assert result.exit_code == 0
    for words in ("forecast", "naive", "CER from step 4", "AUC", "log loss", "µs each", "MB"):
        assert words in result.stdout


@pytest.mark.usefixtures("fake")
def test_delay_zero_is_delay_one(stream: Path) -> None:
    assert call(stream, "--delay", 0).exit_code == 0
    assert call(stream, "--delay", 1).exit_code == 0
    zero, one = FakeLearner.made[1], FakeLearner.made[3]  # each run is preceded by a warm-up
    assert zero.calls == one.calls
    assert zero.calls[:3] == [("observe", "0"), ("learn 1", "0"), ("observe", "1")]


@pytest.mark.usefixtures("fake")
def test_predictions_are_written_and_round_trip(stream: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    assert call(stream, "--predictions", out, "--shuffle", "--seed", 3).exit_code == 0
    with out.open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert list(lines[0]) == ["step", "id", "p", "naive", "label"]
    assert [int(line["step"]) for line in lines] == list(range(1, 9))
    assert sorted(int(line["id"]) for line in lines) == list(range(8))
    assert [line["id"] for line in lines] != sorted(line["id"] for line in lines)
    third = next(line for line in lines if line["id"] == "6")
    assert float(third["p"]) == 1 / 3
    assert third["label"] == "0"


@pytest.mark.usefixtures("fake")
def test_options_reach_the_learner(stream: Path, tmp_path: Path) -> None:
    config = tmp_path / "learner.toml"
    config.write_text("[copula]\nwindow = 50\n")
    arguments = (stream, "--config", config, "--ablate", "risk, softlabels", "--limit", 3)
    assert call(*arguments, "--missing", 1).exit_code == 0
    learner = FakeLearner.made[-1]
    assert learner.config is not None
    assert learner.config.copula.window == 50
    assert learner.config.ablate.risk
    assert learner.config.ablate.softlabels
    assert not learner.config.ablate.copula
    assert [who for verb, who in learner.calls if verb == "observe"] == ["0", "1", "2"]


@pytest.mark.usefixtures("fake")
def test_what_is_left_out_is_reported_on_stderr(tmp_path: Path) -> None:
    path = tmp_path / "stream.csv"
    rows = ["1,0"] + ["0,1"] * 14
    path.write_text("bad,label\n" + "\n".join(rows) + "\n")
    result = call(path, "--json")
    assert json.loads(result.stdout)["records"] == 14
    assert result.stderr.splitlines() == [
        "1 records were refused and are not in the scores: out-of-range 1",
        "1 labels were not learnt: late 1",
    ]


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize(
    ("content", "arguments", "sentence"),
    [
        (None, [], "there is no file"),
        ("", [], "is empty"),
        ("a,label\n", [], "has a header but no records"),
        ("a,b\n1,0\n", [], "has no column 'label' for the label; there are: a, b"),
        ("a,label\n1,0\n", ["--label", "y"], "has no column 'y' for the label"),
        ("a,label\n1,3\n", [], "the label must be 0 or 1: column 'label' in row 0 (line 2)"),
        ("a,label\n1\n", [], "has 1 cells, the header 2"),
        ("a,label\n1,0\n", ["--missing", "some"], "missing must be none, pairs or a share"),
        ("a,label\n1,0\n", ["--ablate", "magic"], "'magic' cannot be ablated; there are: copula"),
        ("a,label\n1,0\n", ["--config", "nowhere.toml"], "there is no settings file"),
        ("a,label\n1,0\n", ["--config", "stream.csv"], "is not TOML"),
        ("a,label\n1,0\n", ["--predictions", "no/such/out.csv"], "cannot write"),
        ("a,label\n1,0\n", ["--predictions", "stream.csv"], "would overwrite"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_two(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    content: str | None,
    arguments: list[str],
    sentence: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    if content is not None:
        Path("stream.csv").write_text(content)
    result = call("stream.csv", *arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("Error: ")
    assert sentence in result.stderr
    assert result.stderr.count("\n") == 1
    if content is not None:
        assert Path("stream.csv").read_text() == content


def test_a_bad_setting_is_one_sentence(stream: Path, tmp_path: Path) -> None:
    config = tmp_path / "learner.toml"
    config.write_text("[copula]\nwindow = 1\n")
    result = call(stream, "--config", config)
    assert result.exit_code == 2
    assert result.stderr == "Error: copula.window must be between 2 and 100000, not 1\n"


def test_elsewhere_than_on_a_terminal_a_line_comes_every_five_seconds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = iter([0.0, 1.0, 5.5, 6.0, 10.6])
    monkeypatch.setattr("pipeline.cli.progress.monotonic", lambda: next(clock))
    with progress(100, "records") as update:
        for done in (10, 50, 60, 90):
            update(done)
    assert capsys.readouterr().err == (
        "50 of 100 records, 6 s, about 6 s left\n90 of 100 records, 11 s, about 1 s left\n"
    )


def test_on_a_terminal_there_is_a_bar(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with progress(100, "records") as update:
        for done in range(101):
            update(done)
    assert "100/100" in capsys.readouterr().err


def test_every_command_of_the_table_exists() -> None:
    context = click.Context(dtgol)
    for name in COMMANDS:
        assert isinstance(dtgol.get_command(context, name), click.Command)


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).parents[3]
    return subprocess.run(
        [sys.executable, *arguments], cwd=root, capture_output=True, text=True, timeout=300
    )


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; from pipeline.cli import dtgol; dtgol(['--help'], standalone_mode=False);"
        "heavy = {'numpy', 'scipy', 'numba', 'faust', 'rich', 'dtgol_core'} & set(sys.modules);"
        "sys.exit(repr(heavy) if heavy else 0)"
    )
    run = python("-c", code)
    assert run.returncode == 0, run.stderr
    assert "backtest" in run.stdout


def test_the_module_is_the_command() -> None:
    run = python("-m", "pipeline", "backtest", "--help")
    assert run.returncode == 0
    assert run.stdout.startswith("Usage: dtgol backtest ")


def test_the_entry_point_pins_threads_and_names_the_kernel_cache() -> None:
    environ = {"OMP_NUM_THREADS": "8", "XDG_CACHE_HOME": "/cache"}
    prepare(environ)
    assert all(environ[name] == "1" for name in THREAD_VARIABLES)
    assert environ["NUMBA_CACHE_DIR"] == "/cache/dtgol/kernels"
    for given, expected in (
        ({"DTGOL_CACHE_DIR": "/own"}, "/own/kernels"),
        ({"NUMBA_CACHE_DIR": "/mine"}, "/mine"),
        ({}, str(Path.home() / ".cache/dtgol/kernels")),
    ):
        prepare(given)
        assert given["NUMBA_CACHE_DIR"] == expected
    assert os.environ["OPENBLAS_NUM_THREADS"] == "1"


def test_the_real_learner_beats_a_coin_and_repeats_itself(tmp_path: Path) -> None:
    path = tmp_path / "stream.csv"
    rows = [(n * 7 % 20, "ab"[n % 2], int(n * 7 % 20 > 9)) for n in range(150)]
    path.write_text("size,ward,label\n" + "".join(f"{a},{b},{y}\n" for a, b, y in rows))
    said = []
    for name in ("first.csv", "second.csv"):
        out = tmp_path / name
        arguments = ("--delay", "10", "--missing", "0.2", "--json", "--predictions", str(out))
        run = python("-m", "pipeline", "backtest", str(path), *arguments)
        assert run.returncode == 0, run.stderr
        assert run.stderr == ""
        assert json.loads(run.stdout)["records"] == 150
        assert json.loads(run.stdout)["cer"] < 0.4
        said.append(out.read_bytes())
    assert said[0] == said[1]


@pytest.mark.data
def test_every_data_set_runs(data_dir: Path) -> None:
    files = sorted(data_dir.glob("*.csv"))
    assert files
    for file in files:
        result = call(file, "--delay", 50, "--missing", "pairs", "--limit", 200, "--json")
        assert result.exit_code == 0, f"{file.name}: {result.output}"
        assert json.loads(result.stdout)["records"] == 200
