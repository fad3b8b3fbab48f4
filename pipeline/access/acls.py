"""What each role may do on the cluster, and nothing more: the one list.

docs/security.md shows it (`python -m pipeline.access.acls`), the tests grant exactly this, and
worker and evaluator compare it at their start with what their user has, so that a missing right is
one sentence then and not a failure in the middle of the night. Kafka implies Describe by Read,
Write and Alter, and DescribeConfigs by AlterConfigs; an idempotent producer needs nothing beside
Write (before Kafka 2.8: IdempotentWrite on the cluster).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import NamedTuple

from topics.catalog import CATALOG


class Grant(NamedTuple):
    """One operation on one resource. `name` is without the prefix of the topics and groups."""

    resource: str
    name: str
    operation: str
    starts: bool = False
    """Whether `name` is only how the resource's name begins."""

    def __str__(self) -> str:
        return f"{self.operation} on {self.resource} {self.name}{'*' if self.starts else ''}"


def _on(resource: str, names: tuple[str, ...], *operations: str) -> tuple[Grant, ...]:
    return tuple(Grant(resource, name, each) for name in names for each in operations)


_ALL = tuple(topic.name for topic in CATALOG)

ROLES: Mapping[str, tuple[Grant, ...]] = {
    "worker": (
        *_on("topic", ("features", "labels"), "Read"),
        *_on("topic", ("journal", "snapshots"), "Read", "Write"),
        *_on("topic", ("predictions", "dead-letters"), "Write"),
        *_on("group", ("dtgol-worker",), "Read"),
    ),
    "evaluator": (
        *_on("topic", ("predictions", "labels"), "Read"),
        *_on("topic", ("snapshots",), "Read", "Write"),
        *_on("topic", ("scores",), "Write"),
        *_on("topic", ("journal",), "Describe"),
        *_on("group", ("dtgol-evaluator",), "Read"),
    ),
    "producer": _on("topic", ("features", "labels"), "Write"),
    "consumer": (
        *_on("topic", ("predictions",), "Read"),
        *_on("group", ("YOURS",), "Read"),
    ),
    "topics": _on("topic", _ALL, "Create", "Describe", "AlterConfigs"),
    "operator": (
        *_on("topic", _ALL, "Read", "DescribeConfigs"),
        *_on("group", ("dtgol-worker", "dtgol-evaluator"), "Describe"),
        *(Grant("topic", "doctor-", each, True) for each in ("Create", "Write", "Delete")),
    ),
    "steward": (
        *_on("topic", ("journal", "dead-letters"), "Read", "Write"),
        *_on("topic", ("features", "labels"), "Write"),
        *_on("group", ("dtgol-worker",), "Describe"),
        *_on("transactional-id", ("dtgol-redrive",), "Write"),
    ),
}

USES: Mapping[str, str] = {
    "worker": "`dtgol worker`",
    "evaluator": "`dtgol evaluator`",
    "producer": "`dtgol produce`, `dtgol play`, `FeatureProducer`, `LabelProducer`",
    "consumer": "`PredictionConsumer`; the group only if it is given one, by that name",
    "topics": "`dtgol topics apply`; `check` needs Describe and DescribeConfigs instead",
    "operator": (
        "`dtgol watch`, `doctor`, `snapshot`, `journal replay`, `dead-letters list`; topics "
        "`doctor-*` for `doctor --probe` alone"
    ),
    "steward": "`dtgol journal skip`, `retry`, `dtgol dead-letters redrive`",
}


def page() -> str:
    """The table of docs/security.md."""
    lines = ["| role | used by | resource | name (after the prefix) | operations |"]
    lines.append("|---|---|---|---|---|")
    for role, grants in ROLES.items():
        first = f"**{role}** | {USES[role]}"
        for (resource, name), operations in _rows(grants).items():
            lines.append(f"| {first} | {resource} | {name} | {', '.join(operations)} |")
            first = " | "
    return "\n".join(lines) + "\n"


def _rows(grants: tuple[Grant, ...]) -> dict[tuple[str, str], list[str]]:
    """Names that have the same operations share a row."""
    of_name: dict[tuple[str, str], list[str]] = {}
    for each in grants:
        key = each.resource, f"`{each.name}{'*' if each.starts else ''}`"
        of_name.setdefault(key, []).append(each.operation)
    rows: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (resource, name), operations in of_name.items():
        rows.setdefault((resource, tuple(operations)), []).append(name)
    return {
        (resource, ", ".join(names)): list(operations)
        for (resource, operations), names in rows.items()
    }


if __name__ == "__main__":
    sys.stdout.write(page())
