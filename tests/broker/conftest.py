"""One broker for the whole run, chosen by `DTGOL_TEST_BROKER`, and a fresh prefix for every test.

With `pytest -n`, the broker is started once, before the first of the test processes, and they share
it: topics and groups carry the prefix of their test.


`auto` (the default) takes Docker if an engine answers, else the local Kafka. Where neither can be
had, tests that need real Kafka are skipped on a laptop and fail in CI (`CI` or
`DTGOL_REQUIRE_BROKER=1`). The embedded cluster is used only when asked for, and never as real.
"""

import contextlib
import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from pipeline.sandbox.brokers import REAL, Broker, NoBrokerError, open_broker
from tests.support.brokers import mark_folder
from tests.support.containers import open_testcontainer
from tests.support.waiting import wait_until

CHOICE = "DTGOL_TEST_BROKER"
SHARED: pytest.StashKey[dict[str, str]] = pytest.StashKey()
STACK: pytest.StashKey[contextlib.ExitStack] = pytest.StashKey()

MakeTopics = Callable[[Mapping[str, int]], list[str]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mark_folder(items, __file__)


def open_kind(choice: str) -> AbstractContextManager[Broker]:
    """A broker of a kind; the Docker kind of the tests is started by Testcontainers."""
    if choice == "docker":
        return open_testcontainer()
    if choice in ("given", "local", "embedded"):
        return open_broker(choice)  # type: ignore[arg-type]
    raise ValueError(f"{CHOICE}={choice}: expected auto, given, docker, local or embedded")


def open_first(stack: contextlib.ExitStack) -> Broker | str:
    """The broker that was chosen, for as long as the stack is open; or why there is none."""
    choice = os.environ.get(CHOICE) or "auto"
    refusals = []
    for kind in REAL if choice == "auto" else [choice]:
        try:
            return stack.enter_context(open_kind(kind))
        except NoBrokerError as refusal:
            refusals.append(f"{kind}: {refusal}")
    return "; ".join(refusals)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Before each test process of xdist starts: start the broker once, pass its address on."""
    stash = node.config.stash
    if SHARED not in stash:
        stack = stash[STACK] = contextlib.ExitStack()
        opened = open_first(stack)
        plain = ("bootstrap", "kind", "version")
        about = {} if isinstance(opened, str) else {name: getattr(opened, name) for name in plain}
        stash[SHARED] = about or {"refusal": opened}
    node.workerinput["broker"] = stash[SHARED]


def pytest_unconfigure(config: pytest.Config) -> None:
    """In the process that started it: end the shared broker."""
    if STACK in config.stash:
        config.stash[STACK].close()


@pytest.fixture(scope="session")
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """The broker of this run; ended with it."""
    shared = getattr(request.config, "workerinput", {}).get("broker")
    with contextlib.ExitStack() as stack:
        opened: Broker | str
        if shared is None or shared.get("kind") in ("given", "embedded"):
            opened = open_first(stack)
        else:
            opened = shared["refusal"] if "refusal" in shared else Broker(**shared)
        if isinstance(opened, str):
            pytest.skip(opened)
        yield opened


@pytest.fixture(scope="session")
def real_broker(broker: Broker) -> Broker:
    """The same, and surely Apache Kafka: the embedded cluster proves nothing about it."""
    if broker.kind == "embedded":
        pytest.skip("the embedded cluster is not Kafka")
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
            # The controller has answered; the broker knows of it a moment later.
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
