"""The methods of the comparison: name, group, title, and how to make a fresh one.

Groups: ``paper`` (the seven of the paper's table, DT-GOL with its default settings among them),
``preset`` (the other presets), ``naive``, ``control``, ``peer``, ``ablation`` (DT-GOL without one
expert), ``part`` (DT-GOL without one part of the paper's expert).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from typing import Literal, TypeAlias

import numpy as np

from dtgol_core.baselines import BASELINES, CONTROLS, Baseline
from dtgol_core.baselines.naive import Naive
from dtgol_core.config import AblateConfig, Config, preset
from dtgol_core.experts import EXPERTS
from dtgol_core.learner import Learner
from pipeline.errors import InputError
from pipeline.offline.backtest import OnlineLearner
from pipeline.offline.compare.peers import LastLabel

Group: TypeAlias = Literal["paper", "preset", "naive", "control", "peer", "ablation", "part"]
Tier: TypeAlias = Literal["main", "fifteen", "ablation", "part", "slow", "slowest"]
PARTS = {
    "copula": "w/o copula",
    "marginals": "w/o correlation",
    "softlabels": "w/o soft labels",
    "dual_track": "w/o dual track",
    "risk": "w/o risk weights",
}
LEGEND = "(r): reconstructed, that is, rebuilt from an abstract or from public code."
NO_PEERS = '{} is not installed: {} (pip install -e ".[bench]")'
LIBRARIES = {"river": "River", "sklearn": "scikit-learn"}
US_PER_RECORD = {
    "dt-gol": 250, "light": 80, "paper-expert": 170, "as-printed": 250, "fobos": 40, "ovfm": 70,
    "oslmf": 300, "iwms": 80, "ol-mdisf": 300, "lach": 110, "naive": 55, "naive-constant": 55,
    "replay": 105, "last-label": 8, "river-lr": 30, "river-hat": 150, "river-arf": 1000,
    "river-srp": 3000, "retrained": 1500,
}  # fmt: skip
"""Processor time of one record at about 16 columns, rounded up. For the estimate of a plan alone:
tables show what was measured."""
SLOW_US, SLOWEST_US = 500, 2000
FIFTEEN_ONLY = (
    "fobos", "ovfm", "oslmf", "iwms", "ol-mdisf", "naive-constant", "last-label", "river-hat",
)  # fmt: skip
"""Run on the paper's fifteen streams and not on the others: there they are behind by far."""


@dataclass(frozen=True, slots=True)
class Method:
    """One row of the tables. `module` is where its code begins, for the cache."""

    name: str
    title: str
    group: Group
    module: str
    make: Callable[[int, int], OnlineLearner]
    """(seed, delay) -> a fresh learner."""
    settings: str = ""
    """What else decides its results: the digest of its configuration."""
    reconstructed: bool = False

    @property
    def us_estimate(self) -> int:
        """Expected processor time per record."""
        usual = "paper-expert" if self.group == "part" else "dt-gol"
        return US_PER_RECORD.get(self.name, US_PER_RECORD[usual])

    @property
    def tier(self) -> Tier:
        """What a plan goes by when it limits seeds and delays."""
        if self.us_estimate >= SLOW_US:
            return "slow" if self.us_estimate < SLOWEST_US else "slowest"
        if self.group == "ablation":
            return "ablation"
        if self.name in FIFTEEN_ONLY:
            return "fifteen"
        return "part" if self.group == "part" or self.name == "as-printed" else "main"

    @property
    def marked(self) -> str:
        """The title as it stands in every table and figure; `LEGEND` says what the mark means."""
        return f"{self.title} (r)" if self.reconstructed else self.title


def all_methods() -> dict[str, Method]:
    """Every method there is, in the order of the tables; peers whose library is installed."""
    methods = [_ours("dt-gol", "DT-GOL", "paper", Config())]
    methods += [_baseline(name, kind) for name, kind in BASELINES.items()]
    methods += _chosen_experts()
    alone = _papers_expert()
    methods += [_ours("paper-expert", "the paper's expert", "preset", alone), _as_printed()]
    for part, title in PARTS.items():
        config = replace(alone, ablate=replace(AblateConfig(), **{part: True}))
        methods.append(_ours(f"no-{part.replace('_', '-')}", title, "part", config))
    still = replace(alone, tracks=replace(alone.tracks, rehearsal_rate=0.0))
    methods.append(_ours("no-rehearsal", "w/o rehearsal", "part", still))
    constant = replace(still, tracks=replace(still.tracks, rate=0.1, rate_floor=0.1))
    methods.append(_baseline("naive-constant", Naive, constant, "naive, constant rate"))
    methods += [_baseline(name, kind) for name, kind in CONTROLS.items()]
    methods += _peers()
    return {method.name: method for method in methods}


