"""Where an id lies on a cluster, until when, and the request that makes learners forget it.

Kafka deletes records by age, not one by one: what stands on a topic stays until its retention has
passed. This finds those records, and tells workers and evaluators to drop what they keep in memory
and so in their next snapshots. A record that cannot be read, such as a dead letter that was
truncated, may hold the id too: those are counted by themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Literal

from dtgol_core.ids import hash_text
from pipeline.errors import ClusterError, DeliveryError
from pipeline.kafka.clients import ClientSettings, MonitoredAdmin
from pipeline.kafka.reader import Progress, Reader, no_progress, read_range
from pipeline.kafka.record import Record
from pipeline.kafka.topic_admin import find
from pipeline.kafka.writer import CheckedProducer
from topics.codec import parse, write_erasure
from topics.dead_letters import DeadLetter
from topics.features import DEFAULT_STREAM
from topics.headers import read_headers
from topics.labels import Erasure
from topics.reasons import Rejection

TOPICS = ("features", "labels", "journal", "predictions", "scores", "dead-letters")
KEY = b"dtgol-erase"
Holds = Literal["yes", "maybe", "no"]


@dataclass(frozen=True, slots=True)
class Trace:
    """The records of one topic that hold an id.

    ``maybe`` are further ones that cannot be read and may hold it. ``gone_ms`` is when the newest
    of all is past retention; Kafka deletes whole segments, so it may stay until its segment is
    closed. None: never, the topic keeps records for ever.
    """

    topic: str
    records: int
    maybe: int
    newest_ms: int | None
    gone_ms: int | None


def find_traces(
    client: ClientSettings,
    topics: Mapping[str, str],
    stream: str,
    id: str,
    progress: Progress = no_progress,
) -> list[Trace]:
    """Where an id stands; reads every topic from its beginning. ``topics``: full by plain names."""
    configs = find(MonitoredAdmin(client), topics.values())
    with closing(Reader(client)) as reader:
        counts = reader.partition_counts()
        for full in topics.values():
            if full not in counts:
                raise ClusterError(f"no topic {full}: run dtgol topics apply first")
        marks = {
            (full, number): reader.watermarks(full, number)
            for full in topics.values()
            for number in range(counts[full])
        }
    traces, read = [], 0
    with progress(sum(high - low for low, high in marks.values())) as update:
        for plain, full in topics.items():
            newest, found = None, {"yes": 0, "maybe": 0, "no": 0}
            for number in range(counts[full]):
                low, high = marks[full, number]
                for record in read_range(client, full, number, low, high) if low < high else ():
                    holds = holds_id(record, stream, id)
                    found[holds] += 1
                    if holds != "no":
                        newest = max(newest or 0, record.timestamp_ms)
                    update(read + record.offset + 1 - low)
                read += high - low
            kept = configs[full].config.get("retention.ms") if full in configs else None
            retention = -1 if kept is None else int(kept)
            gone = None if newest is None or retention < 0 else newest + retention
            traces.append(Trace(plain, found["yes"], found["maybe"], newest, gone))
    return traces


def holds_id(record: Record, stream: str, id: str) -> Holds:
    """Whether a record holds the id of an instance: its own, or one that it names as past its
    deadline.

    Of one that cannot be read it is known only that its key or its bytes are the id's, and of one
    whose value was truncated not even that.
    """
    raw = parse(record.value)
    if not isinstance(raw, Rejection):
        if (raw.get("stream") or DEFAULT_STREAM) != stream:
            return "no"
        named = raw.get("defaulted")
        about = str(raw.get("id")) == id or (isinstance(named, list) and id in named)
        return "yes" if about else "no"
    letter = read_headers(DeadLetter, record.headers)
    truncated = not isinstance(letter, Rejection) and letter.length is not None
    own = id.encode()
    return "maybe" if truncated or record.key == own or own in (record.value or b"") else "no"


def request_erasure(client: ClientSettings, labels: str, stream: str, id: str) -> int:
    """Ask the learner and the evaluator of every partition; returns how many requests were sent."""
    with closing(Reader(client)) as reader:
        count = reader.partition_counts().get(labels, 0)
    value = write_erasure(Erasure(hash_text(id), stream))
    producer = CheckedProducer(client, advice="run it again")
    try:
        for number in range(count):
            producer.send(labels, KEY, value, partition=number)
        producer.flush()
    except DeliveryError as error:
        raise DeliveryError(f"the request was not written everywhere: {error}") from None
    return count
