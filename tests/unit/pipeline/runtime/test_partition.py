"""A page about thousands of streams lets records be processed in between."""

from __future__ import annotations

import asyncio
import time

import pytest

from pipeline.runtime.partition import SLICE_S, of_each


def test_others_run_while_a_page_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    turns: list[int] = []

    def work(name: str, value: int) -> int:
        nonlocal now
        now += SLICE_S / 2
        return value * 2

    async def other() -> None:
        while True:
            turns.append(1)
            await asyncio.sleep(0)

    async def run() -> dict[str, int]:
        task = asyncio.create_task(other())
        await asyncio.sleep(0)
        try:
            return await of_each(streams, work)
        finally:
            task.cancel()

    streams = {str(number): number for number in range(300)}
    assert asyncio.run(run()) == {name: value * 2 for name, value in streams.items()}
    assert len(turns) >= 100
