"""`dtgol backtest`: what it prints, writes and refuses."""

import csv
import json
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner, Result

from pipeline.cli import dtgol
from pipeline.runtime import warmup
from tests.support.commands import python
from tests.support.fake_learner import FakeLearner

JSON_KEYS = [
    *("records", "cer", "auc", "logloss", "naive_cer", "naive_auc"),
    *("majority_cer", "us_per_record", "refused", "labels", "labels_late"),
    *("threshold", "precision", "recall", "false_positives", "false_negatives", "cost"),
    *("naive_precision", "naive_recall", "naive_cost"),
    *("coverage_asked", "coverage", "coverage_0", "coverage_1", "undecided"),
]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts the fake in the place of the real learner for the command."""
    module = ModuleType("dtgol_core.learner")
    module.__dict__["Learner"] = FakeLearner
    monkeypatch.setitem(sys.modules, "dtgol_core.learner", module)
    monkeypatch.setattr(FakeLearner, "made", [])
    monkeypatch.setattr(warmup, "warm_up", lambda: FakeLearner())


@pytest.fixture
def stream(tmp_path: Path) -> Path:
    path = tmp_path / "stream.csv"
    rows = [(0.9, 1), (0.2, 0), (0.3, 1), (0.1, 0), (0.8, 1), (0.7, 0), (1 / 3, 0), (0.6, 1)]
    lines = [f"{p!r},{row % 3},{y}" for row, (p, y) in enumerate(rows)]
    path.write_text("p,other,label\n" + "\n".join(lines) + "\n")
    return path


def call(*arguments: object) -> Result:
    return CliRunner().invoke(dtgol, ["backtest", *map(str, arguments)])


@pytest.mark.usefixtures("fake")
def test_json_has_the_promised_keys_and_the_plain_scores(stream: Path) -> None:
    result = call(stream, "--delay", 2, "--json")
    assert result.exit_code == 0
    shown = json.loads(result.stdout)
    assert list(shown) == JSON_KEYS
    assert shown["records"] == 8
    assert shown["cer"] == 2 / 8
    assert shown["auc"] == 13 / 16
    assert shown["naive_cer"] == 0.5
    assert shown["naive_auc"] == 0.5
    assert shown["majority_cer"] == 0.5
    assert shown["us_per_record"] > 0
    assert (shown["precision"], shown["recall"], shown["cost"]) == (3 / 4, 3 / 4, 2)
    assert (shown["coverage"], shown["undecided"]) == (1.0, 1.0)  # the fake leaves both open


@pytest.mark.usefixtures("fake")
def test_hard_labels_and_costs_are_those_of_the_settings(stream: Path, tmp_path: Path) -> None:
    """Scores went by one half, whatever the threshold was."""
    config = tmp_path / "learner.toml"
    config.write_text("[decision]\ncost_fp = 1\ncost_fn = 3\n")
    result = call(stream, "--delay", 2, "--json", "--config", config)
    assert result.exit_code == 0, result.output
    shown = json.loads(result.stdout)
    assert shown["threshold"] == 0.25
    assert (shown["false_positives"], shown["false_negatives"]) == (2, 0)
    assert (shown["cost"], shown["naive_cost"]) == (2.0, 4.0)  # naive says 0.5: always 1
    assert shown["cer"] == 2 / 8
    text = call(stream, "--delay", 2, "--config", config).stdout
    for words in ("cost, fp 1, fn 3", "in the set, 0.9 asked", "above 0.25", "to a human"):
        assert words in text


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
    warm, zero, _, one = FakeLearner.made  # each run is preceded by a warm-up
    assert warm.calls == []
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
    shown = json.loads(result.stdout)
    assert (shown["records"], shown["refused"]) == (14, {"out-of-range": 1})
    assert (shown["labels"], shown["labels_late"]) == (
        {"queued": 12, "late": 1},
        {"delay.expire_steps": 1},
    )
    assert result.stderr.splitlines()[1:] == [
        "1 records were refused and are not in the scores: out-of-range 1",
        "1 labels were not learnt: late 1",
        "1 labels came after their instances had expired by delay.expire_steps: raise it, or set "
        "delay.expired to learn a default label then",
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


def test_the_real_learner_beats_a_coin_and_repeats_itself(tmp_path: Path) -> None:
    path = tmp_path / "stream.csv"
    rows = [(n * 7 % 20, "ab"[n % 2], int(n * 7 % 20 > 9)) for n in range(150)]
    path.write_text("size,ward,label\n" + "".join(f"{a},{b},{y}\n" for a, b, y in rows))
    written = []
    for name in ("first.csv", "second.csv"):
        out = tmp_path / name
        arguments = ("--delay", "10", "--missing", "0.2", "--json", "--predictions", str(out))
        run = python("-m", "pipeline", "backtest", str(path), *arguments)
        assert run.returncode == 0, run.stderr
        assert run.stderr == "number columns (1): size\ntext columns (1): ward\n"
        assert json.loads(run.stdout)["records"] == 150
        assert json.loads(run.stdout)["cer"] < 0.4
        written.append(out.read_bytes())
    assert written[0] == written[1]


@pytest.mark.data
def test_every_data_set_runs(data_dir: Path) -> None:
    files = sorted(data_dir.glob("*.csv"))
    assert files
    for file in files:
        result = call(file, "--delay", 50, "--missing", "pairs", "--limit", 200, "--json")
        assert result.exit_code == 0, f"{file.name}: {result.output}"
        assert json.loads(result.stdout)["records"] == 200


@pytest.mark.usefixtures("fake")
def test_kinds_mixed_columns_and_the_majority_are_shown(tmp_path: Path) -> None:
    path = tmp_path / "stream.csv"
    lines = [f"{row},0.{row % 9},B,{int(row % 4 == 0)}" for row in range(40)]
    lines[7] = "x,0.5,B,0"
    path.write_text("n,p,ward,label\n" + "\n".join(lines) + "\n")
    result = call(path)
    assert result.exit_code == 0
    assert "number columns (2): n, p\n" in result.stderr
    assert "text columns (1): ward\n" in result.stderr
    assert "mixed: n: 39 numbers, 1 text (such as 'x'); taken as number" in result.stderr
    assert "CER of the more frequent label" in result.stdout
    assert "0.2500" in result.stdout
    assert "CER: share of wrong answers" in result.stdout


@pytest.mark.usefixtures("fake")
def test_of_json_lines_no_kind_is_claimed_that_only_the_learner_decides(tmp_path: Path) -> None:
    """Seen: "taken as text", although values of JSON lines are passed on as they are."""
    path = tmp_path / "stream.jsonl"
    cells = ['"n/a"', "1", "2.5", '"x"', "true"]
    lines = [f'{{"n": {cell}, "p": 0.5, "e": null, "label": 1}}' for cell in cells]
    path.write_text("\n".join(lines) + "\n")
    result = call(path)
    assert result.exit_code == 0
    assert result.stderr.splitlines()[:3] == [
        "number columns (1): p",
        "empty columns (1): e",
        "mixed: n: 2 numbers, 1 text, 1 true/false (such as 'x'); passed on as they are: the "
        "learner goes by the type that most of the first cells have, and cells of another are "
        "missing",
    ]


@pytest.mark.usefixtures("fake")
def test_ids_of_the_file_are_those_of_the_predictions(tmp_path: Path) -> None:
    path, out = tmp_path / "stream.csv", tmp_path / "out.csv"
    path.write_text("who,p,label\na7,0.5,0\na8,0.6,1\n")
    assert call(path, "--id", "who", "--predictions", out).exit_code == 0
    with out.open(newline="") as file:
        assert [line["id"] for line in csv.DictReader(file)] == ["a7", "a8"]


@pytest.mark.usefixtures("fake")
def test_a_report_changes_no_score_and_is_one_file(stream: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.html"
    plain = json.loads(call(stream, "--delay", 2, "--json").stdout)
    reported = json.loads(call(stream, "--delay", 2, "--json", "--report", out).stdout)
    del plain["us_per_record"], reported["us_per_record"]
    assert plain == reported
    text = out.read_text()
    assert "{{" not in text
    assert not re.search(r"(?:src|href)=|url\(|@import", text)


@pytest.mark.usefixtures("fake")
def test_a_report_that_cannot_be_written_is_refused_before_the_run(stream: Path) -> None:
    assert "the report would overwrite" in call(stream, "--report", stream).output
    assert "cannot write" in call(stream, "--report", "/nowhere/out.html").output
    assert not FakeLearner.made
