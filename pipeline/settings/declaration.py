"""Every setting, declared once, with its meaning, default and bounds.

`--help`, the checks and docs/settings.md come from here. Secrets are read from files that settings
name, by `pipeline.kafka.auth`, and are never part of this object.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any, get_type_hints

from dtgol_core.config import Config
from topics.catalog import topic_name

ENVIRONMENT = "DTGOL_"
DAY_MS = 86_400_000


def _is(
    default: Any, doc: str, low: float | None = None, high: float | None = None, *choices: str
) -> Any:
    """Declare one setting."""
    return field(
        default=default, metadata={"doc": doc, "low": low, "high": high, "choices": choices}
    )


@dataclass(frozen=True)
class KafkaSettings:
    """``[kafka]``: the cluster, names on it, and timeouts."""

    bootstrap_servers: str = _is(
        "", "Brokers, host:port,...; KAFKA_BOOTSTRAP_SERVERS where this is not set."
    )
    prefix: str = _is("", "Put before the name of every topic and group.")
    group_instance_id: str = _is(
        "",
        "A fixed name of this process in its group, another one for every process (Kafka's static "
        "membership).",
    )
    session_timeout_ms: int = _is(
        15_000,
        "A process without a heartbeat for this long is expelled: others get its partitions.",
        1_000,
        600_000,
    )
    heartbeat_ms: int = _is(3_000, "Time between heartbeats to the group.", 100, 60_000)
    rebalance_timeout_ms: int = _is(
        60_000,
        "How long a process may take to hand over its partitions when another joins or leaves.",
        5_000,
        600_000,
    )
    request_timeout_ms: int = _is(
        90_000,
        "Longest wait for one answer from Kafka, and for a snapshot to be written to its topic.",
        5_000,
        600_000,
    )

    @property
    def timeouts(self) -> dict[str, int]:
        """The same limit for librdkafka's clients, which take at most five minutes."""
        return {"socket.timeout.ms": min(self.request_timeout_ms, 300_000)}


@dataclass(frozen=True)
class SecuritySettings:
    """``[security]``: how to authenticate; one place for both Kafka clients."""

    protocol: str = _is(
        "PLAINTEXT",
        "Protocol of the listener.",
        None,
        None,
        "PLAINTEXT",
        "SSL",
        "SASL_PLAINTEXT",
        "SASL_SSL",
    )
    ca_file: str = _is("", "Certificates to trust, PEM; the system's if empty.")
    certificate_file: str = _is("", "Own certificate for mutual TLS, PEM.")
    key_file: str = _is("", "Its private key, PEM.")
    key_password_file: str = _is("", "File with the password of the key.")
    check_hostname: bool = _is(True, "Whether the broker's certificate must name its host.")
    mechanism: str = _is(
        "",
        "SASL mechanism.",
        None,
        None,
        "",
        "PLAIN",
        "SCRAM-SHA-256",
        "SCRAM-SHA-512",
        "OAUTHBEARER",
    )
    username: str = _is("", "SASL user.")
    password_file: str = _is("", "File with the password of the SASL user.")
    token_file: str = _is("", "File with the bearer token (OAUTHBEARER); read again when it ends.")


@dataclass(frozen=True)
class WorkerSettings:
    """``[worker]``: sequencer and learner."""

    merge_wait_ms: int = _is(
        30_000,
        "How long features wait for labels that are known to be unread, and labels for features: a "
        "backlog is taken in the order of its timestamps.",
        0,
        600_000,
    )
    merge_buffer_records: int = _is(
        2_000,
        "Features, and labels, of a partition that may wait like this; then that topic is paused.",
        10,
        1_000_000,
    )
    journal_ahead_max: int = _is(
        20_000,
        "Journal records that the learner may be behind; then features and labels are paused.",
        100,
        10_000_000,
    )
    queue_bytes_max: int = _is(
        16_777_216,
        "Memory of the records of one topic partition that are received and not processed; then it "
        "is paused.",
        1_048_576,
        2**31,
    )
    commit_ms: int = _is(
        1_000, "Time between commits of how far features and labels were taken.", 50, 60_000
    )
    stuck_ms: int = _is(
        120_000,
        "After this long without progress, while there is work, /readyz is red; the evaluator too.",
        1_000,
        DAY_MS,
    )
    give_up_ms: int = _is(
        300_000,
        "After this long without progress, while there is work, or without an answer from the "
        "cluster, the process ends with exit code 1; the evaluator too.",
        2_000,
        DAY_MS,
    )
    state_directory: str = _is(
        "",
        "Where a process notes which record it is at, for the next to see if it dies there. Must "
        "outlive the process, in a container too. Empty: beside the snapshots in a directory, else "
        "the system's temporary folder.",
    )
    why: int = _is(
        0,
        "How many features each prediction names as its reasons, those that moved it most.",
        0,
        100,
    )
    connect_headers: bool = _is(
        False,
        "Whether dead letters also carry the headers of Kafka Connect's dead letter queues "
        "(`__connect.errors.topic` and so on), for tools that know these.",
    )


@dataclass(frozen=True)
class SnapshotSettings:
    """``[snapshots]``: where state is kept, and how often."""

    store: str = _is("topic", "Where snapshots are kept.", None, None, "topic", "directory")
    directory: str = _is("", "The directory, for store = directory.")
    every_records: int = _is(
        5_000, "A snapshot is written after this many journal records.", 1, 10_000_000
    )
    every_ms: int = _is(
        30_000, "A snapshot is also written after this long, if anything changed.", 100, DAY_MS
    )
    archive_ms: int = _is(
        0,
        "Besides the last three, keep the worker's first snapshot of every period of this length, "
        "by the brokers' clock: past predictions can be computed again from there. 0: none.",
        0,
        10**13,
    )
    archive_max: int = _is(12, "Archived snapshots kept per partition.", 1, 1_000)


