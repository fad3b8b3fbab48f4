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

from pipeline.access.door import ClusterError, ListeningAdmin, knock, said
from topics.catalog import AT_LEAST, DAY_MS, Wish, partition_mismatch

REQUEST_S = 15.0
VISIBLE_S = 15.0
"""How long what was just created or altered may take until the brokers show it."""
LOOK_EVERY_S = 0.1
RETENTION = "retention.ms"
UNKNOWN = "unknown"
WHY_NOT_PARTITIONS = (
    "a partition count is for life: another one would send keys to other learners; "
    "choose a new prefix and reprocess, or say --partitions as it is"
)
WHY_NOT_REPLICATION = "copies are moved with kafka-reassign-partitions, not here"


class AdminError(RuntimeError):
    """The cluster did not answer or refused; the text says which topic and why."""


@dataclass(frozen=True, slots=True)
class Found:
    """How a topic is on the cluster."""

    partitions: int
    replication: int
    config: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class Difference:
    """One setting that is not as wished. ``advice`` is there if `apply` cannot mend it."""

    topic: str
    setting: str
    actual: str
    wished: str
    advice: str = ""

    def __str__(self) -> str:
        said = f"{self.topic}: {self.setting} is {self.actual}, should be {self.wished}"
        more = self.advice or self.warning
        return f"{said} ({more})" if more else said

    @property
    def warning(self) -> str:
        """What is lost by mending it, if anything: records older than a shorter retention."""
        known = self.setting == RETENTION and self.actual != UNKNOWN
        if not known or _lasts(self.actual) <= _lasts(self.wished):
            return ""
        return f"shorter: Kafka deletes what is older than {int(self.wished) / DAY_MS:g} d"


@dataclass(frozen=True, slots=True)
class Applied:
    """What `apply` did, and what it left because only an operator can decide it."""

    created: tuple[str, ...]
    altered: tuple[Difference, ...]
    left: tuple[Difference, ...]


def connect(settings: Mapping[str, str | int | float | bool]) -> AdminClient:
    """An admin client from librdkafka's settings."""
    try:
        return ListeningAdmin(settings)
    except KafkaException as error:
        raise AdminError(f"these connection settings cannot be used: {_said(error)}") from None


def as_there(admin: AdminClient, wishes: Sequence[Wish]) -> tuple[Wish, ...]:
    """The wishes with the partition count of the topics there, which must agree, if any are."""
    known = _known(admin)
    together = {wish.topic.name: wish.name for wish in wishes if wish.topic.together}
    counts = {name: len(known[full].partitions) for name, full in together.items() if full in known}
    mismatch = partition_mismatch(counts)
    if mismatch is not None:
        raise AdminError(f"{mismatch}; say with --partitions which number is right")
    return tuple(
        replace(wish, partitions=next(iter(counts.values()), wish.partitions)) for wish in wishes
    )


def inspect(admin: AdminClient, wishes: Sequence[Wish]) -> tuple[Difference, ...]:
    """Everything that differs from the wishes, in the order of the catalog."""
    found = find(admin, [wish.name for wish in wishes])
    return tuple(
        difference for wish in wishes for difference in compare(wish, found.get(wish.name))
    )


def apply(admin: AdminClient, wishes: Sequence[Wish]) -> Applied:
    """Create what is missing, alter the configs that differ, report the rest.

    All topics are compared after the creation, also those that were not there before: one that
    somebody else had just created is not in the metadata yet and may be quite another.
    """
    names = [wish.name for wish in wishes]
    before = find(admin, names)
    created = _create(admin, [wish for wish in wishes if wish.name not in before])
    after = find(admin, names)
    differences = [each for wish in wishes for each in compare(wish, after.get(wish.name))]
    gone = [each.topic for each in differences if each.setting == "topic"]
    if gone:
        raise AdminError(f"removed by somebody else meanwhile: {', '.join(gone)}")
    altered = tuple(each for each in differences if not each.advice)
    _alter(admin, altered)
    if altered:
        _await(lambda: not set(altered) & set(inspect(admin, wishes)), "the altered settings")
    return Applied(created, altered, tuple(each for each in differences if each.advice))


