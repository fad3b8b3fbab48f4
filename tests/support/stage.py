"""A pipeline on a broker, for one test: its topics and processes, what went in, what came out."""

from __future__ import annotations

import contextlib
import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import orjson
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from pipeline.kafka.record import Record
from pipeline.kafka.topic_admin import apply
from pipeline.learning.fold import Fold
from pipeline.learning.outputs import Output, PartitionRef
from pipeline.learning.poison import CrashLog
from pipeline.sandbox.brokers import Broker
from tests.support.forkserver import running
from tests.support.waiting import wait_until
from topics.catalog import CATALOG, desired_topics
from topics.dead_letters import DeadLetter, is_marker
from topics.headers import Header, read_headers
from topics.reasons import Rejection

QUEUE_MAX = 50_000
"""Half of what librdkafka holds: a long backlog is sent as fast as the broker takes it."""
READ_S = 30.0
LEADERLESS = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError._UNKNOWN_PARTITION,
)
WEB = re.compile(r"web: (http://\S+)")


@dataclass
class Process:
    """A worker or an evaluator that runs."""

    child: Any
    log_path: Path
    _url: str = ""

    @property
    def url(self) -> str:
        """The address of its pages; empty until it is in its log.

        The system chooses the port: one chosen beforehand may be taken when it is wanted.
        """
        if not self._url:
            found = WEB.search(self.log_path.read_text(errors="replace"))
            self._url = found[1] if found else ""
        return self._url

    def alive(self) -> bool:
        return self.child.poll() is None

    def get(self, path: str, token: str | None = None) -> tuple[int, str]:
        """Status code and body of a page; 0 if nobody answers."""
        if not self.url:
            return 0, ""
        request = urllib.request.Request(self.url + path)
        if token is not None:
            request.add_header("Authorization", f"Bearer {token}")
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def status(self) -> dict[str, Any]:
        _, body = self.get("/status")
        found: dict[str, Any] = json.loads(body)
        return found

    def await_ready(self, partitions: int | None = None) -> None:
        """Until it is ready, with that many partitions if a number is given."""

        def ready() -> bool:
            code, _ = self.get("/readyz")
            return code == 200 and (
                partitions is None or len(self.status()["partitions"]) == partitions
            )

        wait_until(ready, f"{self.log_path.name} to be ready", 90, self.alive)


