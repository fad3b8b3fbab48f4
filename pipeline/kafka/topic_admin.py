"""Topics on a cluster against the catalog: what differs, and making it so.

`inspect` looks and changes nothing; `apply` creates what is missing and alters configs. It never
touches partition counts or replication: a new count would send keys to partitions whose learner
does not know them, and copies are moved by reassignment, which is the operator's decision.
Retention is lowered only where it was asked for: what Kafka then deletes, the journal among it, is
gone. Applying twice is the same as once.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import monotonic, sleep
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, not re-exported
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic

from pipeline.errors import ClusterError
from pipeline.kafka.clients import describe, fetch_metadata
from topics.catalog import AT_LEAST, BROKER_DEFAULT, DAY_MS, TopicSpec, partition_mismatch

REQUEST_S = 15.0
VISIBLE_S = 15.0
"""How long what was just created or altered may take until the brokers show it."""
POLL_S = 0.1
RETENTION = "retention.ms"
IN_SYNC = "min.insync.replicas"
UNKNOWN = "unknown"
WHY_NOT_PARTITIONS = (
    "a partition count is for life: another one would send keys to other learners; "
    "choose a new prefix and reprocess, or give --partitions as it is"
)
WHY_NOT_REPLICATION = "copies are moved with kafka-reassign-partitions, not here"
WHY_NOT_IN_SYNC = (
    "more than there are copies, and nobody could write: first add copies with "
    "kafka-reassign-partitions"
)


@dataclass(frozen=True, slots=True)
class ExistingTopic:
    """How a topic is on the cluster."""

    partitions: int
    replication: int
    config: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class Difference:
    """One setting that is not as desired. ``advice`` is there if `apply` cannot change it."""

    topic: str
    setting: str
    actual: str
    desired: str
    advice: str = ""

    def __str__(self) -> str:
        text = f"{self.topic}: {self.setting} is {self.actual}, should be {self.desired}"
        more = self.advice or self.warning
        return f"{text} ({more})" if more else text

    @property
    def warning(self) -> str:
        """What is lost by changing it, if anything: records older than a shorter retention."""
        known = self.setting == RETENTION and self.actual != UNKNOWN
        if not known or _lasts(self.actual) <= _lasts(self.desired):
            return ""
        return f"shorter: Kafka deletes what is older than {int(self.desired) / DAY_MS:g} d"


@dataclass(frozen=True, slots=True)
class Applied:
    """What `apply` did, and what it left because only an operator can decide it."""

    created: tuple[str, ...]
    altered: tuple[Difference, ...]
    left: tuple[Difference, ...]


def with_existing_partitions(
    admin: AdminClient, specs: Sequence[TopicSpec]
) -> tuple[TopicSpec, ...]:
    """The specs with the partition count of the topics there, which must agree, if any are."""
    known = _known(admin)
    copartitioned = {spec.topic.name: spec.name for spec in specs if spec.topic.copartitioned}
    counts = {
        name: len(known[full].partitions) for name, full in copartitioned.items() if full in known
    }
    mismatch = partition_mismatch(counts)
    if mismatch is not None:
        raise ClusterError(f"{mismatch}; give the right number with --partitions")
    return tuple(
        replace(spec, partitions=next(iter(counts.values()), spec.partitions)) for spec in specs
    )


def replication_for(admin: AdminClient, names: Iterable[str], asked: int | None) -> int:
    """Copies of a new topic: as asked, but never fewer than its siblings have.

    With nothing asked and no siblings, the brokers' own default, which few users may see.
    """
    siblings = [each.replication for each in find(admin, names).values()]
    if asked is not None or siblings:
        return max([asked or 1, *siblings])
    return BROKER_DEFAULT


def inspect(admin: AdminClient, specs: Sequence[TopicSpec]) -> tuple[Difference, ...]:
    """Everything that differs from the specs, in the order of the catalog."""
    found = find(admin, [spec.name for spec in specs])
    return tuple(difference for spec in specs for difference in compare(spec, found.get(spec.name)))


def apply(admin: AdminClient, specs: Sequence[TopicSpec]) -> Applied:
    """Create what is missing, alter the configs that differ, report the rest.

    All topics are compared after the creation, also those that were not there before: one that
    another client has just created is not in the metadata yet and may have other settings. How
    many copies the brokers' default is, and so how many must be in sync, is known only then, too.
    """
    names = [spec.name for spec in specs]
    before = find(admin, names)
    created = _create(admin, [spec for spec in specs if spec.name not in before])
    after = find(admin, names)
    copies = max((each.replication for each in after.values()), default=BROKER_DEFAULT)
    specs = [
        spec.with_replication(copies) if spec.replication == BROKER_DEFAULT else spec
        for spec in specs
    ]
    differences = [each for spec in specs for each in compare(spec, after.get(spec.name))]
    gone = [each.topic for each in differences if each.setting == "topic"]
    if gone:
        raise ClusterError(f"removed by another client meanwhile: {', '.join(gone)}")
    altered = tuple(each for each in differences if not each.advice)
    _alter(admin, altered)
    if altered:
        _await(lambda: not set(altered) & set(inspect(admin, specs)), "the altered settings")
    return Applied(created, altered, tuple(each for each in differences if each.advice))


def compare(spec: TopicSpec, found: ExistingTopic | None) -> list[Difference]:
    """One topic against its spec. The partition count matters only if co-partitioned."""
    if found is None:
        return [Difference(spec.name, "topic", "missing", "there")]
    differences = []
    if spec.topic.copartitioned and found.partitions != spec.partitions:
        differences.append(
            Difference(
                spec.name,
                "partitions",
                str(found.partitions),
                str(spec.partitions),
                WHY_NOT_PARTITIONS,
            )
        )
    if found.replication < spec.replication:
        differences.append(
            Difference(
                spec.name,
                "replication",
                str(found.replication),
                str(spec.replication),
                WHY_NOT_REPLICATION,
            )
        )
    for setting, desired in spec.config.items():
        actual = found.config.get(setting)
        exactly = setting == RETENTION and spec.retention_asked
        if actual != desired and (exactly or not _enough(setting, actual, desired, found)):
            impossible = setting == IN_SYNC and int(desired) > found.replication
            advice = WHY_NOT_IN_SYNC if impossible else ""
            differences.append(Difference(spec.name, setting, actual or UNKNOWN, desired, advice))
    return differences


def _enough(setting: str, actual: str | None, desired: str, found: ExistingTopic) -> bool:
    """More is fine for some settings; but not more in-sync copies than there are copies."""
    if setting not in AT_LEAST or actual is None:
        return False
    if setting == RETENTION:
        return _lasts(desired) <= _lasts(actual)
    possible = found.replication if setting == IN_SYNC else int(actual)
    return int(desired) <= int(actual) <= possible


def _lasts(retention: str) -> float:
    """A retention as a number that can be compared: -1 is for ever."""
    return float("inf") if retention == "-1" else float(retention)


def find(admin: AdminClient, names: Iterable[str]) -> dict[str, ExistingTopic]:
    """Those of the topics that exist."""
    known = _known(admin)
    there = [name for name in names if name in known]
    if not there:
        return {}
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in there]
    asked = admin.describe_configs(resources, request_timeout=REQUEST_S)
    found = {}
    for resource, future in asked.items():
        try:
            entries = future.result()
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                continue  # listed by one broker, not yet or no longer known to the one asked
            raise ClusterError(
                f"{resource.name}: cannot read its settings: {describe(error.args[0])}"
            ) from None
        partitions = known[resource.name].partitions
        copies = min((len(each.replicas) for each in partitions.values()), default=0)
        config = {name: entry.value for name, entry in entries.items()}
        found[resource.name] = ExistingTopic(len(partitions), copies, config)
    return found


def _known(admin: AdminClient) -> Mapping[str, Any]:
    """Every topic of the cluster: asking for one by name may create it."""
    known: Mapping[str, Any] = fetch_metadata(admin, REQUEST_S).topics
    return known


def _create(admin: AdminClient, missing: Sequence[TopicSpec]) -> tuple[str, ...]:
    if not missing:
        return ()
    new = [
        NewTopic(
            spec.name,
            num_partitions=spec.partitions,
            replication_factor=spec.replication,
            config=dict(spec.config),
        )
        for spec in missing
    ]
    created = []
    for name, future in admin.create_topics(new, request_timeout=REQUEST_S).items():
        try:
            future.result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise ClusterError(
                    f"{name}: cannot be created: {describe(error.args[0])}"
                ) from None
        else:
            created.append(name)
    names = {spec.name for spec in missing}
    _await(lambda: names <= find(admin, names).keys(), "the topics just created")
    return tuple(created)


def _await(shown: Callable[[], bool], what: str) -> None:
    """Wait until the brokers show a change: the controller answers before they know of it."""
    until = monotonic() + VISIBLE_S
    while not shown():
        if monotonic() > until:
            raise ClusterError(f"done, but after {VISIBLE_S:g} s the brokers do not show {what}")
        sleep(POLL_S)


def _alter(admin: AdminClient, differences: Sequence[Difference]) -> None:
    entries: dict[str, list[ConfigEntry]] = {}
    for each in differences:
        entry = ConfigEntry(each.setting, each.desired, incremental_operation=AlterConfigOpType.SET)
        entries.setdefault(each.topic, []).append(entry)
    if not entries:
        return
    resources = [
        ConfigResource(ResourceType.TOPIC, name, incremental_configs=changes)
        for name, changes in entries.items()
    ]
    altered = admin.incremental_alter_configs(resources, request_timeout=REQUEST_S)
    for resource, future in altered.items():
        try:
            future.result()
        except KafkaException as error:
            raise ClusterError(
                f"{resource.name}: cannot be altered: {describe(error.args[0])}"
            ) from None
