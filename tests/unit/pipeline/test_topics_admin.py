"""What differs between a topic and its wish, and what the command says; no broker."""

import json
from typing import Any

import pytest
from click.testing import CliRunner

from pipeline.cli.topics import topics
from pipeline.operators import topics_admin
from pipeline.operators.topics_admin import Applied, Difference, Found, compare
from topics.catalog import Wish, wishes

CHECK = ["check", "--bootstrap", "nowhere:1", "--prefix", "p-"]
APPLY = ["apply", "--bootstrap", "nowhere:1", "--prefix", "p-"]


def wish_for(name: str, replication: int = 1) -> Wish:
    (wish,) = (wish for wish in wishes("", 4, replication) if wish.name == name)
    return wish


def found_as(wish: Wish, **change: Any) -> Found:
    config = dict(wish.config) | change.pop("config", {})
    return Found(**({"partitions": 4, "replication": 1, "config": config} | change))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A cluster that answers with what the test puts in."""
    answers: dict[str, Any] = {}

    def connect(settings: dict[str, Any]) -> object:
        answers["settings"] = settings
        return None

    def answer(name: str) -> Any:
        if isinstance(answers[name], Exception):
            raise answers[name]
        return answers[name]

    monkeypatch.setattr(topics_admin, "connect", connect)
    monkeypatch.setattr(topics_admin, "inspect", lambda admin, wishes: answer("inspect"))
    monkeypatch.setattr(topics_admin, "apply", lambda admin, wishes: answer("apply"))
    return answers


def test_topic_as_wished_has_no_difference() -> None:
    wish = wish_for("journal")
    assert compare(wish, found_as(wish)) == []


def test_missing_topic_is_one_difference() -> None:
    assert compare(wish_for("journal"), None) == [
        Difference("journal", "topic", "missing", "there")
    ]


def test_setting_is_named_with_what_it_is_and_should_be() -> None:
    wish = wish_for("journal")
    (found,) = compare(wish, found_as(wish, config={"message.timestamp.type": "CreateTime"}))
    assert str(found) == "journal: message.timestamp.type is CreateTime, should be LogAppendTime"


def test_partitions_differ_with_advice_and_only_where_they_matter() -> None:
    wish = wish_for("journal")
    (found,) = compare(wish, found_as(wish, partitions=3))
    assert (found.setting, found.actual, found.wished) == ("partitions", "3", "4")
    assert "new prefix" in found.advice
    scores = wish_for("scores")
    assert compare(scores, found_as(scores, partitions=1)) == []


def test_fewer_copies_differ_and_more_do_not() -> None:
    wish = wish_for("journal", replication=3)
    (found,) = compare(wish, found_as(wish, replication=2))
    assert (found.setting, bool(found.advice)) == ("replication", True)
    assert compare(wish_for("journal"), found_as(wish, replication=3)) == []


@pytest.mark.parametrize(
    ("setting", "actual", "differs"),
    [
        ("max.message.bytes", "5000000", False),
        ("max.message.bytes", "1000", True),
        ("min.insync.replicas", "2", True),
        ("retention.ms", "-1", True),
    ],
)
def test_more_is_fine_where_it_does_no_harm(setting: str, actual: str, differs: bool) -> None:
    wish = wish_for("journal")
    assert bool(compare(wish, found_as(wish, config={setting: actual}))) is differs


def test_check_leaves_with_zero_when_all_is_well(cluster: dict[str, Any]) -> None:
    cluster["inspect"] = ()
    done = CliRunner().invoke(topics, CHECK)
    assert (done.exit_code, done.output) == (0, "7 topics, 0 differences\n")
    assert cluster["settings"] == {"bootstrap.servers": "nowhere:1"}


def test_check_leaves_with_one_and_says_what_differs(cluster: dict[str, Any]) -> None:
    cluster["inspect"] = (Difference("p-journal", "retention.ms", "1", "2"),)
    done = CliRunner().invoke(topics, [*CHECK, "--json"])
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
            }
        ],
    }
    assert "is 1, should be 2" in CliRunner().invoke(topics, CHECK).output


def test_apply_says_what_it_did_and_what_it_left(cluster: dict[str, Any]) -> None:
    altered = Difference("p-scores", "retention.ms", "1", "2")
    left = Difference("p-journal", "partitions", "3", "4", "for life")
    cluster["apply"] = Applied(("p-labels",), (altered,), (left,))
    done = CliRunner().invoke(topics, APPLY)
    assert done.exit_code == 1
    assert done.output.splitlines() == [
        "p-labels: created",
        "p-scores: retention.ms was 1, is now 2",
        "left as it is: p-journal: partitions is 3, should be 4 (for life)",
        "7 topics: 1 created, 1 settings altered, 1 left",
    ]
    said = json.loads(CliRunner().invoke(topics, [*APPLY, "--json"]).output)
    assert (said["ok"], said["created"]) == (False, ["p-labels"])


def test_cluster_that_does_not_answer_is_exit_code_two(cluster: dict[str, Any]) -> None:
    for name, command in (("inspect", CHECK), ("apply", APPLY)):
        cluster[name] = topics_admin.AdminError("the cluster does not answer: gone")
        done = CliRunner().invoke(topics, command)
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
    done = CliRunner().invoke(topics, ["check", "--bootstrap", "nowhere:1", *option])
    assert done.exit_code == 2


def test_unusable_settings_are_said_in_one_sentence() -> None:
    with pytest.raises(topics_admin.AdminError, match="cannot be used"):
        topics_admin.connect({"no.such.setting": "1"})
