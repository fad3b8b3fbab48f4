"""``python -m tests.support.latin_header BOOTSTRAP TOPIC``: one record with a Latin-1 header name.

C and C++ producers can send one; no client for Python means to, so one without compiled parts is
led to believe that it is UTF-8.
"""

import asyncio
import os
import sys

os.environ["AIOKAFKA_NO_EXTENSIONS"] = "1"  # read at import: what follows must come after

from aiokafka import AIOKafkaProducer


class Latin(str):
    """A text that is never written as UTF-8."""

    def encode(self, encoding: str = "", errors: str = "") -> bytes:
        return str.encode(self, "latin-1")


async def main(bootstrap: str, topic: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        header = (Latin("größe"), b"1")
        await producer.send_and_wait(topic, b"{}", b"key", partition=0, headers=[header])


asyncio.run(main(*sys.argv[1:]))
