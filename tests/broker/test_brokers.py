"""Every kind of broker: it starts, answers, carries records, and is gone afterwards."""

import os
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from pipeline.sandbox.brokers import Broker, ClusterConfig, LocalCluster, NoBrokerError, open_broker
from pipeline.sandbox.brokers.container import require_engine
from pipeline.sandbox.brokers.process import SupervisedProcess, free_ports
from pipeline.sandbox.brokers.server_properties import PLAINTEXT, Listener
from tests.support.containers import open_testcontainer
from tests.support.proxy import Cut, Proxy
from tests.support.waiting import wait_until

# What a killed owner leaves behind is looked for from outside, by address and by path.
OWNER = """
import sys, time
from tests.broker.test_brokers import NoBrokerError, open_any
try:
    with open_any(sys.argv[1]) as broker:
        sys.stdout.write(f"{broker.bootstrap} {broker.log_path}\\n")
        sys.stdout.flush()
        time.sleep(300)
except NoBrokerError as refusal:
    sys.exit(str(refusal))
"""


def kinds() -> list[str]:
    """Those of Docker where an engine answers; what a run has left out, its list of tests shows."""
    try:
        require_engine()
    except NoBrokerError:
        return ["embedded", "local"]
    return ["embedded", "local", "docker", "testcontainers"]


KINDS = kinds()


def open_any(kind: str) -> AbstractContextManager[Broker]:
    if kind == "testcontainers":
        return open_testcontainer()
    return open_broker(kind)  # type: ignore[arg-type]


@contextmanager
def had(kind: str) -> Iterator[Broker]:
    """A broker, or a skip."""
    try:
        with open_any(kind) as broker:
            yield broker
    except NoBrokerError as refusal:
        pytest.skip(str(refusal))


def answers(bootstrap: str) -> bool:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    try:
        return bool(admin.list_topics(timeout=2).brokers)
    except KafkaException:
        return False


def carry(broker: Broker, count: int = 20) -> list[bytes | None]:
    """Send and read back, with a group: what a broker is for."""
    topic = f"carry-{uuid.uuid4().hex[:8]}"
    if broker.limits.creates_topics:
        admin = AdminClient(broker.config)
        admin.create_topics([NewTopic(topic, 1)])[topic].result(30)
    producer = Producer(broker.config)
    for number in range(count):
        producer.produce(topic, str(number).encode(), partition=0)
    assert producer.flush(30) == 0
    group = {"group.id": topic, "auto.offset.reset": "earliest"}
    consumer = Consumer({**broker.config, **group})
    consumer.subscribe([topic])
    seen: list[bytes | None] = []

    def all_read() -> bool:
        seen.extend(each.value() for each in consumer.consume(count, 0.5) if not each.error())
        return len(seen) >= count

    wait_until(all_read, "all records read back")
    consumer.close()
    return seen


@pytest.mark.parametrize("kind", KINDS)
def test_a_broker_carries_records_and_is_gone_afterwards(kind: str) -> None:
    with had(kind) as broker:
        assert broker.kind == ("docker" if kind == "testcontainers" else kind)
        assert carry(broker) == [str(number).encode() for number in range(20)]
    assert not answers(broker.bootstrap)
    assert broker.log_path is None or not broker.log_path.parent.exists()


@pytest.mark.parametrize("kind", KINDS)
def test_a_broker_ends_with_an_owner_that_is_killed(kind: str) -> None:
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", OWNER, kind]
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as owner:
        assert owner.stdout is not None
        assert owner.stderr is not None
        first_line = owner.stdout.readline()
        if not first_line:
            pytest.skip(owner.stderr.read())
        bootstrap, log_path = first_line.split()
        assert answers(bootstrap)
        owner.kill()
    wait_until(lambda: not answers(bootstrap), "the broker is gone", 30)
    if log_path != "None":
        wait_until(lambda: not Path(log_path).parent.exists(), "its folder is gone", 30)


def test_a_program_ends_with_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    if sys.platform != "linux":
        pytest.skip("only Linux kills a child for its parent's death")
    with SupervisedProcess(["sleep", "300"], tmp_path / "log") as program:
        os.kill(program._supervisor.pid, signal.SIGKILL)
        wait_until(lambda: _is_over(program.pid), "the program is gone", 10)


def test_program_that_cannot_start_is_a_refusal(tmp_path: Path) -> None:
    with pytest.raises(NoBrokerError, match="no-such-program"):
        SupervisedProcess(["no-such-program"], tmp_path / "log")


