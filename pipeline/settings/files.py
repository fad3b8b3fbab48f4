"""Settings from a TOML file; every fault is a `ConfigError` of one sentence."""

import tomllib
from collections.abc import Iterable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from dtgol_core.config import AblateConfig, Config, ConfigError


def read_config(path: Path | None, ablate: Iterable[str] = ()) -> Config:
    """The configuration in a file (the defaults without one), with more parts switched off."""
    config = Config() if path is None else Config.read(read_toml(path))
    known = [field.name for field in fields(AblateConfig)]
    names = list(ablate)
    for name in names:
        if name not in known:
            raise ConfigError(f"{name!r} cannot be ablated; there are: {', '.join(known)}")
    return replace(config, ablate=replace(config.ablate, **dict.fromkeys(names, True)))


def read_toml(path: Path) -> dict[str, Any]:
    """What a TOML file says."""
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except FileNotFoundError:
        raise ConfigError(f"there is no settings file {path}") from None
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None
