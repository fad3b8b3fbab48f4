"""`dtgol topics`: what it prints, and its exit codes; no broker."""

import json
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pipeline.cli import dtgol
from pipeline.errors import UnansweredError
from pipeline.kafka import clients, topic_admin
from pipeline.kafka.topic_admin import Applied, Difference
from topics.catalog import DAY_MS, TopicSpec

CHECK = ["check", "--bootstrap", "nowhere:1", "--prefix", "p-"]
APPLY = ["apply", "--bootstrap", "nowhere:1", "--prefix", "p-"]


class FakeCluster:
    """Answers as the test wants; `counts` are the partitions of its topics."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.answers: dict[str, Any] = {}
        self.settings: Mapping[str, Any] = {}
        self.partitions: set[int] = set()
        """Those of the specs that the command asked with."""

    def connect(self, settings: Mapping[str, Any]) -> object:
        self.settings = settings
        return None

    def metadata(self, admin: object, limit_s: float) -> Any:
        return SimpleNamespace(
            topics={
                name: SimpleNamespace(partitions=range(count))
                for name, count in self.counts.items()
            }
        )

    def answer(self, name: str) -> Callable[[object, Sequence[TopicSpec]], Any]:
        def answer(admin: object, specs: Sequence[TopicSpec]) -> Any:
            self.partitions = {spec.partitions for spec in specs}
            if isinstance(self.answers[name], Exception):
                raise self.answers[name]
            return self.answers[name]

        return answer


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    fake = FakeCluster()
    monkeypatch.setattr(clients, "MonitoredAdmin", fake.connect)
    monkeypatch.setattr(topic_admin, "fetch_metadata", fake.metadata)
    monkeypatch.setattr(topic_admin, "replication_for", lambda *_: 1)
    for name in ("inspect", "apply"):
        monkeypatch.setattr(topic_admin, name, fake.answer(name))
    return fake


def call(*arguments: str) -> Result:
    return CliRunner().invoke(dtgol, ["topics", *arguments])


def test_partitions_are_those_of_the_topics_there(cluster: FakeCluster) -> None:
    cluster.answers["inspect"] = cluster.answers["apply"] = ()
    cluster.counts = {"p-features": 12, "p-journal": 12, "p-scores": 3, "features": 5}
    assert call(*CHECK).exit_code == 0
    assert cluster.partitions == {12}
    assert call(*CHECK, "--partitions", "6").exit_code == 0
    assert cluster.partitions == {6}
    cluster.counts, cluster.answers["apply"] = {}, Applied((), (), ())
    assert call(*APPLY).exit_code == 0
    assert cluster.partitions == {4}


def test_topics_that_disagree_do_not_tell_how_many_partitions(cluster: FakeCluster) -> None:
    cluster.answers["inspect"], cluster.counts = (), {"p-features": 12, "p-journal": 4}
    done = call(*CHECK)
    assert done.exit_code == 2
    assert "features 12, journal 4; give the right number with --partitions" in done.output
    assert call(*CHECK, "--partitions", "12").exit_code == 0


def test_check_leaves_with_zero_when_all_is_well(cluster: FakeCluster) -> None:
    cluster.answers["inspect"] = ()
    done = call(*CHECK)
    assert (done.exit_code, done.output) == (0, "8 topics, 0 differences\n")
    assert cluster.settings == {"bootstrap.servers": "nowhere:1"}


def test_check_leaves_with_one_and_names_what_differs(cluster: FakeCluster) -> None:
    cluster.answers["inspect"] = (Difference("p-journal", "retention.ms", "1", "2"),)
    done = call(*CHECK, "--json")
    assert done.exit_code == 1
    assert json.loads(done.output) == {
        "ok": False,
        "differences": [
            {
                "topic": "p-journal",
                "setting": "retention.ms",
                "is": "1",
                "should_be": "2",
                "advice": "",
                "warning": "",
            }
        ],
    }
    assert "is 1, should be 2" in call(*CHECK).output


def test_apply_names_what_it_did_and_what_it_left(cluster: FakeCluster) -> None:
    altered = (
        Difference("p-features", "retention.ms", "1", "2"),
        Difference("p-scores", "retention.ms", "-1", str(7 * DAY_MS)),
    )
    left = Difference("p-journal", "partitions", "3", "4", "for life")
    cluster.answers["apply"] = Applied(("p-labels",), altered, (left,))
    done = call(*APPLY)
    assert done.exit_code == 1
    assert done.output.splitlines() == [
        "p-labels: created",
        "p-features: retention.ms was 1, is now 2",
        "p-scores: retention.ms was -1, is now 604800000 "
        "(shorter: Kafka deletes what is older than 7 d)",
        "left as it is: p-journal: partitions is 3, should be 4 (for life)",
        "8 topics: 1 created, 2 settings altered, 1 left",
    ]
    shown = json.loads(call(*APPLY, "--json").output)
    assert (shown["ok"], shown["created"]) == (False, ["p-labels"])
    assert [bool(each["warning"]) for each in shown["altered"]] == [False, True]


def test_cluster_that_does_not_answer_is_exit_code_two(cluster: FakeCluster) -> None:
    for name, command in (("inspect", CHECK), ("apply", APPLY)):
        cluster.answers[name] = UnansweredError("the cluster does not answer: gone")
        done = call(*command)
        assert done.exit_code == 2
        assert "does not answer" in done.output


@pytest.mark.parametrize(
    "option",
    [
        ["--retention", "journal"],
        ["--retention", "journal=x"],
        ["--retention", "journal=inf"],
        ["--retention", "nothing=3"],
        ["--prefix", "a b"],
        ["--partitions", "0"],
    ],
)
def test_wrong_option_is_exit_code_two(option: list[str]) -> None:
    done = call("check", "--bootstrap", "nowhere:1", *option)
    assert done.exit_code == 2
