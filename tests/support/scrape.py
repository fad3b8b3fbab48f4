"""What `/metrics` shows, as names and labels."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from pipeline.runtime.metric_table import METRICS

Series = dict[str, set[str]]
"""The labels of each series, by its name as Prometheus stores it."""


def scraped(text: str) -> Series:
    """Every series of ours in the text of a scrape."""
    found: Series = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.startswith("dtgol_") and not sample.name.endswith("_created"):
                found.setdefault(sample.name, set()).update(sample.labels)
    return found


def declared(role: str) -> Series:
    """Every series that a worker or an evaluator should show."""
    found: Series = {}
    for name, each in METRICS.items():
        if role not in each.shown_by:
            continue
        if each.kind == "histogram":
            found |= {f"{name}_{part}": set(each.labels) for part in ("sum", "count")}
            found[f"{name}_bucket"] = {*each.labels, "le"}
        else:
            found[name] = set(each.labels)
    return found
