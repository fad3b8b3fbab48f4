"""Source records read again as Faust's consumer delivers them, for a repair of the journal.

librdkafka, which everything else outside Faust reads with, shows a record with more than 100,000
headers as one without any, and cannot be asked which it was: a repair would copy what the
sequencer has refused. So both read sources by aiokafka.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition

from pipeline.errors import AbandonedError, RequestError
from pipeline.faust_ext.fetching import bound_headers
from pipeline.faust_ext.tolerant import tolerate_header_names
from pipeline.kafka.record import Record

CHUNK = 2_000
POLL_MS = 500


class SourceReader:
    """Reads ranges of topics in no group; each chunk by a consumer of its own.

    So nothing is open between two chunks: whoever stops in the middle leaves nothing behind.
    `client` are settings of aiokafka's consumer: brokers and login.
    """

    def __init__(self, client: Mapping[str, Any], headers_max: int) -> None:
        self._client = client
        self._headers_max = headers_max

    def read(
        self, topic: str, partition: int, start: int, end: int, abandoned: Callable[[], bool]
    ) -> Iterator[Record]:
        """Committed records from `start` up to before `end`; blocks, and needs a thread for it."""
        while start < end:
            try:
                records, start = asyncio.run(self._chunk(topic, partition, start, end, abandoned))
            except KafkaError as error:
                raise RequestError(
                    f"{topic} partition {partition} cannot be read: {error!r}"
                ) from None
            yield from records

    async def _chunk(
        self, topic: str, partition: int, start: int, end: int, abandoned: Callable[[], bool]
    ) -> tuple[list[Record], int]:
        """The next records, and where to go on."""
        tolerate_header_names()
        place = TopicPartition(topic, partition)
        consumer: Any = AIOKafkaConsumer(
            **self._client,
            isolation_level="read_committed",
            auto_offset_reset="none",
            enable_auto_commit=False,
        )
        async with consumer:
            bound_headers(consumer._fetcher, self._headers_max)
            consumer.assign([place])
            consumer.seek(place, start)
            position = start
            while position == start:  # a fetch of markers alone moves it too
                if abandoned():
                    raise AbandonedError
                fetched = await consumer.getmany(place, timeout_ms=POLL_MS, max_records=CHUNK)
                position = await consumer.position(place)
        found = [Record.from_aiokafka(each) for each in fetched.get(place, ())]
        return [each for each in found if each.offset < end], position
