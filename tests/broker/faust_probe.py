"""A Faust worker that reports what it sees: the subject of `test_faust_contract.py`.

Started as `python -m tests.broker.faust_probe '<json>'`, and made as the real worker is: raw bytes,
a no-ack stream, manual commits, its consumer. It appends one JSON line per event to `report`. A
record with a header `commit` = `topic partition offset` is an order to commit exactly that; one
with a header `resume` to let Faust seek and resume so many times while records flow, as it does
where one rebalance follows another.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import faust
from faust.types import TP

from pipeline.faust_ext.consumer import SafeTransport


class Owner:
    """In place of a `FaustApp`, which asks the broker whether a position was lost; none is here."""

    headers_max = 1_000

    def __init__(self, topics: list[str]) -> None:
        self.agents = dict.fromkeys(topics, "watch")

    async def on_out_of_range(self, place: TP, offset: int) -> None:
        pass

    def consumer_crashed(self, error: Exception) -> None:
        pass


def build(order: dict[str, Any]) -> Any:
    """The probe as an app; `order` names app, bootstrap, topics, report, committed_only."""
    report = Path(order["report"])
    received: dict[TP, int] = {}

    def report_event(event: str, **what: Any) -> None:
        with report.open("a") as lines:
            lines.write(json.dumps({"event": event, **what}) + "\n")

    app: Any = faust.App(
        order["app"],
        broker=f"kafka://{order['bootstrap']}",
        web_enabled=False,
        topic_disable_leader=True,
        topic_allow_declare=False,
        stream_wait_empty=False,
        consumer_auto_offset_reset="earliest",
        broker_session_timeout=10,
        broker_heartbeat_interval=2,
        broker_commit_interval=0.5,
        agent_supervisor="mode.CrashingSupervisor",
        **order.get("settings", {}),
    )
    if order["committed_only"]:
        app.owner = Owner(order["topics"])
        app.transport = SafeTransport(app.conf.broker_consumer, app)
    source = app.topic(
        *order["topics"], key_serializer="raw", value_serializer="raw", internal=False
    )

    @app.on_partitions_assigned.connect  # type: ignore[untyped-decorator]
    async def assigned(_app: Any, tps: set[TP], *_: Any, **__: Any) -> None:
        report_event(
            "assigned", tps=sorted(tps), assignor=type(app.consumer._thread._assignor).__name__
        )

    @app.agent(source)  # type: ignore[untyped-decorator]
    async def watch(stream: Any) -> None:
        async for event in stream.noack().events():
            message = event.message
            batches = message.value if order["committed_only"] else [(message.tp, None)]
            for _, batch in batches:
                for record in batch.records if batch is not None else [message]:
                    await report_record(record)

    async def report_record(record: Any) -> None:
        headers = dict(record.headers or {})
        report_event(
            "record",
            tp=[record.topic, record.partition],
            offset=record.offset,
            key=None if record.key is None else record.key.hex(),
            value=None if record.value is None else record.value.hex(),
            headers={name: value.hex() for name, value in headers.items()},
        )
        received[TP(record.topic, record.partition)] = record.offset + 1
        if "resume" in headers:
            app.add_future(resume(int(headers["resume"])))
        if "commit" in headers:
            topic, partition, offset = headers["commit"].decode().split()
            offsets = {TP(topic, int(partition)): int(offset)}
            report_event("committed", answer=await app.consumer._commit_offsets(offsets))

    async def resume(times: int) -> None:
        for _ in range(times):
            await asyncio.sleep(0.02)
            await app.consumer._commit_offsets(dict(received))
            await app.tables.recovery._resume_streams(app.consumer_generation_id)
        report_event("resumed", times=times)

    return app


if __name__ == "__main__":
    faust.Worker(build(json.loads(sys.argv[1])), loglevel="INFO").execute_from_commandline()
