"""docs/guarantees.md names tests and their lanes; a promise whose test is gone is none."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "guarantees.md").read_text()
DEFINED = {
    name: path.relative_to(ROOT).as_posix()
    for path in (ROOT / "tests").rglob("test_*.py")
    for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)
}
PROMISES = [
    line.strip("| ").split(" | ")
    for line in TEXT.partition("## Promised")[2].partition("## Not promised")[0].splitlines()[4:]
    if line
]
MAKEFILE = (ROOT / "Makefile").read_text()


def lanes(held_by: str) -> set[str]:
    """The commands that run the tests named in a cell."""
    places = set(re.findall(r"`(tests/[\w/]+(?:\.py)?)/?`", held_by))
    places |= {DEFINED[name] for name in re.findall(r"`(test_\w+)`", held_by)}
    if "every trial" in held_by:
        places.add("tests/faults")
    special = {"broker": "test-kafka", "faults": "test-faults"}
    return {f"`make {special.get(place.split('/')[1], 'test')}`" for place in places}


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(test_\w+)`", TEXT))))
def test_every_test_that_holds_a_promise_exists(name: str) -> None:
    assert name in DEFINED


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`(tests/[\w/]+(?:\.py)?)/?`", TEXT))))
def test_every_file_of_tests_that_is_named_exists(path: str) -> None:
    assert (ROOT / path).exists()


@pytest.mark.parametrize("row", PROMISES, ids=lambda row: row[0][:60])
def test_every_promise_has_a_test_and_names_its_lane(row: list[str]) -> None:
    _, held_by, named = row
    assert set(named.split(", ")) == lanes(held_by) != set()


def test_the_lanes_run_these_folders() -> None:
    """Every folder of tests is in exactly one lane."""
    quick = MAKEFILE.partition("QUICK = ")[2].partition(" --doctest")[0].split()
    assert "-n $(KAFKA_JOBS) tests/broker" in MAKEFILE.partition("\ntest-kafka:")[2]
    assert "tests/faults" in MAKEFILE.partition("\ntest-faults:")[2]
    assert "tests/browser" in MAKEFILE.partition("\ntest-browser:")[2]
    folders = {path.parent for path in (ROOT / "tests").glob("*/test_*.py")} | {
        ROOT / "tests" / "unit"
    }
    named = {path.relative_to(ROOT).as_posix() for path in folders}
    assert named == {*quick, "tests/browser", "tests/broker", "tests/faults"}
