"""The configuration of the fold: data that survives the journal it is written to."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest

from dtgol_core.config import Config, ConfigError
from pipeline.learning.fold_config import FoldConfig
from pipeline.settings import Settings, read_settings
from topics.reasons import Limits


@pytest.mark.parametrize("name", FoldConfig().as_mapping())
def test_a_key_that_is_missing_does_not_take_the_default_of_today(name: str) -> None:
    """Old records took today's defaults, and answers differed under one `at`."""
    mapping = FoldConfig().as_mapping()
    del mapping[name]
    with pytest.raises(ConfigError, match=f"{name} is not spelled out"):
        FoldConfig.read(mapping)


@pytest.mark.parametrize("name", FoldConfig().as_mapping()["limits"])
def test_a_limit_that_is_missing_does_not_take_the_default_of_today(name: str) -> None:
    mapping = FoldConfig().as_mapping()
    del mapping["limits"][name]
    with pytest.raises(ConfigError, match=f"limits.{name} is not spelled out"):
        FoldConfig.read(mapping)


def test_it_survives_the_journal() -> None:
    described = Config.read({"features": {"ward": {"kind": "nominal", "levels": ["A"]}}})
    learner = Config.read({"delay": {"expire_ms": 5}})
    new = replace(
        FoldConfig(),
        learner=learner,
        streams={"s": described},
        closed=True,
        limits=Limits(1000),
    )
    raw = orjson.loads(orjson.dumps(new.as_mapping()))
    assert FoldConfig.read(raw) == new
    assert FoldConfig.read(raw).digest() == new.digest()


def test_what_the_fold_sees_survives_its_journal() -> None:
    environ = {"DTGOL_STREAMS_IDLE_MS": "0", "DTGOL_LIMITS_ID_BYTES_MAX": "9"}
    config = FoldConfig.from_settings(read_settings(environ))
    assert config.stream_idle_ms is None
    assert config.limits.id_bytes_max == 9
    assert FoldConfig.read(config.as_mapping()) == config


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("closed", 1),
        ("streams_max", 0),
        ("ts_ahead_max_ms", -1),
        ("why", 0.5),
        ("stream_idle_ms", 0),
        ("early_bytes_max", -1),
        ("unknown", 1),
    ],
)
def test_what_the_fold_could_not_go_by_is_refused(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=name):
        FoldConfig.read(FoldConfig().as_mapping() | {name: value})


def test_more_described_streams_than_a_journal_record_holds_are_refused() -> None:
    """Some 1,530 made a record over 1 MB, which ended the worker at every start."""
    described = {f"ward-{number}": Config() for number in range(2_000)}
    with pytest.raises(
        ConfigError, match=r"describes 2000 streams, .* over 900000: describe fewer"
    ):
        FoldConfig.from_settings(replace(Settings(), described=described))
    few = dict(list(described.items())[:300])
    assert len(FoldConfig.from_settings(replace(Settings(), described=few)).streams) == 300
