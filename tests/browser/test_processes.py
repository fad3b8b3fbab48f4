"""The live page of a real evaluator beside a real worker, on the embedded broker."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import expect

from pipeline.sandbox.brokers import open_broker
from pipeline.sandbox.brokers.process import free_ports
from tests.browser.conftest import NOT_REACHABLE, OpenTab
from tests.support.stage import Stage


def send(stage: Stage, numbers: range) -> None:
    for number in numbers:
        x = {"pulse": number % 11, "ward": "abc"[number % 3], "age": number % 7 or None}
        stage.features(f"i{number}", x, stream="ward-1")
    for number in numbers:
        stage.label(f"i{number}", int(number % 11 > 5), stream="ward-1")
    stage.send("features", b"no json")
    stage.flush()


def test_it_survives_a_kill_of_the_evaluator_and_marks_what_happened(
    open_tab: OpenTab, tmp_path: Path
) -> None:
    with open_broker("embedded") as broker:
        stage = Stage(broker, "page-", tmp_path, settings={"worker.why": 3})
        port = ("--web-port", str(free_ports(1)[0]))
        with stage.worker() as worker:
            worker.await_ready()
            with stage.evaluator(*port) as evaluator:
                evaluator.await_ready()
                send(stage, range(200))
                page = open_tab(f"{evaluator.url}/", allowed=NOT_REACHABLE)
                labelled = page.locator("#tiles div").filter(has_text="labelled").locator("dd")
                expect(labelled.first).to_have_text("100 %", timeout=60_000)
                letters = page.locator("#letters tr").filter(has_text="not-json").locator("td")
                expect(letters.last).to_have_text("1")
                page.locator("#recent tbody button").first.click()
                expect(page.locator("#prediction")).to_contain_text("What moved the log-odds")
                evaluator.child.kill()
                evaluator.child.wait()
                expect(page.locator("#connection")).to_contain_text("no answer")
            with stage.evaluator(*port) as evaluator:
                expect(page.locator("#connection")).to_contain_text("live", timeout=60_000)
                expect(labelled.first).to_have_text("100 %", timeout=60_000)
                send(stage, range(200, 300))
                records = page.locator("#tiles div").filter(has_text="records").locator("dd").first
                expect(records).to_have_text("300", timeout=60_000)
                listed = page.locator("#marks tbody")
                expect(listed).to_contain_text("evaluator started", timeout=30_000)
                expect(listed).to_contain_text("worker snapshot")
                assert worker.alive()
