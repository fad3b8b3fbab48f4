"""What a process makes of an assignment, and how it ends when Faust's consumer does."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from aiokafka.errors import TopicAuthorizationFailedError
from faust.types import TP

from pipeline import errors
from pipeline.errors import FAILED, REFUSED, RefusalError, RequestError
from pipeline.faust_ext import app as faust_app
from pipeline.faust_ext.app import FaustApp, assigned_partitions
from pipeline.kafka.clients import SEE_RIGHTS


class EndedError(BaseException):
    """In place of the end of the process."""


@pytest.fixture(autouse=True)
def ends(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []

    def exit_now(code: int, why: str) -> NoReturn:
        found.append((code, why))
        raise EndedError

    for module in (errors, faust_app):
        monkeypatch.setattr(module, "exit_now", exit_now)
    return found


@pytest.fixture
def app() -> FaustApp:
    """One whose consumer is never started."""
    return object.__new__(FaustApp)


def test_partitions_are_those_of_every_topic() -> None:
    assigned = {TP("features", 1), TP("labels", 1), TP("other", 3)}
    assert assigned_partitions(assigned, ["features", "labels"]) == {1}
    assert assigned_partitions(set(), ["features", "labels"]) == set()


def test_topics_that_differ_are_no_assignment() -> None:
    assigned = {TP("labels", 0), TP("labels", 1)}
    assert assigned_partitions(assigned, ["features", "labels"]) is None


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (RefusalError("decide first"), REFUSED, "decide first"),
        (RequestError(f"features cannot be read: {SEE_RIGHTS}"), FAILED, "grant this user"),
        (AssertionError("in aiokafka"), FAILED, "consumer crashed (AssertionError('in aiokafka'))"),
    ],
    ids=["refusal", "right", "bug"],
)
def test_a_crashed_consumer_ends_the_process_with_the_sentence_of_its_error(
    app: FaustApp, error: Exception, code: int, sentence: str, ends: list[tuple[int, str]]
) -> None:
    with pytest.raises(EndedError):
        app.consumer_crashed(error)
    assert ends[0][0] == code
    assert sentence in ends[0][1]


def test_a_right_that_was_taken_away_ends_the_process_and_says_what_to_do(
    app: FaustApp, ends: list[tuple[int, str]]
) -> None:
    with pytest.raises(EndedError):
        app.rights_lost(TopicAuthorizationFailedError("features"))
    ((code, why),) = ends
    assert code == FAILED
    assert "features" in why
    assert SEE_RIGHTS in why


class FakeConsumer:
    """Takes commits; each is answered, or fails, as the test wants."""

    def __init__(self, answer: Callable[[], bool]) -> None:
        self.answer = answer
        self.offsets: list[Any] = []

    async def _commit_offsets(self, offsets: Any) -> bool:
        self.offsets.append(offsets)
        return self.answer()


def test_a_commit_that_is_refused_or_fails_is_no_end(app: FaustApp) -> None:
    """It only costs a replay; the next one commits more."""

    def fail() -> bool:
        raise RuntimeError("rebalancing")

    def drop() -> bool:
        raise asyncio.CancelledError  # aiokafka ends, and nobody has cancelled who waits

    answers = ((lambda: True, True), (lambda: False, False), (fail, False), (drop, False))
    for answer, expected in answers:
        consumer = FakeConsumer(answer)
        app.app = SimpleNamespace(consumer=consumer)
        assert asyncio.run(app.commit({("features", 1): 5})) is expected
        assert consumer.offsets == [{TP("features", 1): 5}]
        assert asyncio.run(app.commit({})) is True
        assert len(consumer.offsets) == 1
