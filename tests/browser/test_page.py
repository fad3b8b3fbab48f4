"""The live page of an evaluator, fed by the tests: it fills, survives, says what is not known."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from pipeline.evaluation.notices import EVENTS_MAX
from pipeline.evaluation.pairing import Bounds, Evaluation
from pipeline.evaluation.view import BLOCKS_MAX
from tests.browser.conftest import NOT_REACHABLE, OpenTab
from tests.support.page_server import JOURNAL, NOW_MS, PageServer, prediction, story_messages
from tests.support.waiting import wait_until
from topics.labels import Label
from topics.predictions import Contribution, Prediction

FIGURES = Path(__file__).parents[2] / "docs" / "figures"
AXE = Path(__file__).parent / "axe.min.js"
SCREENSHOT_BYTES_MAX = 500_000
CURVES = (
    *("accuracy", "gain", "weights", "guard", "arrivals"),
    *("loss", "missing", "delays", "calibration"),
)


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


def pixels(page: Page, figure: str) -> str:
    """What is drawn in a figure."""
    shown = f"document.querySelector('#{figure} canvas').toDataURL()"
    return str(page.evaluate(shown))


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
        assert shown == ["accuracy", "weights", "guard", "missing"]


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
        expect(page.locator("#recent tbody button").first).to_have_text("ward-1-49")
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


def test_what_happened_to_processes_is_marked_and_listed(open_tab: OpenTab) -> None:
    with PageServer() as server:
        server.feed(0, *predictions("ward-1", range(300)), *labels("ward-1", range(250)))
        page = open_tab(server.url)
        expect(page.locator("#marks-legend")).to_contain_text("Nothing has happened")
        before = pixels(page, "accuracy")
        server.happen("started", 150, "40 records read again")
        server.happen("snapshot", 100)
        server.happen("config", 200, "why")
        server.happen("parked", 250)
        rows = page.locator("#marks tbody tr")
        expect(rows).to_have_count(4)
        expect(rows.filter(has_text="configuration changed: why")).to_have_count(1)
        expect(page.locator("#marks-legend .key")).to_have_count(4)
        wait_until(lambda: pixels(page, "accuracy") != before, "marks in the plot", 10)
        box = page.locator("#accuracy .u-over").bounding_box()
        assert box is not None
        low = 16  # the first point is the end of the first block
        at = box["x"] + box["width"] * (150 - low) / (300 - low)
        page.mouse.move(at, box["y"] + 40)
        expect(page.locator("#accuracy .tip")).to_contain_text("worker started")
        page.mouse.move(at + 60, box["y"] + 40)
        expect(page.locator("#accuracy .tip")).to_have_text("")


def test_a_prediction_opens_with_what_is_behind_it(open_tab: OpenTab) -> None:
    why = (Contribution("pulse", 0.75), Contribution("age", -0.5), Contribution("(rest)", 0.1))
    with PageServer() as server:
        server.feed(0, *predictions("ward-1", range(100)))
        page = open_tab(server.url)
        chosen = page.locator("#recent tbody tr").first.get_by_role("button")
        expect(page.locator("#recent tbody tr")).to_have_count(20)
        chosen.focus()
        page.keyboard.press("Enter")
        panel = page.locator("#prediction")
        expect(panel).to_contain_text("Record 100")
        expect(panel).to_contain_text("--set worker.why=5")
        expect(panel).to_contain_text("No known feature was missing")
        expect(panel.locator("tr").filter(has_text="linear")).to_contain_text("0.75")
        expect(panel.locator("tr").filter(has_text="stack_now")).to_contain_text("75 %")
        server.feed(0, *labels("ward-1", range(99, 100)))
        expect(panel).to_contain_text(re.compile("Label: [01], (right|wrong)"))

        more = [prediction("ward-1", n, 0.8, why=why, missing=("weight",)) for n in range(100, 130)]
        server.feed(0, *more)
        expect(page.locator("#recent tbody")).not_to_contain_text("100")
        expect(panel).to_contain_text("Record 100")  # it stays open when it leaves the list
        page.locator("#recent tbody button").first.click()
        expect(panel.locator("tr").filter(has_text="pulse")).to_contain_text("+0.75")
        expect(panel.locator("tr").filter(has_text="age")).to_contain_text("−0.50")
        expect(panel.locator("tr").filter(has_text="all else")).to_be_visible()
        expect(panel).to_contain_text("weight.")
        assert "ward-1-129" not in page.content()
        expect(page.locator("#recent-ids")).to_contain_text("web.token_file")


def test_labels_dead_letters_and_the_deadline_of_a_stream(open_tab: OpenTab) -> None:
    with PageServer() as server:
        server.feed(0, *predictions("ward-1", range(200)), *labels("ward-1", range(150)))
        server.feed(0, *labels("ward-1", range(3)))
        for _ in range(4):
            server.refuse("label-late", "ward-1")
        server.refuse("label-late", "ward-2")
        page = open_tab(server.url)
        expect(row(page, "ward-1").locator("td").nth(3)).to_have_text("0")  # learnt
        repeated = page.locator("#labels tr").filter(has_text="said the same again")
        expect(repeated.locator("td")).to_have_text("3")
        late = page.locator("#letters tr").filter(has_text="label-late").locator("td")
        expect(late).to_have_text(["4", "5"])
        expect(page.locator("#delays .words")).to_contain_text("No deadline by time is set")
        before = pixels(page, "delays")
        more = [prediction("ward-1", n, 0.8, expire_ms=3_000_000) for n in range(200, 210)]
        server.feed(0, *more)
        expect(page.locator("#delays .words")).to_contain_text("Labels after 50 min are too late")
        assert pixels(page, "delays") != before


def test_a_worker_shows_its_health(open_tab: OpenTab) -> None:
    parked = {"offset": 5, "crashes": 3, "error": "ZeroDivisionError", "place": "x.py:1"}
    health: dict[str, Any] = {"ready": True, "lag": 2, "snapshot_age_s": 4.0}
    partitions: list[dict[str, Any]] = [
        {"partition": 0, **health, "sources_lag": 5, "parked": None},
        {"partition": 1, **health, "parked": parked},
        {"partition": 2, **health, "ready": False, "restored_records": 1200, "lag": None},
    ]
    with PageServer(worker=partitions) as server:
        server.reasons = ["partition 1: parked at journal offset 5: dtgol journal skip"]
        page = open_tab(server.url)
        expect(page.locator("#verdict")).to_have_class("wrong")
        expect(page.locator("#verdict-text")).to_contain_text("1 partition parked")
        expect(page.locator("#verdict-reasons li")).to_have_text(server.reasons)
        expect(page.locator("h1")).to_contain_text("worker")
        lines = page.locator("#partitions tbody tr")
        expect(lines.nth(0)).to_contain_text("at work")
        expect(lines.nth(0).locator("td").nth(1)).to_have_text("7")
        expect(lines.nth(1)).to_contain_text("parked")
        expect(lines.nth(2)).to_contain_text("restoring, 1,200 read")
        letters = page.locator("#counts tr").filter(has_text="dead letters, not-json")
        expect(letters.locator("td")).to_have_text("3")
        for part in ("#streams", "#stream", "#memory"):
            expect(page.locator(part)).to_be_hidden()


def test_a_day_in_a_browser_costs_no_more_than_a_minute(open_tab: OpenTab) -> None:
    """Many answers, with new predictions in each: nodes, listeners, points and heap stay flat."""
    with PageServer() as server:
        server.feed(0, *predictions("ward-1", range(3_000)), *labels("ward-1", range(2_500)))
        for offset in range(0, 3_000, 50):
            server.happen("snapshot", offset)
        page = open_tab(server.url)
        page.locator("#recent tbody button").first.click()
        devtools = page.context.new_cdp_session(page)
        devtools.send("Performance.enable")

        def polled(first: int, times: int) -> dict[str, float]:
            for number in range(first, first + times):
                server.feed(0, *predictions("ward-1", range(3_000 + number, 3_001 + number)))
                server.happen("snapshot", 3_000 + number)
                asked = server.requests
                page.evaluate("dispatchEvent(new Event('hashchange'))")
                wait_until(lambda: page.evaluate("1") and server.requests > asked, "a poll", 10)  # noqa: B023
            expect(tile(page, "records")).to_have_text(f"{3_000 + first + times:,}")
            devtools.send("HeapProfiler.collectGarbage")
            metrics = devtools.send("Performance.getMetrics")["metrics"]
            return {each["name"]: each["value"] for each in metrics}

        early, late = polled(0, 40), polled(40, 120)
        assert late["Nodes"] <= early["Nodes"] + 50
        assert late["JSEventListeners"] <= early["JSEventListeners"] + 10
        assert late["JSHeapUsedSize"] <= early["JSHeapUsedSize"] + 1_000_000
        answer = page.evaluate("fetch('page.json').then((answer) => answer.json())")
        assert len(answer["selected"]["predictions"]["predicted"]) <= BLOCKS_MAX
        assert len(answer["selected"]["marks"]) <= 2 * EVENTS_MAX


def serious_violations(page: Page) -> list[Any]:
    page.add_script_tag(path=AXE)
    found = page.evaluate("axe.run()")
    assert found["passes"]
    return [
        (each["id"], [node["html"] for node in each["nodes"]])
        for each in found["violations"]
        if each["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("view", ["token", "worker", "wrong", "starting"])
def test_axe_on_what_is_rarely_seen(
    open_tab: OpenTab, tmp_path: Path, scheme: str, view: str
) -> None:
    (tmp_path / "token").write_text("right-token\n")
    token_file = tmp_path / "token" if view == "token" else None
    worker = [{"partition": 0, "ready": view != "starting"}] if view != "token" else None
    with PageServer(token_file=token_file, worker=worker) as server:
        server.reasons = ["partition 0: it waits"] if view in ("wrong", "starting") else []
        options = {"color_scheme": scheme, "bypass_csp": True}
        page = open_tab(server.url, allowed="401", **options)
        if view == "token":
            page.get_by_label("asks for a token").fill("wrong")
            page.keyboard.press("Enter")
            expect(page.locator("#token-wrong")).to_be_visible()
        else:
            level = "healthy" if view == "worker" else view
            expect(page.locator("#verdict")).to_have_class(level)
        assert serious_violations(page) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_axe_finds_no_serious_violation(open_tab: OpenTab, scheme: str, width: int) -> None:
    with PageServer() as server:
        server.feed(0, *predictions("ward-1", range(300)), *labels("ward-1", range(250)))
        server.feed(0, *predictions("ward-2", range(1000, 1100)))
        server.happen("config", 150, "why")
        server.refuse("label-late", "ward-1")
        size = {"width": width, "height": 800}
        page = open_tab(server.url, color_scheme=scheme, viewport=size, bypass_csp=True)
        expect(page.locator("#calibration canvas")).to_be_visible()
        page.locator("#recent tbody button").first.click()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert serious_violations(page) == []


def test_the_screenshots_of_the_readme(
    open_tab: OpenTab, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """The demo's patients, answered by the learner of today, four fifths through the story.

    The first screen, and what is below it with a prediction opened.
    """
    with PageServer() as server:
        server.feed(0, *story_messages("patients", 2_400, 0.86))
        server.feed(1, *story_messages("sensors", 3_000, 0.86))
        server.happen("started", 1_500, "212 records read again")
        server.happen("config", 2_300, "why")
        for offset in range(200, 4_200, 220):
            server.happen("snapshot", offset, "12 objects, 120482 bytes")
        server.refuse("label-late", "rehabilitation")
        for scheme in ("light", "dark"):
            url = f"{server.url}/#stream=rehabilitation&partition=0"
            size = {"width": 1280, "height": 1560}
            page = open_tab(url, color_scheme=scheme, viewport=size)
            expect(page.locator("#weights canvas")).to_be_visible()
            page.screenshot(path=tmp_path / f"page-{scheme}.png")
            page.locator("#recent tbody button").nth(2).click()
            guard, height = page.locator("#guard").bounding_box(), "document.body.scrollHeight"
            assert guard is not None
            top = guard["y"] + page.evaluate("scrollY") - 12
            below = {"x": 0, "y": top, "width": 1280, "height": page.evaluate(height) - top}
            path = tmp_path / f"page-more-{scheme}.png"
            page.screenshot(path=path, full_page=True, clip=below)  # type: ignore[arg-type]
        for path in tmp_path.glob("*.png"):
            assert path.stat().st_size < SCREENSHOT_BYTES_MAX
            if pytestconfig.getoption("--screenshots"):
                shutil.copy(path, FIGURES)
