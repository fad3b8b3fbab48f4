"""What our user may do on the cluster, against what its role needs; asked at the start.

Brokers tell everybody what he may do with a topic or a group that he may see. One that does not
tell (before Kafka 2.3, some that are not Apache's) is believed to allow everything: what it refuses
after all is said when it happens.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from time import monotonic, sleep
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection

from pipeline.access.acls import ROLES, Grant
from pipeline.settings import Settings

ANSWER_S = 30.0
LOOK_AGAIN_S = 0.2
_HIDDEN = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED)
_NOT_YET = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
)


def missing_rights(
    admin: Any, settings: Settings, role: str, topics: Collection[str]
) -> list[Grant]:
    """The grants of a role that our user has not, with full names; of `topics` only."""
    wanted = [
        grant._replace(name=settings.kafka.prefix + grant.name)
        for grant in ROLES[role]
        if grant.resource == "group" or grant.name in topics
    ]
    told = {
        ("topic", name): allowed
        for name, allowed in _topics(admin, _names(wanted, "topic")).items()
    }
    for name in _names(wanted, "group"):
        told["group", name] = _group(admin, name)
    return [
        grant
        for grant in wanted
        if (allowed := told[grant.resource, grant.name]) is not None
        and grant.operation not in allowed
    ]


def _names(grants: Iterable[Grant], resource: str) -> list[str]:
    return sorted({each.name for each in grants if each.resource == resource})


def _topics(admin: Any, names: list[str]) -> Mapping[str, frozenset[str] | None]:
    asked = admin.describe_topics(
        TopicCollection(names), include_authorized_operations=True, request_timeout=ANSWER_S
    )
    return {name: _allowed(future.result) for name, future in asked.items()}


def _group(admin: Any, name: str) -> frozenset[str] | None:
    """Asked again while the group's coordinator is being found."""
    until = monotonic() + ANSWER_S
    while True:
        asked = admin.describe_consumer_groups(
            [name], include_authorized_operations=True, request_timeout=ANSWER_S
        )
        try:
            return _allowed(asked[name].result)
        except _NotYetError:
            if monotonic() > until:
                return None
            sleep(LOOK_AGAIN_S)


class _NotYetError(Exception):
    pass


def _allowed(answer: Callable[[], Any]) -> frozenset[str] | None:
    """Operations as Kafka's tools spell them; empty for what is hidden, None if nobody says."""
    try:
        operations = answer().authorized_operations
    except KafkaException as error:
        if error.args[0].code() in _NOT_YET:
            raise _NotYetError from None
        return frozenset() if error.args[0].code() in _HIDDEN else None
    if operations is None:
        return None
    return frozenset(each.name.title().replace("_", "") for each in operations)
