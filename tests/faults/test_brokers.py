"""Brokers that are restarted, killed or stalled, and a network that is cut, under load.

The evaluator runs beside the workers in every trial and is checked too. Outages are counted in
records that the load goes on sending (they wait in its producer), so they are as long as the flow
is slow; the timeouts are so short that each outage outlasts every one that it is meant to.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from pipeline.sandbox.brokers import ClusterConfig, LocalCluster, NoBrokerError
from tests.faults.conftest import PROPERTIES, Trials
from tests.faults.load import Flow
from tests.faults.trial import Plan, Trial
from tests.support.proxy import Cut, Proxy
from tests.support.waiting import wait_until

REQUEST_MS = 5_000
"""The least that may be set: every request, and every snapshot, is given up after so long."""
SHORT_TIMEOUTS: dict[str, object] = {
    "kafka.request_timeout_ms": REQUEST_MS,
    "kafka.rebalance_timeout_ms": 6_000,
}
PER_S = 60
STALL_RECORDS = PER_S * 3 * REQUEST_MS // 1000
"""Three times the timeout of a request, five times that of a silent member."""


def plan(fault: str, replication: int = 1) -> Plan:
    return Plan(
        fault,
        workers=2,
        evaluators=1,
        partitions=2,
        replication=replication,
        flow=Flow(per_s=PER_S),
        settings=SHORT_TIMEOUTS,
    )


def over(trial: Trial) -> None:
    """The outage has ended: count it, and wait until everybody is back at work."""
    trial.count()
    for role in trial.plan.roles:
        trial.hit(role=role)
    for role in trial.plan.roles:
        trial.await_whole(role)


@pytest.mark.parametrize("how", ["stopped", "kill -9"])
def test_the_broker_is_restarted(trials: Trials, cluster: LocalCluster, how: str) -> None:
    with trials.open(plan(f"broker {how}, started again")) as trial:
        for _ in range(trials.rounds(1, 4)):
            trial.moment()
            (cluster.stop if how == "stopped" else cluster.kill)(1)
            trial.moment()
            cluster.start(1)
            over(trial)


def test_the_broker_stalls_longer_than_any_patience(trials: Trials, cluster: LocalCluster) -> None:
    with trials.open(plan("broker stalls for 15 s")) as trial:
        for _ in range(trials.rounds(1, 4)):
            trial.moment()
            cluster.signal(1, signal.SIGSTOP)
            try:
                trial.load.more(STALL_RECORDS)
            finally:
                cluster.signal(1, signal.SIGCONT)
            over(trial)


@pytest.fixture(scope="module")
def three() -> Iterator[LocalCluster]:
    """Three small brokers; topics and groups survive the loss of any one."""
    try:
        with LocalCluster(ClusterConfig(nodes=3, heap_mb=256, properties=PROPERTIES)) as opened:
            yield opened
    except NoBrokerError as refusal:
        pytest.skip(f"local: {refusal}")


def test_one_of_three_brokers_is_killed_and_comes_back(trials: Trials, three: LocalCluster) -> None:
    with trials.open(plan("one of three brokers kill -9", 3), broker=three.broker) as trial:
        for _ in range(trials.rounds(1, 2)):
            for node in trial.chance.sample([1, 2, 3], trials.rounds(2, 3)):
                trial.moment()
                three.kill(node)
                trial.hit()
                trial.moment(60, 120)
                three.start(node)
                wait_until(lambda: all_in_sync(three), "three copies again", 120)
                over(trial)


def all_in_sync(cluster: LocalCluster) -> bool:
    """Whether every copy of every partition keeps up: only then may the next broker go."""
    admin = AdminClient(cluster.broker.config)
    try:
        topics = admin.list_topics(timeout=10).topics.values()
    except KafkaException:
        return False
    partitions = [each for topic in topics for each in topic.partitions.values()]
    return all(len(each.isrs) == len(each.replicas) for each in partitions)


@pytest.mark.parametrize("how", ["closed", "stalled"])
def test_the_network_of_the_only_worker_is_cut(
    trials: Trials, cluster: LocalCluster, proxy: Proxy, how: Cut
) -> None:
    with trials.open(plan(f"network cut ({how}) for the workers")) as trial:
        inside = trial.processes.of("worker")
        trial.processes.start("worker", "--bootstrap", cluster.bootstrap("PROXIED"))
        for member in inside:
            assert trial.processes.end(member) == 0
        trial.await_whole()
        for _ in range(trials.rounds(1, 4)):
            trial.moment()
            proxy.cut(how)
            try:
                trial.load.more(STALL_RECORDS if how == "stalled" else STALL_RECORDS // 2)
            finally:
                proxy.heal()
            over(trial)


def test_one_of_two_workers_is_cut_off_and_comes_back_as_a_zombie(
    trials: Trials, cluster: LocalCluster, proxy: Proxy
) -> None:
    with trials.open(plan("network cut for one of two workers")) as trial:
        outside = trial.processes.start("worker", "--bootstrap", cluster.bootstrap("PROXIED"))
        inside, leaves, _ = trial.processes.of("worker")
        assert trial.processes.end(leaves) == 0
        trial.await_whole()
        for _ in range(trials.rounds(1, 4)):
            trial.moment()
            owned = set(outside.partitions)
            proxy.cut("stalled")
            try:
                trial.hit(owned)
                wait_until(lambda: len(inside.partitions) == 2, "a take-over", 120)
                trial.moment()
            finally:
                proxy.heal()
            over(trial)
