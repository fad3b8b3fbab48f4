"""Whether the clocks agree: brokers with this machine, producers with brokers.

Without writing anything: no record may have been appended after now, and no source record may have
a timestamp later than the broker appended its copy. A probe (a topic made and removed for it)
measures the difference itself.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from uuid import uuid4

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from pipeline.kafka.record import Record
from pipeline.ops.doctor.findings import Finding, fine, note, problem
from topics.headers import read_headers
from topics.journal import Source
from topics.reasons import Rejection

SKEW_MAX_MS = 2_000
"""Merge order and delays are in milliseconds, but only seconds of disagreement do harm."""
SLOW_MAX_MS = 60_000
"""No record of a topic younger than this is more than a network's delay."""
ADVICE = "set the clocks by NTP"
ANSWER_S = 15.0


def now_ms() -> int:
    """This machine's time in epoch milliseconds."""
    return time.time_ns() // 1_000_000


def check_broker(append_times_ms: Iterable[int], now: int) -> Finding:
    """Whether a record was appended in this machine's future."""
    check = "broker clock"
    newest = max(append_times_ms, default=None)
    if newest is None:
        return note(check, "no record stamped by a broker yet; --probe measures")
    if newest > now + SKEW_MAX_MS:
        ahead = (newest - now) / 1000
        return problem(
            check, f"a broker's clock is {ahead:.1f} s or more ahead of this one", ADVICE
        )
    return fine(check, "no record is stamped later than now")


def check_producers(journal: Iterable[Record]) -> Finding:
    """Whether sources are stamped later than their copies were appended, by the broker's time."""
    check = "producer clocks"
    ahead_ms, looked_at = 0, 0
    for record in journal:
        source = read_headers(Source, record.headers)
        if not isinstance(source, Rejection):
            looked_at += 1
            ahead_ms = max(ahead_ms, source.timestamp_ms - record.timestamp_ms)
    if not looked_at:
        return note(check, "no journal records stamped by the broker to compare with")
    if ahead_ms > SKEW_MAX_MS:
        text = f"a producer stamps records {ahead_ms / 1000:.1f} s ahead of the broker"
        return problem(check, text, f"{ADVICE}: order and label delays rest on these stamps")
    return fine(check, f"{looked_at} records are not stamped later than the broker got them")


def check_slow_producers(journal: Iterable[Record]) -> Iterator[Finding]:
    """Whether a topic's records reach the journal long after the times they are stamped with.

    The least delay is what a clock that is slow adds to every record; a backlog adds to some.
    """
    delays: dict[str, list[int]] = {}
    for record in journal:
        source = read_headers(Source, record.headers)
        if not isinstance(source, Rejection):
            delays.setdefault(source.topic, []).append(record.timestamp_ms - source.timestamp_ms)
    for topic, each in sorted(delays.items()):
        check, least = f"stamps of {topic}", min(each) / 1000
        if least * 1000 > SLOW_MAX_MS:
            text = f"all {len(each)} sampled records are stamped {least:.0f} s or more in the past"
            advice = f"{ADVICE}, or leave the record's timestamp to the client: order rests on it"
            yield problem(check, text, advice)
        else:
            yield fine(check, f"{max(0.0, least):.1f} s behind the journal at the least")


def probe(client: Mapping[str, Any], prefix: str) -> Finding:
    """The difference measured: one record in a topic that is made and removed for it."""
    check = "broker clock"
    admin, topic = AdminClient({**client, "log_level": 0}), f"{prefix}doctor-{uuid4().hex[:8]}"
    by_broker = {"message.timestamp.type": "LogAppendTime"}
    stamps: list[int] = []
    try:
        new = NewTopic(topic, num_partitions=1, replication_factor=-1, config=by_broker)
        admin.create_topics([new])[topic].result(ANSWER_S)
        try:
            producer = Producer({**client, "log_level": 0})
            for _ in range(2):  # The first one pays for the connection.
                before = now_ms()
                producer.produce(
                    topic, b"", on_delivery=lambda _, message: stamps.append(message.timestamp()[1])
                )
                producer.flush(ANSWER_S)
        finally:
            admin.delete_topics([topic])[topic].result(ANSWER_S)
    except KafkaException as error:
        return note(check, f"could not be measured: {error.args[0].str()}")
    if len(stamps) < 2:
        return note(check, "could not be measured: the probe was not delivered in time")
    skew = stamps[-1] - (before + now_ms()) / 2
    text = f"{abs(skew):.0f} ms {'ahead of' if skew > 0 else 'behind'} this machine's"
    return fine(check, text) if abs(skew) <= SKEW_MAX_MS else problem(check, text, ADVICE)
