"""Settings: environment and TOML file, read once into one frozen object.

Every setting is declared here once, with its meaning, default and bounds; `--help`, the checks and
docs/settings.md come from the declaration. ``[web] port`` of the file is ``DTGOL_WEB_PORT`` in the
environment, which wins; ``--set web.port=8080`` wins over both. What the learner is told comes from
the file alone: ``[learner]`` for all streams, ``[streams.NAME]`` on top of it for one. Secrets are
read from files that settings name, by `security`, and are never part of this object.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

from dtgol_core.config import Config, ConfigError
from pipeline.configfile import read_toml
from pipeline.rules import Rules
from topics.catalog import topic_name
from topics.refusals import Limits

ENVIRONMENT = "DTGOL_"
FILE_VARIABLE = "DTGOL_CONFIG"
_NOT_OURS = ("DTGOL_KAFKA_IMAGE",)
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
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
    """``[kafka]``: the cluster, the names on it, and the patience with it."""

    bootstrap_servers: str = _is(
        "", "Brokers, host:port,...; KAFKA_BOOTSTRAP_SERVERS where this is not set."
    )
    prefix: str = _is("", "Put before the name of every topic and group.")
    group_instance_id: str = _is("", "Static membership: a name of this process in its group.")
    session_timeout_ms: int = _is(
        15_000, "A process silent for so long leaves its group.", 1_000, 600_000
    )
    heartbeat_ms: int = _is(3_000, "Time between signs of life to the group.", 100, 60_000)
    rebalance_timeout_ms: int = _is(
        60_000, "How long a member may take to give up its partitions.", 5_000, 600_000
    )
    request_timeout_ms: int = _is(
        90_000,
        "Patience with one request, and with the topic that takes a snapshot.",
        5_000,
        600_000,
    )

    @property
    def patience(self) -> dict[str, int]:
        """The same patience for librdkafka's clients, which take at most five minutes."""
        return {"socket.timeout.ms": min(self.request_timeout_ms, 300_000)}


@dataclass(frozen=True)
class SecuritySettings:
    """``[security]``: how to be let in; one place for both Kafka clients."""

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
        "How long the earlier of features and labels waits for the other side while that side is "
        "known to lag.",
        0,
        600_000,
    )
    merge_buffer_records: int = _is(
        2_000, "Records held per side and partition; then the side is paused.", 10, 1_000_000
    )
    journal_ahead_max: int = _is(
        20_000, "The sequencer waits when the learner is so many records behind.", 100, 10_000_000
    )
    commit_ms: int = _is(1_000, "Time between commits of source offsets.", 50, 60_000)
    stuck_ms: int = _is(
        120_000,
        "Not ready after so long without progress while there is work; the evaluator too.",
        1_000,
        DAY_MS,
    )
    give_up_ms: int = _is(
        300_000,
        "The process ends with exit code 1 after so long without progress while there is work, or "
        "without an answer of the cluster; the evaluator too.",
        2_000,
        DAY_MS,
    )
    why: int = _is(0, "Reasons in every prediction: the features that moved it most.", 0, 100)


@dataclass(frozen=True)
class SnapshotSettings:
    """``[snapshots]``: where state is kept, and how often."""

    store: str = _is("topic", "Where snapshots are kept.", None, None, "topic", "directory")
    directory: str = _is("", "The directory, for store = directory.")
    every_records: int = _is(5_000, "A snapshot after so many journal records ...", 1, 10_000_000)
    every_ms: int = _is(30_000, "... or after so long, if anything changed.", 100, DAY_MS)


@dataclass(frozen=True)
class LimitSettings:
    """``[limits]``: what one record, one stream, one partition may cost."""

    record_bytes_max: int = _is(262_144, "Key, value and headers of a record.", 1_024, 900_000)
    id_bytes_max: int = _is(256, "An id in UTF-8.", 1, 1_024)
    features_max: int = _is(512, "Feature names in one record.", 1, 4_096)
    feature_name_bytes_max: int = _is(128, "A feature name in UTF-8.", 1, 1_024)
    text_bytes_max: int = _is(256, "A text that is a feature's value, in UTF-8.", 1, 10_000)
    stream_chars_max: int = _is(64, "The name of a stream.", 1, 128)
    streams_max: int = _is(1_000, "Streams per partition.", 1, 100_000)
    held_bytes_max: int = _is(
        16_777_216,
        "Labels of one stream that wait for their features, in bytes; then the oldest go.",
        1_024,
        2**31,
    )


