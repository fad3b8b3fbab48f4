"""The live page of an evaluator, fed by the tests: it fills, survives, says what is not known."""

from __future__ import annotations

import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from pipeline.evaluation.pairing import Bounds, Evaluation
from tests.browser.conftest import NOT_REACHABLE, OpenTab
from tests.support.page_server import JOURNAL, NOW_MS, PageServer, prediction, story_messages
from tests.support.waiting import wait_until
from topics.labels import Label
from topics.predictions import Prediction

FIGURES = Path(__file__).parents[2] / "docs" / "figures"
AXE = Path(__file__).parent / "axe.min.js"
SCREENSHOT_BYTES_MAX = 300_000
CURVES = ("accuracy", "gain", "weights", "guard", "arrivals", "loss", "delays", "calibration")


def predictions(stream: str, numbers: range, partition: int = 0) -> list[Prediction]:
    return [prediction(stream, number, 0.2 + 0.1 * (number % 7), partition) for number in numbers]


def labels(stream: str, numbers: range) -> list[Label]:
    """True to the forecast for two of three."""
    return [
        Label(
            stream=stream,
            id=f"{stream}-{number}",
            y=int((number % 7 > 3) == (number % 3 > 0)),
            ts=NOW_MS + 60_000 * (number + 10 + number % 90),
        )
        for number in numbers
    ]


def row(page: Page, stream: str) -> Any:
    return page.locator("#streams-table tbody tr").filter(has_text=stream)


def tile(page: Page, name: str) -> Any:
    found = page.locator("#tiles div").filter(has=page.get_by_text(name, exact=True))
    return found.locator("dd").first


def painted(page: Page, figure: str) -> bool:
    """Whether the canvas of a figure has any pixel."""
    return bool(
        page.evaluate(
            """id => {
              const canvas = document.querySelector(`#${id} canvas`);
              if (!canvas || !canvas.width) return false;
              const area = [0, 0, canvas.width, canvas.height];
              const { data } = canvas.getContext("2d").getImageData(...area);
              return data.some((value) => value > 0);
            }""",
            figure,
        )
    )


def test_it_fills_while_records_and_labels_come(open_tab: OpenTab) -> None:
    with PageServer() as server:
        page = open_tab(server.url)
        expect(page.locator("#verdict-text")).to_contain_text("no partition")
        expect(page.locator("#streams-none")).to_be_visible()

        server.feed(0, *predictions("ward-1", range(200)))
        expect(page.locator("#verdict-text")).to_contain_text("Healthy")
        expect(row(page, "ward-1")).to_contain_text("no labels yet")
        expect(page.locator("#no-labels")).to_be_visible()
        expect(tile(page, "accuracy")).to_have_text("no labels yet")
        expect(page.locator("#gain")).to_be_hidden()
        assert "0.0 %" not in row(page, "ward-1").inner_text()

        server.feed(0, *labels("ward-1", range(150)))
        expect(page.locator("#no-labels")).to_be_hidden()
        expect(tile(page, "labelled")).to_have_text("75 %")
        expect(page.locator("#accuracy .words")).to_contain_text("still wait: 11 %")
        for name in CURVES:
            expect(page.locator(f"#{name}")).to_be_visible()
            wait_until(partial(painted, page, name), f"a curve in {name}", 10)


def test_no_label_yet_shows_the_estimate_alone(open_tab: OpenTab) -> None:
    with PageServer() as server:
        server.feed(0, *predictions("new", range(100)))
        page = open_tab(server.url)
        expect(page.locator("#accuracy .words")).to_contain_text("0 % of their labels are here")
        shown = [name for name in CURVES if page.locator(f"#{name}").is_visible()]
        assert shown == ["accuracy", "weights", "guard"]


def test_estimates_coverage_and_costs_are_shown(open_tab: OpenTab) -> None:
    given = [
        replace(each, threshold=0.3, set=((0,), (1,), (0, 1))[number % 3])
        for number, each in enumerate(predictions("ward-1", range(600)))
    ]
    with PageServer() as server:
        server.feed(0, *given[:400], *labels("ward-1", range(400)), *given[400:])
        page = open_tab(server.url)
        view = server.evaluations[0].view.streams["ward-1"]
        window, found = view.last_window(), view.estimates()
        assert window.coverage is not None
        assert found.calibrated.error is not None
        expect(tile(page, "in the set")).to_have_text(f"{100 * window.coverage:.1f} %")
        expect(tile(page, "to a human")).to_contain_text("33.")
        expect(tile(page, "wrong")).to_contain_text(f"{window.false_positives} + ")
        words = page.locator("#accuracy .words")
        expect(words).to_contain_text(f"off by {100 * found.calibrated.error:.1f} points and")
        expect(words).to_contain_text("A pure change of concept shows in neither.")
        server.costs = (2.0, 1.0)
        expect(tile(page, "cost")).to_be_visible()


def test_it_survives_a_restart_of_the_evaluator(open_tab: OpenTab) -> None:
    with PageServer() as first:
        first.feed(0, *predictions("ward-1", range(300)), *labels("ward-1", range(200)))
        page = open_tab(first.url, allowed=NOT_REACHABLE)
        expect(tile(page, "labelled")).to_have_text("67 %")
        before = tile(page, "accuracy").inner_text()
        port, taken = first.port, first.evaluations[0].snapshot()
    expect(page.locator("#connection")).to_contain_text("no answer")
    expect(page.locator("body")).to_have_class("stale")

    with PageServer(port=port) as second:
        restored = Evaluation.restore(JOURNAL, 0, Bounds(), taken.state, taken.changed)
        second.evaluations[0] = restored
        expect(page.locator("#connection")).to_contain_text("live")
        expect(tile(page, "accuracy")).to_have_text(before)
        expect(page.locator("#weights")).to_be_hidden()
        second.feed(0, *predictions("ward-1", range(300, 400)))
        expect(tile(page, "records")).to_have_text("400")
        expect(page.locator("#weights")).to_be_visible()


