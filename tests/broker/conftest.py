"""One broker for the whole run, chosen by `DTGOL_TEST_BROKER`, and a fresh prefix for every test.

`auto` (the default) takes Docker if an engine answers, else the local Kafka. Where neither can be
had, tests that need real Kafka are skipped on a laptop and fail in CI (`CI` or
`DTGOL_REQUIRE_BROKER=1`). The embedded cluster is used only when asked for, and never as real.
"""

import contextlib
import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from pipeline.brokers import REAL, Broker, NoBrokerError, open_broker
from tests.support.brokers import mark_folder, refuse
from tests.support.containers import open_testcontainer
from tests.support.waiting import wait_until

CHOICE = "DTGOL_TEST_BROKER"

MakeTopics = Callable[[Mapping[str, int]], list[str]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mark_folder(items, __file__)


def open_rung(choice: str) -> AbstractContextManager[Broker]:
    """The ladder as the tests climb it: their Docker rung is Testcontainers."""
    if choice == "docker":
        return open_testcontainer()
    if choice in ("given", "local", "embedded"):
        return open_broker(choice)  # type: ignore[arg-type]
    raise ValueError(f"{CHOICE}={choice}: expected auto, given, docker, local or embedded")


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """The broker of this run; ended with it."""
    choice = os.environ.get(CHOICE) or "auto"
    refusals = []
    with contextlib.ExitStack() as held:
        for kind in REAL if choice == "auto" else [choice]:
            try:
                opened = held.enter_context(open_rung(kind))
            except NoBrokerError as refusal:
                refusals.append(f"{kind}: {refusal}")
            else:
                yield opened
                return
    refuse("; ".join(refusals))


@pytest.fixture(scope="session")
def real_broker(broker: Broker) -> Broker:
    """The same, and surely Apache Kafka: the embedded cluster proves nothing about it."""
    if broker.kind == "embedded":
        refuse("the embedded cluster is not Kafka")
    return broker


@pytest.fixture
def prefix() -> str:
    """A name that no other test has, for topics and groups."""
    return f"test-{uuid.uuid4().hex[:10]}-"


@pytest.fixture
def make_topics(broker: Broker, prefix: str) -> Iterator[MakeTopics]:
    """Create topics by name and partition count under the test's prefix; removed afterwards."""
    admin = AdminClient(broker.config)
    made: list[str] = []

    def make(partitions: Mapping[str, int]) -> list[str]:
        names = [prefix + name for name in partitions]
        if broker.limits.creates_topics:
            wanted = [NewTopic(prefix + name, count) for name, count in partitions.items()]
            for done in admin.create_topics(wanted).values():
                done.result(30)
            made.extend(names)
            # The controller has answered; the broker hears of it a moment later.
            wait_until(lambda: set(names) <= set(admin.list_topics(timeout=10).topics), "topics")
        else:
            _create_by_asking(broker, names)
        return names

    yield make
    if made:
        for done in admin.delete_topics(made).values():
            done.result(30)


def _create_by_asking(broker: Broker, names: list[str]) -> None:
    """The embedded cluster creates a topic for a producer that asks about it."""
    producer = Producer(broker.config)
    for name in names:
        producer.list_topics(name, timeout=10)
