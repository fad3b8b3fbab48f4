"""Events and dead letters for the live page: bounded, and never a reason to stop."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pipeline.errors import RequestError
from pipeline.evaluation import notices as module
from pipeline.evaluation.notices import EVENTS_MAX, REASONS_MAX, STREAMS_MAX, Notices
from pipeline.kafka.record import Record
from topics.codec import write_process_event
from topics.dead_letters import DeadLetter
from topics.events import ProcessEvent
from topics.headers import write_headers

EVENTS, DEAD_LETTERS = "p-events", "p-dead-letters"


def event(kind: str, at_ms: int, partition: int = 0) -> Record:
    value = write_process_event(ProcessEvent(kind, at_ms, "worker", "host:1", partition, at_ms))
    return Record(EVENTS, 0, at_ms, 5, b"0", value)


def dead_letter(reason: str, value: bytes = b"{}", partition: int = 0) -> Record:
    headers = write_headers(DeadLetter("p-labels", partition, 7, reason, "detail"))
    return Record(DEAD_LETTERS, 0, 0, 5, b"k", value, headers)


def made(*records: Record) -> Notices:
    notices = Notices(EVENTS, DEAD_LETTERS)
    for record in records:
        notices.add(record)
    return notices


def test_snapshots_do_not_push_out_the_events_that_are_rare() -> None:
    often = [event("snapshot", at) for at in range(3 * EVENTS_MAX)]
    notices = made(event("started", 50), *often, event("parked", 3, partition=1))
    found = notices.events(0)
    assert len(found) == EVENTS_MAX + 1
    assert found[0].kind == "started"
    assert [each.at_ms for each in found] == sorted(each.at_ms for each in found)
    assert [each.kind for each in notices.events(1)] == ["parked"]


def test_dead_letters_are_counted_by_reason_and_by_stream() -> None:
    of_ward = b'{"stream": "ward", "id": "x"}'
    notices = made(
        dead_letter("label-late", of_ward, partition=2),
        dead_letter("label-late", of_ward, partition=2),
        dead_letter("not-json", b"?"),
        Record(DEAD_LETTERS, 0, 3, 5, None, None, []),
        Record(EVENTS, 0, 0, 5, None, b"no event"),
    )
    page = notices.page({"stream": "ward", "partition": 2})
    assert page["dead_letters"] == {"label-late": 2, "not-json": 1}
    assert page["stream_dead_letters"] == {"label-late": 2}
    assert notices.page(None)["stream_dead_letters"] == {}


def test_strange_streams_and_reasons_take_no_memory_without_end() -> None:
    streams = [b'{"stream": "s%d"}' % number for number in range(STREAMS_MAX + 10)]
    notices = made(*(dead_letter("late", value) for value in streams))
    assert notices.page({"stream": f"s{STREAMS_MAX - 1}", "partition": 0})["stream_dead_letters"]
    assert not notices.page({"stream": f"s{STREAMS_MAX}", "partition": 0})["stream_dead_letters"]
    assert notices.page(None)["dead_letters"] == {"late": STREAMS_MAX + 10}
    for number in range(2 * REASONS_MAX):
        notices.add(dead_letter(f"r{number}"))
    assert len(notices.page(None)["dead_letters"]) == REASONS_MAX


def test_topics_that_cannot_be_read_are_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0.01)
    monkeypatch.setattr(module, "IDLE_S", 0.001)
    tries: list[Any] = []

    class FakeTail:
        missing: tuple[str, ...] = ()

        def __init__(self, *given: Any) -> None:
            tries.append(given)
            if len(tries) == 1:
                raise RequestError("no right")
            self.missing = (EVENTS,) if len(tries) == 2 else ()

        def poll(self, *_: Any) -> list[Record]:
            return [event("started", 1)] if len(tries) == 3 else []

        def close(self) -> None:
            pass

    notices = Notices(EVENTS, DEAD_LETTERS)
    problems: set[str | None] = set()

    async def follow() -> None:
        task = asyncio.create_task(notices.follow({}, FakeTail))  # type: ignore[arg-type]
        async with asyncio.timeout(20):
            while not notices.events(0):
                problems.add(notices.page(None)["notices_problem"])
                await asyncio.sleep(0.001)
        task.cancel()

    asyncio.run(follow())
    assert {"no right", f"no topic {EVENTS}: run dtgol topics apply"} <= problems
    assert notices.problem is None
