"""The rules of the fold: everything besides the journal that decides what a record becomes.

They are data: a worker whose rules differ from those in force appends them to the journal as a
`config` record, and they hold from there on. So a replay needs the journal and nothing else.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from dtgol_core.config import Config, ConfigError
from dtgol_core.state import DAMAGE
from topics.refusals import DEFAULT_LIMITS, Limits

FOLD_VERSION = 1
"""Raised when the same journal would give other bits; part of the rules and of every model name."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What holds for one partition.

    `streams` are the described streams with their whole configuration; any other stream is
    learnt with `learner`, unless `closed`. `why` is how many reasons a prediction carries.
    `held_bytes_max` is None in rules that were written before there was such a bound.
    """

    learner: Config = field(default_factory=Config)
    streams: Mapping[str, Config] = field(default_factory=dict)
    closed: bool = False
    streams_max: int = 1_000
    ts_ahead_max_ms: int = 300_000
    stream_idle_ms: int | None = None
    why: int = 0
    held_bytes_max: int | None = None
    limits: Limits = DEFAULT_LIMITS

    def config_for(self, stream: str) -> Config:
        """The configuration of a stream's learner."""
        return self.streams.get(stream, self.learner)

    @property
    def known(self) -> Mapping[str, Config] | None:
        """The streams that may come, or None if any may."""
        return self.streams if self.closed else None

    def as_mapping(self) -> dict[str, Any]:
        """The plain values that `read` turns back into these rules."""
        return {
            "fold": FOLD_VERSION,
            "learner": self.learner.as_mapping(),
            "streams": {name: config.as_mapping() for name, config in self.streams.items()},
            "closed": self.closed,
            "streams_max": self.streams_max,
            "ts_ahead_max_ms": self.ts_ahead_max_ms,
            "stream_idle_ms": self.stream_idle_ms,
            "why": self.why,
            "held_bytes_max": self.held_bytes_max,
            "limits": asdict(self.limits),
        }

    @staticmethod
    def read(mapping: Mapping[str, Any]) -> Rules:
        """Rules from a `config` record or a snapshot; refuses with a `ConfigError`."""
        try:
            plain = {name: value for name, value in mapping.items() if name != "fold"}
            plain["learner"] = Config.read(plain["learner"])
            plain["streams"] = {
                name: Config.read(config) for name, config in plain["streams"].items()
            }
            plain["limits"] = Limits(**plain["limits"])
            rules = Rules(**plain)
        except DAMAGE as error:
            if isinstance(error, ConfigError):
                raise
            raise ConfigError(f"these rules cannot be read: {error!r}") from None
        rules._check()
        return rules

    def _check(self) -> None:
        """Refuse what the fold could not go by: a journal is folded for as long as it is kept."""
        if type(self.closed) is not bool:
            raise ConfigError("closed must be true or false")
        whole = {
            "streams_max": (self.streams_max, 1),
            "ts_ahead_max_ms": (self.ts_ahead_max_ms, 0),
            "why": (self.why, 0),
        }
        if self.stream_idle_ms is not None:
            whole["stream_idle_ms"] = self.stream_idle_ms, 1
        if self.held_bytes_max is not None:
            whole["held_bytes_max"] = self.held_bytes_max, 0
        for name, (value, low) in whole.items():
            if type(value) is not int or value < low:
                raise ConfigError(f"{name} must be a whole number of at least {low}")

    def digest(self) -> str:
        """Sixteen hex digits that name these rules and the version of the fold."""
        text = json.dumps(self.as_mapping(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def shape_differs(self, stream: str, made_with: Config) -> list[str]:
        """Settings of a stream that cannot change in flight, and do; they need a `reset`."""
        return self.config_for(stream).shape_differs(made_with)
