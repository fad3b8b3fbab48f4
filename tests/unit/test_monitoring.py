"""Rules and dashboards: valid PromQL about series that exist, and a runbook for every alert."""

from __future__ import annotations

import re
from typing import Any

import promql_parser
import pytest
import yaml

from pipeline.runtime.metric_table import COUNTERS
from tests.support.queries import ROOT, alerts, dashboards, expressions, grouped_by, selectors
from tests.support.scrape import declared

SERIES = declared("worker") | declared("evaluator")
TARGET = {"job", "instance"}
"""Labels that Prometheus adds."""
VALUES = {
    **{(each.name, each.label): set(each.outcomes) for each in COUNTERS},
    ("dtgol_scoring_errors_total", "forecast"): {"forecast", "naive"},
    ("dtgol_scoring_window_accuracy_ratio", "forecast"): {"forecast", "naive"},
    ("dtgol_scoring_accuracy", "forecast"): {"forecast", "naive"},
    ("dtgol_bound_used_ratio", "bound"): {"worker.queue_bytes_max"},
}
NAMES = {
    *("PartitionParked", "NotReady", "SnapshotFailed", "SnapshotTooOld", "FeaturesLagGrowing"),
    *("NoLabelsLearnt", "LabelsLate", "ForecastWorseThanNaive", "AccuracyFell", "DeadLetters"),
    "StateNearBound",
}


@pytest.mark.parametrize("expression", expressions())
def test_every_expression_is_promql_about_series_and_labels_that_exist(expression: str) -> None:
    asked = selectors(expression)
    assert asked
    for name, matchers in asked:
        assert name in SERIES
        for label, _, _ in matchers:
            assert label in SERIES[name] | TARGET
    everywhere = set.union(*(SERIES[name] for name, _ in asked))
    assert grouped_by(expression) <= everywhere | TARGET


@pytest.mark.parametrize("expression", expressions())
def test_every_value_that_is_asked_for_can_occur(expression: str) -> None:
    """A misspelt outcome matches nothing, and its alert never fires."""
    for name, matchers in selectors(expression):
        for label, _, value in matchers:
            if label not in ("stream", "topic"):
                assert set(value.split("|")) <= VALUES[name, label]


def test_what_is_no_promql_is_found() -> None:
    with pytest.raises(ValueError, match=r"unclosed|invalid|unexpected|syntax"):
        selectors("sum(rate(dtgol_fold_labels_total[5m])")


def test_the_alerts_that_should_be_there_are_there() -> None:
    assert {rule["alert"] for rule in alerts()} == {f"Dtgol{name}" for name in NAMES}


@pytest.mark.parametrize("rule", alerts(), ids=lambda rule: rule["alert"])
def test_an_alert_has_what_the_mixins_ask_for_and_a_section_in_the_runbook(
    rule: dict[str, Any],
) -> None:
    assert re.fullmatch(r"([A-Z][a-z]+)+", rule["alert"])
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    about = rule["annotations"]
    assert about["summary"].endswith(".")
    assert about["description"].endswith(".")
    page, _, anchor = about["runbook_url"].partition("#")
    headings = re.findall(r"^## (\w+)$", (ROOT / page).read_text(), re.MULTILINE)
    assert rule["alert"] in headings
    assert anchor == rule["alert"].lower()
    if "for" in rule:
        promql_parser.parse_duration(rule["for"])
    for label in re.findall(r"\$labels\.(\w+)", about["summary"] + about["description"]):
        assert label in TARGET | set.union(*(SERIES[each.name] for each in selectors(rule["expr"])))


def test_the_runbook_has_no_section_without_an_alert() -> None:
    text = (ROOT / "docs" / "runbook.md").read_text()
    assert set(re.findall(r"^## (\w+)$", text, re.MULTILINE)) == {
        rule["alert"] for rule in alerts()
    }


def test_dashboards_have_a_fixed_uid_and_any_data_source() -> None:
    for board in dashboards():
        assert board["uid"].startswith("dtgol-")
        assert "id" not in board
        variables = {each["name"]: each for each in board["templating"]["list"]}
        assert variables["datasource"]["type"] == "datasource"
        shown = [panel for panel in board["panels"] if panel["type"] != "row"]
        assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
        for panel in shown:
            assert panel["description"].endswith(".")
            for target in panel["targets"]:
                assert target["datasource"]["uid"] == "${datasource}"
        for variable in variables.values():
            for name in re.findall(r"label_values\((\w+), stream\)", str(variable)):
                assert "stream" in SERIES[name]


def test_compose_provisions_rules_and_dashboards() -> None:
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    mounted = {
        target: source
        for volume in compose["services"]["grafana"]["volumes"]
        for source, target in [volume.split(":")[:2]]
    }
    provider = ROOT / "deploy/grafana/provisioning/dashboards/dtgol.yml"
    (listed,) = yaml.safe_load(provider.read_text())["providers"]
    assert mounted[listed["options"]["path"]] == "./deploy/grafana/dashboards"
    prometheus = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())
    (pattern,) = prometheus["rule_files"]
    assert list((ROOT / "deploy/prometheus").glob(pattern))
