"""The report of a backtest: the numbers of the run, and nothing from outside as markup."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from dtgol_core.config import Config
from dtgol_core.learner import Learner
from pipeline.offline.backtest import Backtest, run_backtest
from pipeline.offline.files.records import Row
from pipeline.offline.report import ReportedLearner

RECORDS = 240


def rows(name: str = "tells") -> list[Row]:
    """One feature tells the label, another does not."""
    chance = np.random.default_rng(3)
    made = []
    for number in range(RECORDS):
        x = float(chance.normal())
        record: dict[str, Any] = {name: x, "noise": float(chance.normal())}
        made.append(Row(number, record, int(x > 0.3)))
    return made


def reported(given: list[Row], title: str = "t") -> tuple[Backtest, str]:
    learner = ReportedLearner(Learner(Config.read({"preset": "light"})), given)
    result = run_backtest(given, learner, 20)
    return result, learner.report(result, title, 20)


def data_of(page: str) -> dict[str, Any]:
    text = page.partition('id="report">')[2].partition("</script>")[0]
    found: dict[str, Any] = json.loads(text)
    return found


def test_it_shows_the_numbers_of_the_run() -> None:
    result, page = reported(rows())
    plain = run_backtest(rows(), Learner(Config.read({"preset": "light"})), 20)
    assert result.predictions == plain.predictions
    data = data_of(page)
    forecast, naive, majority = data["methods"]
    assert forecast["cer"] == plain.scores()[0].cer
    assert naive["log_loss"] == plain.scores()[1].log_loss
    assert majority["cer"] == plain.majority_cer
    sums = data["stream"]["predictions"]
    assert sum(sums["scored"]) == sum(sums["predicted"]) == RECORDS
    assert sum(sums["errors"]) / RECORDS == pytest.approx(forecast["cer"])
    assert sum(sums["ones"]) == sum(row.label or 0 for row in rows())
    assert data["labels"] == RECORDS
    assert data["sets"]["coverage"] == plain.set_scores().coverage
    (first, value), (second, less) = data["importance"]
    assert (first, second) == ("tells", "noise")
    assert value > less >= 0


def test_without_labels_there_is_a_report_too() -> None:
    given = [row._replace(label=None) for row in rows()]
    _, page = reported(given)
    data = data_of(page)
    assert data["methods"][0]["cer"] is None
    assert (data["labels"], data["sets"]["coverage"]) == (0, None)


def test_names_from_the_file_are_no_markup() -> None:
    name = "</script><img src=x onerror=alert(1)>"
    _, page = reported(rows(name), title=name)
    assert name not in page
    assert data_of(page)["importance"][0][0] == name
