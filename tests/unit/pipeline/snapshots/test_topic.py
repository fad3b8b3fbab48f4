"""The store on a topic when its writes fail; what it stores is tested on a broker."""

from __future__ import annotations

import pytest

from pipeline.errors import DeliveryError, RefusalError, StoreError
from pipeline.kafka.record import Record
from pipeline.snapshots import topic
from pipeline.snapshots.topic import TopicStore
from topics.headers import write_headers
from topics.snapshots import VERSION, Chunk, SnapshotKind, chunk_key

NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "socket.timeout.ms": 200}


@pytest.fixture
def store() -> TopicStore:
    return TopicStore(NOWHERE, "snapshots", "worker", durable_s=0.3)


def test_a_write_that_is_not_acknowledged_in_time_is_tried_again_with_the_next(
    store: TopicStore,
) -> None:
    for _ in range(2):
        sentence = r"^cannot write snapshots to snapshots: .* to snapshots\[0\] .*timed out"
        with pytest.raises(StoreError, match=sentence):
            store.write(0, {"blob.s.aa": b"data"})


def test_a_producer_that_was_given_up_ends_the_process(store: TopicStore) -> None:
    """Every later write would fail too: nothing would be saved or committed any more."""
    text = "Fatal error: Broker: Cluster authorization failed: no PID"
    listener = store._producer.client.listener
    listener.log(50, "%s [%s] %s", "FATAL", "rdkafka#producer-1", text)
    with pytest.raises(DeliveryError, match="shut out"):
        store.write(0, {"blob.s.aa": b"data"})
    store.remove(0, ["blob.s.aa"])  # a tombstone that is not written is no loss


def test_an_object_of_a_newer_format_is_refused_and_not_passed_over(
    store: TopicStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    chunk = Chunk(VERSION + 1, SnapshotKind.BLOB, "worker.blob.s.aa", 0, 1, 4, "aa")
    key = chunk_key(chunk.kind, chunk.name, 0)
    record = Record("snapshots", 0, 0, 0, key, b"data", write_headers(chunk))
    gone = record._replace(offset=1, value=None, headers=[])
    monkeypatch.setattr(topic, "watermarks", lambda *_: (0, 2))
    monkeypatch.setattr(topic, "read_range", lambda *_: iter([record]))
    with pytest.raises(RefusalError, match="has format 2 and this version reads up to 1: upgrade"):
        store.read(0)
    monkeypatch.setattr(topic, "read_range", lambda *_: iter([record, gone]))
    assert store.read(0) == {}
