"""The first question to a cluster: is somebody there, are we let in, and if not, why not.

librdkafka goes on trying a broker that turns it away, and when the time is up it says no more than
that. What the brokers said comes beside that, as events: the clients made here keep it in an `Ear`,
and `knock` ends as soon as waiting cannot help any more. No sentence holds a secret: librdkafka's
texts name addresses and mechanisms only.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from time import monotonic
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

log = logging.getLogger(__name__)

FIRST_TRY_S = 1.0
SEE_LOGIN = "see that user, password and mechanism are right"
SEE_TRUST = (
    "see that its certificate is signed by an authority that we trust (the CA file) and names the "
    "host that we ask"
)
SEE_CERTIFICATE = "see that we have one, and that an authority signed it that the broker trusts"
SEE_ALL = (
    "see that it is up and that the bootstrap servers and the security settings are right; a plain "
    "client gets no answer from a TLS port"
)


SEE_RIGHTS = "grant this user what docs/security.md lists for its role"
_NO_RIGHT = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)


class ClusterError(RuntimeError):
    """The cluster cannot be used: it does not answer, or its topics are not there or not right."""


class SilentError(ClusterError):
    """Nobody answered in time; the next try may find somebody."""


class Ear:
    """Hears what librdkafka says; give it as ``error_cb``, and as ``logger`` to a producer."""

    def __init__(self) -> None:
        self.refusal = ""
        """Why a broker turned us away, as one sentence; empty if none has."""
        self.trouble = ""
        """What was wrong last, whatever it was."""
        self.fatal: KafkaError | None = None
        """Why librdkafka has given its producer up, if it has."""

    def __call__(self, error: KafkaError) -> None:
        if refuses(error):
            self.refusal = refusal(error)
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            self.trouble = error.str()

    def log(self, level: int, form: str, facility: str, client: str, text: str) -> None:
        """A line of librdkafka's log, as it calls a logger."""
        if facility != "FATAL":
            log.log(level, "librdkafka: %s", text)
            return
        codes = (code for code in _NO_RIGHT if KafkaError(code).str() in text)
        self.fatal = KafkaError(next(codes, KafkaError._FATAL), text)


class ListeningAdmin(AdminClient):
    """An admin client with an ear; silent, since errors come as exceptions."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.ear = Ear()
        given: dict[str, Any] = {"log_level": 0, **settings, "error_cb": self.ear}
        super().__init__(given)


class ListeningConsumer(Consumer):
    """A consumer with an ear."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.ear = Ear()
        super().__init__({**settings, "error_cb": self.ear})


class ListeningProducer(Producer):
    """A producer with an ear. Once librdkafka gives it up, every call says why: KafkaException.

    confluent-kafka raises the reason within whatever callback comes next, which becomes a
    SystemError or is lost there; so it is taken from librdkafka's log, which comes by poll.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.ear = Ear()
        super().__init__({**settings, "error_cb": self.ear, "logger": self.ear})

    def produce(self, *args: Any, **kwargs: Any) -> None:
        """Put a record into the queue."""
        try:
            super().produce(*args, **kwargs)
        except KafkaException as error:
            if error.args[0].code() == KafkaError._FATAL:
                self.poll(0)
            raise

    def poll(self, timeout: float = -1) -> int:
        """Serve callbacks."""
        with self._given_up():
            return super().poll(timeout)

    def flush(self, timeout: float = -1) -> int:
        """Wait for all deliveries."""
        with self._given_up():
            return super().flush(timeout)

    @contextlib.contextmanager
    def _given_up(self) -> Iterator[None]:
        try:
            yield
        except (KafkaException, SystemError):
            if self.ear.fatal is None:
                raise
        if self.ear.fatal is not None:
            raise KafkaException(self.ear.fatal) from None


def refuses(error: KafkaError) -> bool:
    """Whether a broker has said no, or is not the one we trust; trying again would not help.

    A connection lost while logging in is called an authentication error too; librdkafka's own
    words, which begin with "Local:", tell it apart.
    """
    if error.code() == KafkaError._AUTHENTICATION:
        return "Local:" not in error.str()
    return error.code() in (KafkaError._SSL, KafkaError._TRANSPORT) and "certificate" in error.str()


def refusal(error: KafkaError) -> str:
    """The sentence about such an error."""
    if error.code() == KafkaError._AUTHENTICATION:
        return f"the cluster does not let us in ({error.str()}): {SEE_LOGIN}"
    if "alert" in error.str():
        return f"the broker does not take our certificate ({error.str()}): {SEE_CERTIFICATE}"
    return f"the broker is not one that we trust ({error.str()}): {SEE_TRUST}"


def said(error: KafkaError) -> str:
    """What an error says; where a login failed or a right is missing, also what to do about it."""
    if error.code() == KafkaError._AUTHENTICATION:
        # librdkafka calls a connection that was lost while logging in by the same name.
        return f"it does not let us in, or went away meanwhile ({error.str()}): {SEE_LOGIN}"
    return f"{error.str()}; {SEE_RIGHTS}" if error.code() in _NO_RIGHT else error.str()


def knock(handle: Any, limit_s: float) -> Any:
    """The cluster's metadata: brokers, and every topic that we may see; asking creates none.

    `handle` is a client of this module; one of librdkafka's own is only told that time is up.
    """
    ear: Ear = getattr(handle, "ear", None) or Ear()
    until, patience = monotonic() + limit_s, FIRST_TRY_S
    while True:
        try:
            return handle.list_topics(timeout=patience)
        except KafkaException as error:
            handle.poll(0)
            if ear.refusal:
                raise ClusterError(ear.refusal) from None
            left = until - monotonic()
            if left <= 0:
                why = ear.trouble or error.args[0].str()
                raise SilentError(
                    f"the cluster does not answer within {limit_s:g} s ({why}): {SEE_ALL}"
                ) from None
            patience = min(2 * patience, max(left, FIRST_TRY_S))
