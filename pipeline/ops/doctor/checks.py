"""All checks of the doctor, causes before their effects."""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

from pipeline.errors import ClusterError, RefusalError, RequestError
from pipeline.kafka.clients import ClientSettings, MonitoredAdmin
from pipeline.kafka.reader import Reader, Tail
from pipeline.kafka.record import Record
from pipeline.kafka.topic_admin import find, inspect
from pipeline.ops.doctor import (
    clocks,
    horizon,
    keys,
    letters,
    members,
    processes,
    scoring,
    state,
    writable,
)
from pipeline.ops.doctor.findings import Finding, fine, note, problem
from pipeline.ops.lag import Lag, group_lag
from pipeline.ops.parked import JournalPartition
from pipeline.ops.snapshots import newest_fold
from pipeline.snapshots.store import Store
from topics.catalog import CATALOG, TimestampType, desired_topics, partition_mismatch, topic_name

READ_S = 30.0
BEHIND_MAX = 10_000
"""More records than a worker answers in several seconds: it is stopped, or too slow."""
APPLY = "run: dtgol topics apply"


@dataclass(frozen=True)
class ClusterTarget:
    """The cluster to be checked; ``client`` may hold secrets."""

    client: ClientSettings
    prefix: str
    groups: Mapping[str, Sequence[str]]
    committed_at_once: Container[tuple[str, str]]
    """Groups and topics whose commits do not wait for a snapshot."""
    snapshot_records: int
    snapshot_ms: int
    store: Store
    """Of the worker's snapshots."""
    web: Sequence[str]
    """Addresses of running processes, whose /readyz and /metrics are asked."""
    web_token: str | None
    """What these want to see; a secret."""
    worker_group: str
    evaluator_store: Store
    """Of the evaluator's snapshots."""
    pairs_max: int
    """Predictions of a partition that the evaluator remembers."""
    ahead_max: int
    """How far the sequencer may be ahead of its learner: where a parked record is looked for."""


def run_checks(
    target: ClusterTarget, samples: int, probe: bool, show: Callable[[str], None] = lambda _: None
) -> Iterator[Finding]:
    """Every finding, as soon as it is there; `ClusterError` if there is nothing to check.

    `show` gets the name of what takes long, before it is looked at.
    """
    show("asking the cluster")
    with closing(Reader(target.client)) as reader:
        metadata = reader.metadata()
    counts = {name: len(topic.partitions) for name, topic in metadata.topics.items()}
    yield fine("cluster", f"{len(metadata.brokers)} brokers answer")
    names = {topic_name(target.prefix, topic.name): topic.name for topic in CATALOG}
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
    ours = {full: topic for full, topic in metadata.topics.items() if full in names}
    yield from writable.check_writable(ours, _in_sync_min(target, list(ours)))
    if "features" in there and not missing:
        yield from _topic_settings(target, there["features"])
    yield from members.check_members(target.client, list(target.groups))
    for address in target.web:
        yield from processes.check_process(address, target.web_token)
    show("reading the newest records")
    yield from _samples(target, there, samples, probe)
    yield from _parked(target, there.get("journal", 0), show)
    if "journal" in there:
        yield from _state(target, there["journal"], show)
        pairs_max = target.pairs_max
        yield from scoring.check_scoring(target.evaluator_store, there["journal"], pairs_max)
    show("looking how far back predictions can be computed again")
    journal = topic_name(target.prefix, "journal")
    about = (target.client, journal, there.get("journal", 0), target.store)
    yield from horizon.horizons(*about, clocks.now_ms())
    for group, topics in target.groups.items():
        show(f"counting what {group} has not read")
        for lag in group_lag(target.client, group, topics):
            if (group, lag.topic) in target.committed_at_once:
                yield from _lag(lag, BEHIND_MAX, "behind")
            else:
                slack = 2 * target.snapshot_records * max(1, counts[lag.topic])
                yield from _lag(lag, slack + BEHIND_MAX, "since its last snapshot")


def _in_sync_min(target: ClusterTarget, names: list[str]) -> dict[str, int]:
    """`min.insync.replicas` of the topics; none where settings cannot be read."""
    try:
        found = find(MonitoredAdmin(target.client), names)
    except ClusterError:
        return {}
    return {name: int(each.config.get("min.insync.replicas") or 1) for name, each in found.items()}


