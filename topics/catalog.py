"""The table of topics, as data: what is in them, who writes and reads them, how long they stay.

`desired_topics` turns it into the exact settings of every topic for one prefix, partition count and
replication; `dtgol topics` compares them with a cluster. Features, labels, journal,
predictions and snapshots are co-partitioned: one partition count, fixed for life, as a partition
number is part of a learner's identity. Growing means a new prefix and reprocessing.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from topics.dead_letters import DeadLetter, Redriven
from topics.events import ProcessEvent
from topics.features import Features
from topics.journal import ConfigChange, Crash, Padding, Reset, Retry, Retype, Skip, Source, Version
from topics.labels import Erasure, Label
from topics.predictions import Prediction
from topics.reasons import DEFAULT_LIMITS
from topics.scores import Event, Score
from topics.snapshots import Chunk

DAY_MS = 86_400_000
RETENTION_MS = 30 * DAY_MS
"""Long enough for late labels, a long outage and an audit; a setting of the operator."""
MESSAGE_BYTES_MAX = 1_048_588
"""Kafka's default, set explicitly: four times the record limit, so that a record over it can come
in and be refused by us with a dead letter, and a copy with our headers always fits."""
HEADROOM_BYTES = 65_536
"""What is written because of a record is larger than the largest one by so much at most: our
headers, a prediction under the record's own headers, and the frame of a batch."""
BROKER_DEFAULT = -1
"""As a replication: as many copies as the brokers give a new topic; Kafka's own number for it."""
COPARTITIONED = ("features", "labels", "journal", "predictions", "snapshots")
AT_LEAST = ("max.message.bytes", "min.insync.replicas", "retention.ms")
"""Settings of which a cluster may have more than is desired; retention only if the operator did not
name it."""
_KAFKA_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")


class Cleanup(StrEnum):
    """What Kafka does with old records."""

    DELETE = "delete"
    COMPACT = "compact"


class TimestampType(StrEnum):
    """Which time a record carries. Topics with a retention are stamped on append, or a backfill of
    old records would be past retention at once; event time is in the payload."""

    CREATE = "CreateTime"
    APPEND = "LogAppendTime"


@dataclass(frozen=True, slots=True)
class Topic:
    """One row of the table."""

    name: str
    purpose: str
    key: str
    writers: tuple[str, ...]
    readers: tuple[str, ...]
    """Both by role: sequencer and learner run in the worker, operators are commands of `dtgol`."""
    payloads: tuple[type, ...]
    """Messages whose JSON is the value."""
    headers: type | None = None
    """Message that travels in the headers."""
    marker: type | None = None
    """Message in the headers of records that have neither key nor value."""
    cleanup: Cleanup = Cleanup.DELETE
    stamp: TimestampType = TimestampType.APPEND

    @property
    def copartitioned(self) -> bool:
        """Whether it must have as many partitions as the other co-partitioned topics."""
        return self.name in COPARTITIONED


CATALOG = (
    Topic(
        "features",
        "Records to be answered. A record with an old timestamp is past retention at once: put "
        "event time into `ts` and let the client set the timestamp.",
        "yours: the stream, or the instance to shard a stream; the same for features and label",
        writers=("producers", "operators"),
        readers=("sequencer", "operators"),
        payloads=(Features,),
        stamp=TimestampType.CREATE,
    ),
    Topic(
        "labels",
        "The truth about instances, whenever it comes.",
        "that of the features",
        writers=("producers", "operators"),
        readers=("sequencer", "evaluator", "operators"),
        payloads=(Label, Erasure),
        stamp=TimestampType.CREATE,
    ),
    Topic(
        "journal",
        "The one order of features and labels in a partition, and control records. Its retention "
        "must reach back to the oldest snapshot.",
        "that of the source record; none for control records",
        writers=("sequencer", "learner", "operators"),
        readers=("learner", "operators"),
        payloads=(
            Features,
            Label,
            ConfigChange,
            Reset,
            Retype,
            Crash,
            Skip,
            Retry,
            Version,
            Padding,
        ),
        headers=Source,
    ),
    Topic(
        "predictions",
        "The learner's answer to each record, with the producer's headers.",
        "that of the features",
        writers=("learner",),
        readers=("learner", "evaluator", "consumers", "operators"),
        payloads=(Prediction,),
    ),
    Topic(
        "scores",
        "Each prediction against its label, with traceparent and tracestate of the record that "
        "completed the pair; and events of learners, with the header dtgol-event.",
        "that of the features; none for events",
        writers=("evaluator", "learner"),
        readers=("consumers", "operators"),
        payloads=(Score, Event),
    ),
    Topic(
        "dead-letters",
        "Refused records with their original bytes and the reason, and markers of those that were "
        "sent back. With worker.connect_headers also the headers __connect.errors.*.",
        "the original's; none for markers",
        writers=("sequencer", "learner", "operators"),
        readers=("operators", "evaluator"),
        payloads=(),
        headers=DeadLetter,
        marker=Redriven,
    ),
    Topic(
        "snapshots",
        "Learners, evaluations and manifests in chunks, from which any host can restore.",
        "kind, name and part of the chunk",
        writers=("learner", "evaluator"),
        readers=("learner", "evaluator", "operators"),
        payloads=(),
        headers=Chunk,
        cleanup=Cleanup.COMPACT,
        stamp=TimestampType.CREATE,
    ),
    Topic(
        "events",
        "What happened to processes and their partitions: starts, snapshots, changes of the "
        "configuration, parked partitions; the marks on the live page. Best effort.",
        "the partition it is about",
        writers=("learner", "evaluator"),
        readers=("evaluator", "operators"),
        payloads=(ProcessEvent,),
    ),
)


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """How one topic should be on a cluster; ``config`` holds Kafka's own names and texts."""

    topic: Topic
    name: str
    partitions: int
    replication: int
    config: Mapping[str, str]
    retention_asked: bool = False
    """Whether the operator named the retention: then the topic must have exactly that."""

    def with_replication(self, copies: int) -> "TopicSpec":
        """The same topic with this many copies."""
        return replace(self, replication=copies, config={**self.config, **_in_sync(copies)})


