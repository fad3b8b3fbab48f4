"""The table of topics, as data: who writes what, where, and how long it stays.

`wishes` turns it into the exact settings of every topic for one prefix, partition count and
replication; `dtgol topics` compares them with a cluster. Features, labels, journal,
predictions and snapshots go together: one partition count, fixed for life, because a partition
number is part of a learner's identity. Growing means a new prefix and reprocessing.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from topics.deadletters import DeadLetter, Redriven
from topics.features import Features
from topics.journal import ConfigChange, Crash, Reset, Retry, Skip, Source
from topics.labels import Label
from topics.predictions import Prediction
from topics.refusals import DEFAULT_LIMITS
from topics.scores import Score
from topics.snapshots import Chunk

DAY_MS = 86_400_000
RETENTION_MS = 30 * DAY_MS
"""Long enough for late labels, a long outage and an audit; a setting of the operator."""
MESSAGE_BYTES_MAX = 1_048_588
"""Kafka's default, said aloud: four times the record limit, so that a record over it can come in
and be refused by us with a dead letter, and a copy with our headers always fits."""
HEADROOM_BYTES = 65_536
TOGETHER = ("features", "labels", "journal", "predictions", "snapshots")
AT_LEAST = ("max.message.bytes", "min.insync.replicas", "retention.ms")
"""Settings of which a cluster may have more than is wished; retention unless it was asked for."""
_KAFKA_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")


class Cleanup(StrEnum):
    """What Kafka does with old records."""

    DELETE = "delete"
    COMPACT = "compact"


class Stamp(StrEnum):
    """Whose time a record carries. What is kept for a time is stamped on append, or a backfill
    of old records would be past retention at once; event time lives in the payload."""

    CREATE = "CreateTime"
    APPEND = "LogAppendTime"


@dataclass(frozen=True, slots=True)
class Topic:
    """One row of the table."""

    name: str
    purpose: str
    key: str
    writer: str
    readers: tuple[str, ...]
    payloads: tuple[type, ...]
    """Messages whose JSON is the value."""
    headers: type | None = None
    """Message that travels in the headers."""
    marker: type | None = None
    """Message in the headers of records that have neither key nor value."""
    cleanup: Cleanup = Cleanup.DELETE
    stamp: Stamp = Stamp.APPEND

    @property
    def together(self) -> bool:
        """Whether it must have as many partitions as the other topics that go together."""
        return self.name in TOGETHER


CATALOG = (
    Topic(
        "features",
        "Records to be answered. A record stamped with an old time of its own is past retention "
        "at once: put event time into `ts` and let the client stamp the record.",
        "yours: the stream, or the instance to shard a stream; the same for features and label",
        writer="producers",
        readers=("sequencer",),
        payloads=(Features,),
        stamp=Stamp.CREATE,
    ),
    Topic(
        "labels",
        "The truth about instances, whenever it comes.",
        "that of the features",
        writer="producers",
        readers=("sequencer", "evaluator"),
        payloads=(Label,),
        stamp=Stamp.CREATE,
    ),
    Topic(
        "journal",
        "The one order of features and labels in a partition, and what was decided about it. Must "
        "outlive the oldest snapshot.",
        "that of the source record; none for control records",
        writer="sequencer",
        readers=("learner",),
        payloads=(Features, Label, ConfigChange, Reset, Crash, Skip, Retry),
        headers=Source,
    ),
    Topic(
        "predictions",
        "What the learner said about each record, with the producer's headers.",
        "that of the features",
        writer="learner",
        readers=("evaluator", "consumers"),
        payloads=(Prediction,),
    ),
    Topic(
        "scores",
        "Each prediction against its label.",
        "that of the features",
        writer="evaluator",
        readers=("consumers",),
        payloads=(Score,),
    ),
    Topic(
        "dead-letters",
        "Refused records with their original bytes and the reason, and markers of those that were "
        "sent back.",
        "the original's; none for markers",
        writer="learner",
        readers=("operators",),
        payloads=(),
        headers=DeadLetter,
        marker=Redriven,
    ),
    Topic(
        "snapshots",
        "Learners and manifests in chunks, from which any host can go on.",
        "kind, name and part of the chunk",
        writer="learner",
        readers=("learner",),
        payloads=(),
        headers=Chunk,
        cleanup=Cleanup.COMPACT,
        stamp=Stamp.CREATE,
    ),
)


@dataclass(frozen=True, slots=True)
class Wish:
    """How one topic should be on a cluster; ``config`` holds Kafka's own names and texts."""

    topic: Topic
    name: str
    partitions: int
    replication: int
    config: Mapping[str, str]
    retention_asked: bool = False
    """Whether the operator named the retention: then it is to be so long, and no longer."""


def topic_name(prefix: str, name: str) -> str:
    """The name of a topic on the cluster: the prefix as it is, then the plain noun."""
    full = prefix + name
    if _KAFKA_NAME.fullmatch(full) is None:
        raise ValueError(
            f"{full!r} cannot be a topic: use A-Z a-z 0-9 . _ - and at most 249 of them"
        )
    return full


def wishes(
    prefix: str,
    partitions: int,
    replication: int,
    record_bytes_max: int = DEFAULT_LIMITS.record_bytes_max,
    retention_ms: Mapping[str, int] | None = None,
) -> tuple[Wish, ...]:
    """The settings of every topic; ``retention_ms`` asks for that of single ones (-1: for ever)."""
    if partitions < 1 or replication < 1:
        raise ValueError("partitions and replication must be at least 1")
    kept = dict(retention_ms or {})
    timed = {topic.name for topic in CATALOG if topic.cleanup is Cleanup.DELETE}
    if not kept.keys() <= timed:
        raise ValueError(f"retention can be set for {', '.join(sorted(timed))} only")
    made = tuple(
        Wish(
            topic,
            topic_name(prefix, topic.name),
            partitions,
            replication,
            _config(topic, replication, record_bytes_max, kept.get(topic.name, RETENTION_MS)),
            topic.name in kept,
        )
        for topic in CATALOG
    )
    assert partition_mismatch({wish.topic.name: wish.partitions for wish in made}) is None
    return made


def partition_mismatch(counts: Mapping[str, int]) -> str | None:
    """One sentence if topics that go together differ in partitions, by plain name; else None."""
    found = {name: counts[name] for name in TOGETHER if name in counts}
    if len(set(found.values())) <= 1:
        return None
    listed = ", ".join(f"{name} {count}" for name, count in found.items())
    return f"these topics must have the same number of partitions: {listed}"


def _config(
    topic: Topic, replication: int, record_bytes_max: int, retention_ms: int
) -> Mapping[str, str]:
    config = {
        "cleanup.policy": str(topic.cleanup),
        "message.timestamp.type": str(topic.stamp),
        "max.message.bytes": str(max(MESSAGE_BYTES_MAX, record_bytes_max + HEADROOM_BYTES)),
        # With three copies two must have a record before it counts; with fewer, one.
        "min.insync.replicas": "2" if replication >= 3 else "1",
    }
    if topic.cleanup is Cleanup.DELETE:
        return config | {"retention.ms": str(retention_ms)}
    # Only closed segments are compacted: small ones, or superseded snapshots fill the disk.
    return config | {"segment.bytes": str(64 * 1024 * 1024)}


assert {topic.name for topic in CATALOG} >= set(TOGETHER)
