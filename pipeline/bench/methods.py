"""The methods of the benchmark: name, group, title, and how to make a fresh one.

Groups: ``paper`` (the seven of the paper's table), ``naive``, ``ablation``, ``control``, ``peer``.
A method is told its seed and the delay; only the frozen preset of the paper uses the latter.
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
from dtgol_core.learner import Learner
from pipeline.backtest import OnlineLearner
from pipeline.bench.peers import LastLabel

Group: TypeAlias = Literal["paper", "naive", "ablation", "control", "peer"]
ABLATIONS = {
    "copula": "w/o copula",
    "marginals": "w/o correlation",
    "softlabels": "w/o soft labels",
    "dual_track": "w/o dual track",
    "risk": "w/o risk weights",
}


LEGEND = "(r): reconstructed, that is, rebuilt from an abstract or from public code."
NO_RIVER = 'River is not installed: {} (pip install -e ".[bench]")'


class MethodError(ValueError):
    """A name that is not in the table; the message is one sentence for the user."""


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
    def marked(self) -> str:
        """The title as it stands in every table and figure; `LEGEND` says what the mark means."""
        return f"{self.title} (r)" if self.reconstructed else self.title


def all_methods() -> dict[str, Method]:
    """Every method there is, in the order of the tables; peers only where River is installed."""
    methods = [_ours("dt-gol", "DT-GOL", "paper", Config())]
    methods += [_baseline(name, kind) for name, kind in BASELINES.items()]
    methods.append(_as_printed())
    for part, title in ABLATIONS.items():
        config = replace(Config(), ablate=replace(AblateConfig(), **{part: True}))
        methods.append(_ours(f"no-{part.replace('_', '-')}", title, "ablation", config))
    still = replace(Config(), tracks=replace(Config().tracks, rehearsal_rate=0.0))
    methods.append(_ours("no-rehearsal", "w/o rehearsal", "ablation", still))
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
        if name.startswith("river-") and without_river():
            raise MethodError(NO_RIVER.format(f"there is no {name}"))
        if name not in methods:
            raise MethodError(f"there is no method {name!r}; there are: {', '.join(methods)}")
    return [methods[name] for name in names] if names else list(methods.values())


def without_river() -> bool:
    """Whether the peers that need the benchmark extra are left out."""
    return find_spec("river") is None


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
    return Method(
        "as-printed", "DT-GOL as printed", "ablation", "dtgol_core.learner", make, settings
    )


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


def _peers() -> list[Method]:
    own = "pipeline.bench.peers"
    peers = [Method("last-label", "last label", "peer", own, lambda seed, delay: LastLabel())]
    if without_river():
        return peers
    module = "pipeline.bench.river_peers"
    river = import_module(module)
    makers: list[tuple[str, str, Callable[[int, int], OnlineLearner]]] = [
        ("river-lr", "River LR", lambda seed, delay: river.logistic_regression()),
        ("river-hat", "River HAT", lambda seed, delay: river.adaptive_tree(seed)),
        ("river-arf", "River ARF", lambda seed, delay: river.adaptive_forest(seed)),
    ]
    return peers + [Method(name, title, "peer", module, make) for name, title, make in makers]
