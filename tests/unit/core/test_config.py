"""Settings: what is out of range, misspelt or of a wrong type is refused by its name."""

import json
import math
from dataclasses import fields, replace
from typing import Any, get_args, get_type_hints

import pytest

from dtgol_core.config import (
    EXPERT_NAMES,
    Config,
    ConfigError,
    CopulaConfig,
    DelayConfig,
    FeatureConfig,
    GraphConfig,
    TracksConfig,
    preset,
)

SECTIONS = ("copula", "graph", "softlabels", "tracks", "ensemble", "delay", "decision")

BOUNDS: dict[str, tuple[float, float]] = {
    "copula.window": (2, 100_000),
    "copula.ridge": (1e-9, 1),
    "copula.gamma_floor": (0, 0.5),
    "copula.max_columns": (1, 4096),
    "graph.unverified": (1, 4_000),
    "graph.verified": (1, 4_000),
    "graph.percentile": (0, 100),
    "graph.refresh_steps": (1, 1_000_000),
    "softlabels.rate": (0, 10),
    "softlabels.temperature": (0, 100),
    "softlabels.prototype_start": (0.5, 1),
    "softlabels.prototype_rate": (0, 1),
    "softlabels.frontier_steps": (0, 100),
    "softlabels.refine_steps": (0, 1000),
    "tracks.rate": (0, 10),
    "tracks.rate_floor": (0, 10),
    "tracks.rehearsal_rate": (0, 10),
    "tracks.rehearsal_l2": (0, 1),
    "tracks.transient_rate": (0, 10),
    "tracks.l2": (0, 1),
    "ensemble.beta": (0, 1),
    "ensemble.horizon": (1, 10**15),
    "delay.steps": (0, 1_000_000),
    "delay.expire_steps": (1, 1_000_000_000),
    "delay.expire_ms": (1, 10**15),
    "delay.pending_max": (1, 100_000_000),
    "delay.pending_bytes_max": (2**16, 2**40),
    "delay.early_max": (0, 1_000_000),
    "delay.early_steps": (1, 1_000_000),
    "delay.settled_max": (0, 100_000_000),
    "delay.settled_ms": (1, 10**15),
    "decision.threshold": (0, 1),
    "decision.cost_fp": (1e-9, 1e9),
    "decision.cost_fn": (1e-9, 1e9),
    "decision.coverage": (0.5, 0.99),
}
CHOICES = {
    "tracks.transient_reduction": ("mean", "sum"),
    "delay.release": ("arrival", "step"),
    "delay.corrected": ("first", "last"),
    "delay.expired": ("drop", 0, 1),
}
OPTIONAL = (
    "copula.gamma_floor",
    "graph.refresh_steps",
    "ensemble.horizon",
    "delay.expire_steps",
    "delay.expire_ms",
    "delay.settled_ms",
    "decision.threshold",
)

PAPER: dict[str, Any] = {
    "experts": ["naive", "paper"],
    "combination": {"decides": "paper"},
    "columns": {"strict": True, "missing": ()},
    "copula": {"window": 200, "ridge": 1e-3, "gamma_floor": None, "max_columns": 512},
    "graph": {"unverified": 200, "verified": 100, "percentile": 2.0, "refresh_steps": 1},
    "softlabels": {
        "rate": 0.1,
        "temperature": 5.0,
        "prototype_start": 0.8,
        "prototype_rate": 0.05,
        "frontier_steps": 1,
        "refine_steps": 1,
    },
    "tracks": {
        "rate": 0.1,
        "rate_floor": 0.1,
        "l2": 0.0,
        "rehearsal_rate": 0.0,
        "rehearsal_l2": 0.0,
        "transient_rate": 0.01,
        "transient_reduction": "sum",
    },
    "ensemble": {"beta": 0.5, "horizon": None},
    "delay": {
        "release": "step",
        "steps": 0,
        "expire_steps": 10_000,
        "expire_ms": None,
        "pending_max": 100_000,
        "pending_bytes_max": 2**40,
        "expired": "drop",
        "early_max": 1_000,
        "early_steps": 10_000,
        "settled_max": 10_000,
        "settled_ms": None,
        "corrected": "first",
    },
    "decision": {"threshold": None, "cost_fp": 1.0, "cost_fn": 1.0, "coverage": 0.9},
    "ablate": {
        "copula": False,
        "marginals": False,
        "softlabels": False,
        "dual_track": False,
        "risk": False,
    },
    "features": {},
}


def one(key: str, value: object) -> dict[str, dict[str, object]]:
    section, name = key.split(".")
    return {section: {name: value}}


