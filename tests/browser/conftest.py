"""One browser for all tests; a tab that fails its test on an error or a request elsewhere."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

FLAGS = [
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
LIMIT_MS = 20_000
NOT_REACHABLE = "net::ERR_"
"""A server that is away is an error in every browser's console; tests that stop it allow this."""

OpenTab = Callable[..., Page]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    found = shutil.which("chromium")
    if found is None:
        pytest.fail("these tests need Chromium as `chromium` (Debian: apt-get install chromium)")
    with sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=found, args=FLAGS)
        yield opened
        opened.close()


@pytest.fixture
def open_tab(browser: Browser) -> Iterator[OpenTab]:
    """Opens a tab at an address; `allowed` is a part of console errors that are expected."""
    contexts, wrong = [], []

    def open_at(url: str, allowed: str | None = None, **options: Any) -> Page:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}} | options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(LIMIT_MS)
        own = urlsplit(url).netloc
        page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
        page.on(
            "console",
            lambda message: (
                wrong.append(f"{message.type}: {message.text}")
                if message.type in ("error", "warning")
                and not (allowed and allowed in message.text)
                else None
            ),
        )
        page.on(
            "request",
            lambda request: (
                None if urlsplit(request.url).netloc == own else wrong.append(request.url)
            ),
        )
        page.goto(url)
        return page

    yield open_at
    for context in contexts:
        context.close()
    assert wrong == []
