"""The settings in force: environment and TOML file, read once into one frozen object.

``[web] port`` of the file is ``DTGOL_WEB_PORT`` in the environment, which wins; ``--set
web.port=8080`` wins over both. The learner's settings come from the file alone: ``[learner]``
for all streams, ``[streams.NAME]`` on top of it for one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

from dtgol_core.config import Config, ConfigError
from pipeline.settings.declaration import ENVIRONMENT, SECTIONS, Settings, declared, variable
from pipeline.settings.files import read_toml

FILE_VARIABLE = "DTGOL_CONFIG"
_NOT_OURS = ("DTGOL_KAFKA_IMAGE",)
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


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