def is_whole(key: str) -> bool:
    section, name = key.split(".")
    hint = get_type_hints(type(getattr(Config(), section)))[name]
    return int in (hint, *get_args(hint))


def value_of(config: Config, key: str) -> object:
    section, name = key.split(".")
    return getattr(getattr(config, section), name)


def test_every_setting_is_in_these_tables() -> None:
    named = {
        f"{section}.{item.name}"
        for section in SECTIONS
        for item in fields(getattr(Config(), section))
    }
    assert named == {*BOUNDS, *CHOICES}


@pytest.mark.parametrize("key", BOUNDS)
def test_value_out_of_range_is_refused_by_name(key: str) -> None:
    low, high = BOUNDS[key]
    below = low - 1 if is_whole(key) else low - 1e-10
    above = high + 1 if is_whole(key) else high * 1.001
    for value in (below, above):
        with pytest.raises(ConfigError, match=rf"^{key} must be between "):
            Config.read(one(key, value))
        section, name = key.split(".")
        with pytest.raises(ConfigError, match=rf"^{key} must be between "):
            type(getattr(Config(), section))(**{name: value})


@pytest.mark.parametrize("key", BOUNDS)
def test_ends_of_the_range_are_allowed(key: str) -> None:
    for value in BOUNDS[key]:
        assert value_of(Config.read(one(key, value)), key) == value


@pytest.mark.parametrize("key", BOUNDS)
def test_wrong_type_is_refused_by_name(key: str) -> None:
    wrong: list[object] = ["2", True, [2], {"a": 2}, math.nan, math.inf]
    if is_whole(key):
        wrong += [2.5, 2.0]
    if key not in OPTIONAL:
        wrong += [None, "auto"]
    for value in wrong:
        with pytest.raises(ConfigError, match=rf"^{key} "):
            Config.read(one(key, value))


@pytest.mark.parametrize("key", OPTIONAL)
@pytest.mark.parametrize("word", ["auto", "none", None])
def test_auto_and_none_stand_for_nothing_set(key: str, word: str | None) -> None:
    config = Config.read({"preset": "paper", **one(key, word)})
    assert value_of(config, key) is None


@pytest.mark.parametrize("key", CHOICES)
def test_choice_outside_its_words_is_refused_by_name(key: str) -> None:
    for word in CHOICES[key]:
        assert value_of(Config.read(one(key, word)), key) == word
    words = ", ".join(map(str, CHOICES[key]))
    for wrong in ("both", "", None, True, 1.0, 2, ["mean"]):
        with pytest.raises(ConfigError, match=rf"^{key} must be one of {words}"):
            Config.read(one(key, wrong))


@pytest.mark.parametrize("part", [item.name for item in fields(Config().ablate)])
def test_ablation_takes_true_or_false_only(part: str) -> None:
    assert getattr(Config.read({"ablate": {part: True}}).ablate, part) is True
    for wrong in (1, 0, "true", None):
        with pytest.raises(ConfigError, match=rf"^ablate\.{part} must be true or false"):
            Config.read({"ablate": {part: wrong}})


def test_unknown_section_is_refused_and_the_known_ones_are_listed() -> None:
    with pytest.raises(
        ConfigError, match=r"^kopula is not a section; there are: experts, combination"
    ):
        Config.read({"kopula": {}})


@pytest.mark.parametrize("section", [*SECTIONS, "ablate"])
def test_unknown_key_is_refused_and_the_known_ones_are_listed(section: str) -> None:
    first = fields(getattr(Config(), section))[0].name
    with pytest.raises(ConfigError, match=rf"^{section}\.widow is not a setting; .*{first}"):
        Config.read({section: {"widow": 1}})


@pytest.mark.parametrize("section", [*SECTIONS, "ablate", "features"])
def test_section_that_is_no_section_is_refused(section: str) -> None:
    for wrong in (1, "text", [1], None):
        with pytest.raises(ConfigError, match=rf"^{section} must be a section"):
            Config.read({section: wrong})


def test_unknown_preset_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^preset must be default, light or paper, not 'papper'"):
        Config.read({"preset": "papper"})


def test_paper_preset_is_what_the_specification_prints() -> None:
    assert preset("paper").as_mapping() == PAPER
    assert Config.read({"preset": "paper"}) == preset("paper")


