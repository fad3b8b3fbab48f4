"""What a process makes of an assignment, and how it ends by an error of the world."""

from typing import Any, NoReturn

import pytest
from confluent_kafka import KafkaError, KafkaException
from faust.types import TP

from pipeline.engine import faustapp
from pipeline.snapshots import RefusalError


class Ended(BaseException):
    """In place of the end of the process."""


@pytest.fixture(autouse=True)
def ends(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str]]:
    said: list[tuple[int, str]] = []

    def end(code: int, why: str) -> NoReturn:
        said.append((code, why))
        raise Ended

    monkeypatch.setattr(faustapp, "end", end)
    return said


def test_partitions_are_those_of_every_topic() -> None:
    assigned = {TP("features", 1), TP("labels", 1), TP("other", 3)}
    assert faustapp.partitions_of(assigned, ["features", "labels"]) == {1}
    assert faustapp.partitions_of(set(), ["features", "labels"]) == set()


def test_a_topic_that_is_out_of_sight_is_no_reason_to_wait_for_an_operator(
    ends: list[tuple[int, str]],
) -> None:
    with pytest.raises(Ended):
        faustapp.partitions_of({TP("labels", 0), TP("labels", 1)}, ["features", "labels"])
    ((code, why),) = ends
    assert code == faustapp.FAILED
    assert "features [], labels [0, 1]" in why
    assert "docs/security.md" in why


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (RefusalError("decide first"), faustapp.REFUSED, "decide first"),
        (
            KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)),
            faustapp.FAILED,
            "grant this user",
        ),
        (KafkaException(KafkaError(KafkaError._AUTHENTICATION)), faustapp.FAILED, "not let us in"),
        (AssertionError("in aiokafka"), faustapp.FAILED, "consumer fell over"),
    ],
    ids=["refusal", "right", "login", "bug"],
)
def test_a_fallen_consumer_is_told_in_the_words_of_its_error(
    error: Exception, code: int, sentence: str, ends: list[tuple[int, str]]
) -> None:
    consumer: Any = faustapp._end_without_consumer
    with pytest.raises(Ended):
        consumer(error)
    assert ends[0][0] == code
    assert sentence in ends[0][1]
