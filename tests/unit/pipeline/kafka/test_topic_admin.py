"""What differs between a topic and its spec; the cluster itself is in tests/broker."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from pipeline.kafka import topic_admin
from pipeline.kafka.topic_admin import (
    IN_SYNC,
    Difference,
    ExistingTopic,
    apply,
    compare,
    replication_for,
)
from topics.catalog import BROKER_DEFAULT, DAY_MS, TopicSpec, desired_topics


def spec_for(
    name: str, replication: int = 1, retention_ms: Mapping[str, int] | None = None
) -> TopicSpec:
    made = desired_topics("", 4, replication, retention_ms=retention_ms)
    (spec,) = (spec for spec in made if spec.name == name)
    return spec


def found_as(spec: TopicSpec, **change: Any) -> ExistingTopic:
    config = dict(spec.config) | change.pop("config", {})
    return ExistingTopic(**({"partitions": 4, "replication": 1, "config": config} | change))


def test_a_topic_as_desired_has_no_difference() -> None:
    spec = spec_for("journal")
    assert compare(spec, found_as(spec)) == []


def test_missing_topic_is_one_difference() -> None:
    assert compare(spec_for("journal"), None) == [
        Difference("journal", "topic", "missing", "there")
    ]


def test_setting_is_named_with_what_it_is_and_should_be() -> None:
    spec = spec_for("journal")
    (found,) = compare(spec, found_as(spec, config={"message.timestamp.type": "CreateTime"}))
    assert str(found) == "journal: message.timestamp.type is CreateTime, should be LogAppendTime"


def test_partitions_differ_with_advice_and_only_where_they_matter() -> None:
    spec = spec_for("journal")
    (found,) = compare(spec, found_as(spec, partitions=3))
    assert (found.setting, found.actual, found.desired) == ("partitions", "3", "4")
    assert "new prefix" in found.advice
    scores = spec_for("scores")
    assert compare(scores, found_as(scores, partitions=1)) == []


def test_fewer_copies_differ_and_more_do_not() -> None:
    spec = spec_for("journal", replication=3)
    (found,) = compare(spec, found_as(spec, replication=2))
    assert (found.setting, bool(found.advice)) == ("replication", True)
    assert compare(spec_for("journal"), found_as(spec, replication=3)) == []


@pytest.mark.parametrize(
    ("setting", "actual", "differs"),
    [
        ("max.message.bytes", "5000000", False),
        ("max.message.bytes", "1000", True),
        ("min.insync.replicas", "2", True),
        ("retention.ms", "-1", False),
        ("retention.ms", str(31 * DAY_MS), False),
        ("retention.ms", str(29 * DAY_MS), True),
    ],
)
def test_more_is_fine_where_it_does_no_harm(setting: str, actual: str, differs: bool) -> None:
    spec = spec_for("journal")
    assert bool(compare(spec, found_as(spec, config={setting: actual}))) is differs


@pytest.mark.parametrize(
    ("actual", "asked", "warning"),
    [
        (str(30 * DAY_MS), 7 * DAY_MS, "shorter: Kafka deletes what is older than 7 d"),
        ("-1", 7 * DAY_MS, "shorter: Kafka deletes what is older than 7 d"),
        ("-1", 30 * DAY_MS, "shorter: Kafka deletes what is older than 30 d"),
        (str(DAY_MS), 7 * DAY_MS, ""),
        (str(DAY_MS), -1, ""),
    ],
)
def test_retention_that_was_asked_for_is_set_and_a_shorter_one_warned_of(
    actual: str, asked: int, warning: str
) -> None:
    spec = spec_for("journal", retention_ms={"journal": asked})
    (found,) = compare(spec, found_as(spec, config={"retention.ms": actual}))
    assert (found.setting, found.desired, found.advice) == ("retention.ms", str(asked), "")
    assert found.warning == warning
    assert warning in str(found)


def test_retention_of_the_others_is_not_asked_for() -> None:
    spec = spec_for("scores", retention_ms={"journal": DAY_MS})
    assert compare(spec, found_as(spec, config={"retention.ms": "-1"})) == []


def test_retention_that_is_not_known_is_no_warning() -> None:
    spec = spec_for("journal")
    (found,) = compare(spec, ExistingTopic(4, 1, {**spec.config, "retention.ms": None}))
    assert (found.actual, found.warning) == ("unknown", "")


def test_more_copies_in_sync_than_there_are_copies_are_never_set() -> None:
    """Apply set min.insync.replicas 2 on topics of one copy; nobody could write."""
    spec = spec_for("journal", replication=3)
    one_copy = found_as(spec, replication=1, config={**spec.config, IN_SYNC: "1"})
    by_setting = {each.setting: each for each in compare(spec, one_copy)}
    assert by_setting.keys() == {"replication", IN_SYNC}
    assert "more than there are copies" in by_setting[IN_SYNC].advice


@pytest.mark.parametrize(
    ("siblings", "asked", "copies"),
    [([3, 2], None, 3), ([3], 1, 3), ([1], 3, 3), ([], 2, 2), ([], None, BROKER_DEFAULT)],
)
def test_a_new_topic_has_as_many_copies_as_its_siblings(
    monkeypatch: pytest.MonkeyPatch, siblings: list[int], asked: int | None, copies: int
) -> None:
    """A topic that was missing came back with one copy beside three."""
    found = {str(n): ExistingTopic(4, each, {}) for n, each in enumerate(siblings)}
    monkeypatch.setattr(topic_admin, "find", lambda *_: found)
    admin: Any = None
    assert replication_for(admin, list(found), asked) == copies


def test_how_many_must_be_in_sync_follows_from_the_brokers_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A user who may not see the default finds the copies on the topics once they are made."""
    specs = desired_topics("", 4, BROKER_DEFAULT)
    assert all(IN_SYNC not in spec.config for spec in specs)
    config = {IN_SYNC: "1"}
    made: dict[str, ExistingTopic] = {}

    def create(_: object, missing: Sequence[TopicSpec]) -> tuple[str, ...]:
        made.update({spec.name: ExistingTopic(4, 3, {**spec.config, **config}) for spec in missing})
        return tuple(spec.name for spec in missing)

    def alter(_: object, differences: Sequence[Difference]) -> None:
        for each in differences:
            found = made[each.topic]
            changed = {**found.config, each.setting: each.desired}
            made[each.topic] = ExistingTopic(4, 3, changed)

    monkeypatch.setattr(topic_admin, "find", lambda *_: dict(made))
    monkeypatch.setattr(topic_admin, "_create", create)
    monkeypatch.setattr(topic_admin, "_alter", alter)
    admin: Any = None
    done = apply(admin, specs)
    assert len(done.created) == len(specs)
    assert [(each.setting, each.desired) for each in done.altered] == [(IN_SYNC, "2")] * len(specs)
    assert done.left == ()
    again = apply(admin, specs)
    assert (again.created, again.altered, again.left) == ((), (), ())