def test_defaults_are_what_the_benchmark_chose() -> None:
    changed: dict[str, dict[str, Any]] = {
        "columns": {"strict": False, "missing": ("", "NA", "N/A", "null", "NaN", "?")},
        "graph": {"verified": 300},
        "tracks": {
            "rate": 1.0,
            "rate_floor": 0.03,
            "rehearsal_rate": 1.0,
            "rehearsal_l2": 0.003,
            "transient_reduction": "mean",
            "transient_rate": 1.0,
        },
        "delay": {
            "release": "arrival",
            "expire_steps": None,
            "pending_max": 1_000_000,
            "pending_bytes_max": 2**26,
            "early_max": 1_000_000,
            "early_steps": 1_000_000,
            "settled_max": 1_000_000,
            "settled_ms": 366 * 86_400_000,
            "corrected": "last",
        },
    }
    expected: dict[str, Any] = {
        section: {**values, **changed.get(section, {})}
        for section, values in PAPER.items()
        if section != "experts"
    }
    expected["graph"]["refresh_steps"] = expected["combination"]["decides"] = None
    expected["experts"] = list(EXPERT_NAMES)
    assert Config().as_mapping() == expected
    assert preset("default") == Config.read({}) == Config()


def test_a_preset_is_a_start_that_other_keys_change() -> None:
    config = Config.read({"preset": "paper", "graph": {"verified": 50}})
    assert (config.graph.verified, config.graph.refresh_steps) == (50, 1)
    assert config.tracks.transient_reduction == "sum"


def test_experts_are_a_list_of_known_names_that_has_naive() -> None:
    assert Config.read({"experts": ["recent", "naive"]}).experts == ("recent", "naive")
    for wrong, message in (
        (["naive", "oracle"], "'oracle' is not an expert; there are: naive, paper, linear"),
        (["naive", "paper", "naive"], "names an expert twice"),
        (["paper"], "must name naive"),
        ([], "must name naive"),
        ("naive", "must be a list of strings"),
        ([1], "must be a list of strings"),
        (None, "must be a list of strings"),
    ):
        with pytest.raises(ConfigError, match=rf"^experts:? {message}"):
            Config.read({"experts": wrong})


def test_the_expert_that_decides_must_be_listed_in_whatever_order_the_keys_come() -> None:
    config = Config.read({"combination": {"decides": "linear"}, "experts": ["naive", "linear"]})
    assert config.combination.decides == "linear"
    listed = {"experts": ["naive"], "combination": {"decides": "paper"}}
    for settings in (listed, {"preset": "paper", "experts": ["naive"]}):
        with pytest.raises(
            ConfigError, match=r"^combination\.decides must be none or one of naive"
        ):
            Config.read(settings)
    with pytest.raises(ConfigError, match=r"^combination\.decides must be str"):
        Config.read({"combination": {"decides": 1}})


def test_the_light_preset_has_neither_graph_nor_forest() -> None:
    assert not {"paper", "forest"} & set(preset("light").experts)
    assert replace(preset("light"), experts=EXPERT_NAMES) == Config()


@pytest.mark.parametrize("name", ["default", "light", "paper"])
def test_mapping_reads_back_as_the_same_configuration(name: str) -> None:
    settings = {
        "preset": name,
        "copula": {"gamma_floor": 0.01},
        "delay": {"steps": 7, "expire_ms": 1000},
        "ablate": {"risk": True},
        "features": {
            "ward": {"kind": "nominal", "levels": ["a", "b"]},
            "age": {"kind": "ordinal", "low": 0, "high": 120},
            "any": {},
        },
    }
    config = Config.read(settings)
    again = Config.read(config.as_mapping())
    assert again == config
    assert again.digest() == config.digest()
    assert again.features["ward"] == FeatureConfig(kind="nominal", levels=("a", "b"))
    assert again.features["age"].low == 0.0


def test_the_threshold_follows_from_the_costs_unless_it_is_given() -> None:
    assert Config().decision.label_1_above == 0.5
    costs = {"cost_fp": 1.0, "cost_fn": 9.0}
    assert Config.read({"decision": costs}).decision.label_1_above == 0.1
    assert Config.read({"decision": costs | {"threshold": 0.3}}).decision.label_1_above == 0.3


def test_digest_names_the_configuration() -> None:
    assert len(Config().digest()) == 16
    assert Config().digest() != preset("paper").digest()
    assert Config.read({"copula": {"window": 201}}).digest() != Config().digest()


@pytest.mark.parametrize("key", ["expire_steps", "pending_max"])
def test_release_by_step_needs_instances_that_live_long_enough(key: str) -> None:
    settings = {"release": "step", "steps": 50, key: 50}
    with pytest.raises(ConfigError, match=rf"^delay\.{key} must be greater than delay\.steps"):
        Config.read({"delay": settings})
    assert Config.read({"delay": {**settings, key: 51}}).delay.steps == 50
    assert DelayConfig(release="arrival", steps=50, expire_steps=5).expire_steps == 5


