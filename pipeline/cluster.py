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


def look(client: Mapping[str, Any], settings: Settings, topics: Sequence[str]) -> Cluster:
    """The cluster as it is; refuses if a topic is missing or the counts do not go together."""
    names = {name: settings.topic(name) for name in topics}
    errors: list[KafkaError] = []
    asking: dict[str, Any] = {**client, "log_level": 0, "error_cb": errors.append}
    admin = AdminClient(asking)
    known = _metadata(admin, list(names.values()), settings.kafka.bootstrap_servers, errors)
    missing = [full for full in names.values() if full not in known.topics]
    if missing:
        raise RefusalError(f"no topic {', '.join(missing)}: run dtgol topics apply first")
    counts = {name: len(known.topics[full].partitions) for name, full in names.items()}
    mismatch = partition_mismatch(counts)
    if mismatch:
        raise RefusalError(mismatch)
    together = next(counts[name] for name in topics if name in TOGETHER)
    has_ids = known.controller_id in known.brokers  # the embedded cluster has neither
    ids = _topic_ids(admin, list(names.values())) if has_ids else {}
    by_name = {name: ids.get(full) or full for name, full in names.items()}
    return Cluster(str(known.cluster_id or "unknown"), together, counts, by_name)


def _metadata(
    admin: AdminClient, wanted: Sequence[str], where: str, errors: Sequence[KafkaError]
) -> Any:
    """What the cluster says about itself, asked again for a moment while a topic is missing."""
    until = monotonic() + SHOWN_S
    while True:
        try:
            known = admin.list_topics(timeout=ASK_S)
        except KafkaException as error:
            admin.poll(0)
            refusals = [each for each in errors if each.code() in _REFUSED]
            if refusals:
                raise RefusalError(
                    f"the cluster at {where} does not let us in: {refusals[0].str()}"
                ) from None
            raise UnansweredError(
                f"the cluster at {where} does not answer: {error.args[0].str()}"
            ) from None
        if monotonic() > until or all(name in known.topics for name in wanted):
            return known
        sleep(LOOK_AGAIN_S)


def _topic_ids(admin: AdminClient, names: list[str]) -> dict[str, str]:
    """Ids as Kafka prints them; none from a broker that has none (the embedded one)."""
    found = {}
    try:
        asked = admin.describe_topics(TopicCollection(names), request_timeout=ASK_S)
        for name, future in asked.items():
            found[name] = str(future.result().topic_id)
    except KafkaException:
        return {}
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
                why = f"the offsets of group {group} cannot be read: {reason.str()}"
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
