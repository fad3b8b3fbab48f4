"""What the core loads, how its loops are compiled, and that its examples are true."""

import ast
import doctest
import importlib
import math
import os
import pkgutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest

import dtgol_core
from dtgol_core.compiled import compiled
from pipeline.runtime.environment import THREAD_VARIABLES

CORE = Path(dtgol_core.__file__).parent
MODULES = sorted(
    module.name for module in pkgutil.walk_packages(dtgol_core.__path__, "dtgol_core.")
)


def test_blas_is_pinned_to_one_thread() -> None:
    """conftest does it before numpy is imported, so that bits do not depend on the load."""
    assert {name: os.environ.get(name) for name in THREAD_VARIABLES} == dict.fromkeys(
        THREAD_VARIABLES, "1"
    )


def test_core_does_not_load_scipy_stats_or_any_infrastructure() -> None:
    code = (
        "import sys, dtgol_core.learner, dtgol_core.scoring\n"
        "from dtgol_core.config import Config\n"
        "learner = dtgol_core.learner.Learner(Config())\n"
        "learner.observe('a', {'x': 1.5, 'y': 'level'})\n"
        "heavy = ('scipy.stats', 'scipy.optimize', 'pandas', 'faust', 'confluent_kafka',\n"
        "         'aiohttp', 'prometheus_client', 'click', 'rich', 'pipeline', 'topics')\n"
        "sys.stdout.write(','.join(name for name in heavy if name in sys.modules))\n"
    )
    root = str(CORE.parent)
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": root},
        cwd=root,
    )
    assert done.stdout == ""


def test_loops_are_compiled_without_fast_math() -> None:
    """A compensated sum survives: reordering would optimise the compensation away."""

    def compensated(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
        total = 0.0
        lost = 0.0
        for value in values:
            kept = value - lost
            sum_ = total + kept
            lost = (sum_ - total) - kept
            total = sum_
        return total

    values = np.array([1.0] + [1e-16] * 1000)
    assert compiled(compensated)(values) == compensated(values) == 1.0 + 1e-13
    assert sum(values.tolist()) == 1.0


def test_division_by_zero_is_infinity_not_an_exception() -> None:
    def quotient(a: float, b: float) -> float:
        return a / b

    assert compiled(quotient)(1.0, 0.0) == math.inf


def test_only_one_file_knows_numba() -> None:
    """Every use of Numba in the core goes through `compiled` and `in_place`."""
    for path in CORE.rglob("*.py"):
        if path.name != "compiled.py":
            assert "numba" not in imported(path), path.name


LOOPS = {
    id(loop): loop
    for name in MODULES
    for loop in vars(importlib.import_module(name)).values()
    if hasattr(loop, "py_func")
}
IN_PLACE = [loop for loop in LOOPS.values() if loop.targetoptions.get("_nrt") is False]


@pytest.mark.parametrize("loop", IN_PLACE, ids=lambda loop: loop.py_func.__qualname__)
def test_a_loop_in_place_calls_only_such_and_returns_no_array(loop: Any) -> None:
    """An array that goes from counted code to such code or back is freed too soon or never."""
    returned = get_type_hints(loop.py_func)["return"]
    parts = get_args(returned) or (returned,)
    assert set(parts) <= {type(None), bool, int, float, np.float32}, returned
    scope = loop.py_func.__globals__
    modules = [vars(each) for each in scope.values() if isinstance(each, ModuleType)]
    for name in loop.py_func.__code__.co_names:
        for called in (each[name] for each in (scope, *modules) if name in each):
            if id(called) in LOOPS:
                assert called in IN_PLACE, name


def test_most_loops_are_in_place() -> None:
    assert len(IN_PLACE) > len(LOOPS) / 2


def imported(path: Path) -> set[str]:
    """Top-level names of the packages a file imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.split(".")[0])
    return names


@pytest.mark.parametrize("path", sorted(CORE.rglob("*.py")), ids=lambda path: path.stem)
def test_the_core_touches_no_clock_no_chance_and_no_system(path: Path) -> None:
    banned = {"time", "datetime", "random", "os", "asyncio", "threading", "logging", "socket"}
    assert not imported(path) & {*banned, "pathlib", "pickle", "io"}


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_the_docstrings_are_true(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.failed == 0


def test_examples_exist() -> None:
    found = {
        name: sum(len(test.examples) for test in doctest.DocTestFinder().find(
            importlib.import_module(name)))
        for name in MODULES
    }  # fmt: skip
    for stage in ("learner", "config", "columns", "copula", "marginals", "tracks", "ensemble"):
        assert found[f"dtgol_core.{stage}"] > 1, stage
