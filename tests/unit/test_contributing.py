"""CONTRIBUTING.md, "Where do I change X": the paths exist, and the lists it names are complete."""

import ast
import re
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest

import pipeline.snapshots
from dtgol_core.baselines import BASELINES, CONTROLS, Baseline
from dtgol_core.config import ConfigError
from dtgol_core.experts import EXPERTS
from pipeline import errors
from pipeline.cli import COMMANDS
from pipeline.cli.exit_codes import CODES
from pipeline.settings.declaration import SecuritySettings, SnapshotSettings

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
TABLE = TEXT.partition("## Where do I change X")[2].partition("## Tests by lane")[0]
ROWS = [line for line in TABLE.splitlines() if line.startswith("| ")][1:]
PATHS = sorted({path for row in ROWS for path in re.findall(r"`([\w/]+(?:\.\w+|/))`", row)})
NAMES = {
    "Reason": "topics/reasons.py",
    "ROLES": "pipeline/kafka/acls.py",
    "EXPERTS": "dtgol_core/experts/__init__.py",
    "EXPERT_NAMES": "dtgol_core/config.py",
    "BASELINES": "dtgol_core/baselines/__init__.py",
    "COMMANDS": "pipeline/cli/__init__.py",
    "make_store": "pipeline/snapshots/__init__.py",
    "EventKind": "topics/events.py",
    "METRICS": "pipeline/runtime/metric_table.py",
    "samples": "pipeline/learning/partition.py",
}
"""What the table calls by name, and the file that defines it."""


def file_of(path: str) -> Path | None:
    """The path in the repository: as it is, or in a package that the row has named before."""
    places = [ROOT / path, ROOT / "pipeline" / path, ROOT / "dtgol_core" / path]
    places.append(ROOT / "tests" / "faults" / path)
    return next((place for place in places if place.exists()), None)


@pytest.mark.parametrize("path", PATHS)
def test_every_path_exists(path: str) -> None:
    assert file_of(path) is not None


def test_every_name_in_the_table_is_defined() -> None:
    named = {name for row in ROWS for name in re.findall(r"`([A-Za-z_]+)`", row)}
    assert named == NAMES.keys()
    for name, path in NAMES.items():
        tree = ast.parse((ROOT / path).read_text())
        defined = {getattr(node, "name", getattr(node, "id", "")) for node in ast.walk(tree)}
        assert name in defined


@pytest.mark.parametrize("module", sorted(set(re.findall(r"`python -m ([\w.]+)", TEXT))))
def test_every_generator_can_be_run(module: str) -> None:
    assert "__main__" in (ROOT / f"{module.replace('.', '/')}.py").read_text()


@pytest.mark.parametrize("target", sorted(set(re.findall(r"`make ([\w-]+)", TEXT))))
def test_every_make_target_exists(target: str) -> None:
    assert f"\n{target}:" in (ROOT / "Makefile").read_text()


def modules(package: object) -> set[str]:
    """The names of a package's modules."""
    return {each.name for each in iter_modules(package.__path__)}  # type: ignore[attr-defined]


def classes(package: str) -> set[type]:
    """The public classes that the modules of a package define."""
    found: set[type] = set()
    for name in modules(import_module(package)):
        module = import_module(f"{package}.{name}")
        found |= {
            each
            for each in vars(module).values()
            if isinstance(each, type) and each.__module__ == module.__name__
        }
    return found


def test_every_expert_is_in_the_list() -> None:
    experts = {each for each in classes("dtgol_core.experts") if hasattr(each, "kept")}
    assert experts == set(EXPERTS)


def test_every_baseline_is_in_a_list() -> None:
    made = {
        each
        for each in classes("dtgol_core.baselines")
        if issubclass(each, Baseline) and "title" in vars(each)
    }
    assert made == {*BASELINES.values(), *CONTROLS.values()}


def test_every_command_is_in_the_table_and_has_exit_codes() -> None:
    shared = {"exit_codes", "options", "progress", "signals"}
    files = {path.stem for path in (ROOT / "pipeline" / "cli").glob("*.py")} - {"__init__"}
    assert {entry.target.partition(":")[0] for entry in COMMANDS.values()} == files - shared
    assert {name.partition(" ")[0] for name in CODES} == COMMANDS.keys()


def test_every_store_is_in_make_store_and_in_the_settings() -> None:
    source = (ROOT / "pipeline" / "snapshots" / "__init__.py").read_text()
    stores = modules(pipeline.snapshots) - {"copy_on_write", "manifest", "repository", "store"}
    (declared,) = (
        each.metadata["choices"]
        for each in SnapshotSettings.__dataclass_fields__.values()
        if each.name == "store"
    )
    assert set(declared) == stores
    for name in stores:
        assert f"from pipeline.snapshots.{name} import" in source


def test_every_error_is_declared_in_one_file_with_its_exit_code() -> None:
    declared = {
        name
        for path in (ROOT / "pipeline").rglob("*.py")
        for name in re.findall(r"^class ([A-Z]\w+Error)\(", path.read_text(), re.MULTILINE)
    }
    known = {name for name in vars(errors) if name.endswith("Error")} - {"ConfigError"}
    assert declared == known
    internal = {errors.AbandonedError, errors.OvertakenError}  # caught inside `runtime.partition`
    assert (
        errors.EXIT_CODES.keys() - {ConfigError}
        == {getattr(errors, name) for name in known} - internal
    )


def test_every_setting_is_on_the_page() -> None:
    page = import_module("pipeline.settings.page").page()
    assert all(f"| {name} |" in page for name in SecuritySettings.__dataclass_fields__)
    assert page == (ROOT / "docs" / "settings.md").read_text()