@dataclass(frozen=True)
class StreamsSettings:
    """``[streams]``: rules for all streams; ``[streams.NAME]`` describes one."""

    closed: bool = _is(False, "Refuse streams that are not described.")
    ts_ahead_max_ms: int = _is(
        300_000, "Event times count at most so far ahead of the journal's time.", 0, 10**13
    )
    idle_ms: int = _is(
        30 * DAY_MS, "A stream not heard of for so long is forgotten; 0 is never.", 0, 10**13
    )


@dataclass(frozen=True)
class EvaluatorSettings:
    """``[evaluator]``."""

    pairs_max: int = _is(
        50_000, "Predictions remembered per partition, scored or not.", 10, 10_000_000
    )
    labels_max: int = _is(
        10_000, "Labels held per partition for predictions to come.", 10, 10_000_000
    )
    window_rows: int = _is(1_000, "Steps per window of scores.", 1, 10_000_000)
    windows_max: int = _is(32, "Windows kept per stream.", 1, 10_000)


@dataclass(frozen=True)
class WebSettings:
    """``[web]``: health, metrics, status."""

    host: str = _is("127.0.0.1", "Address to listen on; loopback unless told otherwise.")
    port: int = _is(0, "Port to listen on; 0 takes a free one and logs it.", 0, 65_535)
    token_file: str = _is("", "File with a bearer token that every request must carry.")


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

    @property
    def rules(self) -> Rules:
        """The part that the fold sees; it goes into the journal."""
        limits = {item.name: getattr(self.limits, item.name) for item in fields(Limits)}
        return Rules(
            learner=self.learner,
            streams=self.described,
            closed=self.streams.closed,
            streams_max=self.limits.streams_max,
            ts_ahead_max_ms=self.streams.ts_ahead_max_ms,
            stream_idle_ms=self.streams.idle_ms or None,
            why=self.worker.why,
            held_bytes_max=self.limits.held_bytes_max,
            limits=Limits(**limits),
        )


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


def read_settings(
    environ: Mapping[str, str],
    path: Path | None = None,
    overrides: Mapping[str, str] | None = None,
) -> Settings:
    """The settings in force; every fault is a `ConfigError` of one sentence.

    The file is `path`, else what ``DTGOL_CONFIG`` names, else none. `overrides` are texts by
    ``section.key``.
    """
    named = path or (Path(environ[FILE_VARIABLE]) if environ.get(FILE_VARIABLE) else None)
    raw = read_toml(named) if named is not None else {}
    learner = raw.pop("learner", {})
    described = {
        name: raw["streams"].pop(name)
        for name in list(_section(raw, "streams"))
        if isinstance(raw["streams"][name], dict)
    }
    _refuse_unknown(raw, environ, overrides or {})
    chosen = {
        section: _read_section(section, raw, environ, overrides or {}) for section in SECTIONS
    }
    settings = Settings(
        **chosen,
        learner=_learner("learner", learner),
        described={
            name: _learner(f"streams.{name}", _overlay(learner, overlay))
            for name, overlay in described.items()
        },
    )
    _check(settings)
    return settings


def _read_section(
    section: str, raw: Mapping[str, Any], environ: Mapping[str, str], overrides: Mapping[str, str]
) -> Any:
    cls = SECTIONS[section]
    hints = get_type_hints(cls)
    values = {}
    for item in fields(cls):
        given: Any = overrides.get(f"{section}.{item.name}")
        given = environ.get(variable(section, item.name)) if given is None else given
        if given is None and (section, item.name) == ("kafka", "bootstrap_servers"):
            # The file wins over the variable that all Kafka tools share.
            shared = environ.get("KAFKA_BOOTSTRAP_SERVERS")
            given = None if "bootstrap_servers" in _section(raw, section) else shared
        if given is None:
            given = _section(raw, section).get(item.name, item.default)
        values[item.name] = _checked(f"{section}.{item.name}", hints[item.name], item, given)
    return cls(**values)


