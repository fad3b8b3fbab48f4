"""Topics from a chosen place on, without a group: nothing is committed, nobody is disturbed.

`Tail` hands out messages of committed records only, in order per partition, and knows when it has
read up to where the topics ended. `dtgol watch`, `dtgol doctor`, the demo and the Python client
read with it. Bounded: every wait has a limit.
"""

from collections.abc import Iterator, Sequence
from time import monotonic
from types import TracebackType
from typing import Self
from uuid import uuid4

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from pipeline.access.door import ClusterError, ListeningConsumer, knock, said
from pipeline.client.sending import CONNECT_S, ClientSettings
from pipeline.reader import NEVER_JOINED, bounds

BATCH = 500
SETTINGS: ClientSettings = {
    "isolation.level": "read_committed",
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "allow.auto.create.topics": False,
    "auto.offset.reset": "earliest",
    "log_level": 0,
}
_PASSING = (
    KafkaError._PARTITION_EOF,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
)
"""The end of a partition, and what librdkafka mends by itself when the cluster comes back."""


def open_consumer(client: ClientSettings, more: ClientSettings | None = None) -> Consumer:
    """A consumer of committed records; unusable settings are a `ClusterError`."""
    group = {"group.id": f"dtgol-tail-{uuid4().hex[:12]}"}
    try:
        return ListeningConsumer({**SETTINGS, **group, **client, **(more or {})})
    except KafkaException as error:
        raise ClusterError(f"these settings cannot be used: {error.args[0].str()}") from None


def partition_counts(consumer: Consumer) -> dict[str, int]:
    """Every topic of the cluster with its number of partitions; asking creates none."""
    known = knock(consumer, CONNECT_S).topics
    return {name: len(topic.partitions) for name, topic in known.items()}


def offset_range(consumer: Consumer, topic: str, partition: int) -> tuple[int, int]:
    """The first offset kept and the next one to be written, asked now."""
    try:
        return bounds(consumer, topic, partition)
    except KafkaException as error:
        raise ClusterError(f"{topic} cannot be read: {said(error.args[0])}") from None


def is_news(message: Message, in_group: bool = False) -> bool:
    """Whether it is about the reading and not a record; raises what cannot mend itself."""
    error = message.error()
    if error is None:
        return False
    if error.code() not in _PASSING and (in_group or error.code() != NEVER_JOINED):
        raise ClusterError(f"{message.topic() or 'the cluster'}: {said(error)}")
    return True


class Tail:
    """Messages of some topics; a context manager.

    Parameters
    ----------
    topics
        Full names. One that is not there is left out, and in `missing`.
    last
        Begin this many offsets before each partition's end; ``None`` begins at its beginning.
    """

    def __init__(
        self, client: ClientSettings, topics: Sequence[str], last: int | None = None
    ) -> None:
        self._consumer = open_consumer(client)
        try:
            counts = partition_counts(self._consumer)
            self.missing = [topic for topic in topics if topic not in counts]
            self.ends: dict[tuple[str, int], tuple[int, int]] = {}
            places = []
            for topic in topics:
                for partition in range(counts.get(topic, 0)):
                    low, high = self.offsets(topic, partition)
                    self.ends[topic, partition] = low, high
                    start = low if last is None else max(low, high - last)
                    places.append(TopicPartition(topic, partition, start))
        except BaseException:
            self._consumer.close()
            raise
        self._behind = {place for place, (low, high) in self.ends.items() if high > low}
        if last == 0:
            self._behind.clear()
        self._consumer.assign(places)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._consumer.close()

    @property
    def caught_up(self) -> bool:
        """Whether every partition has been read to its end at least once."""
        return not self._behind

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        """The first offset kept and the next one to be written, asked now."""
        return offset_range(self._consumer, topic, partition)

    def read(self, timeout_s: float) -> list[Message]:
        """What has come, waiting at most this long for the first; empty if nothing has."""
        messages = []
        for message in self._consumer.consume(BATCH, timeout_s):
            if is_news(message):
                self._hear(message)
            else:
                messages.append(message)
        return messages

    def catch_up(self, limit_s: float) -> Iterator[Message]:
        """Everything up to where the topics end; stops, not caught up, at the limit."""
        until = monotonic() + limit_s
        while not self.caught_up and monotonic() < until:
            yield from self.read(0.5)

    def _hear(self, message: Message) -> None:
        error = message.error()
        if error is not None and error.code() == KafkaError._PARTITION_EOF:
            self._behind.discard((message.topic() or "", message.partition() or 0))
