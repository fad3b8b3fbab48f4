"""`dtgol topics` on a real broker: create, compare, alter, and leave partitions alone."""

import json
from collections.abc import Iterator

import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from pipeline.cli import dtgol
from pipeline.kafka.clients import MonitoredAdmin
from pipeline.kafka.topic_admin import apply, find, inspect
from pipeline.sandbox.brokers import Broker
from topics.catalog import CATALOG, DAY_MS, desired_topics, topic_name


@pytest.fixture
def admin(real_broker: Broker, prefix: str) -> Iterator[AdminClient]:
    """An admin client; the topics of the prefix are removed afterwards."""
    client = MonitoredAdmin(real_broker.config)
    yield client
    mine = [name for name in client.list_topics(timeout=15).topics if name.startswith(prefix)]
    if mine:
        for done in client.delete_topics(mine).values():
            done.result(30)


def test_what_was_applied_is_as_desired(admin: AdminClient, prefix: str) -> None:
    specs = desired_topics(prefix, 3, 1)
    assert {each.actual for each in inspect(admin, specs)} == {"missing"}
    done = apply(admin, specs)
    assert done.created == tuple(spec.name for spec in specs)
    assert inspect(admin, specs) == ()
    again = apply(admin, specs)
    assert (again.created, again.altered, again.left) == ((), (), ())
    found = find(admin, [spec.name for spec in specs])
    assert {each.partitions for each in found.values()} == {3}
    assert found[topic_name(prefix, "snapshots")].config["cleanup.policy"] == "compact"


def test_settings_are_altered_and_named(admin: AdminClient, prefix: str) -> None:
    apply(admin, desired_topics(prefix, 1, 1, retention_ms={"journal": 1_000_000}))
    specs = desired_topics(prefix, 1, 1)
    (found,) = inspect(admin, specs)
    assert (found.topic, found.setting) == (topic_name(prefix, "journal"), "retention.ms")
    assert (found.actual, found.desired) == ("1000000", str(30 * 86_400_000))
    assert apply(admin, specs).altered == (found,)
    assert inspect(admin, specs) == ()


def test_longer_retention_stays_until_a_shorter_one_is_asked_for(
    admin: AdminClient, prefix: str
) -> None:
    apply(admin, desired_topics(prefix, 1, 1, retention_ms={"journal": -1}))
    plain = desired_topics(prefix, 1, 1)
    assert inspect(admin, plain) == ()
    assert apply(admin, plain).altered == ()
    name = topic_name(prefix, "journal")
    assert find(admin, [name])[name].config["retention.ms"] == "-1"
    asked = desired_topics(prefix, 1, 1, retention_ms={"journal": DAY_MS})
    (altered,) = apply(admin, asked).altered
    assert altered.warning == "shorter: Kafka deletes what is older than 1 d"
    assert inspect(admin, asked) == ()


def test_partitions_are_never_altered(admin: AdminClient, prefix: str) -> None:
    name = topic_name(prefix, "features")
    admin.create_topics([NewTopic(name, 2)])[name].result(30)
    done = apply(admin, desired_topics(prefix, 4, 1))
    assert len(done.created) == len(CATALOG) - 1
    (left,) = done.left
    assert (left.topic, left.setting, left.actual, left.desired) == (name, "partitions", "2", "4")
    assert find(admin, [name])[name].partitions == 2


def test_topic_that_somebody_just_created_is_compared_too(
    real_broker: Broker, admin: AdminClient, prefix: str
) -> None:
    """Seen: not in the metadata yet, not created because it exists, and called fine by apply."""
    for attempt in range(10):
        mine = f"{prefix}{attempt}-"
        name = topic_name(mine, "features")
        admin.create_topics([NewTopic(name, 2)])[name].result(30)
        done = apply(MonitoredAdmin(real_broker.config), desired_topics(mine, 4, 1))
        assert [(left.topic, left.setting) for left in done.left] == [(name, "partitions")]
        assert {each.setting for each in done.altered} == {"retention.ms"}


def test_command_on_the_broker(admin: AdminClient, real_broker: Broker, prefix: str) -> None:
    options = ["--bootstrap", real_broker.bootstrap, "--prefix", prefix, "--json"]
    before = CliRunner().invoke(dtgol, ["topics", "check", *options])
    assert before.exit_code == 1
    assert len(json.loads(before.output)["differences"]) == len(CATALOG)
    assert (
        CliRunner().invoke(dtgol, ["topics", "apply", *options, "--partitions", "3"]).exit_code == 0
    )
    after = CliRunner().invoke(dtgol, ["topics", "check", *options])
    assert after.exit_code == 0, after.output