def _section(raw: Mapping[str, Any], section: str) -> dict[str, Any]:
    values = raw.get(section, {})
    if not isinstance(values, dict):
        raise ConfigError(f"{section} must be a section, not a value")
    return values


def _checked(key: str, hint: Any, item: Field[Any], given: Any) -> Any:
    value = _typed(key, hint, given)
    about = item.metadata
    if about["choices"] and value not in about["choices"]:
        listed = ", ".join(choice for choice in about["choices"] if choice)
        raise ConfigError(f"{key} must be one of {listed}")
    low, high = about["low"], about["high"]
    if (low is not None and value < low) or (high is not None and value > high):
        raise ConfigError(f"{key} must be between {low} and {high}, not {value}")
    return value


def _typed(key: str, hint: Any, given: Any) -> Any:
    """A value of the file, or a text of the environment, as the setting's type."""
    assert not get_args(hint), "settings are of plain types"
    if hint is bool:
        if isinstance(given, bool):
            return given
        if isinstance(given, str) and given.lower() in _TRUE + _FALSE:
            return given.lower() in _TRUE
        raise ConfigError(f"{key} must be true or false")
    if hint is int:
        try:
            if isinstance(given, str) or type(given) is int:
                return int(given)
        except ValueError:
            pass
        raise ConfigError(f"{key} must be a whole number")
    if not isinstance(given, str):
        raise ConfigError(f"{key} must be a text")
    return given.strip()


def _refuse_unknown(
    raw: Mapping[str, Any], environ: Mapping[str, str], overrides: Mapping[str, str]
) -> None:
    known = {f"{section}.{item.name}" for section, item in declared()}
    for section in raw:
        if section not in SECTIONS:
            listed = ", ".join([*SECTIONS, "learner"])
            raise ConfigError(f"{section} is not a section; there are: {listed}")
        for key in _section(raw, section):
            if f"{section}.{key}" not in known:
                raise ConfigError(f"{section}.{key} is not a setting; see: dtgol worker --help")
    for name in overrides:
        if name not in known:
            raise ConfigError(f"{name} is not a setting; see: dtgol worker --help")
    ours = {variable(section, item.name) for section, item in declared()}
    starts = tuple(f"{ENVIRONMENT}{section.upper()}_" for section in SECTIONS)
    for name in environ:
        if name.startswith(starts) and name not in ours and name not in _NOT_OURS:
            raise ConfigError(f"{name} is not a setting; see: dtgol worker --help")


def _check(settings: Settings) -> None:
    """What only several settings together can say."""
    if settings.kafka.heartbeat_ms * 2 > settings.kafka.session_timeout_ms:
        raise ConfigError("kafka.heartbeat_ms must be at most half of kafka.session_timeout_ms")
    if settings.kafka.request_timeout_ms < settings.kafka.session_timeout_ms:
        raise ConfigError("kafka.request_timeout_ms must not be below kafka.session_timeout_ms")
    worker = settings.worker
    if worker.give_up_ms <= max(worker.stuck_ms, worker.merge_wait_ms):
        raise ConfigError(
            "worker.give_up_ms must be above worker.stuck_ms and worker.merge_wait_ms"
        )
    if settings.snapshots.store == "directory" and not settings.snapshots.directory:
        raise ConfigError("snapshots.directory must be set for snapshots.store = directory")
    try:
        settings.topic("dead-letters")
    except ValueError as error:
        raise ConfigError(f"kafka.prefix: {error}") from None


def _learner(where: str, raw: Any) -> Config:
    if not isinstance(raw, dict):
        raise ConfigError(f"{where} must be a section, not a value")
    try:
        return Config.read(raw)
    except ConfigError as error:
        raise ConfigError(f"[{where}] {error}") from None


def _overlay(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """`above` laid over `below`, section by section."""
    merged = dict(below)
    for key, value in above.items():
        under = merged.get(key)
        nested = isinstance(value, dict) and isinstance(under, dict)
        merged[key] = _overlay(under, value) if nested else value  # type: ignore[arg-type]
    return merged
