"""Every error of the pipeline, its exit code, and how a process ends by one.

An error's text is one sentence for the operator: what happened, where, and what to do. Exit codes:
1, start it again, nothing is lost; 2, an operator must decide something first. Commands translate
errors in one place (`pipeline.cli`), long-running processes by `exit_on_error`.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from traceback import extract_tb
from typing import Any, NoReturn

from dtgol_core.config import ConfigError

log = logging.getLogger(__name__)

FAILED, REFUSED = 1, 2
before_exit: list[Callable[[], None]] = []
"""Called by `exit_now`, when a process ends itself for a reason of its own."""


class RefusalError(RuntimeError):
    """A process or command must not go on with things as they are."""


class InputError(ValueError):
    """Something the user gave cannot be used: an option, a file, a name."""


class RefusedError(ValueError):
    """The contract refuses a record; nothing was sent. It names places, never values."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class ClusterError(RuntimeError):
    """The cluster cannot be used: it rejects us, or its topics are missing or not right."""


class UnansweredError(ClusterError):
    """The cluster did not answer in time; a later try may succeed."""


class RequestError(ClusterError):
    """A request to the cluster failed: librdkafka's error, in a sentence.

    `KafkaException` does not leave `pipeline.kafka`; this is what it becomes there.
    """


class DeliveryError(RuntimeError):
    """Records were handed to the producer and are not known to be stored."""


class StoreError(RuntimeError):
    """The snapshot store could not write or read. Nothing is committed without a snapshot."""


class FencedError(RuntimeError):
    """Another redrive of the same topics has begun; the open transaction was aborted."""


class NoBrokerError(RuntimeError):
    """This kind of broker is not available on this machine."""


class DemoError(RuntimeError):
    """A process of the demo has ended or does not get ready."""


class FoldBugError(Exception):
    """The fold failed on one record: our bug. The fold it happened in must not be used again."""

    def __init__(self, offset: int, error: Exception, topic: str = "journal") -> None:
        frames = extract_tb(error.__traceback__)
        self.offset = offset
        self.error = type(error).__name__
        self.place = f"{'/'.join(Path(frames[-1].filename).parts[-2:])}:{frames[-1].lineno}"
        super().__init__(f"{self.error} at {self.place} on the record at {topic} offset {offset}")
        self.report = f"{self}\n{''.join(frames.format())}"
        """With the stack. The exception's own text is left out: it may hold a value."""


class AbandonedError(Exception):
    """The partition was revoked while it was being read; ends the read, not the process."""


class OvertakenError(Exception):
    """Another process has taken the partition further than our state; it is restored again."""


EXIT_CODES: dict[type[Exception], int] = {
    ConfigError: REFUSED,
    RefusalError: REFUSED,
    InputError: REFUSED,
    RefusedError: REFUSED,
    UnansweredError: FAILED,  # before ClusterError, of which these two are kinds
    RequestError: FAILED,
    ClusterError: REFUSED,
    DeliveryError: FAILED,
    StoreError: FAILED,
    FencedError: FAILED,
    NoBrokerError: REFUSED,
    DemoError: FAILED,
    FoldBugError: FAILED,
}


def exit_code(error: BaseException) -> int | None:
    """The exit code of an error whose text is a sentence; None for anything else: a bug."""
    return next((code for kind, code in EXIT_CODES.items() if isinstance(error, kind)), None)


async def exit_on_error(work: Coroutine[Any, Any, None]) -> None:
    """Run work that the process depends on; an exception in it ends the process.

    So does a cancelled wait, such as for an answer of the consumer's thread, if nobody has
    cancelled the work itself: it would end without a word.
    """
    try:
        await work
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        log.exception("this is a bug")
        exit_now(FAILED, "ended by a wait that was cancelled; nothing is lost, start it again")
    except Exception as error:
        exit_if_known(error)
        log.exception("this is a bug")
        exit_now(FAILED, "ended by a bug; nothing is lost, see the stack trace above")


def exit_if_known(error: BaseException) -> None:
    """End with the sentence of an error; return if it has none."""
    code = exit_code(error)
    if code is not None:
        exit_now(code, str(error))


def exit_now(code: int, why: str, stuck: bool = False) -> NoReturn:
    """End this process at once with `os._exit`, as a power cut would.

    Faust's own shutdown takes time and commits offsets on the way, which a process in a wrong
    state must not do. Everything that a restart needs is durable already. One
    that is `stuck` may be so at a record, and leaves that to be seen.
    """
    log.critical("%s", why)
    for call in [] if stuck else before_exit:
        call()
    logging.shutdown()
    os._exit(code)