def test_three_hundred_streams_can_be_sorted_filtered_and_chosen(open_tab: OpenTab) -> None:
    with PageServer() as server:
        for number in range(300):
            stream, first = f"machine-{number:03}", 1000 * number
            numbers = range(first, first + 20 + number)
            server.feed(number % 4, *predictions(stream, numbers, number % 4))
            if number % 2:
                server.feed(number % 4, *labels(stream, numbers))
        page = open_tab(server.url)
        rows = page.locator("#streams-table tbody tr")
        expect(rows).to_have_count(300)
        expect(page.locator("#streams-count")).to_have_text("300")

        page.get_by_role("button", name="stream", exact=True).click()
        expect(rows.first).to_contain_text("machine-000")
        page.get_by_role("button", name="accuracy", exact=True).click()
        expect(rows.last).to_contain_text("no labels yet")

        page.get_by_label("filter").fill("machine-12")
        expect(rows).to_have_count(10)
        page.get_by_role("button", name="machine-123").focus()
        page.keyboard.press("Enter")
        expect(page.locator("#stream-title")).to_have_text("machine-123 · partition 3")
        assert "stream=machine-123" in page.url


def test_with_a_token_the_page_asks_for_it(open_tab: OpenTab, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("right-token\n")
    with PageServer(token_file=tmp_path / "token") as server:
        server.feed(0, *predictions("ward-1", range(50)))
        page = open_tab(server.url, allowed="401")
        field = page.get_by_label("asks for a token")
        expect(field).to_be_focused()
        assert "ward-1" not in page.content()
        field.fill("wrong")
        page.keyboard.press("Enter")
        expect(page.locator("#token-wrong")).to_be_visible()
        field.fill("right-token")
        page.keyboard.press("Enter")
        expect(row(page, "ward-1")).to_be_visible()
        expect(page.locator("#token")).to_be_hidden()
        page.reload()
        expect(row(page, "ward-1")).to_be_visible()


def test_what_is_wrong_stands_on_top_with_its_reasons(open_tab: OpenTab) -> None:
    with PageServer() as server:
        server.feed(0, *predictions("ward-1", range(50)))
        server.reasons = ["the cluster does not answer for 60 s"]
        page = open_tab(server.url)
        expect(page.locator("#verdict")).to_have_class("wrong")
        expect(page.locator("#verdict-reasons li")).to_have_text(server.reasons)


def test_a_hidden_tab_asks_for_nothing(open_tab: OpenTab) -> None:
    with PageServer() as server:
        page = open_tab(server.url)
        expect(page.locator("#connection")).to_contain_text("live")
        page.evaluate(
            """() => {
              Object.defineProperty(document, "hidden", { value: true, configurable: true });
              document.dispatchEvent(new Event("visibilitychange"));
            }"""
        )
        asked = server.requests
        page.wait_for_timeout(5_000)  # twice as long as between two questions
        assert server.requests == asked
        page.evaluate(
            """() => {
              Object.defineProperty(document, "hidden", { value: false, configurable: true });
              document.dispatchEvent(new Event("visibilitychange"));
            }"""
        )
        wait_until(lambda: page.evaluate("1") and server.requests > asked, "a question", 10)


def test_a_name_is_never_read_as_html(open_tab: OpenTab) -> None:
    with PageServer() as server:
        name = "<img src=x onerror=alert(1)>&\"'"
        server.feed(0, *predictions(name, range(20)))
        page = open_tab(server.url)
        expect(page.locator("#streams-table tbody button")).to_have_text(name)
        assert page.locator("main img").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_axe_finds_no_serious_violation(open_tab: OpenTab, scheme: str, width: int) -> None:
    with PageServer() as server:
        server.feed(0, *predictions("ward-1", range(300)), *labels("ward-1", range(250)))
        server.feed(0, *predictions("ward-2", range(1000, 1100)))
        size = {"width": width, "height": 800}
        page = open_tab(server.url, color_scheme=scheme, viewport=size, bypass_csp=True)
        expect(page.locator("#calibration canvas")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.add_script_tag(path=AXE)
        found = page.evaluate("axe.run()")
        assert found["passes"]
        serious = [
            (each["id"], [node["html"] for node in each["nodes"]])
            for each in found["violations"]
            if each["impact"] in ("serious", "critical")
        ]
        assert serious == []


def test_the_screenshots_of_the_readme(
    open_tab: OpenTab, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """The demo's patients, answered by the learner of today, four fifths through the story."""
    with PageServer() as server:
        server.feed(0, *story_messages("patients", 2_400, 0.86))
        server.feed(1, *story_messages("sensors", 3_000, 0.86))
        for scheme in ("light", "dark"):
            url = f"{server.url}/#stream=rehabilitation&partition=0"
            page = open_tab(url, color_scheme=scheme, viewport={"width": 1280, "height": 1360})
            expect(page.locator("#weights canvas")).to_be_visible()
            path = tmp_path / f"page-{scheme}.png"
            page.screenshot(path=path)
            assert path.stat().st_size < SCREENSHOT_BYTES_MAX
            if pytestconfig.getoption("--screenshots"):
                shutil.copy(path, FIGURES)
