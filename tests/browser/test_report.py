"""The report of `dtgol backtest` opened from a disk: curves, no error, no request."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from playwright.sync_api import expect

from pipeline.cli import dtgol
from tests.browser.conftest import OpenTab
from tests.browser.test_page import painted, serious_violations

CURVES = ("accuracy", "gain", "weights", "guard", "loss", "missing", "calibration")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a file whose label follows one column."""
    folder = tmp_path_factory.mktemp("report")
    chance = np.random.default_rng(5)
    with (folder / "records.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["tells", "noise", "<b>bold</b>", "label"])
        for _ in range(600):
            tells, noise, bold = chance.normal(size=3)
            writer.writerow([tells, "" if noise > 1 else noise, bold, int(tells > 0.4)])
    out = folder / "out.html"
    arguments = ["backtest", str(folder / "records.csv"), "--delay", "30", "--report", str(out)]
    done = CliRunner().invoke(dtgol, arguments)
    assert done.exit_code == 0, done.output
    return out


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_it_opens_from_a_disk(open_tab: OpenTab, report: Path, scheme: str, width: int) -> None:
    size = {"width": width, "height": 800}
    page = open_tab(report.as_uri(), color_scheme=scheme, viewport=size, bypass_csp=True)
    expect(page.locator("body")).to_have_attribute("data-ready", "true")
    for name in CURVES:
        expect(page.locator(f"#{name}")).to_be_visible()
        assert painted(page, name), name
    for name in ("arrivals", "delays"):
        expect(page.locator(f"#{name}")).to_be_hidden()
    methods = page.locator("#methods tbody th")
    expect(methods).to_have_text(["forecast", "naive", "more frequent label"])
    expect(page.locator("#importance tbody th").first).to_have_text("tells")
    expect(page.locator("#importance tbody")).to_contain_text("<b>bold</b>")
    assert page.locator("b").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert serious_violations(page) == []


def test_its_own_policy_lets_nothing_in(open_tab: OpenTab, report: Path) -> None:
    page = open_tab(report.as_uri(), allowed="Content Security Policy")
    expect(page.locator("body")).to_have_attribute("data-ready", "true")
    asked = "fetch('http://127.0.0.1:1/').then(() => 'in', () => 'kept out')"
    assert page.evaluate(asked) == "kept out"
