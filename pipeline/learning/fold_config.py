"""The configuration of the fold: everything besides the journal that its outputs depend on.

It is data: a worker whose configuration differs from the one in force appends it to the journal as
a `config` record, and it holds from there on. So a replay needs the journal and nothing else.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, NamedTuple

from dtgol_core.config import Config, ConfigError
from dtgol_core.state import CORRUPTION_ERRORS
from pipeline.settings import Settings
from topics.reasons import DEFAULT_LIMITS, Limits

FOLD_VERSION = 5
"""Raised when the same journal would give other bits; part of every model name."""
RECORD_BYTES_MAX = 900_000
"""Of the configuration as a journal record: Kafka takes a mebibyte by default."""


class Lineage(NamedTuple):
    """Which software folded a state, and from where on.

    Below `since` another version did, so the bits depend on `since` too: it is in the model's name.
    """

    version: int
    since: int

    def __str__(self) -> str:
        return f"{self.version}.{self.since}" if self.since else f"{self.version}"


@dataclass(frozen=True, slots=True)
class FoldConfig:
    """The configuration in force for one partition.

    `streams` are the described streams with their whole configuration; any other stream is
    learnt with `learner`, unless `closed`. `why` is how many reasons a prediction carries.
    Labels do not open streams: a learner is opened by features, within `state_bytes_max`. Those
    that come before take `early_bytes_max` at most, of all streams together.
    """

    learner: Config = field(default_factory=Config)
    streams: Mapping[str, Config] = field(default_factory=dict)
    closed: bool = False
    streams_max: int = 1_000
    ts_ahead_max_ms: int = 300_000
    stream_idle_ms: int | None = None
    why: int = 0
    early_bytes_max: int = 33_554_432
    state_bytes_max: int = 134_217_728
    limits: Limits = DEFAULT_LIMITS

    @staticmethod
    def from_settings(settings: Settings) -> FoldConfig:
        """The part of the settings that the fold sees; `ConfigError` if it is too large."""
        limits = {item.name: getattr(settings.limits, item.name) for item in fields(Limits)}
        config = FoldConfig(
            learner=settings.learner,
            streams=settings.described,
            closed=settings.streams.closed,
            streams_max=settings.limits.streams_max,
            ts_ahead_max_ms=settings.streams.ts_ahead_max_ms,
            stream_idle_ms=settings.streams.idle_ms or None,
            why=settings.worker.why,
            early_bytes_max=settings.limits.early_bytes_max,
            state_bytes_max=settings.limits.state_bytes_max,
            limits=Limits(**limits),
        )
        size = config.record_bytes
        if size > RECORD_BYTES_MAX:
            raise ConfigError(
                f"[streams.NAME] describes {len(config.streams)} streams, which makes a journal "
                f"record of {size} bytes, over {RECORD_BYTES_MAX}: describe fewer; those that are "
                f"like [learner] need no description"
            )
        return config

    @property
    def record_bytes(self) -> int:
        """Its size as a journal record, about."""
        return len(json.dumps(self.as_mapping()))

    def config_for(self, stream: str) -> Config:
        """The configuration of a stream's learner."""
        return self.streams.get(stream, self.learner)

    @property
    def allowed_streams(self) -> Mapping[str, Config] | None:
        """The streams that may come, or None if any may."""
        return self.streams if self.closed else None

    def as_mapping(self) -> dict[str, Any]:
        """The plain values that `read` turns back into this configuration."""
        return {
            "learner": self.learner.as_mapping(),
            "streams": {name: config.as_mapping() for name, config in self.streams.items()},
            "closed": self.closed,
            "streams_max": self.streams_max,
            "ts_ahead_max_ms": self.ts_ahead_max_ms,
            "stream_idle_ms": self.stream_idle_ms,
            "why": self.why,
            "early_bytes_max": self.early_bytes_max,
            "state_bytes_max": self.state_bytes_max,
            "limits": asdict(self.limits),
        }

    @staticmethod
    def read(mapping: Mapping[str, Any]) -> FoldConfig:
        """The configuration in a `config` record or a snapshot; raises `ConfigError`.

        Every key must be there: one that its writer did not know would take today's default.
        """
        try:
            plain = dict(mapping)
            _require_all(FoldConfig, plain, "")
            _require_all(Limits, plain["limits"], "limits.")
            plain["learner"] = Config.read_whole(plain["learner"])
            plain["streams"] = {
                name: Config.read_whole(config) for name, config in plain["streams"].items()
            }
            plain["limits"] = Limits(**plain["limits"])
            config = FoldConfig(**plain)
        except CORRUPTION_ERRORS as error:
            if isinstance(error, ConfigError):
                raise
            raise ConfigError(f"this configuration cannot be read: {error!r}") from None
        config._check()
        return config

    def _check(self) -> None:
        """Refuse values that the fold cannot use: a journal is folded for as long as it is kept."""
        if type(self.closed) is not bool:
            raise ConfigError("closed must be true or false")
        whole = {
            "streams_max": (self.streams_max, 1),
            "ts_ahead_max_ms": (self.ts_ahead_max_ms, 0),
            "why": (self.why, 0),
            "early_bytes_max": (self.early_bytes_max, 0),
            "state_bytes_max": (self.state_bytes_max, 0),
        }
        if self.stream_idle_ms is not None:
            whole["stream_idle_ms"] = self.stream_idle_ms, 1
        for name, (value, low) in whole.items():
            if type(value) is not int or value < low:
                raise ConfigError(f"{name} must be a whole number of at least {low}")

    def digest(self) -> str:
        """Sixteen hex digits of the hash of this configuration."""
        text = json.dumps(self.as_mapping(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def differs(self, other: FoldConfig) -> list[str]:
        """Names of the settings that another configuration has otherwise, sorted."""
        ours, theirs = _flat(self.as_mapping()), _flat(other.as_mapping())
        names = ours.keys() | theirs.keys()
        return sorted(name for name in names if ours.get(name, ...) != theirs.get(name, ...))

    def shape_differs(self, stream: str, made_with: Config) -> list[str]:
        """Settings of a stream that cannot change in flight, and do; they need a `reset`."""
        return self.config_for(stream).shape_differs(made_with)


def _require_all(cls: type, given: Mapping[str, Any], prefix: str) -> None:
    absent = [item.name for item in fields(cls) if item.name not in given]
    if absent:
        raise ConfigError(f"{prefix}{absent[0]} is not spelled out: written by another version")


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by their dotted names."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{name}.")
        else:
            found[prefix + name] = value
    return found
