"""docs/guarantees.md names tests; a promise whose test is gone is none."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "guarantees.md").read_text()
DEFINED = {
    name
    for path in (ROOT / "tests").rglob("test_*.py")
    for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)
}


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(test_\w+)`", TEXT))))
def test_every_test_that_holds_a_promise_exists(name: str) -> None:
    assert name in DEFINED


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`(tests/[\w/]+(?:\.py)?)/?`", TEXT))))
def test_every_file_of_tests_that_is_named_exists(path: str) -> None:
    assert (ROOT / path).exists()
