"""Records with header names that are not UTF-8. C and C++ producers can send them.

No client for Python means to, so aiokafka's builder of batches in Python is led to believe that a
name is UTF-8.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy

GZIP = 1
BATCH_BYTES = 1 << 26


class Latin(str):
    """A text that is never written as UTF-8."""

    __slots__ = ()

    def encode(self, encoding: str = "", errors: str = "") -> bytes:
        return str.encode(self, "latin-1")


async def send_batch(bootstrap: str, topic: str, records: Sequence[Any]) -> None:
    """Send key, value and headers of each record, in one batch to partition 0."""
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        batch: Any = producer.create_batch()
        batch._builder = _DefaultRecordBatchBuilderPy(2, GZIP, 0, -1, -1, 0, BATCH_BYTES)
        now_ms = int(time.time() * 1000)
        for key, value, headers in records:
            assert batch.append(timestamp=now_ms, key=key, value=value, headers=headers)
        batch.close()
        await (await producer.send_batch(batch, topic, partition=0))
