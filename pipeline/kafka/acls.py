"""What each role may do on the cluster, and nothing more: the one list.

docs/security.md shows it (`python -m pipeline.kafka.acls`), the tests grant exactly this, and
worker and evaluator compare it at their start with what their user has, so that a missing right is
one clear error at the start and not a failure hours later; of a group only whether it can be seen:
one that can be seen and not joined is an error when it is joined. Kafka implies Describe by Read,
Write and Alter, and DescribeConfigs by AlterConfigs; an idempotent producer needs nothing beside
Write (before Kafka 2.8: IdempotentWrite on the cluster).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, TopicCollection

from pipeline.kafka.clients import ClientSettings
from pipeline.kafka.reader import is_hidden
from pipeline.settings import Settings
from topics.catalog import CATALOG

ANSWER_S = 30.0
_HIDDEN = (KafkaError.TOPIC_AUTHORIZATION_FAILED,)


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
        *_on("topic", ("journal", "predictions"), "Read", "Write", "DescribeConfigs"),
        *_on("topic", ("snapshots",), "Read", "Write"),
        *_on("topic", ("scores", "dead-letters"), "Write", "DescribeConfigs"),
        *_on("topic", ("events",), "Write"),
        *_on("group", ("dtgol-worker",), "Read"),
    ),
    "evaluator": (
        *_on("topic", ("predictions", "labels"), "Read"),
        *_on("topic", ("snapshots", "events"), "Read", "Write"),
        *_on("topic", ("dead-letters",), "Read"),
        *_on("topic", ("scores",), "Write", "DescribeConfigs"),
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
        "`dtgol watch`, `doctor`, `snapshot`, `journal replay`, `journal archive`, "
        "`dead-letters list`, `erase --dry-run`; topics `doctor-*` for `doctor --probe` alone"
    ),
    "steward": (
        "`dtgol journal skip`, `retry`, `retype`, `dtgol dead-letters redrive`; with the rights of "
        "an operator too `dtgol erase`"
    ),
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


def missing_rights(
    client: ClientSettings, admin: Any, settings: Settings, role: str, topics: Collection[str]
) -> list[Grant]:
    """The grants of a role that our user has not, with full names; of `topics` only.

    Brokers answer this for every topic that a user may see. One that does not answer (before Kafka
    2.3, some that are not Apache's) is assumed to allow everything: what it refuses after all is an
    error when it happens. A group is asked for its offsets and not for its rights: librdkafka ends
    the process where the connection to the coordinator is lost while it asks for those (its issue
    4605; seen in the fault suite beside three brokers that had just come up).
    """
    wanted = [
        grant._replace(name=settings.kafka.prefix + grant.name)
        for grant in ROLES[role]
        if grant.resource == "group" or grant.name in topics
    ]
    allowed_on = {
        ("topic", name): allowed
        for name, allowed in _topics(admin, _names(wanted, "topic")).items()
    }
    topic = settings.topic(next(iter(topics)))
    for name in _names(wanted, "group"):
        allowed_on["group", name] = frozenset() if is_hidden(client, name, topic) else None
    return [
        grant
        for grant in wanted
        if (allowed := allowed_on[grant.resource, grant.name]) is not None
        and grant.operation not in allowed
    ]


def _names(grants: Iterable[Grant], resource: str) -> list[str]:
    return sorted({each.name for each in grants if each.resource == resource})


def _topics(admin: Any, names: list[str]) -> Mapping[str, frozenset[str] | None]:
    asked = admin.describe_topics(
        TopicCollection(names), include_authorized_operations=True, request_timeout=ANSWER_S
    )
    return {name: _allowed(future.result) for name, future in asked.items()}


def _allowed(answer: Callable[[], Any]) -> frozenset[str] | None:
    """Operations as Kafka's tools spell them; empty if hidden, None if the broker gives none."""
    try:
        operations = answer().authorized_operations
    except KafkaException as error:
        return frozenset() if error.args[0].code() in _HIDDEN else None
    if operations is None:
        return None
    return frozenset(each.name.title().replace("_", "") for each in operations)


if __name__ == "__main__":
    sys.stdout.write(page())
