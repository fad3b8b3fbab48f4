"""The table of topics and the settings made from it."""

import pytest

from topics.catalog import CATALOG, TOGETHER, Cleanup, Stamp, partition_mismatch, topic_name, wishes
from topics.refusals import DEFAULT_LIMITS
from topics.snapshots import CHUNK_BYTES_MAX


def config_of(name: str, replication: int = 1) -> dict[str, str]:
    (wish,) = (wish for wish in wishes("", 4, replication) if wish.name == name)
    return dict(wish.config)


def test_topics_that_go_together_have_one_partition_count() -> None:
    made = wishes("p-", 12, 3)
    assert {wish.topic.name for wish in made if wish.topic.together} == set(TOGETHER)
    assert {wish.partitions for wish in made} == {12}
    assert {wish.replication for wish in made} == {3}


def test_names_take_the_prefix_as_it_is() -> None:
    assert [wish.name for wish in wishes("dtgol.", 1, 1)] == [f"dtgol.{t.name}" for t in CATALOG]
    assert topic_name("", "journal") == "journal"


@pytest.mark.parametrize("prefix", ["a b", "ü", "p" * 249, "a/"])
def test_prefix_that_kafka_refuses_is_refused_here(prefix: str) -> None:
    with pytest.raises(ValueError, match="cannot be a topic"):
        wishes(prefix, 1, 1)


def test_what_is_kept_for_a_time_by_us_is_stamped_on_append() -> None:
    stamped = {topic.name for topic in CATALOG if topic.stamp is Stamp.APPEND}
    assert stamped == {"journal", "predictions", "scores", "dead-letters"}
    assert config_of("journal")["message.timestamp.type"] == "LogAppendTime"
    assert config_of("features")["message.timestamp.type"] == "CreateTime"


def test_only_snapshots_are_compacted() -> None:
    assert [t.name for t in CATALOG if t.cleanup is Cleanup.COMPACT] == ["snapshots"]
    assert config_of("snapshots")["cleanup.policy"] == "compact"
    assert "retention.ms" not in config_of("snapshots")
    assert config_of("journal")["retention.ms"] == str(30 * 86_400_000)


def test_retention_can_be_chosen() -> None:
    made = {wish.name: wish.config for wish in wishes("", 1, 1, retention_ms={"journal": -1})}
    assert made["journal"]["retention.ms"] == "-1"
    assert made["scores"]["retention.ms"] == str(30 * 86_400_000)
    with pytest.raises(ValueError, match="retention"):
        wishes("", 1, 1, retention_ms={"snapshots": 1})


def test_two_copies_must_be_in_sync_where_there_are_three() -> None:
    asked = [config_of("journal", copies)["min.insync.replicas"] for copies in (1, 2, 3)]
    assert asked == ["1", "1", "2"]


def test_messages_of_allowed_size_fit_with_our_headers() -> None:
    for record_bytes_max in (DEFAULT_LIMITS.record_bytes_max, 5_000_000):
        for wish in wishes("", 1, 1, record_bytes_max=record_bytes_max):
            assert int(wish.config["max.message.bytes"]) >= record_bytes_max + 65_536
            assert int(wish.config["max.message.bytes"]) > CHUNK_BYTES_MAX + 65_536


@pytest.mark.parametrize(("partitions", "replication"), [(0, 1), (1, 0)])
def test_counts_start_at_one(partitions: int, replication: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        wishes("", partitions, replication)


def test_mismatch_is_said_in_one_sentence() -> None:
    assert partition_mismatch({"features": 4, "labels": 4, "scores": 1}) is None
    said = partition_mismatch({"features": 4, "labels": 3, "journal": 4})
    assert said is not None
    assert said.endswith("features 4, labels 3, journal 4")
