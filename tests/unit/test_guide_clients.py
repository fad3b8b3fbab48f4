"""How docs/guide-clients.md tells copies of an answer apart, run as printed: Python and SQL.

The Java of that page runs in tests/broker/test_connect.py, where there is Java.
"""

import re
import sqlite3
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def block(language: str, heading: str = "One answer, several copies") -> str:
    """The one block of a language in a section."""
    text = (ROOT / "docs" / "guide-clients.md").read_text()
    section = text.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    return str(found)


def test_a_copy_is_told_by_journal_partition_and_offset() -> None:
    names: dict[str, Any] = {}
    exec(block("python"), names)
    places = [("a", 0, 5), ("a", 0, 5), ("a", 0, 7), ("a", 0, 6), ("a", 1, 5), ("b", 0, 0)]
    answers = [
        {"at": dict(zip(("journal", "partition", "offset"), p, strict=True))} for p in places
    ]
    assert [names["is_copy"](each) for each in answers] == [False, True, False, True, False, False]


def test_copies_in_a_table_are_one_row() -> None:
    database = sqlite3.connect(":memory:")
    columns = "stream, id, at_journal, at_partition, at_offset, p"
    database.execute(f"CREATE TABLE predictions ({columns})")
    rows = [("ward", "17", "a", 0, 5, 0.8)] * 2 + [("ward", "17", "a", 0, 6, 0.8)]
    database.executemany("INSERT INTO predictions VALUES (?, ?, ?, ?, ?, ?)", rows)
    assert [row[2] for row in database.execute(block("sql"))] == [5, 6]
    database.close()


def test_what_is_open_goes_to_a_human_and_the_rest_by_its_label() -> None:
    names: dict[str, Any] = {}
    exec(block("python", "What to do with an answer"), names)
    answers = [([0, 1], 1), ([1], 1), ([0], 1), ([0], 0)]
    routes = [names["route"]({"set": each, "label": label}) for each, label in answers]
    assert routes == ["human", "alarm", "alarm", "nothing"]
