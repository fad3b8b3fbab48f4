"""A Faust agent that only echoes features and labels: what the throughput of a worker is beside.

``python -m benchmarks.echo KIND PREFIX BOOTSTRAP``; raw bytes, headers and partition are kept.
``librdkafka`` and ``send`` are Faust as it comes, with either way to send; ``batches`` is the
librdkafka one behind this project's own consumer, which is as much as a worker could ever do;
``confluent`` has no Faust at all: a consumer and a producer of librdkafka.
"""

import os
import sys
from typing import Any

import faust
from confluent_kafka import Consumer, Producer

from pipeline.cli.options import set_up_logging
from pipeline.faust_ext.app import FaustApp, faust_credentials
from pipeline.kafka.auth import Security
from pipeline.settings import Settings, read_settings

LOG_LEVEL = "WARNING"
PRODUCER = {"enable.idempotence": True, "linger.ms": 5}


class Echo:
    """Sends what it is given to the predictions topic, as the worker's outbox would."""

    def __init__(self, settings: Settings, security: Security) -> None:
        self._topic = settings.topic("predictions")
        self._producer = Producer({**security.librdkafka(), **PRODUCER})

    def send(self, message: Any) -> None:
        headers, where = list(message.headers or []), message.partition
        self._producer.produce(self._topic, message.value, message.key, where, headers=headers)
        self._producer.poll(0)


def our_app(settings: Settings, security: Security) -> FaustApp:
    """This project's app with one agent that echoes."""
    app, echo = FaustApp(settings, security, "echo"), Echo(settings, security)

    async def by_batches(stream: Any) -> None:
        async for batches in app.batches(stream):
            for _, batch in batches:
                for record in batch.records:
                    echo.send(record)

    async def nothing_lost(*_: Any) -> None:
        """A seek to the beginning while a fetch is under way looks like a lost position too."""

    sources = [settings.topic("features"), settings.topic("labels")]
    app.add_agent("echo", sources, by_batches)
    app.on_out_of_range = nothing_lost
    return app


def plain_app(kind: str, settings: Settings, security: Security) -> Any:
    """Faust as it comes, with one agent that echoes."""
    echo = Echo(settings, security)
    app: Any = faust.App(
        settings.group("echo"),
        broker=[f"kafka://{address}" for address in security.bootstrap.split(",")],
        broker_credentials=faust_credentials(security),
        consumer_auto_offset_reset="earliest",
        topic_allow_declare=False,
        topic_disable_leader=True,
        web_enabled=False,
        datadir=os.environ.get("TMPDIR", "/tmp"),
    )

    def raw(*names: str) -> Any:
        full = (settings.topic(name) for name in names)
        return app.topic(*full, key_serializer="raw", value_serializer="raw", internal=False)

    out = raw("predictions")

    async def by_librdkafka(stream: Any) -> None:
        async for event in stream.events():
            echo.send(event.message)

    async def by_send(stream: Any) -> None:
        async for event in stream.events():
            message = event.message
            headers, where = message.headers, message.partition
            await out.send(key=message.key, value=message.value, partition=where, headers=headers)

    agents = {"librdkafka": by_librdkafka, "send": by_send}
    app.agent(raw("features", "labels"))(agents[kind])
    return app


def run_confluent(settings: Settings, security: Security) -> None:
    """Consume and produce until a signal ends it."""
    own = {"group.id": settings.group("echo"), "auto.offset.reset": "earliest"}
    consumer = Consumer({**security.librdkafka(), **own})
    consumer.subscribe([settings.topic("features"), settings.topic("labels")])
    producer, topic = Producer({**security.librdkafka(), **PRODUCER}), settings.topic("predictions")
    while True:
        for message in consumer.consume(500, 0.05):
            if message.error() is None:
                headers: Any = message.headers() or []
                where: Any = message.partition()
                producer.produce(topic, message.value(), message.key(), where, headers=headers)
        producer.poll(0)


def main() -> None:
    kind, prefix, bootstrap = sys.argv[1:4]
    given = {"kafka.prefix": prefix, "kafka.bootstrap_servers": bootstrap}
    settings = read_settings(os.environ, None, given)
    security = Security.of(settings)
    set_up_logging(LOG_LEVEL)
    if kind == "confluent":
        run_confluent(settings, security)
    elif kind == "batches":
        our_app(settings, security).run(LOG_LEVEL)
    else:
        faust.Worker(
            plain_app(kind, settings, security),
            quiet=True,
            redirect_stdouts=False,
            override_logging=False,
            daemon=True,
            workdir=os.getcwd(),
            loglevel=LOG_LEVEL,
        ).execute_from_commandline()


if __name__ == "__main__":
    main()
