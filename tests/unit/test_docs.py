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


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    found = set()
    for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        found.add(re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-"))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_to_a_file_and_its_heading(page: Path) -> None:
    """`make docs` looks at the links of the site; these are those that one follows on GitHub."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    links = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'src(?:set)?="([^"]+)"', text)
    for link in links:
        if ":" in link:
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link