@dataclass(frozen=True)
class LimitSettings:
    """``[limits]``: the most that is taken; what is beyond goes to the dead letters."""

    record_bytes_max: int = _is(
        262_144, "Bytes of one record: key, value and headers.", 1_024, 900_000
    )
    headers_max: int = _is(
        1_000,
        "Headers of one record. librdkafka, which restores read with, shows none at all of a "
        "record with more than 100000.",
        10,
        10_000,
    )
    id_bytes_max: int = _is(256, "Bytes of an id, in UTF-8.", 1, 1_024)
    features_max: int = _is(512, "Features in one record.", 1, 4_096)
    feature_name_bytes_max: int = _is(128, "Bytes of a feature's name, in UTF-8.", 1, 1_024)
    text_bytes_max: int = _is(256, "Bytes of a text that is a feature's value.", 1, 10_000)
    stream_chars_max: int = _is(64, "Characters of a stream's name.", 1, 128)
    streams_max: int = _is(1_000, "Streams in one partition.", 1, 100_000)
    state_bytes_max: int = _is(
        134_217_728,
        "Memory of the learners of one partition; at it, new streams and new features are refused. "
        "Half of it is the most for instances that wait, a quarter for remembered ids: beyond that "
        "the stream that has most gives up its oldest.",
        1_048_576,
        2**40,
    )
    early_bytes_max: int = _is(
        33_554_432,
        "Memory of the labels of one partition that wait for their features, about 600 bytes each; "
        "then the oldest go, of the stream that has most.",
        1_024,
        2**31,
    )


@dataclass(frozen=True)
class StreamsSettings:
    """``[streams]``: settings for all streams; ``[streams.NAME]`` describes one."""

    closed: bool = _is(False, "Refuse streams that are not described.")
    ts_ahead_max_ms: int = _is(
        300_000,
        "An event time further in the future than this, by the brokers' clock, counts as this.",
        0,
        10**13,
    )
    idle_ms: int = _is(
        366 * DAY_MS,
        "A stream to which nothing is sent for this long, by the brokers' clock, is forgotten, "
        "with all it has learnt; an event on scores and the log say so. 0: never.",
        0,
        10**13,
    )


@dataclass(frozen=True)
class EvaluatorSettings:
    """``[evaluator]``."""

    pairs_bytes_max: int = _is(
        134_217_728,
        "Memory of the predictions kept per partition, 400 bytes each with its label; the oldest "
        "go, and their labels are not scored any more.",
        4_000,
        1 << 36,
    )
    labels_max: int = _is(
        10_000, "Labels kept per partition that came before their prediction.", 10, 10_000_000
    )
    window_rows: int = _is(1_000, "Journal records in one window of scores.", 1, 10_000_000)
    windows_max: int = _is(32, "Windows of scores kept per stream.", 1, 10_000)
    boards_max: int = _is(
        1_000,
        "Streams per partition with scores of their own in /metrics and /status; further ones are "
        "scored on the topic alone.",
        1,
        100_000,
    )
    page_streams_max: int = _is(
        500,
        "Streams per partition that the live page can show; each takes up to 90 kB of memory.",
        1,
        100_000,
    )


@dataclass(frozen=True)
class WebSettings:
    """``[web]``: health, metrics, status."""

    host: str = _is("127.0.0.1", "Address to listen on.")
    port: int = _is(0, "Port to listen on; 0 takes a free one and logs it.", 0, 65_535)
    token_file: str = _is(
        "",
        "File with a bearer token that requests must carry; /livez and the empty page need none.",
    )
    metrics_streams_max: int = _is(
        20,
        "Streams of a partition with series of their own in /metrics, about 70 each.",
        0,
        10_000,
    )


@dataclass(frozen=True)
class Settings:
    """Everything the operator decides."""

    kafka: KafkaSettings = field(default_factory=KafkaSettings)
    security: SecuritySettings = field(default_factory=SecuritySettings)
    worker: WorkerSettings = field(default_factory=WorkerSettings)
    snapshots: SnapshotSettings = field(default_factory=SnapshotSettings)
    limits: LimitSettings = field(default_factory=LimitSettings)
    streams: StreamsSettings = field(default_factory=StreamsSettings)
    evaluator: EvaluatorSettings = field(default_factory=EvaluatorSettings)
    web: WebSettings = field(default_factory=WebSettings)
    learner: Config = field(default_factory=Config)
    described: Mapping[str, Config] = field(default_factory=dict)

    def topic(self, name: str) -> str:
        """The full name of a topic."""
        return topic_name(self.kafka.prefix, name)

    def group(self, role: str) -> str:
        """The consumer group of a role."""
        return f"{self.kafka.prefix}dtgol-{role}"


SECTIONS: Mapping[str, type] = {
    name: hint
    for name, hint in get_type_hints(Settings).items()
    if name not in ("learner", "described")
}


def declared() -> Iterator[tuple[str, Field[Any]]]:
    """Every setting with the name of its section."""
    for section, cls in SECTIONS.items():
        for item in fields(cls):
            yield section, item


def variable(section: str, key: str) -> str:
    """The environment variable of a setting."""
    return f"{ENVIRONMENT}{section}_{key}".upper()