def test_given_cluster_is_used_as_it_is(
    real_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", real_broker.bootstrap)
    with open_broker("given") as broker:
        assert (broker.kind, broker.bootstrap) == ("given", real_broker.bootstrap)
    assert answers(real_broker.bootstrap), "a given cluster is not ours to end"


def test_auto_never_takes_a_given_cluster_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    with open_broker("auto", kinds=["embedded"]) as broker:
        assert broker.kind == "embedded"


def test_auto_says_every_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KAFKA_BOOTSTRAP_SERVERS", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with (
        pytest.raises(NoBrokerError, match=r"given: .*docker: .*local: .*Java"),
        open_broker("auto", kinds=["given", "docker", "local"]),
    ):
        pass


def test_security_settings_stay_out_of_the_text() -> None:
    broker = Broker("somewhere:9093", "given", "", client={"sasl.password": "hush"})
    assert "hush" not in repr(broker)
    assert broker.config["sasl.password"] == "hush"


@pytest.mark.parametrize(
    ("name", "value"), [("log.retention.hours", "never"), ("metric.reporters", "no.such.Reporter")]
)
def test_broken_broker_shows_its_log(name: str, value: str) -> None:
    """The first is refused while formatting, the second by the server itself."""
    try:
        cluster = LocalCluster(ClusterConfig(properties={name: value}))
    except NoBrokerError as refusal:
        pytest.skip(str(refusal))
    with pytest.raises(NoBrokerError, match=value), cluster:
        pass
    assert not cluster.home.exists()


def test_port_that_was_taken_meanwhile_is_not_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        answers_in_turn = iter([[*free_ports(1), taken.getsockname()[1]], free_ports(2)])
        monkeypatch.setattr(
            "pipeline.sandbox.brokers.local.free_ports", lambda _: next(answers_in_turn)
        )
        with had("local") as broker:
            assert answers(broker.bootstrap)


def test_three_nodes_outlive_one_and_take_it_back() -> None:
    try:
        cluster = LocalCluster(ClusterConfig(nodes=3))
    except NoBrokerError as refusal:
        pytest.skip(str(refusal))
    with cluster:
        topic = "replicated"
        config = cluster.broker.config
        admin = AdminClient(config)
        admin.create_topics([NewTopic(topic, 1, 3)])[topic].result(30)
        wait_until(lambda: len(in_sync(admin, topic)) == 3, "three copies")
        leader = in_sync(admin, topic)[0]
        cluster.kill(leader)
        producer = Producer(config)
        producer.produce(topic, b"while one is away", partition=0)
        assert producer.flush(60) == 0
        cluster.start(leader, {"log.cleaner.threads": "2"})
        wait_until(lambda: len(in_sync(admin, topic)) == 3, "three copies again")
        cluster.stop(leader)
        assert carry(cluster.broker, 5), "two of three go on"


@pytest.mark.parametrize("how", ["closed", "stalled"])
def test_who_comes_by_an_advertised_proxy_can_be_cut_off_and_others_not(how: Cut) -> None:
    with Proxy() as proxy:
        listeners = (PLAINTEXT, Listener("PROXIED", "PLAINTEXT", (proxy.port,)))
        try:
            cluster = LocalCluster(ClusterConfig(listeners=listeners, heap_mb=256))
        except NoBrokerError as refusal:
            pytest.skip(str(refusal))
        with cluster:
            proxy.lead_to(cluster.port(1, "PROXIED"))
            cut_off = cluster.bootstrap("PROXIED")
            assert cut_off == f"127.0.0.1:{proxy.port}"
            known = AdminClient({"bootstrap.servers": cut_off}).list_topics(timeout=30)
            assert [each.port for each in known.brokers.values()] == [proxy.port]
            open_before = Producer({"bootstrap.servers": cut_off, "log_level": 0})
            open_before.list_topics(timeout=30)
            proxy.cut(how)
            assert not answers(cut_off)
            assert answers(cluster.bootstrap())
            with pytest.raises(KafkaException):
                open_before.list_topics(timeout=1)
            proxy.heal()
            wait_until(lambda: answers(cut_off), "the healed network")
            assert open_before.list_topics(timeout=30).brokers


def in_sync(admin: AdminClient, topic: str) -> list[int]:
    """The nodes that hold partition 0, its leader first; none while nobody answers."""
    try:
        partition = admin.list_topics(topic, 5).topics[topic].partitions.get(0)
    except KafkaException:
        return []
    if partition is None or partition.leader < 0:
        return []
    return sorted(partition.isrs, key=lambda node: node != partition.leader)


def _is_over(pid: int) -> bool:
    """Gone, or a zombie that nobody has collected yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True
