"""What a process makes of a cluster that is away: a matter for its supervisor, not for people."""

from __future__ import annotations

import click
import pytest
from confluent_kafka import KafkaError, KafkaException

from pipeline import cluster
from pipeline.cli import BadInput
from pipeline.cli.process import prepared
from pipeline.cluster import UnansweredError, look, offsets_of_group
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
