"""Predictions for Python users: `PredictionConsumer`, which `pipeline.client` hands on.

Read committed. Without a group nothing is committed and nobody is disturbed; with one, at least
once: a prediction counts as handled when the next one is asked for. Copies of an answer that a
restarted worker sent again are left out.
"""

import contextlib
import logging
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException, Message, TopicPartition

from pipeline.access.door import ClusterError
from pipeline.client.sending import ClientSettings
from pipeline.client.tail import is_news, offset_range, open_consumer, partition_counts
from topics.catalog import topic_name
from topics.codec import read_prediction
from topics.predictions import Prediction
from topics.refusals import Rejection

log = logging.getLogger(__name__)

POLL_S = 1.0


class PredictionConsumer:
    """Typed predictions as they come, each answer once; read committed. A context manager.

    Without a group: every partition, from the beginning or the end, nothing committed. With one:
    shared among the group's members, and going on where it stopped; a prediction counts as
    handled when the next one is asked for, so after a crash the last one comes again.

    >>> with PredictionConsumer({"bootstrap.servers": "localhost:9092"}) as said:  # doctest: +SKIP
    ...     for prediction in said:
    ...         act_on(prediction.id, prediction.p)
    """

    def __init__(
        self,
        client: ClientSettings,
        *,
        prefix: str = "",
        group: str | None = None,
        from_beginning: bool = False,
    ) -> None:
        self._topic = topic_name(prefix, "predictions")
        self._group = group
        self._handled: Message | None = None
        self._marks: dict[tuple[str, int], int] = {}
        self.unreadable = 0
        """Records that were no predictions: skipped, and logged without their content."""
        settings: dict[str, str | bool] = {
            "enable.partition.eof": False,
            "auto.offset.reset": "earliest" if from_beginning else "latest",
        }
        if group is not None:
            shared = {"enable.auto.commit": True, "enable.auto.offset.store": False}
            settings |= {"group.id": group, **shared}
        self._consumer = open_consumer(client, settings)
        try:
            self._start(from_beginning)
        except BaseException:
            self._consumer.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self._settle()
        self._consumer.close()

    def __iter__(self) -> Iterator[Prediction]:
        """Predictions without end; leave the loop to stop."""
        while True:
            prediction = self.poll(POLL_S)
            if prediction is not None:
                yield prediction

    def poll(self, timeout_s: float) -> Prediction | None:
        """The next prediction, or None if there is none in time."""
        self._settle()
        until = time.monotonic() + timeout_s
        while True:
            message = self._consumer.poll(max(0.0, until - time.monotonic()))
            prediction = None if message is None else self._read(message)
            if prediction is not None or time.monotonic() >= until:
                return prediction

    def _start(self, from_beginning: bool) -> None:
        counts = partition_counts(self._consumer)
        if self._topic not in counts:
            raise ClusterError(
                f"the cluster has no topic {self._topic}, or this user may not see it; "
                "run: dtgol topics apply, or grant the user Read"
            )
        if self._group is not None:
            self._consumer.subscribe([self._topic])
            return
        # The places are fixed now: what is predicted after this line will be read.
        places = []
        for partition in range(counts[self._topic]):
            first, end = offset_range(self._consumer, self._topic, partition)
            places.append(TopicPartition(self._topic, partition, first if from_beginning else end))
        self._consumer.assign(places)

    def _settle(self) -> None:
        """Note that the prediction given out last has been handled."""
        if self._handled is not None and self._group is not None:
            # After a rebalance the partition may be another member's, who will give it out again.
            with contextlib.suppress(KafkaException):
                self._consumer.store_offsets(message=self._handled)
        self._handled = None

    def _read(self, message: Message) -> Prediction | None:
        if is_news(message, in_group=self._group is not None):
            return None
        prediction = read_prediction(message.value())
        if isinstance(prediction, Rejection):
            self.unreadable += 1
            where = f"{message.topic()}[{message.partition()}]@{message.offset()}"
            log.warning("no prediction at %s: %s", where, prediction.reason)
            return None
        # A writer begins at or before the first answer that is not stored, so the first copies
        # of all answers are in order: whatever is not beyond the mark is a copy.
        journal = prediction.at.journal, prediction.at.partition
        if prediction.at.offset <= self._marks.get(journal, -1):
            return None
        self._marks[journal] = prediction.at.offset
        self._handled = message
        return prediction