def topic_name(prefix: str, name: str) -> str:
    """The name of a topic on the cluster: the prefix as it is, then the plain noun."""
    full = prefix + name
    if _KAFKA_NAME.fullmatch(full) is None:
        raise ValueError(
            f"{full!r} cannot be a topic: use A-Z a-z 0-9 . _ - and at most 249 of them"
        )
    return full


def desired_topics(
    prefix: str,
    partitions: int,
    replication: int,
    record_bytes_max: int = DEFAULT_LIMITS.record_bytes_max,
    retention_ms: Mapping[str, int] | None = None,
) -> tuple[TopicSpec, ...]:
    """The settings of every topic; ``retention_ms`` asks for that of single ones (-1: for ever)."""
    if partitions < 1 or (replication < 1 and replication != BROKER_DEFAULT):
        raise ValueError("partitions and replication must be at least 1")
    kept = dict(retention_ms or {})
    timed = {topic.name for topic in CATALOG if topic.cleanup is Cleanup.DELETE}
    if not kept.keys() <= timed:
        raise ValueError(f"retention can be set for {', '.join(sorted(timed))} only")
    made = tuple(
        TopicSpec(
            topic,
            topic_name(prefix, topic.name),
            partitions,
            replication,
            _config(topic, replication, record_bytes_max, kept.get(topic.name, RETENTION_MS)),
            topic.name in kept,
        )
        for topic in CATALOG
    )
    assert partition_mismatch({spec.topic.name: spec.partitions for spec in made}) is None
    return made


def partition_mismatch(counts: Mapping[str, int]) -> str | None:
    """One sentence if co-partitioned topics differ in partitions, by plain name; else None."""
    found = {name: counts[name] for name in COPARTITIONED if name in counts}
    if len(set(found.values())) <= 1:
        return None
    listed = ", ".join(f"{name} {count}" for name, count in found.items())
    return f"these topics must have the same number of partitions: {listed}"


def _in_sync(replication: int) -> Mapping[str, str]:
    """With three replicas two must have a record before it is acknowledged; with fewer, one.

    While the number of replicas is the brokers' choice, so is this.
    """
    if replication == BROKER_DEFAULT:
        return {}
    return {"min.insync.replicas": "2" if replication >= 3 else "1"}


def _config(
    topic: Topic, replication: int, record_bytes_max: int, retention_ms: int
) -> Mapping[str, str]:
    config = {
        "cleanup.policy": str(topic.cleanup),
        "message.timestamp.type": str(topic.stamp),
        "max.message.bytes": str(max(MESSAGE_BYTES_MAX, record_bytes_max + HEADROOM_BYTES)),
        **_in_sync(replication),
    }
    if topic.cleanup is Cleanup.DELETE:
        return config | {"retention.ms": str(retention_ms)}
    # Only closed segments are compacted: small ones, or superseded snapshots fill the disk.
    return config | {"segment.bytes": str(64 * 1024 * 1024)}


assert {topic.name for topic in CATALOG} >= set(COPARTITIONED)
