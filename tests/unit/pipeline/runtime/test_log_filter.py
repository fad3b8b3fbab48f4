"""What a library repeats is thinned out; nothing of ours is, and no first of a kind."""

from __future__ import annotations

import logging

from pipeline.runtime.log_filter import RepeatFilter


def record(name: str, text: str, at_s: float, *args: object) -> logging.LogRecord:
    made = logging.LogRecord(name, logging.ERROR, __file__, 1, text, args, None)
    made.created = at_s
    return made


def passed(records: list[logging.LogRecord]) -> list[str]:
    repeats = RepeatFilter("aiokafka", 10)
    return [each.getMessage() for each in records if repeats.filter(each)]


def test_the_first_of_a_kind_passes_and_then_one_per_interval() -> None:
    outage = [record("aiokafka.client", "no node %s", n / 10, n) for n in range(201)]
    assert passed(outage) == [
        "no node 0",
        "no node 100 (99 more like it)",
        "no node 200 (99 more like it)",
    ]


def test_kinds_differ_by_their_text_not_by_their_values() -> None:
    kinds = [record("aiokafka", "one %s", 0, 1), record("aiokafka", "two %s", 0, 1)]
    assert passed([*kinds, record("aiokafka", "one %s", 1, 2)]) == ["one 1", "two 1"]


def test_our_own_lines_always_pass() -> None:
    ours = [record("pipeline.worker", "the same", n) for n in range(3)]
    assert passed(ours) == ["the same"] * 3
