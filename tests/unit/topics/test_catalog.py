"""The table of topics and the settings made from it."""

from dataclasses import fields
from inspect import signature

import pytest

from pipeline.evaluator import FOLLOWED, NOTICED
from pipeline.kafka.acls import ROLES
from pipeline.kafka.cluster import SOURCES
from pipeline.learning.partition import Outputs
from pipeline.sequencing.sequencer import PartitionSequencer
from topics.catalog import (
    CATALOG,
    COPARTITIONED,
    Cleanup,
    TimestampType,
    Topic,
    desired_topics,
    partition_mismatch,
    topic_name,
)
from topics.reasons import DEFAULT_LIMITS
from topics.snapshots import CHUNK_BYTES_MAX


def config_of(name: str, replication: int = 1) -> dict[str, str]:
    (spec,) = (spec for spec in desired_topics("", 4, replication) if spec.name == name)
    return dict(spec.config)


def test_topics_that_go_together_have_one_partition_count() -> None:
    made = desired_topics("p-", 12, 3)
    assert {spec.topic.name for spec in made if spec.topic.copartitioned} == set(COPARTITIONED)
    assert {spec.partitions for spec in made} == {12}
    assert {spec.replication for spec in made} == {3}


def test_names_take_the_prefix_as_it_is() -> None:
    assert [spec.name for spec in desired_topics("dtgol.", 1, 1)] == [
        f"dtgol.{t.name}" for t in CATALOG
    ]
    assert topic_name("", "journal") == "journal"


@pytest.mark.parametrize("prefix", ["a b", "ü", "p" * 249, "a/"])
def test_prefix_that_kafka_refuses_is_refused_here(prefix: str) -> None:
    with pytest.raises(ValueError, match="cannot be a topic"):
        desired_topics(prefix, 1, 1)


def test_what_is_kept_for_a_time_by_us_is_stamped_on_append() -> None:
    stamped = {topic.name for topic in CATALOG if topic.stamp is TimestampType.APPEND}
    assert stamped == {"journal", "predictions", "scores", "dead-letters", "events"}
    assert config_of("journal")["message.timestamp.type"] == "LogAppendTime"
    assert config_of("features")["message.timestamp.type"] == "CreateTime"


def test_only_snapshots_are_compacted() -> None:
    assert [t.name for t in CATALOG if t.cleanup is Cleanup.COMPACT] == ["snapshots"]
    assert config_of("snapshots")["cleanup.policy"] == "compact"
    assert "retention.ms" not in config_of("snapshots")
    assert config_of("journal")["retention.ms"] == str(30 * 86_400_000)


def test_retention_can_be_chosen() -> None:
    made = {
        spec.name: spec.config for spec in desired_topics("", 1, 1, retention_ms={"journal": -1})
    }
    assert made["journal"]["retention.ms"] == "-1"
    assert made["scores"]["retention.ms"] == str(30 * 86_400_000)
    with pytest.raises(ValueError, match="retention"):
        desired_topics("", 1, 1, retention_ms={"snapshots": 1})


def test_two_copies_must_be_in_sync_where_there_are_three() -> None:
    asked = [config_of("journal", copies)["min.insync.replicas"] for copies in (1, 2, 3)]
    assert asked == ["1", "1", "2"]


def test_messages_of_allowed_size_fit_with_our_headers() -> None:
    for record_bytes_max in (DEFAULT_LIMITS.record_bytes_max, 5_000_000):
        for spec in desired_topics("", 1, 1, record_bytes_max=record_bytes_max):
            assert int(spec.config["max.message.bytes"]) >= record_bytes_max + 65_536
            assert int(spec.config["max.message.bytes"]) > CHUNK_BYTES_MAX + 65_536


@pytest.mark.parametrize(("partitions", "replication"), [(0, 1), (1, 0)])
def test_counts_start_at_one(partitions: int, replication: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        desired_topics("", partitions, replication)


def test_a_mismatch_is_one_sentence() -> None:
    assert partition_mismatch({"features": 4, "labels": 4, "scores": 1}) is None
    sentence = partition_mismatch({"features": 4, "labels": 3, "journal": 4})
    assert sentence is not None
    assert sentence.endswith("features 4, labels 3, journal 4")


WHO = {
    "worker": {"sequencer", "learner"},
    "evaluator": {"evaluator"},
    "producer": {"producers"},
    "consumer": {"consumers"},
    "operator": {"operators"},
    "steward": {"operators"},
}
"""The roles of the access rights, and whom the table means by them."""


@pytest.mark.parametrize("topic", CATALOG, ids=lambda topic: topic.name)
def test_writers_and_readers_are_those_that_have_the_rights(topic: Topic) -> None:
    def roles(operation: str) -> set[str]:
        grants = {role: {(each.name, each.operation) for each in ROLES[role]} for role in WHO}
        return {role for role, rights in grants.items() if (topic.name, operation) in rights}

    for operation, named in (("Write", topic.writers), ("Read", topic.readers)):
        allowed = roles(operation)
        granted = set().union(*(WHO[role] for role in allowed))
        # Whoever wants scores may read them; no command or class of ours does it as a consumer.
        optional = {"consumers"} if topic.name == "scores" else set()
        assert set(named) <= granted | optional
        assert all(WHO[role] & set(named) for role in allowed)


def named(role: str, of: str) -> set[str]:
    """The topics that have a role among their writers or readers."""
    return {topic.name for topic in CATALOG if role in getattr(topic, of)}


def test_the_parts_of_the_worker_use_the_topics_that_name_them() -> None:
    """Rights are those of the whole worker; these are what its two parts are given."""
    outputs = {each.name.replace("_", "-") for each in fields(Outputs)}
    assert named("learner", "writers") == outputs | {"snapshots", "events"}
    assert named("sequencer", "writers") == {"journal", "dead-letters"}
    writers = signature(PartitionSequencer).parameters.items()
    given = {name for name, each in writers if each.annotation == "PartitionWriter"}
    assert given == {"journal", "dead_letters"}
    assert named("sequencer", "readers") == set(SOURCES)
    assert named("learner", "readers") == {"journal", "predictions", "snapshots"}
    assert named("evaluator", "readers") == {*FOLLOWED, *NOTICED, "snapshots"}
