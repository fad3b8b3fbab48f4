"""The PromQL of our rules and dashboards: every expression, and the series it asks for."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import promql_parser
import yaml

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy" / "prometheus" / "rules"
DASHBOARDS = ROOT / "deploy" / "grafana" / "dashboards"


class Selector(NamedTuple):
    """One series as a query asks for it: its name and its matchers as (label, operator, value)."""

    name: str
    matchers: list[tuple[str, Any, str]]


def alerts() -> list[dict[str, Any]]:
    """Every rule."""
    files = [yaml.safe_load(path.read_text()) for path in sorted(RULES.glob("*.yml"))]
    return [rule for file in files for group in file["groups"] for rule in group["rules"]]


def dashboards() -> list[dict[str, Any]]:
    """Every dashboard."""
    return [json.loads(path.read_text()) for path in sorted(DASHBOARDS.glob("*.json"))]


def expressions() -> list[str]:
    """Every expression, Grafana's own variables replaced by what they may be."""
    found = [rule["expr"] for rule in alerts()]
    for board in dashboards():
        for panel in board["panels"]:
            found += [target["expr"] for target in panel.get("targets", ())]
    return [each.replace("$__rate_interval", "5m").replace("$stream", ".*") for each in found]


def selectors(expression: str) -> list[Selector]:
    """The series of an expression; raises ValueError if it is no PromQL."""
    found: list[Selector] = []

    def visit(node: Any) -> None:
        if isinstance(node, promql_parser.MatrixSelector):
            node = node.vector_selector
        if isinstance(node, promql_parser.VectorSelector):
            matchers = [(each.name, each.op, each.value) for each in node.matchers.matchers]
            found.append(Selector(node.name or "", matchers))

    promql_parser.walk(promql_parser.parse(expression), visit)
    return found


def grouped_by(expression: str) -> set[str]:
    """The labels that aggregations and matchings name."""
    clauses = re.findall(r"\b(?:by|on|ignoring|group_left) ?\(([^)]*)\)", expression)
    return {label.strip() for clause in clauses for label in clause.split(",") if label.strip()}
