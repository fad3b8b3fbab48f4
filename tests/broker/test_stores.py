"""Both snapshot stores keep the same promises: what was written is read, durable on return."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer

from pipeline.sandbox.brokers import Broker
from pipeline.snapshots.directory import DirectoryStore
from pipeline.snapshots.store import Store
from pipeline.snapshots.topic import TopicStore
from tests.broker.conftest import MakeTopics
from topics.headers import write_headers
from topics.snapshots import Chunk, SnapshotKind, chunk_key

BIG = bytes(range(256)) * 8_000  # three chunks


@pytest.fixture(params=["directory", "topic"])
def stores(
    request: pytest.FixtureRequest,
    broker: Broker,
    prefix: str,
    make_topics: MakeTopics,
    tmp_path: Path,
) -> tuple[Store, Store]:
    """The worker's store and the evaluator's, in one place."""
    if request.param == "directory":
        return DirectoryStore(tmp_path / "worker"), DirectoryStore(tmp_path / "evaluator")
    (topic,) = make_topics({"snapshots": 2})
    return TopicStore(broker.config, topic, "worker"), TopicStore(broker.config, topic, "evaluator")


def test_what_is_written_is_read_back_whole(stores: tuple[Store, Store]) -> None:
    store, _ = stores
    assert dict(store.read(0)) == {}
    store.write(0, {"blob.s.aa": b"small", "part.bb": BIG})
    store.write(1, {"blob.s.cc": b""})
    assert dict(store.read(0)) == {"blob.s.aa": b"small", "part.bb": BIG}
    assert dict(store.read(1)) == {"blob.s.cc": b""}


def test_what_is_removed_is_gone_and_removing_twice_is_no_fault(
    stores: tuple[Store, Store],
) -> None:
    store, _ = stores
    store.write(0, {"part.bb": BIG, "manifest.1.aa": b"m"})
    store.remove(0, ["part.bb"])
    store.remove(0, ["part.bb"])
    store.write(0, {"blob.s.dd": b"later"})
    assert dict(store.read(0)) == {"manifest.1.aa": b"m", "blob.s.dd": b"later"}


def test_a_failed_attempt_takes_nothing_from_who_wrote_the_same_since(
    stores: tuple[Store, Store], broker: Broker, tmp_path: Path
) -> None:
    late, _ = stores
    late.write(0, {"part.aa": b"same"})
    if isinstance(late, TopicStore):
        successor: Store = TopicStore(broker.config, late._topic, "worker")
    else:
        successor = DirectoryStore(tmp_path / "worker")
    successor.write(0, {"part.aa": b"same"})
    late.discard(0, ["part.aa"])
    late.write(0, {"part.bb": b"later"})
    assert dict(successor.read(0)) == {"part.aa": b"same", "part.bb": b"later"}


def test_roles_do_not_see_each_other(stores: tuple[Store, Store]) -> None:
    one, other = stores
    one.write(0, {"blob.s.aa": b"mine"})
    other.write(0, {"blob.s.aa": b"theirs"})
    assert dict(one.read(0)) == {"blob.s.aa": b"mine"}
    assert dict(other.read(0)) == {"blob.s.aa": b"theirs"}


def test_an_object_of_which_a_chunk_is_missing_is_seen_and_can_be_removed(
    broker: Broker, make_topics: MakeTopics
) -> None:
    (topic,) = make_topics({"snapshots": 2})
    store = TopicStore(broker.config, topic, "worker")
    store.write(0, {"blob.s.aa": b"whole"})
    torn = Chunk(1, SnapshotKind.BLOB, "worker.part.bb", 0, 2, 10, "00")
    overwrite(broker, topic, chunk_key(torn.kind, torn.name, 0), b"half", torn)
    overwrite(broker, topic, b"key", b"a stranger")
    assert dict(store.read(0)) == {"blob.s.aa": b"whole", "part.bb": b"half"}
    store.remove(0, ["part.bb"])
    store.write(0, {"blob.s.cc": b"later"})
    assert dict(store.read(0)) == {"blob.s.aa": b"whole", "blob.s.cc": b"later"}


def test_the_last_record_of_a_key_counts_though_it_is_no_chunk(
    broker: Broker, make_topics: MakeTopics
) -> None:
    """Compaction would leave nothing else: what is read must not depend on whether it ran."""
    (topic,) = make_topics({"snapshots": 2})
    store = TopicStore(broker.config, topic, "worker")
    store.write(0, {"blob.s.aa": b"whole"})
    overwrite(broker, topic, chunk_key(SnapshotKind.BLOB, "worker.blob.s.aa", 0), b"noise")
    assert dict(store.read(0)) == {}


def overwrite(
    broker: Broker, topic: str, key: bytes, value: bytes, chunk: Chunk | None = None
) -> None:
    """A record under a key, as a stranger would write it."""
    producer = Producer(broker.config)
    headers: list[tuple[str, str | bytes | None]] = [*write_headers(chunk)] if chunk else []
    producer.produce(topic, value, key, partition=0, headers=headers)
    assert producer.flush(30) == 0
