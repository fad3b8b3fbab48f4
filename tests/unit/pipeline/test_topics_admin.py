"""What differs between a topic and its wish, and what the command says; no broker."""

import json
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from pipeline.cli.topics import topics
from pipeline.operators import topics_admin
from pipeline.operators.topics_admin import (
    Applied,
    Difference,
    Found,
    compare,
)
from topics.catalog import DAY_MS, Wish, wishes

CHECK = ["check", "--bootstrap", "nowhere:1", "--prefix", "p-"]
APPLY = ["apply", "--bootstrap", "nowhere:1", "--prefix", "p-"]


def wish_for(
    name: str, replication: int = 1, retention_ms: Mapping[str, int] | None = None
) -> Wish:
    made = wishes("", 4, replication, retention_ms=retention_ms)
    (wish,) = (wish for wish in made if wish.name == name)
    return wish


def found_as(wish: Wish, **change: Any) -> Found:
    config = dict(wish.config) | change.pop("config", {})
    return Found(**({"partitions": 4, "replication": 1, "config": config} | change))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A cluster that answers with what the test puts in; `counts` are its partitions."""
    answers: dict[str, Any] = {"counts": {}}

    def connect(settings: dict[str, Any]) -> object:
        answers["settings"] = settings
        return None

    def answer(name: str) -> Any:
        if isinstance(answers[name], Exception):
            raise answers[name]
        return answers[name]

    def told(name: str) -> Any:
        def ask(admin: object, wishes: tuple[Wish, ...]) -> Any:
            answers["partitions"] = {wish.partitions for wish in wishes}
            return answer(name)

        return ask

    def knock(admin: object, limit_s: float) -> Any:
        counts = answers["counts"]
        return SimpleNamespace(
            topics={name: SimpleNamespace(partitions=range(counts[name])) for name in counts}
        )

    monkeypatch.setattr(topics_admin, "connect", connect)
    monkeypatch.setattr(topics_admin, "knock", knock)
    monkeypatch.setattr(topics_admin, "inspect", told("inspect"))
    monkeypatch.setattr(topics_admin, "apply", told("apply"))
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
        ("retention.ms", "-1", False),
        ("retention.ms", str(31 * DAY_MS), False),
        ("retention.ms", str(29 * DAY_MS), True),
    ],
)
def test_more_is_fine_where_it_does_no_harm(setting: str, actual: str, differs: bool) -> None:
    wish = wish_for("journal")
    assert bool(compare(wish, found_as(wish, config={setting: actual}))) is differs


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
def test_retention_that_was_asked_for_is_set_and_a_shorter_one_is_said(
    actual: str, asked: int, warning: str
) -> None:
    wish = wish_for("journal", retention_ms={"journal": asked})
    (found,) = compare(wish, found_as(wish, config={"retention.ms": actual}))
    assert (found.setting, found.wished, found.advice) == ("retention.ms", str(asked), "")
    assert found.warning == warning
    assert warning in str(found)


def test_retention_of_the_others_is_not_asked_for() -> None:
    wish = wish_for("scores", retention_ms={"journal": DAY_MS})
    assert compare(wish, found_as(wish, config={"retention.ms": "-1"})) == []


def test_retention_that_nobody_told_is_no_warning() -> None:
    wish = wish_for("journal")
    (found,) = compare(wish, Found(4, 1, {**wish.config, "retention.ms": None}))
    assert (found.actual, found.warning) == ("unknown", "")


def test_partitions_are_those_of_the_topics_there(cluster: dict[str, Any]) -> None:
    cluster["inspect"] = cluster["apply"] = ()
    cluster["counts"] = {"p-features": 12, "p-journal": 12, "p-scores": 3, "features": 5}
    assert CliRunner().invoke(topics, CHECK).exit_code == 0
    assert cluster["partitions"] == {12}
    assert CliRunner().invoke(topics, [*CHECK, "--partitions", "6"]).exit_code == 0
    assert cluster["partitions"] == {6}
    cluster["counts"], cluster["apply"] = {}, Applied((), (), ())
    assert CliRunner().invoke(topics, APPLY).exit_code == 0
    assert cluster["partitions"] == {4}


def test_topics_that_disagree_are_no_answer_to_how_many(cluster: dict[str, Any]) -> None:
    cluster["inspect"], cluster["counts"] = (), {"p-features": 12, "p-journal": 4}
    done = CliRunner().invoke(topics, CHECK)
    assert done.exit_code == 2
    assert "features 12, journal 4; say with --partitions" in done.output
    assert CliRunner().invoke(topics, [*CHECK, "--partitions", "12"]).exit_code == 0


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
                "warning": "",
            }
        ],
    }
    assert "is 1, should be 2" in CliRunner().invoke(topics, CHECK).output


def test_apply_says_what_it_did_and_what_it_left(cluster: dict[str, Any]) -> None:
    altered = (
        Difference("p-features", "retention.ms", "1", "2"),
        Difference("p-scores", "retention.ms", "-1", str(7 * DAY_MS)),
    )
    left = Difference("p-journal", "partitions", "3", "4", "for life")
    cluster["apply"] = Applied(("p-labels",), altered, (left,))
    done = CliRunner().invoke(topics, APPLY)
    assert done.exit_code == 1
    assert done.output.splitlines() == [
        "p-labels: created",
        "p-features: retention.ms was 1, is now 2",
        "p-scores: retention.ms was -1, is now 604800000 "
        "(shorter: Kafka deletes what is older than 7 d)",
        "left as it is: p-journal: partitions is 3, should be 4 (for life)",
        "7 topics: 1 created, 2 settings altered, 1 left",
    ]
    said = json.loads(CliRunner().invoke(topics, [*APPLY, "--json"]).output)
    assert (said["ok"], said["created"]) == (False, ["p-labels"])
    assert [bool(each["warning"]) for each in said["altered"]] == [False, True]


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
