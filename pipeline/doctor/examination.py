"""The whole examination, in the order in which causes come before their effects."""

import ssl
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaException, Message

from pipeline.access.door import knock
from pipeline.client.sending import CONNECT_S
from pipeline.client.tail import Tail, open_consumer
from pipeline.doctor import clocks, keys, versions
from pipeline.doctor.findings import Finding, fine, note, problem
from pipeline.operators.lag import Lag, group_lag
from pipeline.operators.parked import JournalPartition
from pipeline.operators.topics_admin import AdminError, connect, inspect
from pipeline.snapshots import RefusalError
from topics.catalog import CATALOG, partition_mismatch, topic_name, wishes

READ_S = 30.0
BEHIND_MAX = 10_000
"""More records than a worker answers in several seconds: it is stopped, or too slow."""
APPLY = "run: dtgol topics apply"


@dataclass(frozen=True)
class Patient:
    """The cluster to be examined; ``client`` may hold secrets."""

    client: Mapping[str, Any]
    prefix: str
    groups: Mapping[str, Sequence[str]]
    prompt: Container[tuple[str, str]]
    """Groups and topics whose commits do not wait for a snapshot."""
    snapshot_records: int
    worker_group: str
    ahead_max: int
    """How far the sequencer may be ahead of its learner: where a parked record is looked for."""
    tls: ssl.SSLContext | None = None


def examine(patient: Patient, samples: int, probe: bool) -> Iterator[Finding]:
    """Every finding, as soon as it is there; `ClusterError` if there is nothing to examine."""
    brokers, counts = _metadata(patient)
    yield fine("cluster", f"{len(brokers)} brokers answer")
    for host, port in brokers[:3]:
        yield _version(host, port, patient.tls)
    names = {topic_name(patient.prefix, topic.name): topic.name for topic in CATALOG}
    there = {name: counts[full] for full, name in names.items() if full in counts}
    missing = [full for full in names if full not in counts]
    if missing:
        hidden = f"missing, or this user may not see them: {', '.join(missing)}"
        yield problem("topics", hidden, f"{APPLY}, or grant the user Read")
    mismatch = partition_mismatch(there)
    if mismatch is not None:
        yield problem(
            "partitions", mismatch, "choose a new prefix, apply its topics, and send again"
        )
    elif there:
        yield fine("partitions", f"{max(there.values())} partitions, the same wherever they must")
    if "features" in there and not missing:
        yield from _settings(patient, there["features"])
    yield from _sampled(patient, there, samples, probe)
    yield from _parked(patient, there.get("journal", 0))
    for group, topics in patient.groups.items():
        for lag in group_lag(patient.client, group, topics):
            if (group, lag.topic) in patient.prompt:
                yield from _lag(lag, BEHIND_MAX, "behind")
            else:
                slack = 2 * patient.snapshot_records * max(1, counts[lag.topic])
                yield from _lag(lag, slack + BEHIND_MAX, "since its last snapshot")


def _metadata(patient: Patient) -> tuple[list[tuple[str, int]], dict[str, int]]:
    consumer = open_consumer(patient.client)
    try:
        metadata = knock(consumer, CONNECT_S)
    finally:
        consumer.close()
    brokers = [(each.host, each.port) for each in metadata.brokers.values()]
    return brokers, {name: len(topic.partitions) for name, topic in metadata.topics.items()}


def _version(host: str, port: int, tls: ssl.SSLContext | None) -> Finding:
    try:
        return versions.judge_versions(versions.ask_versions(host, port, tls))
    except OSError as error:
        return note(versions.CHECK, f"{host}:{port} did not say: {error}")


def _settings(patient: Patient, partitions: int) -> Iterator[Finding]:
    """Topic settings against the catalog. Retention is the operator's: only worth knowing."""
    check = "topic settings"
    try:
        differences = inspect(connect(patient.client), wishes(patient.prefix, partitions, 1))
    except AdminError as error:
        yield note(check, f"could not be read: {error}")
        return
    for each in differences:
        if each.setting == "retention.ms":
            yield note(check, str(each))
        else:
            yield problem(check, str(each), each.advice or APPLY)
    if not differences:
        yield fine(check, "all as in the catalog")


def _sampled(
    patient: Patient, there: Mapping[str, int], samples: int, probe: bool
) -> Iterator[Finding]:
    names = [name for name in ("features", "labels", "journal", "predictions") if name in there]
    full = {topic_name(patient.prefix, name): name for name in names}
    read: dict[str, list[Message]] = {name: [] for name in names}
    if full:
        with Tail(patient.client, list(full), samples) as tail:
            for message in tail.catch_up(READ_S):
                read[full[message.topic() or ""]].append(message)
    sampled: dict[str, list[keys.Sampled]] = {
        name: [keys.sample(each.partition() or 0, each.key(), each.value()) for each in read[name]]
        for name in ("features", "labels")
        if name in read
    }
    if sampled:
        yield from keys.judge_partitioner(
            sampled, there["features" if "features" in there else "labels"]
        )
    if len(sampled) == 2:
        yield keys.judge_meeting(sampled["features"], sampled["labels"])
    if probe:
        yield clocks.probe(patient.client, patient.prefix)
    else:
        stamps = [
            each.timestamp()[1]
            for name in ("journal", "predictions")
            for each in read.get(name, [])
            if each.timestamp()[0] == TIMESTAMP_LOG_APPEND_TIME
        ]
        yield clocks.judge_broker(stamps, clocks.now_ms())
    yield clocks.judge_producers(read.get("journal", []))


def _parked(patient: Patient, partitions: int) -> Iterator[Finding]:
    """Partitions that wait for an operator's decision; their notes are in the journal."""
    check = "parked partitions"
    journal, found = topic_name(patient.prefix, "journal"), False
    for number in range(partitions):
        place = JournalPartition(patient.client, journal, patient.worker_group, number)
        try:
            parked = place.parked(2 * patient.ahead_max + BEHIND_MAX)
        except (KafkaException, RefusalError) as error:
            yield note(check, f"partition {number} could not be asked: {error}")
            continue
        if parked is not None:
            found = True
            said = (
                f"partition {number} stands at journal offset {parked.offset}: "
                f"{parked.crashes} crashes, {parked.error} at {parked.place}"
            )
            advice = (
                f"run: dtgol journal skip --partition {number} --offset {parked.offset} --note WHY"
            )
            yield problem(check, said, advice)
    if partitions and not found:
        yield fine(check, "none")


def _lag(lag: Lag, most: int, unit: str) -> Iterator[Finding]:
    check = f"{lag.group} on {lag.topic}"
    if lag.lost:
        yield problem(
            check,
            f"{lag.lost} records were deleted before they were read",
            "lengthen retention; the worker starts again with --accept-gap",
        )
    elif lag.behind is None:
        if lag.records:
            said = f"{lag.records} records and nothing committed"
            yield note(check, said, "has it ever been started, and given half a minute?")
    elif lag.behind > most:
        said = f"{lag.behind} of {lag.records} records {unit}"
        yield problem(check, said, "see that it runs and is ready (/readyz), or start more")
    else:
        yield fine(check, f"{lag.behind} of {lag.records} records {unit}")
