"""A librdkafka producer whose deliveries are checked; the Python client and `dtgol produce` use it.

At least once, in order per partition (idempotent), by Java's partitioner. `flush` returns only when
every record handed over is stored by the cluster, and raises otherwise. It never creates a topic:
one that appears by accident would have the wrong number of partitions, for life.
"""

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeAlias, TypeVar

from confluent_kafka import KafkaError, KafkaException, Message

from pipeline.access.door import SEE_LOGIN, ListeningProducer, knock
from pipeline.access.door import ClusterError as ClusterError
from topics.catalog import partition_mismatch, topic_name
from topics.headers import Header

ClientSettings: TypeAlias = Mapping[str, str | int | float | bool]
"""librdkafka's own names: ``bootstrap.servers`` and, where needed, the security settings."""

Result = TypeVar("Result")

CONNECT_S = 10.0
DELIVERY_S = 60.0
ROOM_S = 0.5
"""How long one look for room in a full send buffer takes; looking serves deliveries meanwhile."""
FLUSH_EXTRA_S = 5.0
"""librdkafka gives up each record after the delivery limit; its reports come a moment later."""
SETTINGS: ClientSettings = {
    "partitioner": "murmur2_random",
    "enable.idempotence": True,
    "acks": "all",
    "linger.ms": 5,
    "compression.type": "gzip",
    "log_level": 0,
}
"""What a producer for these topics must have. Errors come as exceptions, so nothing is logged."""

_AGAIN = "then send the records since the last flush again: a repeated id is recognised"
_ADVICE = {
    KafkaError._MSG_TIMED_OUT: f"the cluster took too long; see that it is up, {_AGAIN}",
    KafkaError._UNKNOWN_TOPIC: "the topic is gone; run: dtgol topics apply",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "the topic is gone; run: dtgol topics apply",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "this user may not write to the topic; grant it Write",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: (
        "this user may not write; grant it Write on the topic (before Kafka 2.8 also "
        "IdempotentWrite on the cluster)"
    ),
    KafkaError.MSG_SIZE_TOO_LARGE: "the topic takes smaller records only; run: dtgol topics check",
    KafkaError.NOT_ENOUGH_REPLICAS: f"too few copies are in sync; repair the cluster, {_AGAIN}",
    KafkaError._AUTHENTICATION: SEE_LOGIN,
}


class DeliveryError(RuntimeError):
    """Records that were handed over and are not known to be stored; the text says what to do."""


class Sender:
    """A producer for some of the topics of one prefix; a context manager that flushes at its end.

    Parameters
    ----------
    client
        Where the cluster is and how to log in.
    names
        The topics, by their plain names; the cluster must have them.
    delivery_s
        How long one record may take before it counts as not delivered.
    """

    def __init__(
        self,
        client: ClientSettings,
        names: Sequence[str],
        prefix: str = "",
        delivery_s: float = DELIVERY_S,
    ) -> None:
        self._topics = {name: topic_name(prefix, name) for name in names}
        self._delivery_s = delivery_s
        self._failures: Counter[tuple[str, int, str]] = Counter()
        limit = {"delivery.timeout.ms": round(delivery_s * 1000)}
        try:
            self._producer = ListeningProducer({**SETTINGS, **client, **limit})
        except KafkaException as error:
            raise ClusterError(f"these settings cannot be used: {error.args[0].str()}") from None
        self.partitions = self._look(prefix)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.flush()
        else:  # The block's own error is the news; what was handed over still gets a chance.
            with contextlib.suppress(KafkaException):
                self._producer.flush(FLUSH_EXTRA_S)

    def send(
        self,
        name: str,
        key: bytes,
        value: bytes,
        timestamp_ms: int = 0,
        headers: Sequence[Header] = (),
    ) -> None:
        """Hand over one record; waits while the send buffer is full.

        Raises what a flush would raise as soon as an earlier record is known to have failed.
        """
        until = time.monotonic() + self._delivery_s + FLUSH_EXTRA_S
        while True:
            self._serve(self._producer.poll, 0)
            self._check()
            try:
                self._serve(
                    self._producer.produce,
                    self._topics[name],
                    value,
                    key,
                    on_delivery=self._report,
                    timestamp=timestamp_ms,
                    headers=list(headers) or None,
                )
                return
            except BufferError:
                if time.monotonic() > until:
                    raise DeliveryError(self._undelivered(len(self._producer))) from None
                self._serve(self._producer.poll, ROOM_S)

    def flush(self) -> None:
        """Wait until everything is stored; `DeliveryError` if something is not."""
        left = self._serve(self._producer.flush, self._delivery_s + FLUSH_EXTRA_S)
        self._check()
        if left:
            raise DeliveryError(self._undelivered(left))

    def _serve(self, call: Callable[..., Result], *args: Any, **kwargs: Any) -> Result:
        try:
            return call(*args, **kwargs)
        except KafkaException as error:
            fatal = error.args[0]
            advice = _ADVICE.get(fatal.code(), f"repair that, {_AGAIN}")
            raise DeliveryError(f"the producer was shut out ({fatal.str()}): {advice}") from None

    def _look(self, prefix: str) -> int:
        """How many partitions the topics have, once they are known to be there and to agree."""
        known = knock(self._producer, CONNECT_S).topics
        missing = [topic for topic in self._topics.values() if topic not in known]
        if missing:
            raise ClusterError(
                f"the cluster has no topic {', '.join(missing)}, or this user may not see it; "
                "run: dtgol topics apply, or grant the user Write"
            )
        pairs = (("features", prefix + "features"), ("labels", prefix + "labels"))
        counts = {name: len(known[topic].partitions) for name, topic in pairs if topic in known}
        mismatch = partition_mismatch(counts)
        if mismatch is not None:
            raise ClusterError(f"{mismatch}; labels would not meet their features")
        return min(len(known[topic].partitions) for topic in self._topics.values())

    def _report(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failures[(message.topic() or "?", error.code(), error.str())] += 1

    def _check(self) -> None:
        if not self._failures:
            return
        (topic, code, said), _ = self._failures.most_common(1)[0]
        count = sum(self._failures.values())
        self._failures.clear()
        advice = self._producer.ear.refusal or _ADVICE.get(code, f"repair that, {_AGAIN}")
        raise DeliveryError(f"{count} records were not delivered to {topic} ({said}): {advice}")

    def _undelivered(self, left: int) -> str:
        ear = self._producer.ear
        why = f" ({ear.trouble})" if ear.trouble else ""
        return (
            f"{left} records are not known to be delivered after {self._delivery_s:g} s{why}: "
            f"see that the cluster is up, {_AGAIN}"
        )