def compare(wish: Wish, found: Found | None) -> list[Difference]:
    """One topic against its wish. Topics that go alone may have any number of partitions."""
    if found is None:
        return [Difference(wish.name, "topic", "missing", "there")]
    differences = []
    if wish.topic.together and found.partitions != wish.partitions:
        differences.append(
            Difference(
                wish.name,
                "partitions",
                str(found.partitions),
                str(wish.partitions),
                WHY_NOT_PARTITIONS,
            )
        )
    if found.replication < wish.replication:
        differences.append(
            Difference(
                wish.name,
                "replication",
                str(found.replication),
                str(wish.replication),
                WHY_NOT_REPLICATION,
            )
        )
    for setting, wished in wish.config.items():
        actual = found.config.get(setting)
        exactly = setting == RETENTION and wish.retention_asked
        if actual != wished and (exactly or not _enough(setting, actual, wished, found)):
            differences.append(Difference(wish.name, setting, actual or UNKNOWN, wished))
    return differences


def _enough(setting: str, actual: str | None, wished: str, found: Found) -> bool:
    """More is fine for some settings; but not more in-sync copies than there are copies."""
    if setting not in AT_LEAST or actual is None:
        return False
    if setting == RETENTION:
        return _lasts(wished) <= _lasts(actual)
    possible = found.replication if setting == "min.insync.replicas" else int(actual)
    return int(wished) <= int(actual) <= possible


def _lasts(retention: str) -> float:
    """A retention as a number that can be compared: -1 is for ever."""
    return float("inf") if retention == "-1" else float(retention)


def find(admin: AdminClient, names: Iterable[str]) -> dict[str, Found]:
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
            raise AdminError(f"{resource.name}: cannot read its settings: {_said(error)}") from None
        partitions = known[resource.name].partitions
        copies = min((len(each.replicas) for each in partitions.values()), default=0)
        config = {name: entry.value for name, entry in entries.items()}
        found[resource.name] = Found(len(partitions), copies, config)
    return found


def _known(admin: AdminClient) -> Mapping[str, Any]:
    """Every topic of the cluster: asking for one by name may create it."""
    try:
        known: Mapping[str, Any] = knock(admin, REQUEST_S).topics
    except ClusterError as error:
        raise AdminError(str(error)) from None
    return known


def _create(admin: AdminClient, missing: Sequence[Wish]) -> tuple[str, ...]:
    if not missing:
        return ()
    new = [
        NewTopic(
            wish.name,
            num_partitions=wish.partitions,
            replication_factor=wish.replication,
            config=dict(wish.config),
        )
        for wish in missing
    ]
    created = []
    for name, future in admin.create_topics(new, request_timeout=REQUEST_S).items():
        try:
            future.result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise AdminError(f"{name}: cannot be created: {_said(error)}") from None
        else:
            created.append(name)
    names = {wish.name for wish in missing}
    _await(lambda: names <= find(admin, names).keys(), "the topics just created")
    return tuple(created)


def _await(shown: Callable[[], bool], what: str) -> None:
    """The controller answers before the brokers know; who comes next shall find it done."""
    until = monotonic() + VISIBLE_S
    while not shown():
        if monotonic() > until:
            raise AdminError(f"done, but after {VISIBLE_S:g} s the brokers do not show {what}")
        sleep(LOOK_EVERY_S)


def _alter(admin: AdminClient, differences: Sequence[Difference]) -> None:
    entries: dict[str, list[ConfigEntry]] = {}
    for each in differences:
        entry = ConfigEntry(each.setting, each.wished, incremental_operation=AlterConfigOpType.SET)
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
            raise AdminError(f"{resource.name}: cannot be altered: {_said(error)}") from None


def _said(error: KafkaException) -> str:
    return said(error.args[0])
