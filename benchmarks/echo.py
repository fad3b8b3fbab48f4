"""A Faust agent that only echoes features and labels: what the throughput of a worker is beside.

``python -m benchmarks.echo KIND PREFIX BOOTSTRAP``; raw bytes, headers and partition are kept.
``librdkafka`` and ``send`` are Faust as it comes, with either way to send; ``bursts`` is the
librdkafka one behind this project's own consumer, which is as much as a worker could ever do.
"""

import os
import sys
from typing import Any

import faust
from confluent_kafka import Producer

from pipeline.access.credentials import faust_credentials
from pipeline.access.security import Security
from pipeline.cli.process import run_app, set_up_logging
from pipeline.engine.faustapp import bursts, make_app, raw_topic
from pipeline.settings import read_settings


def echo_app(kind: str, prefix: str, bootstrap: str) -> Any:
    """The app with its one agent."""
    given = {"kafka.prefix": prefix, "kafka.bootstrap_servers": bootstrap}
    settings = read_settings(os.environ, None, given)
    security = Security.of(settings)
    app: Any
    if kind == "bursts":
        app = make_app(settings, security, "echo")
    else:
        app = faust.App(
            settings.group("echo"),
            broker=[f"kafka://{address}" for address in bootstrap.split(",")],
            broker_credentials=faust_credentials(security),
            consumer_auto_offset_reset="earliest",
            topic_allow_declare=False,
            topic_disable_leader=True,
            web_enabled=False,
            datadir=os.environ.get("TMPDIR", "/tmp"),
        )
    sources = raw_topic(app, settings.topic("features"), settings.topic("labels"))
    out = raw_topic(app, settings.topic("predictions"))
    # As the worker's outbox has it.
    producer = Producer({**security.librdkafka(), "enable.idempotence": True, "linger.ms": 5})

    def echo(message: Any) -> None:
        headers, where = list(message.headers or []), message.partition
        producer.produce(out.topics[0], message.value, message.key, where, headers=headers)
        producer.poll(0)

    async def by_librdkafka(stream: Any) -> None:
        async for event in stream.events():
            echo(event.message)

    async def by_send(stream: Any) -> None:
        async for event in stream.events():
            message = event.message
            headers, where = message.headers, message.partition
            await out.send(key=message.key, value=message.value, partition=where, headers=headers)

    async def by_bursts(stream: Any) -> None:
        async for messages in bursts(app, stream):
            for message in messages:
                echo(message)

    app.agent(sources)({"librdkafka": by_librdkafka, "send": by_send, "bursts": by_bursts}[kind])
    return app


def main() -> None:
    set_up_logging("WARNING")
    run_app(echo_app(*sys.argv[1:4]), "WARNING")


if __name__ == "__main__":
    main()
