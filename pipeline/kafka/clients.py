"""librdkafka clients that remember why a broker rejected them, and the first request to a cluster.

librdkafka retries a broker that rejects it, and when the time is up reports only the timeout. The
reason comes beside that, as events: the clients made here keep it in an `ErrorListener`, and
`fetch_metadata` ends as soon as waiting cannot help any more. No text holds a secret: librdkafka's
texts name addresses and mechanisms only.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from time import monotonic
from typing import Any, TypeAlias

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from pipeline.errors import ClusterError, RequestError, UnansweredError

log = logging.getLogger(__name__)

ClientSettings: TypeAlias = Mapping[str, Any]
"""librdkafka's own names: ``bootstrap.servers`` and, where needed, the security settings."""

CONNECT_S = 10.0
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
NO_RIGHT = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)


class ErrorListener:
    """Keeps librdkafka's errors; give it as ``error_cb``, and as ``logger`` to a producer."""

    def __init__(self) -> None:
        self.rejection = ""
        """Why a broker rejected us, as one sentence; empty if none has."""
        self.last_error = ""
        self.fatal: KafkaError | None = None
        """Why librdkafka has given its producer up, if it has."""

    def __call__(self, error: KafkaError) -> None:
        if is_auth_error(error):
            self.rejection = describe_rejection(error)
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            self.last_error = error.str()

    def log(self, level: int, form: str, facility: str, client: str, text: str) -> None:
        """A line of librdkafka's log, as it calls a logger."""
        if facility != "FATAL":
            log.log(level, "librdkafka: %s", text)
            return
        codes = (code for code in NO_RIGHT if KafkaError(code).str() in text)
        self.fatal = KafkaError(next(codes, KafkaError._FATAL), text)


class MonitoredAdmin(AdminClient):
    """An admin client with a listener; it logs nothing, since errors come as exceptions."""

    def __init__(self, settings: ClientSettings) -> None:
        self.listener = ErrorListener()
        with unusable_settings():
            given: dict[str, Any] = {"log_level": 0, **settings, "error_cb": self.listener}
            super().__init__(given)


class MonitoredConsumer(Consumer):
    """A consumer with a listener."""

    def __init__(self, settings: ClientSettings) -> None:
        self.listener = ErrorListener()
        with unusable_settings():
            super().__init__({**settings, "error_cb": self.listener})


class MonitoredProducer(Producer):
    """A producer with a listener. Once librdkafka gives it up, every call raises the reason.

    confluent-kafka raises the reason within whatever callback comes next, which becomes a
    SystemError or is lost there; so it is taken from librdkafka's log, which comes by poll.
    """

    def __init__(self, settings: ClientSettings) -> None:
        self.listener = ErrorListener()
        with unusable_settings():
            super().__init__({**settings, "error_cb": self.listener, "logger": self.listener})

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
        return self._raise_fatal(super().poll, timeout)

    def flush(self, timeout: float = -1) -> int:
        """Wait for all deliveries."""
        return self._raise_fatal(super().flush, timeout)

    def _raise_fatal(self, call: Callable[[float], int], timeout: float) -> int:
        """Make the call. A function, not a context manager: polls are many."""
        done = 0
        try:
            done = call(timeout)
        except (KafkaException, SystemError):
            if self.listener.fatal is None:
                raise
        if self.listener.fatal is not None:
            raise KafkaException(self.listener.fatal) from None
        return done


@contextlib.contextmanager
def unusable_settings() -> Iterator[None]:
    """librdkafka refuses settings when a client is made."""
    try:
        yield
    except KafkaException as error:
        raise ClusterError(f"these settings cannot be used: {error.args[0].str()}") from None


@contextlib.contextmanager
def request(what: str = "the request to the cluster failed") -> Iterator[None]:
    """What librdkafka raises here becomes a `RequestError` that begins with `what`."""
    try:
        yield
    except KafkaException as error:
        raise RequestError(f"{what}: {describe(error.args[0])}") from None


def is_auth_error(error: KafkaError) -> bool:
    """Whether a broker rejected us, or is not the one we trust; trying again would not help.

    A connection lost while logging in is called an authentication error too; librdkafka's own
    texts, which begin with "Local:", distinguish it.
    """
    if error.code() == KafkaError._AUTHENTICATION:
        return "Local:" not in error.str()
    return error.code() in (KafkaError._SSL, KafkaError._TRANSPORT) and "certificate" in error.str()


def describe_rejection(error: KafkaError) -> str:
    """The sentence about such an error."""
    if error.code() == KafkaError._AUTHENTICATION:
        return f"the cluster does not let us in ({error.str()}): {SEE_LOGIN}"
    if "alert" in error.str():
        return f"the broker does not take our certificate ({error.str()}): {SEE_CERTIFICATE}"
    return f"the broker is not one that we trust ({error.str()}): {SEE_TRUST}"


def describe(error: KafkaError) -> str:
    """An error's text; where a login failed or a right is missing, also what to do about it."""
    if error.code() == KafkaError._AUTHENTICATION:
        # librdkafka calls a connection that was lost while logging in by the same name.
        return f"it does not let us in, or went away meanwhile ({error.str()}): {SEE_LOGIN}"
    return f"{error.str()}; {SEE_RIGHTS}" if error.code() in NO_RIGHT else error.str()


def fetch_metadata(client: Any, limit_s: float = CONNECT_S) -> Any:
    """The cluster's metadata: brokers, and every topic that we may see; asking creates none.

    `client` is one of this module; with one of librdkafka's own, only the timeout is known.
    """
    listener: ErrorListener = getattr(client, "listener", None) or ErrorListener()
    until, timeout_s = monotonic() + limit_s, FIRST_TRY_S
    while True:
        try:
            return client.list_topics(timeout=timeout_s)
        except KafkaException as error:
            client.poll(0)
            if listener.rejection:
                raise ClusterError(listener.rejection) from None
            left = until - monotonic()
            if left <= 0:
                why = listener.last_error or error.args[0].str()
                raise UnansweredError(
                    f"the cluster does not answer within {limit_s:g} s ({why}): {SEE_ALL}"
                ) from None
            timeout_s = min(2 * timeout_s, max(left, FIRST_TRY_S))
