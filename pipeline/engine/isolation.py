"""Read committed records only: Faust's consumer, told to leave aborted transactions out.

Faust asks for `read_uncommitted` unless the app itself is exactly-once, and has no setting for it.
The level is set on the aiokafka consumer after Faust has built it and before it starts; nothing
else of the driver is touched. `tests/broker/test_faust_contract.py` watches the names used here.
"""

from __future__ import annotations

from typing import Any

from faust.transport.drivers import aiokafka as driver


class CommittedThread(driver.AIOKafkaConsumerThread):
    def _create_worker_consumer(self, transport: Any) -> Any:
        consumer = super()._create_worker_consumer(transport)
        assert hasattr(consumer, "_isolation_level"), "aiokafka has moved its isolation level"
        consumer._isolation_level = "read_committed"
        return consumer


class CommittedConsumer(driver.Consumer):
    def _new_consumer_thread(self) -> CommittedThread:
        return CommittedThread(self, loop=self.loop, beacon=self.beacon)


class CommittedTransport(driver.Transport):
    Consumer = CommittedConsumer
