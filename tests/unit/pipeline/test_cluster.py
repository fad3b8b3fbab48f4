"""What a process makes of a cluster that is away: a matter for its supervisor, not for people."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace

import click
import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection

from pipeline import cluster
from pipeline.cli import BadInput
from pipeline.cli.process import prepared
from pipeline.cluster import Cluster, UnansweredError, look, offsets_of_group
from pipeline.settings import read_settings
from pipeline.snapshots import RefusalError

NOBODY = "127.0.0.1:9"


@pytest.fixture(autouse=True)
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "ASK_S", 0.5)


def test_a_cluster_that_does_not_answer_is_no_refusal() -> None:
    settings = read_settings({}, overrides={"kafka.bootstrap_servers": NOBODY})
    with pytest.raises(UnansweredError, match=f"does not answer within .*{NOBODY}"):
        look({"bootstrap.servers": NOBODY}, settings, ["features"])


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


def looked(waking: Waking, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setattr(cluster, "ListeningAdmin", lambda _: waking)
    monkeypatch.setattr(cluster, "knock", waking.metadata)
    monkeypatch.setattr(cluster, "LOOK_AGAIN_S", 0.01)
    return look({}, read_settings({}), ["features"])


def test_a_broker_that_does_not_count_itself_in_yet_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = looked(Waking([{}, {}, {1: None}]), monkeypatch)
    assert found.topic_ids == {"features": "Q0xVU1RFUg"}, "names must not pass for ids"
    with pytest.raises(UnansweredError, match="none of its brokers is ready"):
        looked(Waking([{}]), monkeypatch)


def test_ids_that_cannot_be_read_are_not_replaced_by_names(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnansweredError, match="the ids of the topics cannot be read"):
        looked(Waking([{1: None}], KafkaError(KafkaError._TIMED_OUT)), monkeypatch)
    without = Waking([{1: None}], KafkaError(KafkaError._UNSUPPORTED_FEATURE))
    assert looked(without, monkeypatch).topic_ids == {"features": "features"}


def test_offsets_that_cannot_be_read_in_time_are_no_refusal() -> None:
    with pytest.raises(UnansweredError, match="the offsets of group g cannot be read"):
        offsets_of_group({"bootstrap.servers": NOBODY}, "g", "features", [0])


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (UnansweredError("the cluster does not answer"), 1),
        (KafkaException(KafkaError(KafkaError._TRANSPORT)), 1),
        (RefusalError("no topic"), 2),
    ],
)
def test_the_exit_code_says_who_has_to_act(failure: Exception, code: int) -> None:
    def prepare() -> None:
        raise failure

    with pytest.raises(click.ClickException) as ended:
        prepared(prepare)
    assert ended.value.exit_code == code
    assert isinstance(ended.value, BadInput) == (code == 2)
