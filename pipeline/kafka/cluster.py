"""What a process must know about its cluster before it starts, and when it must not start.

Every refusal is one sentence with what to do. A cluster that does not answer is no refusal: a
process that is started while brokers are down must be restarted, not wait for an operator.
Nothing is changed here; asking joins no group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, not re-exported
    AdminClient,
    ConfigResource,
    ResourceType,
)

from pipeline.errors import ClusterError, RefusalError, UnansweredError
from pipeline.kafka.acls import missing_rights
from pipeline.kafka.clients import (
    SEE_RIGHTS,
    ClientSettings,
    MonitoredAdmin,
    describe,
    fetch_metadata,
)
from pipeline.kafka.reader import ANSWER_S, Reader, Watermarks, committed_offsets
from pipeline.settings import Settings
from topics.catalog import COPARTITIONED, HEADROOM_BYTES, partition_mismatch

SOURCES = ("features", "labels")
OUTPUTS = ("journal", "predictions", "dead-letters", "scores")
PARTITION_COUNT = "partition count"
SEE_GROWTH = (
    "keys go to other partitions than before, and their learners do not know them; see Partition "
    "counts in docs/guide-operations.md"
)
SEE_GONE = (
    "it was deleted, or our user may not see it any more: create it again with dtgol topics apply, "
    f"or {SEE_RIGHTS}"
)
RETRY_S = 0.5
VISIBLE_S = 5.0
"""A broker that has just come back may not know all topics yet; so long they are asked for."""
_NO_IDS = (KafkaError._UNSUPPORTED_FEATURE, KafkaError.UNSUPPORTED_VERSION)


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
        return {"cluster": self.id, PARTITION_COUNT: self.partitions, **ids}


def inspect_cluster(
    client: ClientSettings,
    settings: Settings,
    topics: Sequence[str],
    role: str = "",
    written_bytes_max: int = 0,
) -> Cluster:
    """The cluster as it is; refuses if a topic is missing or the partition counts differ.

    With a role also if our user lacks a right that the role needs. `written_bytes_max`: a record
    of our own that must fit the topics, besides what comes of the records of producers.
    """
    admin = MonitoredAdmin(client)
    names = {name: settings.topic(name) for name in topics}
    known = _metadata(admin)
    has_ids = known.controller_id in known.brokers  # the embedded cluster has neither
    if role and has_ids:
        lacking = missing_rights(client, admin, settings, role, topics)
        if lacking:
            listed = ", ".join(str(each) for each in lacking)
            raise RefusalError(f"this user may not {listed}: grant it, see docs/security.md")
    until = monotonic() + VISIBLE_S
    while monotonic() < until and not set(names.values()) <= known.topics.keys():
        sleep(RETRY_S)
        known = _metadata(admin)
    _refuse_missing([full for full in names.values() if full not in known.topics])
    counts = {name: len(known.topics[full].partitions) for name, full in names.items()}
    mismatch = partition_mismatch(counts)
    if mismatch:
        raise RefusalError(f"{mismatch}; see Partition counts in docs/guide-operations.md")
    outputs = [full for name, full in names.items() if name in OUTPUTS]
    if has_ids and outputs:
        largest = max(settings.limits.record_bytes_max, written_bytes_max)
        _refuse_small(admin, largest + HEADROOM_BYTES, outputs)
    partitions = next(counts[name] for name in topics if name in COPARTITIONED)
    ids = _topic_ids(admin, list(names.values())) if has_ids else {}
    by_name = {name: ids.get(full) or full for name, full in names.items()}
    return Cluster(str(known.cluster_id or "unknown"), partitions, counts, by_name)


def _refuse_small(admin: AdminClient, needed: int, names: Sequence[str]) -> None:
    """Refuse topics that do not take what we may have to write: the process would end at a record.

    Brokers that do not show a topic's settings are believed to take it.
    """
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
    for resource, future in admin.describe_configs(resources, request_timeout=ANSWER_S).items():
        try:
            taken = future.result()["max.message.bytes"].value
        except (KafkaException, KeyError):
            continue
        if int(taken) < needed:
            raise RefusalError(
                f"{resource.name} takes records of {taken} bytes, and limits.record_bytes_max, or "
                f"the configuration as a record, needs {needed}: run dtgol topics apply, or lower "
                f"the limit"
            )


def _metadata(admin: MonitoredAdmin) -> Any:
    """The cluster's metadata, once it knows of a broker.

    A broker that has just started answers before it lists itself. Whether there are topic ids is
    not known then, and a worker that used names for ids would refuse its own snapshots.
    """
    until = monotonic() + ANSWER_S
    while True:
        try:
            known = fetch_metadata(admin, ANSWER_S)
        except UnansweredError:
            raise
        except ClusterError as error:
            raise RefusalError(str(error)) from None
        if known.brokers:
            return known
        if monotonic() > until:
            raise UnansweredError("the cluster answers, but none of its brokers is ready yet")
        sleep(RETRY_S)


def _refuse_missing(topics: Sequence[str]) -> None:
    if topics:
        raise RefusalError(f"no topic {', '.join(topics)}: run dtgol topics apply first")


def _topic_ids(admin: AdminClient, names: list[str]) -> dict[str, str]:
    """Ids as Kafka prints them; none only from a cluster that has none.

    A topic that is being deleted, or was just made, may be listed and not known here: it is asked
    for again, and then missing.
    """
    found, missing = {}, []
    until = monotonic() + VISIBLE_S
    # A copy: the client sets its futures by their places in the mapping that it has returned.
    asked = dict(admin.describe_topics(TopicCollection(names), request_timeout=ANSWER_S))
    while asked:
        name, future = asked.popitem()
        try:
            found[name] = str(future.result().topic_id)
        except KafkaException as error:
            code = error.args[0].code()
            if code in _NO_IDS:
                return {}
            if code != KafkaError.UNKNOWN_TOPIC_OR_PART:
                why = describe(error.args[0])
                raise UnansweredError(f"the ids of the topics cannot be read: {why}") from None
            if monotonic() < until:
                sleep(RETRY_S)
                asked |= admin.describe_topics(TopicCollection([name]), request_timeout=ANSWER_S)
            else:
                missing.append(name)
    _refuse_missing(missing)
    return {name: id for name, id in found.items() if id.strip("A") and id != "None"}


def topic_faults(expected: Mapping[str, int | None], found: Mapping[str, int]) -> list[str]:
    """Sentences about topics that are not as they were at the start: gone, or with more partitions.

    Both are partitions by full name of the topic; None is any number.
    """
    gone = [f"the topic {name} is gone: {SEE_GONE}" for name in expected if name not in found]
    grown = [
        f"{name} has {found[name]} partitions and had {count} at the start: {SEE_GROWTH}"
        for name, count in expected.items()
        if name in found and count is not None and found[name] != count
    ]
    return gone + grown


def find_gaps(
    client: ClientSettings,
    settings: Settings,
    cluster: Cluster,
    role: str,
    topics: Sequence[str],
) -> list[str]:
    """Sentences about records that are gone before they were read, or offsets that never were."""
    found = []
    with closing(Reader(client)) as reader:
        for topic in map(settings.topic, topics):
            group = settings.group(role)
            committed = committed_offsets(client, group, topic, range(cluster.partitions))
            for number, offset in committed.items():
                if offset is None:
                    continue
                gap = gap_at(topic, number, offset, reader.watermarks(topic, number))
                found += [gap] if gap else []
    return found


def gap_at(topic: str, partition: int, offset: int, there: Watermarks) -> str | None:
    """One sentence if a topic partition cannot be read on from `offset`; None if it can."""
    where = f"{topic} partition {partition}"
    if offset < there.low:
        return f"{where}: records {offset} to {there.low - 1} are gone and were never read"
    if offset > there.high:
        return (
            f"{where}: the group is at {offset} and the topic ends at {there.high}: "
            f"it is not the topic that was read"
        )
    return None


def find_lost_journal(client: ClientSettings, settings: Settings, cluster: Cluster) -> str | None:
    """One sentence if the journal is empty although its sources were read; else None."""
    journal, group = settings.topic("journal"), settings.group("worker")
    with closing(Reader(client)) as reader:
        for topic in map(settings.topic, SOURCES):
            committed = committed_offsets(client, group, topic, range(cluster.partitions))
            for number, offset in committed.items():
                if offset and reader.watermarks(journal, number).high == 0:
                    return (
                        f"{journal} partition {number} is empty although {topic} was read up to "
                        f"{offset}: what was copied into it is lost"
                    )
    return None


def refuse_gaps(gaps: Sequence[str], accept_gap: bool) -> Sequence[str]:
    """The gaps that an operator has accepted; raises `RefusalError` without `--accept-gap`."""
    if gaps and not accept_gap:
        raise RefusalError(f"{gaps[0]}; --accept-gap goes on without them")
    return gaps