def test_penalty_that_would_blow_up_the_weights_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"tracks\.l2 times tracks\.rate must not exceed 1"):
        TracksConfig(rate=2.0, l2=0.6)
    assert TracksConfig(rate=2.0, l2=0.5).l2 == 0.5
    with pytest.raises(ConfigError, match=r"tracks\.l2 times tracks\.rate_floor must not exceed 1"):
        TracksConfig(rate=0.0, rate_floor=2.0, l2=0.6)
    with pytest.raises(ConfigError, match=r"tracks\.rehearsal_l2 times tracks\.rehearsal_rate "):
        TracksConfig(rehearsal_rate=2.0, rehearsal_l2=0.6)


@pytest.mark.parametrize(
    ("described", "refusal"),
    [
        ({"kind": "text"}, r"features\.f\.kind must be one of continuous, ordinal, nominal"),
        ({"kind": 3}, r"features\.f\.kind "),
        ({"levels": ["a"]}, r'features\.f\.levels needs kind = "nominal"'),
        ({"kind": "ordinal", "levels": ["a"]}, r"features\.f\.levels needs kind"),
        ({"kind": "nominal", "levels": ["a", "a"]}, r"features\.f\.levels names a level twice"),
        ({"kind": "nominal", "levels": [1]}, r"features\.f\.levels must be a list of strings"),
        ({"kind": "nominal", "levels": "abc"}, r"features\.f\.levels must be a list of strings"),
        ({"kind": "nominal", "levels": [str(k) for k in range(33)]}, r"at most 32 levels"),
        ({"kind": "nominal", "low": 0}, r"features\.f\.low and features\.f\.high are for numbers"),
        ({"kind": "nominal", "high": 0}, r"features\.f\.low and features\.f\.high are for numbers"),
        ({"low": 2, "high": 1}, r"features\.f\.low must not be greater than features\.f\.high"),
        ({"low": "x"}, r"features\.f\.low must be float"),
        ({"unit": "mm"}, r"features\.f\.unit is not a setting"),
        (7, r"features\.f must be a section"),
    ],
)
def test_feature_that_cannot_be_described_so_is_refused(described: object, refusal: str) -> None:
    with pytest.raises(ConfigError, match=refusal):
        Config.read({"features": {"f": described}})


def test_declared_levels_must_fit_into_the_columns() -> None:
    levels = {"kind": "nominal", "levels": ["a", "b", "c"]}
    with pytest.raises(ConfigError, match="at most 2 levels"):
        Config.read({"copula": {"max_columns": 2}, "features": {"f": levels}})


def test_settings_cannot_be_changed_once_built() -> None:
    with pytest.raises(AttributeError):
        Config().copula.window = 3  # type: ignore[misc]


def test_shape_differs_names_what_cannot_change_in_flight() -> None:
    base = Config()
    other = Config(
        copula=CopulaConfig(window=100, ridge=0.1),
        graph=GraphConfig(unverified=10, verified=20, percentile=5),
        tracks=TracksConfig(rate=1.0),
        features={"f": FeatureConfig(kind="ordinal")},
    )
    named = ["copula.window", "graph.unverified", "graph.verified", "features"]
    assert base.shape_differs(other) == named
    assert base.shape_differs(base) == []
    assert base.shape_differs(Config.read({"ablate": {"risk": True}})) == ["ablate.risk"]
    assert base.shape_differs(Config.read({"tracks": {"rate": 0.5}})) == []


@pytest.mark.parametrize("name", ["default", "paper"])
def test_what_a_journal_holds_spells_out_every_key(name: str) -> None:
    """A key that was missing took the default of the reader's version."""
    config = replace(preset(name), features={"a": FeatureConfig(kind="ordinal")})
    mapping = json.loads(json.dumps(config.as_mapping()))
    assert Config.read_whole(mapping) == config
    for section, values in mapping.items():
        with pytest.raises(ConfigError, match=f"{section}.* is not spelled out"):
            Config.read_whole({key: each for key, each in mapping.items() if key != section})
        for key in values if isinstance(values, dict) and section != "features" else ():
            shorter = {other: each for other, each in values.items() if other != key}
            with pytest.raises(ConfigError, match=f"{section}.{key} is not spelled out"):
                Config.read_whole(mapping | {section: shorter})


def test_snapshots_of_many_streams_share_one_configuration() -> None:
    """Reading it took most of the time of a restore."""
    mapping = Config().as_mapping()
    assert Config.read_whole(mapping) is Config.read_whole(Config().as_mapping())
    assert (
        Config.read_whole({**mapping, "ablate": {**mapping["ablate"]}}).shape_differs(
            Config.read_whole(mapping)
        )
        == []
    )
    with pytest.raises(ConfigError, match="delay"):
        Config.read_whole({**mapping, "delay": {"steps": object()}})
