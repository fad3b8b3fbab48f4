"""The live page of `dtgol demo` as a user runs it: it fills while the story is played."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from playwright.sync_api import expect

from tests.browser.conftest import NOT_REACHABLE, OpenTab
from tests.support.waiting import wait_until

START_S = 120.0


def test_the_page_fills_while_the_demo_runs(open_tab: OpenTab, tmp_path: Path) -> None:
    output = tmp_path / "output"
    command = [sys.executable, "-m", "pipeline", "demo", "sensors"]
    with output.open("wb") as file:
        demo = subprocess.Popen(
            [*command, "--records", "600", "--seconds", "20"], stdout=file, stderr=file
        )
    try:
        wait_until(
            lambda: "playing" in output.read_text(),
            "the play to begin",
            START_S,
            alive=lambda: demo.poll() is None,
        )
        address = output.read_text().splitlines()[1].removeprefix("live page: ").split()[0]
        page = open_tab(address, allowed=NOT_REACHABLE)
        expect(page.locator("#verdict")).to_have_class("healthy")
        rows = page.locator("#streams-table tbody tr")
        expect(rows).to_have_count(6, timeout=30_000)
        expect(page.locator("#gain canvas")).to_be_visible(timeout=30_000)
        assert demo.poll() is None, output.read_text()
        assert demo.wait(60) == 0, output.read_text()
    finally:
        demo.terminate()
        demo.wait(60)
