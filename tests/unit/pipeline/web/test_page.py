"""The files of the live page: complete, vendored unchanged, shipped, and nothing from elsewhere."""

import hashlib
import re
import tomllib
from pathlib import Path

import pytest

from pipeline.web.server import PAGE, TYPES

ROOT = Path(__file__).parents[4]
FILES = sorted(PAGE.iterdir())
OWN = [path for path in FILES if path.suffix in TYPES and not path.name.startswith("uPlot")]
VENDORED = {
    # uPlot 1.6.32 and axe-core 4.14.0, as they come from npm
    PAGE / "uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    PAGE / "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    PAGE / "uPlot.LICENSE": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
    ROOT
    / "tests"
    / "browser"
    / "axe.min.js": "20c09fe157a8a34a30e241aaa1fcdade657734f08ab379ecfbeb7d45cc46e878",
}


@pytest.mark.parametrize("path", VENDORED, ids=lambda path: path.name)
def test_what_is_vendored_is_unchanged(path: Path) -> None:
    assert hashlib.sha256(path.read_bytes()).hexdigest() == VENDORED[path]


def test_every_file_is_in_the_wheel() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    patterns = settings["package-data"]["*"]
    assert [path.name for path in FILES if not any(path.match(each) for each in patterns)] == []


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.name)
def test_nothing_is_inline_and_nothing_comes_from_elsewhere(path: Path) -> None:
    """The policy `default-src 'self'` would block it, which only a browser would show."""
    text = path.read_text().replace("http://www.w3.org/2000/svg", "")
    assert "//" not in re.sub(r"(?m)(^|\s)//.*$", "", text)
    assert not re.search(r"\sstyle=|\son\w+=|<style|javascript:|innerHTML|eval\(", text)


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.name)
def test_what_a_file_loads_is_there(path: Path) -> None:
    text = path.read_text()
    named = re.findall(r'from "\./([^"]+)"|(?:src|href)="page/([^"]+)"', text)
    assert [name for pair in named for name in pair if name and not (PAGE / name).exists()] == []