def _topic_settings(target: ClusterTarget, partitions: int) -> Iterator[Finding]:
    """Topic settings against the catalog. Retention is the operator's: only worth knowing."""
    check = "topic settings"
    try:
        specs = desired_topics(target.prefix, partitions, 1)
        differences = inspect(MonitoredAdmin(target.client), specs)
    except ClusterError as error:
        yield note(check, f"could not be read: {error}")
        return
    for each in differences:
        if each.setting == "retention.ms":
            yield note(check, str(each))
        else:
            yield problem(check, str(each), each.advice or APPLY)
    if not differences:
        yield fine(check, "all as in the catalog")


def _samples(
    target: ClusterTarget, there: Mapping[str, int], samples: int, probe: bool
) -> Iterator[Finding]:
    wanted = ("features", "labels", "journal", "predictions", "dead-letters")
    names = [name for name in wanted if name in there]
    full = {topic_name(target.prefix, name): name for name in names}
    read: dict[str, list[Record]] = {name: [] for name in names}
    if full:
        with closing(Tail(target.client, list(full), samples)) as tail:
            for record in tail.catch_up(READ_S):
                read[full[record.topic]].append(record)
    sampled: dict[str, list[keys.KeySample]] = {
        name: [keys.sample(record) for record in read[name]]
        for name in ("features", "labels")
        if name in read
    }
    if sampled:
        count = there["features" if "features" in there else "labels"]
        yield from keys.check_partitioner(sampled, count)
    if len(sampled) == 2:
        yield keys.check_join(sampled["features"], sampled["labels"])
    if "dead-letters" in read:
        sources = [*read.get("features", ()), *read.get("labels", ())]
        yield letters.check_letters(read["dead-letters"], sources)
    stamped = _stamped_by_broker(target, list(full))
    if probe:
        yield clocks.probe(target.client, target.prefix)
    else:
        stamps = [
            record.timestamp_ms
            for name in ("journal", "predictions")
            for record in read.get(name, [])
            if record.topic in stamped
        ]
        yield clocks.check_broker(stamps, clocks.now_ms())
    journal = [record for record in read.get("journal", []) if record.topic in stamped]
    yield clocks.check_producers(journal)
    yield from clocks.check_slow_producers(journal)


def _stamped_by_broker(target: ClusterTarget, names: list[str]) -> set[str]:
    """Topics whose records carry the broker's time; none where settings cannot be read."""
    try:
        found = find(MonitoredAdmin(target.client), names)
    except ClusterError:
        return set()
    append = str(TimestampType.APPEND)
    return {
        name for name, each in found.items() if each.config.get("message.timestamp.type") == append
    }


def _state(
    target: ClusterTarget, partitions: int, show: Callable[[str], None]
) -> Iterator[Finding]:
    """What the newest snapshots show."""
    journal = topic_name(target.prefix, "journal")
    states = []
    try:
        with closing(Reader(target.client)) as reader:
            ends = [reader.watermarks(journal, number).high for number in range(partitions)]
        for number, end in enumerate(ends):
            show(f"reading the newest snapshot, partition {number + 1} of {partitions}")
            found = newest_fold(target.store, number)
            if found is not None:
                written = target.store.written_ms(number, found[1].name)
                states.append(state.PartitionState(found[0], written, end))
    except (ClusterError, RequestError, RefusalError) as error:
        yield note("snapshots", f"could not be read: {error}")
        return
    about = target.snapshot_ms, target.snapshot_records, clocks.now_ms()
    yield from state.check_state(states, *about)


def _parked(
    target: ClusterTarget, partitions: int, show: Callable[[str], None]
) -> Iterator[Finding]:
    """Partitions that wait for an operator's decision; the crashes are in the journal."""
    check = "parked partitions"
    journal, found = topic_name(target.prefix, "journal"), False
    for number in range(partitions):
        show(f"looking for parked records, partition {number + 1} of {partitions}")
        partition = JournalPartition(target.client, journal, target.worker_group, number)
        try:
            parked = partition.parked(2 * target.ahead_max + BEHIND_MAX)
        except (ClusterError, RequestError, RefusalError) as error:
            yield note(check, f"partition {number} could not be asked: {error}")
            continue
        if parked is not None:
            found = True
            text = (
                f"partition {number} is parked at journal offset {parked.offset}: "
                f"{parked.crashes} crashes, {parked.error} at {parked.place}"
            )
            advice = (
                f"run: dtgol journal skip --partition {number} --offset {parked.offset} --note WHY"
            )
            yield problem(check, text, advice)
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
            text = f"{lag.records} records and nothing committed"
            yield note(check, text, "has it ever been started, and given half a minute?")
    elif lag.behind > most:
        text = f"{lag.behind} of {lag.records} records {unit}"
        yield problem(check, text, "see that it runs and is ready (/readyz), or start more")
    else:
        yield fine(check, f"{lag.behind} of {lag.records} records {unit}")