@dataclass
class Stage:
    """Topics under one prefix, and everything that is done with them."""

    broker: Broker
    prefix: str
    folder: Path
    partitions: int = 2
    config: str = ""
    replication: int = 1
    settings: Mapping[str, object] = field(default_factory=dict)
    sent: int = 0
    started: int = 0
    _producer: Any = field(default=None, repr=False)

    def __post_init__(self) -> None:
        names = [self.topic(each.name) for each in CATALOG]
        if self.broker.limits.creates_topics:
            apply(
                AdminClient(self.broker.config),
                desired_topics(self.prefix, self.partitions, self.replication),
            )
        else:
            self.partitions = self.broker.limits.partitions_max or self.partitions
            asking = Producer(self.broker.config)
            for name in names:
                asking.list_topics(name, timeout=10)
        settings = {
            "partitioner": "murmur2_random",
            "enable.idempotence": True,
            "linger.ms": 1,
            "message.timeout.ms": 0,  # an input that the producer gave up proves nothing
        }
        self._producer = Producer({**self.broker.config, **settings})
        (self.folder / "dtgol.toml").write_text(self.config)

    def topic(self, name: str) -> str:
        return self.prefix + name

    def send(
        self,
        name: str,
        value: bytes | None,
        key: bytes | None = b"key",
        headers: Sequence[Header] = (),
        partition: int = -1,
        timestamp_ms: int = 0,
    ) -> None:
        """One record, as any producer would send it."""
        while len(self._producer) >= QUEUE_MAX:
            self._producer.poll(0.05)
        self._producer.produce(
            self.topic(name),
            value=value,
            key=key,
            headers=list(headers),
            partition=partition,
            timestamp=timestamp_ms,
        )
        self._producer.poll(0)
        self.sent += 1

    def features(self, id: Any, x: Mapping[str, Any], key: str = "key", **more: Any) -> None:
        self.send("features", orjson.dumps({"id": id, "x": x, **more}), key.encode())

    def label(self, id: Any, y: Any, key: str = "key", **more: Any) -> None:
        self.send("labels", orjson.dumps({"id": id, "y": y, **more}), key.encode())

    def flush(self) -> None:
        assert self._producer.flush(30) == 0

    @contextlib.contextmanager
    def process(
        self,
        role: str,
        *more: str,
        config: str | None = None,
        entry: Sequence[str] = ("pipeline",),
    ) -> Iterator[Process]:
        """A worker or evaluator for the length of the block, with short timeouts.

        `entry` is the module that is run, with arguments of its own in front.
        """
        self.started += 1
        path = self.folder / "dtgol.toml"
        if config is not None:
            path = self.folder / f"dtgol-{self.started}.toml"
            path.write_text(config)
        log_path = self.folder / f"{role}-{self.started}.log"
        module, *before = entry
        arguments = [*before, *self.command(role, path, *more)]
        with running(module, arguments, log_path) as child:
            yield Process(child, log_path)

    def chosen(self) -> dict[str, object]:
        """The settings of every process here: short timeouts, then what the test wants."""
        return {
            "kafka.session_timeout_ms": 6000,
            "kafka.heartbeat_ms": 1000,
            "snapshots.store": self.broker.limits.snapshot_store,
            "snapshots.directory": self.folder / "snapshots",
            "snapshots.every_records": 50,
            "snapshots.every_ms": 1000,
            "worker.commit_ms": 200,
            "worker.merge_wait_ms": 5000,
            **self.settings,
        }

    def command(self, role: str, path: Path | None = None, *more: str) -> list[str]:
        """The arguments of `dtgol` that start a process here."""
        options = [f"--set={key}={value}" for key, value in self.chosen().items()]
        config = str(path or self.folder / "dtgol.toml")
        return [
            *(role, "--bootstrap", self.broker.bootstrap, "--prefix", self.prefix),
            *("--web-port", "0", "--config", config),
            *options,
            *more,
        ]

    def worker(
        self, *more: str, config: str | None = None, entry: Sequence[str] = ("pipeline",)
    ) -> Any:
        return self.process("worker", *more, config=config, entry=entry)

    def evaluator(self, *more: str) -> Any:
        return self.process("evaluator", *more)

    def read(self, name: str) -> list[Record]:
        """Everything that is on a topic now, partition by partition.

        By a consumer of its own: the tests do not trust the reader that they test.
        """
        settings = {
            "group.id": "test-reader",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
        consumer = Consumer({**self.broker.config, **settings})
        try:
            return _read_all(consumer, self.topic(name), self.partitions)
        finally:
            consumer.close()

    def predictions(self) -> list[dict[str, Any]]:
        return [orjson.loads(record.value or b"") for record in self.read("predictions")]

    def scores(self) -> list[dict[str, Any]]:
        return [orjson.loads(record.value or b"") for record in self.read("scores")]

    def letters(self) -> list[tuple[DeadLetter, Record]]:
        """The dead letters, with their headers read; markers of redriven ones are left out."""
        found = []
        for record in self.read("dead-letters"):
            if is_marker(record.headers):
                continue
            letter = read_headers(DeadLetter, record.headers)
            assert not isinstance(letter, Rejection), letter
            found.append((letter, record))
        return found

    def await_answers(
        self, ids: set[str], process: Process | None = None, limit_s: float = 90
    ) -> None:
        """Until every id has been answered."""
        alive = process.alive if process is not None else None

        def all_there() -> bool:
            return ids <= {prediction["id"] for prediction in self.predictions()}

        wait_until(all_there, f"{len(ids)} answers", limit_s, alive)

    def offline(self) -> tuple[list[Fold], dict[tuple[int, int], Output]]:
        """The journal folded here: the states, and the one prediction of each identity."""
        journal = self.topic("journal")
        folds, predictions = [], {}
        journal_id = self.predictions()[0]["at"]["journal"]
        by_partition: dict[int, list[Record]] = {n: [] for n in range(self.partitions)}
        for record in self.read("journal"):
            by_partition[record.partition].append(record)
        for number, records in by_partition.items():
            ref = PartitionRef(
                journal_id, journal, number, self.topic("features"), self.topic("labels")
            )
            fold = Fold(ref, skips=CrashLog.of(records).skips)
            for record in records:
                for output in fold.apply(record):
                    if output.topic == "predictions":
                        predictions[number, record.offset] = output
            folds.append(fold)
        return folds, predictions

    def verify(self) -> list[Fold]:
        """Every prediction has the bytes that the journal gives, and none is missing."""
        folds, expected = self.offline()
        found: set[tuple[int, int]] = set()
        for record in self.read("predictions"):
            at = orjson.loads(record.value or b"")["at"]
            identity = at["partition"], at["offset"]
            assert record.partition == at["partition"]
            assert record.value == expected[identity].value, identity
            assert record.key == expected[identity].key
            found.add(identity)
        assert found == set(expected)
        return folds


def _watermarks(consumer: Consumer, place: TopicPartition) -> tuple[int, ...]:
    """Empty while the partition has no leader that knows it: a moment after it was created."""
    try:
        return tuple(consumer.get_watermark_offsets(place, timeout=READ_S))
    except KafkaException as error:
        if error.args[0].code() not in LEADERLESS:
            raise
        return ()


def _read_all(consumer: Consumer, topic: str, partitions: int) -> list[Record]:
    places = [TopicPartition(topic, number) for number in range(partitions)]
    ends = {}
    for place in places:
        low_and_high = wait_until(
            partial(_watermarks, consumer, place), f"a leader of {topic}", READ_S
        )
        place.offset, ends[place.partition] = low_and_high
    left = [place for place in places if place.offset < ends[place.partition]]
    found: dict[int, list[Record]] = {number: [] for number in range(partitions)}
    consumer.assign(left)
    until = time.monotonic() + READ_S
    while left:
        for message in consumer.consume(1000, 0.05):
            if message.error() is None:
                record = Record.from_confluent(message)
                found[record.partition].append(record)
                until = time.monotonic() + READ_S  # a long topic may take long, while it comes
        left = [at for at in consumer.position(left) if at.offset < ends[at.partition]]
        if time.monotonic() > until:
            raise AssertionError(f"{topic}: {left} not read to the end in {READ_S:g} s")
    return [record for number in sorted(found) for record in found[number]]
