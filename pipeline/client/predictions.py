"""Predictions for Python users: `PredictionConsumer`, exported by `pipeline.client`.

Read committed. Without a group nothing is committed and no group rebalances; with one, at least
once: a prediction counts as handled when the next one is asked for. Copies of an answer that a
restarted worker sent again are left out.
"""

import logging
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from pipeline.errors import ClusterError
from pipeline.kafka.clients import ClientSettings
from pipeline.kafka.reader import Reader
from pipeline.kafka.record import Record
from topics.catalog import topic_name
from topics.codec import read_prediction
from topics.predictions import Prediction
from topics.reasons import Rejection

log = logging.getLogger(__name__)

POLL_S = 1.0


class PredictionConsumer:
    """Typed predictions as they come, each answer once; read committed. A context manager.

    Without a group: every partition, from the beginning or the end, nothing committed. With one:
    shared among the group's members, and going on where it stopped; a prediction counts as
    handled when the next one is asked for, so after a crash the last one comes again. Where the
    group has committed nothing it begins at the beginning: at the end it would lose what is
    predicted before its first commit.

    Parameters
    ----------
    from_beginning
        Where to begin where nothing is committed; with a group the beginning, without one the end
        if not given.

    Notes
    -----
    In short::

        with PredictionConsumer({"bootstrap.servers": "localhost:9092"}) as predictions:
            for prediction in predictions:
                act_on(prediction.id, prediction.p)
    """

    def __init__(
        self,
        client: ClientSettings,
        *,
        prefix: str = "",
        group: str | None = None,
        from_beginning: bool | None = None,
    ) -> None:
        if from_beginning is None:
            from_beginning = group is not None
        self._topic = topic_name(prefix, "predictions")
        self._group = group
        self._handled: Record | None = None
        self._marks: dict[tuple[str, int], int] = {}
        self.unreadable = 0
        """Records that were no predictions: skipped, and logged without their content."""
        settings = {
            "enable.partition.eof": False,
            "auto.offset.reset": "earliest" if from_beginning else "latest",
            "enable.auto.commit": group is not None,
            "enable.auto.offset.store": False,
        }
        self._reader = Reader(client, group, **settings)
        try:
            self._start(from_beginning)
        except BaseException:
            self._reader.close()
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
        self._reader.close()

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
            records = self._reader.poll(max(0.0, until - time.monotonic()), most=1)
            prediction = self._read(records[0]) if records else None
            if prediction is not None or time.monotonic() >= until:
                return prediction

    def _start(self, from_beginning: bool) -> None:
        count = self._reader.partition_counts().get(self._topic)
        if count is None:
            raise ClusterError(
                f"the cluster has no topic {self._topic}, or this user may not see it; "
                "run: dtgol topics apply, or grant the user Read"
            )
        if self._group is not None:
            self._reader.subscribe(self._topic)
            return
        # The positions are fixed now: what is predicted after this line will be read.
        positions = {}
        for partition in range(count):
            low, high = self._reader.watermarks(self._topic, partition)
            positions[self._topic, partition] = low if from_beginning else high
        self._reader.start(positions)

    def _settle(self) -> None:
        """Note that the prediction given out last has been handled."""
        if self._handled is not None and self._group is not None:
            self._reader.store(self._handled)
        self._handled = None

    def _read(self, record: Record) -> Prediction | None:
        prediction = read_prediction(record.value)
        if isinstance(prediction, Rejection):
            self.unreadable += 1
            where = f"{record.topic}[{record.partition}]@{record.offset}"
            log.warning("no prediction at %s: %s", where, prediction.reason)
            return None
        # A writer begins at or before the first answer that is not stored, so the first copies
        # of all answers are in order: whatever is not beyond the mark is a copy.
        journal = prediction.at.journal, prediction.at.partition
        if prediction.at.offset <= self._marks.get(journal, -1):
            return None
        self._marks[journal] = prediction.at.offset
        self._handled = record
        return prediction
