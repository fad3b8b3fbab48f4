"""The documentation names files and commands that exist; a page that lags behind the code fails."""

import re
from pathlib import Path

import pytest

from pipeline.cli import COMMANDS

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
GONE = {"benchmarks/vectorised.py"}  # docs/decisions/0002 says that it was deleted, and why
TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    named = set(re.findall(r"`((?:[\w.-]+/)+[\w-]+\.(?:py|xml|yaml|json))`", page.read_text()))
    roots = (ROOT, ROOT / "pipeline")
    missing = [path for path in named - GONE if not any((root / path).exists() for root in roots)]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text()
    named = re.findall(r"(?:^|`)(?:\.venv/bin/)?dtgol ([a-z][\w-]+)", text, re.MULTILINE)
    assert set(named) <= COMMANDS.keys()
    assert set(re.findall(r"(?:^|`)make ([a-z][\w-]*)", text, re.MULTILINE)) <= TARGETS