def choose(names: Iterable[str]) -> list[Method]:
    """The methods of these names; all without any."""
    methods = all_methods()
    names = list(names)
    for name in names:
        if name not in methods:
            for library in absent_libraries():
                if name in PEERS[library]:
                    why = NO_PEERS.format(LIBRARIES[library], f"there is no {name}")
                    raise InputError(why)
            raise InputError(f"there is no method {name!r}; there are: {', '.join(methods)}")
    return [methods[name] for name in names] if names else list(methods.values())


def absent_libraries() -> list[str]:
    """The modules of the benchmark extra that are not installed."""
    return [library for library in LIBRARIES if find_spec(library) is None]


def _ours(name: str, title: str, group: Group, config: Config) -> Method:
    def make(seed: int, delay: int) -> OnlineLearner:
        return Learner(config)

    return Method(name, title, group, "dtgol_core.learner", make, config.digest())


def _as_printed() -> Method:
    """The frozen preset: labels are released by step, so it has to know the delay."""

    def make(seed: int, delay: int) -> OnlineLearner:
        config = preset("paper")
        return Learner(replace(config, delay=replace(config.delay, steps=delay)))

    settings = preset("paper").digest()
    title = "DT-GOL as printed"
    return Method("as-printed", title, "preset", "dtgol_core.learner", make, settings)


def _papers_expert() -> Config:
    """DT-GOL of the paper with the default settings: its expert decides, no other is there."""
    return Config.read({"experts": ["naive", "paper"], "combination": {"decides": "paper"}})


def _chosen_experts() -> list[Method]:
    """The light preset, and the default without each of its experts but naive, which is in every
    prediction."""
    methods = [_ours("light", "DT-GOL light", "preset", Config.read({"preset": "light"}))]
    names = [expert.name for expert in EXPERTS]
    for name in names:
        if name != "naive":
            config = Config.read({"experts": [other for other in names if other != name]})
            methods.append(_ours(f"without-{name}", f"without {name}", "ablation", config))
    return methods


def _baseline(
    name: str, kind: type[Baseline], config: Config | None = None, title: str = ""
) -> Method:
    settings = config or Config()

    def make(seed: int, delay: int) -> OnlineLearner:
        return kind(settings, np.random.default_rng(seed))

    group: Group = "control" if config or name in CONTROLS else "paper"
    group = "naive" if name == "naive" else group
    module, digest = kind.__module__, settings.digest()
    return Method(name, title or kind.title, group, module, make, digest, kind.reconstructed)


PEERS: dict[str, dict[str, tuple[str, str]]] = {
    "river": {
        "river-lr": ("River LR", "logistic_regression"),
        "river-hat": ("River HAT", "adaptive_tree"),
        "river-arf": ("River ARF", "adaptive_forest"),
        "river-srp": ("River SRP", "random_patches"),
    },
    "sklearn": {"retrained": ("boosting, retrained", "RetrainedBoosting")},
}
"""By library: method -> (title, what makes it from a seed)."""
PEER_MODULES = {
    "river": "pipeline.offline.compare.river_peers",
    "sklearn": "pipeline.offline.compare.retrained",
}


def _peers() -> list[Method]:
    own = "pipeline.offline.compare.peers"
    peers = [Method("last-label", "last label", "peer", own, lambda seed, delay: LastLabel())]
    for library, makers in PEERS.items():
        if library not in absent_libraries():
            module = PEER_MODULES[library]
            for name, (title, maker) in makers.items():
                peers.append(_peer(name, title, module, maker))
    return peers


def _peer(name: str, title: str, module: str, maker: str) -> Method:
    def make(seed: int, delay: int) -> OnlineLearner:
        learner: OnlineLearner = getattr(import_module(module), maker)(seed)
        return learner

    return Method(name, title, "peer", module, make)
