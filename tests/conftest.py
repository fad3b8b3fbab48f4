"""What all tests share: one BLAS thread, the data folder, how long Hypothesis may search."""

import os
import shutil
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from pipeline.runtime.environment import prepare

prepare()  # before any test module imports numpy

# Fifty examples keep the whole run in seconds. CI draws the same ones every time, so that a red
# build is about the change it names; on a laptop each run looks somewhere else.
settings.register_profile("dtgol", deadline=None, max_examples=50)
settings.register_profile("ci", settings.get_profile("dtgol"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "dtgol")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of single lanes; declared here, where pytest looks for them."""
    parser.addoption("--long", action="store_true", help="more rounds, records and seeds")
    parser.addoption("--screenshots", action="store_true", help="write those of the README")
    parser.addoption("--fault-seed", type=int, help="run every fault trial with this seed alone")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is for the long run, and what needs helm or definitions that are not there.

    Not a skip: these are no Python packages, and where .ci/run cannot bring them it says so.
    """
    absent = [] if config.getoption("--long") else ["long"]
    absent += [] if shutil.which("helm") else ["helm", "crds"]
    absent += [] if os.environ.get("DTGOL_CRDS") else ["crds"]
    if absent:
        left_out = [item for item in items if any(map(item.get_closest_marker, absent))]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """A skip is a failure in CI and in the lanes that ask for a broker: it would hide a gap."""
    report = yield
    if report.skipped and any(os.environ.get(name) for name in ("CI", "DTGOL_REQUIRE_BROKER")):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid}: nothing may be skipped here. {report.longrepr[2]}"
    return report


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder with the real data sets."""
    folder = os.environ.get("DTGOL_DATA")
    if not folder:
        pytest.skip("DTGOL_DATA is not set: it names the folder with the real data sets")
    return Path(folder)
