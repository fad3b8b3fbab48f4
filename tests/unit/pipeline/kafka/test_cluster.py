"""The cluster before a start: one that is away is no refusal; what is a gap."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection

from pipeline.errors import RefusalError, UnansweredError
from pipeline.kafka import cluster, reader
from pipeline.kafka.cluster import Cluster, gap_at, inspect_cluster, refuse_gaps
from pipeline.kafka.reader import Watermarks, committed_offsets
from pipeline.settings import read_settings

NOBODY = "127.0.0.1:9"


@pytest.fixture(autouse=True)
def short_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (cluster, reader):
        monkeypatch.setattr(module, "ANSWER_S", 0.5)


def test_a_cluster_that_does_not_answer_is_no_refusal() -> None:
    settings = read_settings({}, overrides={"kafka.bootstrap_servers": NOBODY})
    with pytest.raises(UnansweredError, match=f"does not answer within .*{NOBODY}"):
        inspect_cluster({"bootstrap.servers": NOBODY}, settings, ["features"])


class Waking:
    """A broker that has just started: it answers, and counts itself in only after a while."""

    def __init__(self, answers: list[dict[int, object]], failure: KafkaError | None = None) -> None:
        self._answers = answers
        self._failure = failure

    def metadata(self, *_: object) -> SimpleNamespace:
        brokers = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        topics = {"features": SimpleNamespace(partitions={0: None})}
        controller = 1 if brokers else -1
        return SimpleNamespace(
            brokers=brokers, controller_id=controller, cluster_id="c", topics=topics
        )

    def describe_topics(self, names: TopicCollection, **_: object) -> dict[str, Future[object]]:
        future: Future[object] = Future()
        if self._failure is not None:
            future.set_exception(KafkaException(self._failure))
        else:
            future.set_result(SimpleNamespace(topic_id="Q0xVU1RFUg"))
        return {"features": future}


def inspected(waking: Waking, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setattr(cluster, "MonitoredAdmin", lambda _: waking)
    monkeypatch.setattr(cluster, "fetch_metadata", waking.metadata)
    monkeypatch.setattr(cluster, "RETRY_S", 0.01)
    return inspect_cluster({}, read_settings({}), ["features"])


def test_a_broker_that_does_not_count_itself_in_yet_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = inspected(Waking([{}, {}, {1: None}]), monkeypatch)
    assert found.topic_ids == {"features": "Q0xVU1RFUg"}, "names must not pass for ids"
    with pytest.raises(UnansweredError, match="none of its brokers is ready"):
        inspected(Waking([{}]), monkeypatch)


def test_ids_that_cannot_be_read_are_not_replaced_by_names(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnansweredError, match="the ids of the topics cannot be read"):
        inspected(Waking([{1: None}], KafkaError(KafkaError._TIMED_OUT)), monkeypatch)
    without = Waking([{1: None}], KafkaError(KafkaError._UNSUPPORTED_FEATURE))
    assert inspected(without, monkeypatch).topic_ids == {"features": "features"}


def test_a_topic_that_is_listed_while_it_is_deleted_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Seen on a busy machine: the worker ended with the code of a cluster that does not answer."""
    monkeypatch.setattr(cluster, "VISIBLE_S", 0.05)
    deleted = Waking([{1: None}], KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
    with pytest.raises(RefusalError, match="no topic features: run dtgol topics apply first"):
        inspected(deleted, monkeypatch)


def test_offsets_that_cannot_be_read_in_time_are_no_refusal() -> None:
    with pytest.raises(UnansweredError, match="the offsets of group g cannot be read"):
        committed_offsets({"bootstrap.servers": NOBODY}, "g", "features", [0])


def test_a_gap_is_what_is_gone_or_was_never_there() -> None:
    there = Watermarks(5, 9)
    assert gap_at("features", 1, 5, there) is None
    assert gap_at("features", 1, 9, there) is None
    gone = "features partition 1: records 3 to 4 are gone and were never read"
    assert gap_at("features", 1, 3, there) == gone
    assert "it is not the topic that was read" in (gap_at("features", 1, 10, there) or "")
    with pytest.raises(RefusalError, match=f"^{gone}; --accept-gap goes on without them$"):
        refuse_gaps([gone], accept_gap=False)
    assert refuse_gaps([gone], accept_gap=True) == [gone]
    assert refuse_gaps([], accept_gap=False) == []
