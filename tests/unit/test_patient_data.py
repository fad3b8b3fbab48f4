"""docs/patient-data.md: every topic with its retention and who may read it; it is linked."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.kafka.acls import ROLES
from topics.catalog import CATALOG, DAY_MS, Cleanup, Topic, desired_topics
from topics.features import Features
from topics.labels import Erasure, Label
from topics.predictions import Prediction
from topics.scores import Event, Score
from topics.wire import described

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "patient-data.md").read_text()
TABLE = PAGE.partition("<!-- topics -->")[2].partition("<!-- /topics -->")[0]
ROWS = {
    cells[1].strip("` "): [cell.strip() for cell in cells[2:-1]]
    for cells in (line.split("|") for line in TABLE.splitlines() if line.startswith("| `"))
}
PERSON = {
    Features: {"id", "x", "ts"},
    Label: {"id", "y", "ts"},
    Erasure: set[str](),
    Prediction: {"id", "p", "label", "set", "why", "missing", "ts", "defaulted"},
    Score: {"id", "p", "y"},
    Event: set[str](),
}
"""Fields of messages that are about the person."""
PROCESS = {
    *("stream", "step", "model", "at", "threshold", "default", "repeat", "labels_offset"),
    *("labels_learnt", "unverified", "guard", "label_offset", "rescored", "erase", "event"),
    *("detail", "experts", "naive", "uncertainty", "observed_share", "set", "covered"),
    *("correct", "naive_correct", "loss", "naive_loss", "delay_ms", "expire_ms"),
}
"""The others: about the process, or no more than what p and y say."""


def test_every_topic_has_a_row() -> None:
    assert list(ROWS) == [topic.name for topic in CATALOG]


@pytest.mark.parametrize("topic", CATALOG, ids=lambda topic: topic.name)
def test_retention_and_readers_are_those_of_the_catalog_and_the_grants(topic: Topic) -> None:
    _, kept, read_by, _ = ROWS[topic.name]
    (spec,) = (each for each in desired_topics("", 1, 1) if each.topic is topic)
    if topic.cleanup is Cleanup.COMPACT:
        assert kept.startswith("compacted")
    else:
        assert kept == f"{int(spec.config['retention.ms']) // DAY_MS} days"
    readers = [
        role
        for role, grants in ROLES.items()
        if any((each.name, each.operation) == (topic.name, "Read") for each in grants)
    ]
    assert read_by.removesuffix(", and your own readers") == ", ".join(readers)


@pytest.mark.parametrize("name", ["features", "labels", "predictions", "scores"])
def test_every_field_about_a_person_is_named(name: str) -> None:
    """A field that is new belongs into one of the two lists above, and if need be on the page."""
    (topic,) = (each for each in CATALOG if each.name == name)
    for message in topic.payloads:
        fields = {item.name for item, _ in described(message)}
        assert PERSON[message] <= fields <= PERSON[message] | PROCESS, message
        missing = {each for each in PERSON[message] if f"`{each}`" not in ROWS[name][0]}
        assert not missing, message


@pytest.mark.parametrize("page", ["README.md", "docs/security.md", "docs/guide-operations.md"])
def test_the_page_is_linked(page: str) -> None:
    assert "patient-data.md)" in (ROOT / page).read_text()
