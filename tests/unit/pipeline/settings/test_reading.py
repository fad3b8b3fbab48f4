"""Settings: environment over file, every fault one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from dtgol_core.config import ConfigError
from pipeline.learning.fold_config import FoldConfig
from pipeline.settings import Settings, read_settings


def write(folder: Path, text: str) -> Path:
    path = folder / "dtgol.toml"
    path.write_text(text)
    return path


def test_nothing_given_is_the_defaults() -> None:
    assert read_settings({}) == Settings()


def test_overrides_win_over_environment_over_file(tmp_path: Path) -> None:
    path = write(tmp_path, "[web]\nport = 1\n[worker]\nwhy = 1\n[snapshots]\nevery_ms = 500\n")
    environ = {"DTGOL_WEB_PORT": "2", "DTGOL_WORKER_WHY": "2"}
    settings = read_settings(environ, path, {"web.port": "3"})
    assert (settings.web.port, settings.worker.why, settings.snapshots.every_ms) == (3, 2, 500)


def test_the_file_may_be_named_by_the_environment(tmp_path: Path) -> None:
    path = write(tmp_path, '[kafka]\nprefix = "p-"\n')
    settings = read_settings({"DTGOL_CONFIG": str(path)})
    assert settings.topic("features") == "p-features"
    assert settings.group("worker") == "p-dtgol-worker"


def test_brokers_come_from_the_variable_all_tools_share(tmp_path: Path) -> None:
    environ = {"KAFKA_BOOTSTRAP_SERVERS": "shared:1"}
    assert read_settings(environ).kafka.bootstrap_servers == "shared:1"
    path = write(tmp_path, '[kafka]\nbootstrap_servers = "file:1"\n')
    assert read_settings(environ, path).kafka.bootstrap_servers == "file:1"
    environ["DTGOL_KAFKA_BOOTSTRAP_SERVERS"] = "own:1"
    assert read_settings(environ, path).kafka.bootstrap_servers == "own:1"


def test_a_stream_is_the_default_learner_with_its_own_on_top(tmp_path: Path) -> None:
    text = """
    [learner.copula]
    window = 50
    [learner.delay]
    steps = 3
    [streams]
    closed = true
    [streams.ward.delay]
    expire_steps = 7
    [streams.ward.features.age]
    kind = "continuous"
    """
    config = FoldConfig.from_settings(read_settings({}, write(tmp_path, text)))
    ward = config.config_for("ward")
    assert (ward.copula.window, ward.delay.steps, ward.delay.expire_steps) == (50, 3, 7)
    assert ward.features["age"].kind == "continuous"
    assert config.config_for("other").delay.expire_steps is None
    assert config.allowed_streams == {"ward": ward}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[web]\nport = 70000", "web.port must be between 0 and 65535"),
        ('[web]\nport = "many"', "web.port must be a whole number"),
        ("[web]\nport = true", "web.port must be a whole number"),
        ("[web]\nhost = 5", "web.host must be a text"),
        ("[web]\nprot = 5", "web.prot is not a setting"),
        ("[wbe]\nport = 5", "wbe is not a section"),
        ("web = 5", "web must be a section"),
        ('[streams]\nclosed = "perhaps"', "streams.closed must be true or false"),
        ('[snapshots]\nstore = "floppy"', "snapshots.store must be one of topic, directory"),
        ('[snapshots]\nstore = "directory"', "snapshots.directory must be set"),
        ("[learner.copula]\nwindow = 1", "[learner] copula.window must be between"),
        ("[streams.ward.copula]\nwindow = 1", "[streams.ward] copula.window must be between"),
        ("[kafka]\nheartbeat_ms = 14000", "kafka.heartbeat_ms must be at most half"),
        ('[kafka]\nprefix = "a b"', "kafka.prefix"),
        ("not toml", "is not TOML"),
    ],
)
def test_a_fault_is_one_sentence_that_names_the_setting(
    tmp_path: Path, text: str, sentence: str
) -> None:
    with pytest.raises(ConfigError) as refusal:
        read_settings({}, write(tmp_path, text))
    assert sentence in str(refusal.value)


def test_a_mistyped_variable_is_refused_and_strangers_are_not() -> None:
    with pytest.raises(ConfigError, match="DTGOL_WEB_PROT is not a setting"):
        read_settings({"DTGOL_WEB_PROT": "1"})
    assert read_settings({"DTGOL_KAFKA_IMAGE": "x", "DTGOL_CACHE_DIR": "y"}) == Settings()
    with pytest.raises(ConfigError, match=r"web\.prot is not a setting"):
        read_settings({}, None, {"web.prot": "1"})


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no settings file"):
        read_settings({}, tmp_path / "none.toml")
