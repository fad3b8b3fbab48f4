"""The table of errors: every one has an exit code and ends a process with its sentence."""

from __future__ import annotations

import asyncio
import logging
import os
from inspect import getmembers, isclass
from typing import NoReturn

import pytest

from dtgol_core.config import ConfigError
from pipeline import errors
from pipeline.errors import (
    EXIT_CODES,
    FAILED,
    REFUSED,
    ClusterError,
    DeliveryError,
    FoldBugError,
    RefusalError,
    RequestError,
    StoreError,
    UnansweredError,
    exit_code,
    exit_if_known,
    exit_on_error,
)

SECRET = "what a patient told us"
INSIDE = {"AbandonedError", "OvertakenError"}
"""They end a reading or a state, never a process."""


class EndedError(BaseException):
    """In place of the end of the process."""


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    codes: list[int] = []

    def leave(code: int) -> NoReturn:
        codes.append(code)
        raise EndedError

    monkeypatch.setattr(os, "_exit", leave)
    monkeypatch.setattr(logging, "shutdown", lambda: None)
    return codes


def fold_bug() -> FoldBugError:
    try:
        raise ZeroDivisionError(SECRET)
    except ZeroDivisionError as error:
        return FoldBugError(7, error)


def test_a_bug_of_the_fold_is_told_by_its_place_and_not_by_its_text() -> None:
    """The text of an exception may hold a value of a record."""
    bug = fold_bug()
    assert (bug.offset, bug.error) == (7, "ZeroDivisionError")
    assert bug.place.startswith("pipeline/test_errors.py:")
    assert str(bug) == f"ZeroDivisionError at {bug.place} on the record at journal offset 7"
    assert "in fold_bug" in bug.report
    assert SECRET not in bug.report


def test_every_error_has_a_place_in_the_table() -> None:
    defined = {name for name, each in getmembers(errors, isclass) if issubclass(each, Exception)}
    assert {each.__name__ for each in EXIT_CODES} == defined - INSIDE


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UnansweredError("the cluster does not answer"), FAILED),
        (RequestError("the request to the cluster failed"), FAILED),
        (DeliveryError("a record was not delivered"), FAILED),
        (StoreError("no space left"), FAILED),
        (fold_bug(), FAILED),
        (RefusalError("no topic"), REFUSED),
        (ClusterError("the cluster does not let us in"), REFUSED),
        (ConfigError("no brokers are named"), REFUSED),
        (AssertionError("ours"), None),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, Exception) else None,
)
def test_the_exit_code_tells_who_has_to_act(error: Exception, code: int | None) -> None:
    """1: a supervisor starts the process again; 2: an operator decides something first."""
    assert exit_code(error) == code


def test_a_known_error_ends_the_process_with_its_sentence(
    ends: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    async def refuse() -> None:
        raise RefusalError("decide first")

    with pytest.raises(EndedError):
        asyncio.run(exit_on_error(refuse()))
    assert ends == [REFUSED]
    assert [record.getMessage() for record in caplog.records] == ["decide first"]


def test_a_bug_ends_the_process_with_its_trace(
    ends: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    async def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(EndedError):
        asyncio.run(exit_on_error(fail()))
    assert ends == [FAILED]
    trace, last = caplog.records
    assert trace.exc_info
    assert "ended by a bug; nothing is lost" in last.getMessage()


def test_a_wait_that_others_have_cancelled_ends_the_process(ends: list[int]) -> None:
    """Its partition would stand still for ever, without a word."""

    async def wait_for_an_answer() -> None:
        answer = asyncio.get_running_loop().create_future()
        answer.cancel()
        await answer

    with pytest.raises(EndedError):
        asyncio.run(exit_on_error(wait_for_an_answer()))
    assert ends == [FAILED]


def test_work_that_is_cancelled_ends_no_process(ends: list[int]) -> None:
    async def cancel_it() -> None:
        task = asyncio.create_task(exit_on_error(asyncio.sleep(60)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel_it())
    assert ends == []


def test_what_ends_well_ends_no_process(ends: list[int]) -> None:
    asyncio.run(exit_on_error(asyncio.sleep(0)))
    exit_if_known(AssertionError())
    assert ends == []
