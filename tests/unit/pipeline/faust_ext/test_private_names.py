"""The private names of Faust and aiokafka that `pipeline.faust_ext` uses, where it expects them.

What they do is tested on a real broker (tests/broker); this names at once the one that an upgrade
has moved.
"""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.consumer.fetcher import Fetcher, FetchResult, PartitionRecords
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.consumer.subscription_state import (
    Assignment,
    SubscriptionState,
    TopicPartitionState,
)
from aiokafka.record.default_records import _DefaultRecordBatchPy
from faust.app import App
from faust.tables import TableManager
from faust.transport.conductor import Conductor
from faust.transport.consumer import Consumer, ThreadDelegateConsumer
from faust.transport.consumer import Fetcher as FaustFetcher
from faust.transport.drivers import aiokafka as driver
from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread

USED: list[tuple[Any, list[str]]] = [
    (Fetcher, ["_proc_fetch_request", "_records", "_prefetch_backoff", "MemoryRecords"]),
    (Fetcher, ["_fetch_max_wait_ms", "_fetch_min_bytes"]),
    (_DefaultRecordBatchPy, ["_read_msg", "_buffer", "_pos", "_num_records"]),
    (FetchResult, ["_partition_records", "getall", "_topic_partition", "_assignment"]),
    (PartitionRecords, ["_consumer_record"]),
    (TopicPartitionState, ["_position", "lso", "timestamp", "awaiting_reset"]),
    (Assignment, ["state_value", "tps"]),
    (Fetcher, ["fetched_records", "_subscriptions"]),
    (SubscriptionState, ["reassignment_in_progress"]),
    (AIOKafkaConsumer, ["_subscription", "_fetcher", "_fetch_max_wait_ms", "_isolation_level"]),
    (AIOKafkaConsumerThread, ["_consumer", "_create_worker_consumer", "_ensure_consumer"]),
    (AIOKafkaConsumerThread, ["_commit", "seek_to_committed", "call_thread", "getmany"]),
    (AIOKafkaConsumerThread, ["_fetch_records", "_max_poll_records"]),
    (Consumer, ["_commit_offsets", "_committed_offset", "_drain_messages", "perform_seek"]),
    (Consumer, ["_active_partitions", "resume_partitions", "consumer_stopped_errors"]),
    (Consumer, ["callback", "suspend_flow", "can_resume_flow", "wait_first", "flow_active"]),
    (Consumer, ["stop_flow", "resume_flow", "on_partitions_assigned"]),
    (Fetcher, ["_fetch_task"]),
    (AIOKafkaConsumer, ["_coordinator", "_closed", "seek_to_committed", "seek_to_beginning"]),
    (GroupCoordinator, ["check_errors"]),
    (App, ["consumer_generation_id"]),
    (driver.Consumer, ["_to_message"]),
    (ThreadDelegateConsumer, ["_thread", "_getmany", "_new_consumer_thread"]),
    (FaustFetcher, ["_drain_messages"]),
    (Conductor, ["_tp_to_callback_lock", "_topics"]),
    (TableManager, ["on_start", "sleep"]),
]


@pytest.mark.parametrize(
    ("owner", "name"),
    [(owner, name) for owner, names in USED for name in names],
    ids=lambda each: each if isinstance(each, str) else each.__name__,
)
def test_a_private_name_is_where_it_is_used(owner: Any, name: str) -> None:
    written = "".join(
        inspect.getsource(each)
        for each in owner.__mro__
        if each.__module__.startswith(("faust", "aiokafka"))
    )
    assert re.search(rf"\b{name}\b", written)
