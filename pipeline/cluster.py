"""What a process must know about its cluster before it starts, and when it must not start.

Every refusal is one sentence that says what to do. A cluster that does not answer is no refusal: a
process that is started while brokers are away must be started again, not be left for an operator.
Nothing is changed here; asking joins no group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Any

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from pipeline.access.door import ClusterError, ListeningAdmin, SilentError, knock, said
from pipeline.access.rights import missing_rights
from pipeline.reader import ASK_S, bounds, open_reader
from pipeline.settings import Settings
from pipeline.snapshots import RefusalError
from topics.catalog import TOGETHER, partition_mismatch

SOURCES = ("features", "labels")
LOOK_AGAIN_S = 0.5
SHOWN_S = 5.0
"""A broker that has just come back may not know all topics yet; so long they are asked for."""
_REFUSED = (
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError._SSL,
)
_NO_IDS = (KafkaError._UNSUPPORTED_FEATURE, KafkaError.UNSUPPORTED_VERSION)


class UnansweredError(RuntimeError):
    """The cluster did not answer in time; one sentence. Ends the process, which may start again."""


@dataclass(frozen=True)
class Cluster:
    """The cluster and the topics on it, by plain name. Where there are no ids, names stand in."""

    id: str
    partitions: int
    counts: Mapping[str, int]
    topic_ids: Mapping[str, str]

    def identity(self, *topics: str) -> dict[str, Any]:
        """What a snapshot belongs to."""
        ids = {f"topic {name}": self.topic_ids[name] for name in topics}
        return {"cluster": self.id, "partition count": self.partitions, **ids}


def look(
    client: Mapping[str, Any], settings: Settings, topics: Sequence[str], role: str = ""
) -> Cluster:
    """The cluster as it is; refuses if a topic is missing or the counts do not go together.

    With a role also if our user has not the rights that the role needs.
    """
    admin = ListeningAdmin(client)
    names = {name: settings.topic(name) for name in topics}
    known = _metadata(admin)
    has_ids = known.controller_id in known.brokers  # the embedded cluster has neither
    if role and has_ids:
        lacking = missing_rights(admin, settings, role, topics)
        if lacking:
            listed = ", ".join(str(each) for each in lacking)
            raise RefusalError(f"this user may not {listed}: grant it, see docs/security.md")
    until = monotonic() + SHOWN_S
    while monotonic() < until and not set(names.values()) <= known.topics.keys():
        sleep(LOOK_AGAIN_S)
        known = _metadata(admin)
    missing = [full for full in names.values() if full not in known.topics]
    if missing:
        raise RefusalError(f"no topic {', '.join(missing)}: run dtgol topics apply first")
    counts = {name: len(known.topics[full].partitions) for name, full in names.items()}
    mismatch = partition_mismatch(counts)
    if mismatch:
        raise RefusalError(mismatch)
    together = next(counts[name] for name in topics if name in TOGETHER)
    ids = _topic_ids(admin, list(names.values())) if has_ids else {}
    by_name = {name: ids.get(full) or full for name, full in names.items()}
    return Cluster(str(known.cluster_id or "unknown"), together, counts, by_name)


def _metadata(admin: ListeningAdmin) -> Any:
    """What the cluster says about itself, once it knows of a broker.

    One that has just started answers before it counts itself in. Whether there are topic ids could
    not be told then, and a worker that takes names for ids takes its own state for another's.
    """
    until = monotonic() + ASK_S
    while True:
        try:
            known = knock(admin, ASK_S)
        except SilentError as error:
            raise UnansweredError(str(error)) from None
        except ClusterError as error:
            raise RefusalError(str(error)) from None
        if known.brokers:
            return known
        if monotonic() > until:
            raise UnansweredError("the cluster answers, but none of its brokers is ready yet")
        sleep(LOOK_AGAIN_S)


def _topic_ids(admin: AdminClient, names: list[str]) -> dict[str, str]:
    """Ids as Kafka prints them; none only from a cluster that has none."""
    found = {}
    try:
        asked = admin.describe_topics(TopicCollection(names), request_timeout=ASK_S)
        for name, future in asked.items():
            found[name] = str(future.result().topic_id)
    except KafkaException as error:
        if error.args[0].code() in _NO_IDS:
            return {}
        raise UnansweredError(
            f"the ids of the topics cannot be read: {said(error.args[0])}"
        ) from None
    return {name: id for name, id in found.items() if id.strip("A") and id != "None"}


def offsets_of_group(
    client: Mapping[str, Any], group: str, topic: str, partitions: Sequence[int]
) -> dict[int, int | None]:
    """What a group has committed, without joining it; a coordinator that moves is waited for."""
    consumer = Consumer({**client, "group.id": group, "enable.auto.commit": False, "log_level": 3})
    until = monotonic() + ASK_S
    try:
        while True:
            asked = [TopicPartition(topic, number) for number in partitions]
            try:
                told = consumer.committed(asked, timeout=ASK_S)
            except KafkaException as error:
                reason = error.args[0]
                why = f"the offsets of group {group} cannot be read: {said(reason)}"
                if reason.code() in _REFUSED:
                    raise RefusalError(why) from None
                if monotonic() > until:
                    raise UnansweredError(why) from None
                sleep(LOOK_AGAIN_S)
                continue
            return {each.partition: each.offset if each.offset >= 0 else None for each in told}
    finally:
        consumer.close()


def find_gaps(
    client: Mapping[str, Any],
    settings: Settings,
    cluster: Cluster,
    role: str,
    topics: Sequence[str],
) -> list[str]:
    """Sentences about records that are gone before they were read, or offsets that never were."""
    consumer = open_reader(client)
    found = []
    try:
        for name in topics:
            topic = settings.topic(name)
            group = settings.group(role)
            committed = offsets_of_group(client, group, topic, range(cluster.partitions))
            for number, offset in committed.items():
                if offset is None:
                    continue
                gap = gap_at(topic, number, offset, bounds(consumer, topic, number))
                found += [gap] if gap else []
    finally:
        consumer.close()
    return found


def gap_at(topic: str, partition: int, offset: int, there: tuple[int, int]) -> str | None:
    """One sentence if a topic partition cannot be read on from `offset`; None if it can."""
    low, high = there
    where = f"{topic} partition {partition}"
    if offset < low:
        return f"{where}: records {offset} to {low - 1} are gone and were never read"
    if offset > high:
        return (
            f"{where}: the group is at {offset} and the topic ends at {high}: "
            f"it is not the topic that was read"
        )
    return None


def journal_was_lost(client: Mapping[str, Any], settings: Settings, cluster: Cluster) -> str | None:
    """One sentence if the journal is empty although its sources were read; else None."""
    consumer = open_reader(client)
    journal = settings.topic("journal")
    try:
        for name in SOURCES:
            topic, group = settings.topic(name), settings.group("worker")
            committed = offsets_of_group(client, group, topic, range(cluster.partitions))
            for number, offset in committed.items():
                if offset and bounds(consumer, journal, number)[1] == 0:
                    return (
                        f"{journal} partition {number} is empty although {topic} was read up to "
                        f"{offset}: what was copied into it is lost"
                    )
    finally:
        consumer.close()
    return None
