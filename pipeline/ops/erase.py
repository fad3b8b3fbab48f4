"""Where an id lies on a cluster, until when, and the request that makes learners forget it.

Kafka deletes records by age, not one by one: what stands on a topic stays until its retention has
passed. This finds those records, and tells workers and evaluators to drop what they keep in memory
and so in their next snapshots.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass

from confluent_kafka import KafkaException, Producer

from dtgol_core.ids import hash_text
from pipeline.errors import ClusterError, RequestError
from pipeline.kafka.clients import ClientSettings, MonitoredAdmin
from pipeline.kafka.reader import Reader, read_range
from pipeline.kafka.topic_admin import find
from topics.codec import parse, write_erasure
from topics.features import DEFAULT_STREAM
from topics.labels import Erasure
from topics.reasons import Rejection

TOPICS = ("features", "labels", "journal", "predictions", "scores", "dead-letters")
SEND_S = 30.0


@dataclass(frozen=True, slots=True)
class Trace:
    """The records of one topic that hold an id.

    ``gone_ms`` is when the newest of them is past retention; Kafka deletes whole segments, so it
    may stay until its segment is closed. None: never, the topic keeps records for ever.
    """

    topic: str
    records: int
    newest_ms: int | None
    gone_ms: int | None


def find_traces(
    client: ClientSettings, topics: Mapping[str, str], stream: str, id: str
) -> list[Trace]:
    """Where an id stands; reads every topic from its beginning. ``topics``: full by plain names."""
    configs = find(MonitoredAdmin(client), topics.values())
    with closing(Reader(client)) as reader:
        counts = reader.partition_counts()
        marks = {
            (full, number): reader.watermarks(full, number)
            for full in topics.values()
            for number in range(counts.get(full, 0))
        }
    traces = []
    for plain, full in topics.items():
        if full not in counts:
            raise ClusterError(f"no topic {full}: run dtgol topics apply first")
        newest, records = None, 0
        for number in range(counts[full]):
            low, high = marks[full, number]
            for record in read_range(client, full, number, low, high) if low < high else ():
                if is_about(record.value, stream, id):
                    records += 1
                    newest = max(newest or 0, record.timestamp_ms)
        kept = configs[full].config.get("retention.ms") if full in configs else None
        retention = -1 if kept is None else int(kept)
        gone = None if newest is None or retention < 0 else newest + retention
        traces.append(Trace(plain, records, newest, gone))
    return traces


def is_about(value: bytes | None, stream: str, id: str) -> bool:
    """Whether a record is about an instance: its own, or one that it names as past its deadline."""
    raw = parse(value)
    if isinstance(raw, Rejection) or (raw.get("stream") or DEFAULT_STREAM) != stream:
        return False
    named = raw.get("defaulted")
    return str(raw.get("id")) == id or (isinstance(named, list) and id in named)


def request_erasure(client: ClientSettings, labels: str, stream: str, id: str) -> int:
    """Ask the learner and the evaluator of every partition; returns how many requests were sent."""
    with closing(Reader(client)) as reader:
        count = reader.partition_counts().get(labels, 0)
    value = write_erasure(Erasure(hash_text(id), stream))
    failed: list[str] = []
    producer = Producer({**client, "enable.idempotence": True, "log_level": 0})
    try:
        for number in range(count):
            producer.produce(
                labels,
                value,
                b"dtgol-erase",
                number,
                on_delivery=lambda error, _: failed.append(error.str()) if error else None,
            )
        left = producer.flush(SEND_S)
    except KafkaException as error:
        raise RequestError(f"the request was not sent: {error.args[0].str()}") from None
    if failed or left:
        raise RequestError(
            f"the request was not delivered everywhere: {(failed or ['no answer'])[0]}"
        )
    return count
