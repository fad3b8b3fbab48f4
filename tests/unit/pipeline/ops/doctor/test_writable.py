"""Partitions to which nothing can be delivered."""

from types import SimpleNamespace
from typing import Any

from pipeline.ops.doctor.findings import Status
from pipeline.ops.doctor.writable import check_writable


def topic(*partitions: tuple[int, int]) -> Any:
    """A topic of partitions, each with its leader and replicas in sync."""
    made = {
        number: SimpleNamespace(leader=leader, isrs=list(range(in_sync)))
        for number, (leader, in_sync) in enumerate(partitions)
    }
    return SimpleNamespace(partitions=made)


def test_leaders_and_replicas_in_sync_are_fine() -> None:
    (found,) = check_writable({"journal": topic((1, 2), (2, 3))}, {"journal": 2})
    assert found.status is Status.OK


def test_partitions_that_take_nothing_are_named() -> None:
    topics = {"journal": topic((1, 1), (2, 2), (3, 1)), "labels": topic((-1, 0))}
    journal, labels = check_writable(topics, {"journal": 2})
    assert journal.status is labels.status is Status.PROBLEM
    assert journal.text.startswith("journal: fewer than 2 replicas in sync of partitions 0, 2")
    assert labels.text == "labels: no leader of partitions 0"
