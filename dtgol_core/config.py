"""Settings of the learner: one frozen value per section, ranges checked when it is built.

The names are those of the configuration file: ``[copula] window`` is ``Config.copula.window``.
A value outside its range, an unknown key or a wrong type is refused with a `ConfigError` that
names the key. Nothing here reads files or the environment.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import Any, Literal, TypeVar, get_args, get_type_hints

FeatureKind = Literal["continuous", "ordinal", "nominal"]
Release = Literal["arrival", "step"]
Reduction = Literal["mean", "sum"]
Corrected = Literal["first", "last"]
EXPERT_NAMES = ("naive", "paper", "linear", "linear_fast", "forest", "recent", "tracker")
"""Every expert there is, in the order in which forecasts list them."""
Expired = Literal["drop", 0, 1]
DAY_MS = 86_400_000


class ConfigError(ValueError):
    """A setting that cannot be used; the message names the key and what is allowed."""


def _bounds(section: str, settings: object, **limits: tuple[float, float]) -> None:
    """Refuse settings outside their closed range; ``None`` (auto, none) is always allowed."""
    for key, (low, high) in limits.items():
        value = getattr(settings, key)
        if value is not None and not low <= value <= high:
            raise ConfigError(
                f"{section}.{key} must be between {low:g} and {high:g}, not {value!r}"
            )


@dataclass(frozen=True, slots=True)
class ColumnsConfig:
    """``[columns]``: input that is nearly right.

    ``missing`` are texts that mean *missing*, in any case, with blanks around them or not; a
    feature declared nominal takes them as levels. ``strict``: a cell of another kind than its
    feature, or a NaN, refuses the whole record; otherwise it is missing, and counted.
    """

    strict: bool = False
    missing: tuple[str, ...] = ("", "NA", "N/A", "null", "NaN", "?")


@dataclass(frozen=True, slots=True)
class CopulaConfig:
    """``[copula]``. ``gamma_floor = None`` is auto: ``1 / window``."""

    window: int = 200
    ridge: float = 1e-3
    gamma_floor: float | None = None
    max_columns: int = 512

    def __post_init__(self) -> None:
        _bounds(
            "copula",
            self,
            window=(2, 100_000),
            ridge=(1e-9, 1),
            gamma_floor=(0, 0.5),
            max_columns=(1, 4096),
        )


@dataclass(frozen=True, slots=True)
class GraphConfig:
    """``[graph]``. ``refresh_steps = None`` is auto: an eighth of the fine buffer."""

    unverified: int = 200
    verified: int = 300
    percentile: float = 2.0
    refresh_steps: int | None = None

    def __post_init__(self) -> None:
        _bounds(
            "graph",
            self,
            unverified=(1, 4_000),
            verified=(1, 4_000),
            percentile=(0, 100),
            refresh_steps=(1, 1_000_000),
        )


@dataclass(frozen=True, slots=True)
class SoftLabelsConfig:
    """``[softlabels]``."""

    rate: float = 0.1
    temperature: float = 5.0
    prototype_start: float = 0.8
    prototype_rate: float = 0.05
    frontier_steps: int = 1
    refine_steps: int = 1

    def __post_init__(self) -> None:
        _bounds(
            "softlabels",
            self,
            rate=(0, 10),
            temperature=(0, 100),
            prototype_start=(0.5, 1),
            prototype_rate=(0, 1),
            frontier_steps=(0, 100),
            refine_steps=(0, 1000),
        )


@dataclass(frozen=True, slots=True)
class TracksConfig:
    """``[tracks]``. ``rate_floor = rate`` is a constant rate, ``rehearsal_rate = 0`` none."""

    rate: float = 1.0
    rate_floor: float = 0.03
    l2: float = 0.0
    rehearsal_rate: float = 1.0
    rehearsal_l2: float = 0.003
    transient_rate: float = 1.0
    transient_reduction: Reduction = "mean"

    def __post_init__(self) -> None:
        rates = ("rate", "rate_floor", "rehearsal_rate", "transient_rate")
        limits = {"l2": (0.0, 1.0), "rehearsal_l2": (0.0, 1.0)}
        _bounds("tracks", self, **limits, **dict.fromkeys(rates, (0.0, 10.0)))
        for rate in rates[:3]:
            penalty = "rehearsal_l2" if rate == "rehearsal_rate" else "l2"
            if getattr(self, penalty) * getattr(self, rate) > 1:
                raise ConfigError(
                    f"tracks.{penalty} times tracks.{rate} must not exceed 1: weights would blow up"
                )


@dataclass(frozen=True, slots=True)
class EnsembleConfig:
    """``[ensemble]``. ``horizon = None``: the number of labels learnt so far."""

    beta: float = 0.5
    horizon: int | None = None

    def __post_init__(self) -> None:
        _bounds("ensemble", self, beta=(0, 1), horizon=(1, 10**15))


@dataclass(frozen=True, slots=True)
class CombinationConfig:
    """``[combination]``. ``decides`` names the one expert whose answer is the forecast; none: all
    experts are combined."""

    decides: str | None = None


@dataclass(frozen=True, slots=True)
class DelayConfig:
    """``[delay]``. ``steps`` is the L of ``release = "step"``. ``expire_steps = None`` and
    ``expire_ms = None`` are never: an instance waits until its stream has ``pending_max`` or
    ``pending_bytes_max`` of them. Labels before their features wait as long: whoever keeps their
    bytes bounds them. ``expired`` is the label that is learnt of an instance that
    expires; ``settled_ms = None``: ids are remembered until there are ``settled_max``."""

    release: Release = "arrival"
    steps: int = 0
    expire_steps: int | None = None
    expire_ms: int | None = None
    pending_max: int = 1_000_000
    pending_bytes_max: int = 64 * 2**20
    expired: Expired = "drop"
    early_max: int = 1_000_000
    early_steps: int = 1_000_000
    settled_max: int = 1_000_000
    settled_ms: int | None = 366 * DAY_MS
    corrected: Corrected = "last"

    def __post_init__(self) -> None:
        _bounds(
            "delay",
            self,
            steps=(0, 1_000_000),
            expire_steps=(1, 1_000_000_000),
            expire_ms=(1, 10**15),
            pending_max=(1, 100_000_000),
            pending_bytes_max=(2**16, 2**40),
            early_max=(0, 1_000_000),
            early_steps=(1, 1_000_000),
            settled_max=(0, 100_000_000),
            settled_ms=(1, 10**15),
        )
        if self.release == "step":
            for key in ("expire_steps", "pending_max"):
                bound = getattr(self, key)
                if bound is not None and bound <= self.steps:
                    raise ConfigError(
                        f"delay.{key} must be greater than delay.steps ({self.steps}) with "
                        f'release = "step": nothing would live long enough to be learnt'
                    )


@dataclass(frozen=True, slots=True)
class DecisionConfig:
    """``[decision]``: what is made of p. ``threshold = None`` is auto: the p from which on label 1
    costs less, ``cost_fp / (cost_fp + cost_fn)``; ½ for equal costs. ``coverage`` is the share of
    the labels of each class that the sets of `dtgol_core.conformal` should contain."""

    threshold: float | None = None
    cost_fp: float = 1.0
    cost_fn: float = 1.0
    coverage: float = 0.9

    def __post_init__(self) -> None:
        costs = dict.fromkeys(("cost_fp", "cost_fn"), (1e-9, 1e9))
        _bounds("decision", self, threshold=(0, 1), coverage=(0.5, 0.99), **costs)

    @property
    def label_1_above(self) -> float:
        """The threshold in force: the hard label is 1 where p is above it."""
        if self.threshold is not None:
            return self.threshold
        return self.cost_fp / (self.cost_fp + self.cost_fn)


@dataclass(frozen=True, slots=True)
class AblateConfig:
    """``[ablate]``: parts switched off, to measure what they are worth."""

    copula: bool = False
    marginals: bool = False
    softlabels: bool = False
    dual_track: bool = False
    risk: bool = False


@dataclass(frozen=True, slots=True)
class FeatureConfig:
    """``[features.NAME]``: what is known of a feature beforehand. ``kind = None``: inferred."""

    kind: FeatureKind | None = None
    levels: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Config:
    """All settings of a learner.

    Examples
    --------
    >>> Config.read({"copula": {"window": 50}}).copula.window
    50
    >>> Config.read({"preset": "paper"}).delay.release
    'step'
    >>> Config.read({"copula": {"window": 1}})
    Traceback (most recent call last):
        ...
    dtgol_core.config.ConfigError: copula.window must be between 2 and 100000, not 1
    """

    experts: tuple[str, ...] = EXPERT_NAMES
    combination: CombinationConfig = field(default_factory=CombinationConfig)
    columns: ColumnsConfig = field(default_factory=ColumnsConfig)
    copula: CopulaConfig = field(default_factory=CopulaConfig)
    graph: GraphConfig = field(default_factory=GraphConfig)
    softlabels: SoftLabelsConfig = field(default_factory=SoftLabelsConfig)
    tracks: TracksConfig = field(default_factory=TracksConfig)
    ensemble: EnsembleConfig = field(default_factory=EnsembleConfig)
    delay: DelayConfig = field(default_factory=DelayConfig)
    decision: DecisionConfig = field(default_factory=DecisionConfig)
    ablate: AblateConfig = field(default_factory=AblateConfig)
    features: Mapping[str, FeatureConfig] = field(default_factory=dict)

    def __post_init__(self) -> None:
        unknown = [name for name in self.experts if name not in EXPERT_NAMES]
        if unknown:
            raise ConfigError(
                f"experts: {unknown[0]!r} is not an expert; there are: {', '.join(EXPERT_NAMES)}"
            )
        if len(set(self.experts)) < len(self.experts):
            raise ConfigError("experts names an expert twice")
        if "naive" not in self.experts:
            raise ConfigError("experts must name naive: it is what the others are measured by")
        decides = self.combination.decides
        if decides is not None and decides not in self.experts:
            raise ConfigError(
                f"combination.decides must be none or one of {', '.join(self.experts)}, "
                f"not {decides!r}"
            )
        for name, feature in self.features.items():
            _check_feature(name, feature, self.copula.max_columns)

    @staticmethod
    def read(settings: Mapping[str, Any]) -> "Config":
        """Build a configuration from nested mappings, as read from a TOML file."""
        settings = dict(settings)
        start = preset(settings.pop("preset", "default"))
        sections = get_type_hints(Config)
        read: dict[str, Any] = {}
        for name, values in settings.items():
            if name not in sections:
                raise ConfigError(f"{name} is not a section; there are: {', '.join(sections)}")
            if name == "experts":
                read[name] = _typed(name, sections[name], values)
            elif not isinstance(values, Mapping):
                raise ConfigError(f"{name} must be a section, not {values!r}")
            elif name == "features":
                read[name] = {
                    feature: _read_section(f"features.{feature}", FeatureConfig(), value)
                    for feature, value in values.items()
                }
            else:
                read[name] = _read_section(name, getattr(start, name), values)
        return replace(start, **read)

    def as_mapping(self) -> dict[str, Any]:
        """The nested mapping that `read` turns back into this configuration."""
        mapping = _values(self)
        for name in mapping.keys() - {"experts", "features"}:
            mapping[name] = _values(mapping[name])
        mapping["experts"] = list(self.experts)
        mapping["features"] = {name: _values(each) for name, each in self.features.items()}
        for feature in mapping["features"].values():
            feature["levels"] = list(feature["levels"])
        return mapping

    @staticmethod
    def read_whole(mapping: Mapping[str, Any]) -> "Config":
        """The configuration that `as_mapping` gave, in a journal or a snapshot.

        Every key must be there: a key that some other version did not know would take today's
        default, and what was learnt by it would not be computed again.
        """
        try:
            text = json.dumps(mapping, sort_keys=True)
        except TypeError:  # not of a journal or a snapshot; `read` says what is wrong with it
            return _spelled_out(mapping)
        return _read_text(text)

    def shape_differs(self, other: "Config") -> list[str]:
        """Settings that shape the state, and so cannot change in flight, that differ."""
        if self is other:
            return []
        mine, theirs = self.as_mapping(), other.as_mapping()
        shaping = [
            ("combination", "decides"),
            ("copula", "window"),
            ("graph", "unverified"),
            ("graph", "verified"),
            *(("ablate", key) for key in mine["ablate"]),
        ]
        differ = [
            f"{name}.{key}" for name, key in shaping if mine[name].get(key) != theirs[name].get(key)
        ]
        whole = [name for name in ("experts", "features") if mine[name] != theirs[name]]
        return differ + whole

    def digest(self) -> str:
        """Sixteen hex digits that name this configuration."""
        text = json.dumps(self.as_mapping(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def _values(section: Any) -> dict[str, Any]:
    """The values of a section by name. `dataclasses.asdict` takes twenty times as long, which
    counts where thousands of streams are restored."""
    return {name: getattr(section, name) for name in section.__slots__}


@lru_cache(maxsize=64)
def _read_text(text: str) -> Config:
    """`Config.read_whole` by its JSON: the snapshots of many streams have the same."""
    return _spelled_out(json.loads(text))


def _spelled_out(mapping: Mapping[str, Any]) -> Config:
    """The configuration, none of whose keys may be absent."""
    config = Config.read(mapping)
    whole = config.as_mapping()
    absent = [name for name in whole if name not in mapping]
    for name, values in whole.items():
        if isinstance(values, dict) and name in mapping:
            absent += [f"{name}.{key}" for key in values if key not in mapping[name]]
    if absent:
        raise ConfigError(f"{absent[0]} is not spelled out: written by another version")
    return config


def preset(name: str) -> Config:
    """``default``: what the benchmark chose. ``light``: for many streams, without the graph.
    ``paper``: as printed, and frozen: golden traces pin every value of it, so it is spelled out and
    does not follow the defaults."""
    if name == "default":
        return Config()
    if name == "light":
        return Config(experts=("naive", "linear", "linear_fast", "recent"))
    if name == "paper":
        return Config(
            experts=("naive", "paper"),
            combination=CombinationConfig(decides="paper"),
            columns=ColumnsConfig(strict=True, missing=()),
            copula=CopulaConfig(window=200, ridge=1e-3, gamma_floor=None, max_columns=512),
            graph=GraphConfig(unverified=200, verified=100, percentile=2.0, refresh_steps=1),
            softlabels=SoftLabelsConfig(
                rate=0.1,
                temperature=5.0,
                prototype_start=0.8,
                prototype_rate=0.05,
                frontier_steps=1,
                refine_steps=1,
            ),
            tracks=TracksConfig(
                rate=0.1,
                rate_floor=0.1,
                l2=0.0,
                rehearsal_rate=0.0,
                rehearsal_l2=0.0,
                transient_rate=0.01,
                transient_reduction="sum",
            ),
            ensemble=EnsembleConfig(beta=0.5, horizon=None),
            delay=DelayConfig(
                release="step",
                steps=0,
                expire_steps=10_000,
                expire_ms=None,
                pending_max=100_000,
                pending_bytes_max=2**40,
                expired="drop",
                early_max=1_000,
                early_steps=10_000,
                settled_max=10_000,
                settled_ms=None,
                corrected="first",
            ),
            decision=DecisionConfig(threshold=None, cost_fp=1.0, cost_fn=1.0, coverage=0.9),
            ablate=AblateConfig(),
        )
    raise ConfigError(f"preset must be default, light or paper, not {name!r}")


Section = TypeVar("Section")


def _read_section(section: str, start: Section, values: object) -> Section:
    """Replace the keys given in `values`, each checked against the type of its field."""
    if not isinstance(values, Mapping):
        raise ConfigError(f"{section} must be a section, not {values!r}")
    hints = get_type_hints(type(start))
    read: dict[str, Any] = {}
    for key, value in values.items():
        if key not in hints:
            raise ConfigError(f"{section}.{key} is not a setting; there are: {', '.join(hints)}")
        read[key] = _typed(f"{section}.{key}", hints[key], value)
    known = {item.name: getattr(start, item.name) for item in fields(start)}  # type: ignore[arg-type]
    return type(start)(**{**known, **read})


def _typed(key: str, hint: Any, value: object) -> Any:
    """Check one value against its type; "auto" and "none" stand for None where that is allowed."""
    options = get_args(hint)
    if type(None) in options and value in (None, "auto", "none"):
        return None
    kinds = tuple(option for option in options if option is not type(None)) or (hint,)
    if any(isinstance(option, str) for option in kinds):
        if value in kinds and type(value) in map(type, kinds):
            return value
        raise ConfigError(f"{key} must be one of {', '.join(map(str, kinds))}, not {value!r}")
    if hint is bool:
        if isinstance(value, bool):
            return value
        raise ConfigError(f"{key} must be true or false, not {value!r}")
    if hint == tuple[str, ...]:
        if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
            return tuple(value)
        raise ConfigError(f"{key} must be a list of strings, not {value!r}")
    if kinds == (str,) and isinstance(value, str):
        return value
    if int in kinds and isinstance(value, int) and not isinstance(value, bool):
        return value
    if float in kinds and isinstance(value, int | float) and not isinstance(value, bool):
        if math.isfinite(value):
            return float(value)
        raise ConfigError(f"{key} must be finite, not {value!r}")
    literal = get_args(kinds[0])
    if literal and value in literal and type(value) in map(type, literal):
        return value
    wanted = "one of " + ", ".join(map(str, literal)) if literal else kinds[0].__name__
    raise ConfigError(f"{key} must be {wanted}, not {value!r}")


def _check_feature(name: str, feature: FeatureConfig, columns_max: int) -> None:
    key = f"features.{name}"
    if feature.levels and feature.kind != "nominal":
        raise ConfigError(f'{key}.levels needs kind = "nominal"')
    if len(feature.levels) > min(32, columns_max):
        raise ConfigError(f"{key}.levels may name at most {min(32, columns_max)} levels")
    if len(set(feature.levels)) < len(feature.levels):
        raise ConfigError(f"{key}.levels names a level twice")
    if feature.kind == "nominal" and (feature.low is not None or feature.high is not None):
        raise ConfigError(f"{key}.low and {key}.high are for numbers, not for a nominal feature")
    if feature.low is not None and feature.high is not None and feature.low > feature.high:
        raise ConfigError(f"{key}.low must not be greater than {key}.high")
