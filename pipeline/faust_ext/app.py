"""A Faust app as this project uses it.

Raw bytes, no acks, commits by hand, co-partitioning on, committed records only; an agent that
raises ends the process. Everything that is asked of Faust goes through `FaustApp` and
`PartitionFlow`; `tests/unit/pipeline/faust_ext` checks the private names that they use.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any

import faust
from aiokafka.abc import AbstractTokenProvider
from faust.tables import TableManager
from faust.transport.drivers.aiokafka import credentials_to_aiokafka_auth
from faust.types import TP

from pipeline.errors import FAILED, exit_if_known, exit_now, exit_on_error
from pipeline.faust_ext.consumer import Batches, SafeTransport
from pipeline.faust_ext.fetching import NO_RIGHTS
from pipeline.faust_ext.flow import PartitionFlow
from pipeline.faust_ext.source_reader import SourceReader
from pipeline.kafka.auth import Security
from pipeline.kafka.clients import SEE_RIGHTS
from pipeline.settings import Settings
from topics.journal import SOURCE_HEADERS_MAX

log = logging.getLogger(__name__)

GC_THRESHOLDS = 2_000, 2, 100
"""Objects before a collection of the youngest, and how many of these before one of the older: with
Python's 700 a burst of records is many of them. Hardly anything here is in a cycle. With 10,000 and
10 a collection of the second generation held the event loop 20 ms while 1,000 streams were saved.
"""
SWITCH_S = 0.001
"""How long a thread may run while another one waits; Python's own is 5 ms. The consumer's thread
needs the interpreter several times for each fetch. Seen at 480 pairs/s on a busy machine, two turns
each: p99 169 and 36 ms with 5 ms, 99 and 29 with this; at half load no difference beyond noise."""
POLL_RECORDS = 500
BUFFER_TURNS = 16
"""What so many turns of the fetcher have brought may wait for an agent, which takes it as soon as
it runs."""


class NoTables(TableManager):
    """Faust waits a second at every start for tables to be declared; there are none."""

    async def sleep(self, n: Any) -> None:
        """Let others run."""
        await asyncio.sleep(0)


class FaustApp:
    """The app of one role, in the role's consumer group."""

    def __init__(self, settings: Settings, security: Security, role: str) -> None:
        kafka = settings.kafka
        app: Any = faust.App(
            settings.group(role),
            broker=[f"kafka://{address}" for address in security.bootstrap.split(",")],
            broker_credentials=faust_credentials(security),
            broker_session_timeout=kafka.session_timeout_ms / 1000,
            broker_heartbeat_interval=kafka.heartbeat_ms / 1000,
            broker_rebalance_timeout=kafka.rebalance_timeout_ms / 1000,
            broker_request_timeout=kafka.request_timeout_ms / 1000,
            broker_max_poll_records=POLL_RECORDS,
            # With all partitions paused nothing is taken: aiokafka would leave the group for good.
            broker_max_poll_interval=86_400.0,
            broker_commit_livelock_soft_timeout=86_400.0,  # we commit; Faust must not warn
            stream_processing_timeout=86_400.0,
            stream_buffer_maxsize=BUFFER_TURNS,
            stream_wait_empty=False,
            consumer_auto_offset_reset="earliest",
            consumer_group_instance_id=kafka.group_instance_id or None,
            agent_supervisor="mode.CrashingSupervisor",
            table_standby_replicas=1,  # 0 would switch co-partitioning off
            TableManager=NoTables,
            topic_allow_declare=False,
            topic_disable_leader=True,
            web_enabled=False,
            datadir=os.path.join(tempfile.gettempdir(), "dtgol-faust"),  # nothing is kept there
        )
        # A copy in the journal has ours behind the producer's.
        self.headers_max = settings.limits.headers_max + SOURCE_HEADERS_MAX
        self._bootstrap = security.bootstrap
        app.owner = self
        self.agents: dict[str, str] = {}
        """The agent of each topic."""
        app.transport = SafeTransport(app.conf.broker_consumer, app)
        self.app = app
        self.on_out_of_range: Callable[[TP, int], Awaitable[None]] = position_lost

    def add_agent(
        self, name: str, topics: Iterable[str], agent: Callable[[Any], Awaitable[None]]
    ) -> None:
        """Declare an agent on topics as bytes: where Faust decodes, it acks before it raises.

        A topic has one agent.
        """
        topics = list(topics)
        self.agents |= dict.fromkeys(topics, name)
        channel = self.app.topic(
            *topics, key_serializer="raw", value_serializer="raw", internal=False
        )
        self.app.agent(channel, name=name)(agent)

    async def batches(self, stream: Any) -> AsyncIterator[Batches]:
        """What was fetched for an agent, without acks; of an old generation it is dropped."""
        async for event in stream.noack().events():
            message = event.message
            if message.generation_id == self.app.consumer_generation_id:
                yield message.value

    def on_assigned(self, handle: Callable[[set[TP]], Awaitable[None]]) -> None:
        """Call `handle` with every new assignment, before its records come."""

        async def assigned(_: Any, assigned: set[TP], **__: Any) -> None:
            await handle(assigned)

        self.app.on_partitions_assigned.connect(assigned, weak=False)

    def on_closing(self, handle: Callable[[], Awaitable[None]]) -> None:
        """Call `handle` at an orderly end, while commits are still possible."""

        async def closing(_: Any, **__: Any) -> None:
            await handle()

        self.app.on_before_shutdown.connect(closing, weak=False)

    def on_start(self, start: Callable[[], Iterable[Coroutine[Any, Any, None]]]) -> None:
        """Call `start` when the app runs; a coroutine from it that fails ends the process."""

        async def started() -> None:
            for work in start():
                self.app.add_future(exit_on_error(work))

        self.app.task(started)

    def flow(self, topic: str, partition: int) -> PartitionFlow:
        """The flow of one topic partition."""
        return PartitionFlow(self.app, topic, partition)

    def source_reader(self) -> SourceReader:
        """A reader outside the group that sees records as they are delivered."""
        conf = self.app.conf
        client = {
            "bootstrap_servers": self._bootstrap.split(","),
            "request_timeout_ms": int(conf.broker_request_timeout * 1000),
            **credentials_to_aiokafka_auth(conf.broker_credentials, conf.ssl_context),
        }
        return SourceReader(client, self.headers_max)

    async def commit(self, offsets: Mapping[tuple[str, int], int]) -> bool:
        """Commit exactly these offsets; False if the broker refused, which only costs a replay."""
        if not offsets:
            return True
        try:
            wanted = {TP(*place): offset for place, offset in offsets.items()}
            return bool(await self.app.consumer._commit_offsets(wanted))
        except asyncio.CancelledError:
            # aiokafka drops a commit that is under way when it ends, and the wait for it with it.
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            log.warning("offsets were not committed: the consumer has ended the request")
            return False
        except Exception as error:
            log.warning("offsets were not committed, they will be with the next: %r", error)
            return False

    def rights_lost(self, error: BaseException) -> None:
        """The consumer may not read any more."""
        exit_now(FAILED, _without_rights(error))

    def no_position(self, seconds: float) -> None:
        """The offsets of the group could not be read, or a partition not be sought by them."""
        why = f"the group's offsets could not be read and sought within {seconds:.0f} s"
        exit_now(FAILED, f"{why}: see that the cluster is up; nothing is lost, start it again")

    def consumer_crashed(self, error: BaseException) -> None:
        """Faust's fetcher has ended: nothing would come any more, and Faust's shutdown may hang."""
        exit_if_known(error)
        exit_now(FAILED, f"Faust's consumer crashed ({error!r}); nothing is lost, start it again")

    def run(self, log_level: str) -> None:
        """Run until a signal ends it; leaves by exit code."""
        worker = faust.Worker(
            self.app,
            quiet=True,
            redirect_stdouts=False,
            override_logging=False,
            daemon=True,
            workdir=os.getcwd(),
            loglevel=log_level,
        )
        worker.spinner = None  # it writes escape codes, to a log file too
        # Modules and compiled kernels live as long as the process: a full collection that looks
        # through all of them holds the event loop for some 70 ms. So do learners once they are
        # restored (`pipeline.runtime.partition`); theirs are freed by reference counts.
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        sys.setswitchinterval(SWITCH_S)
        try:
            worker.execute_from_commandline()
        finally:
            if isinstance(worker.crash_reason, NO_RIGHTS):
                log.critical("%s", _without_rights(worker.crash_reason))


async def position_lost(place: TP, offset: int) -> None:
    """What an app does about a lost position until it is given a handler."""
    raise RuntimeError(f"{place.topic}[{place.partition}] has no offset {offset} any more")


def assigned_partitions(assigned: set[TP], topics: Iterable[str]) -> set[int] | None:
    """The partitions in an assignment, which are the same of every topic; None if they are not.

    Topics can differ briefly while metadata propagates, or while a right is missing; for good if a
    topic is gone or has grown.
    """
    ours = [{tp.partition for tp in assigned if tp.topic == name} for name in topics]
    return ours[0] if all(each == ours[0] for each in ours) else None


def faust_credentials(security: Security) -> Any:
    """For Faust's `broker_credentials`; None for PLAINTEXT."""
    own = security.settings
    context = security.ssl_context() if security.encrypted else None
    if security.authenticated:
        if own.mechanism == "OAUTHBEARER":
            return faust.OAuthCredentials(oauth_cb=TokenFile(security), ssl_context=context)
        return faust.SASLCredentials(
            mechanism=own.mechanism,
            username=own.username,
            password=security.secret("password_file"),
            ssl_context=context,
        )
    return faust.SSLCredentials(context=context) if context is not None else None


class TokenFile(AbstractTokenProvider):  # type: ignore[misc]  # no types
    """aiokafka asks for a token; it is read from its file each time."""

    def __init__(self, security: Security) -> None:
        self._security = security

    async def token(self) -> str:
        """The token."""
        return self._security.secret("token_file")


def _without_rights(error: BaseException) -> str:
    return f"our user may not read any more ({error}): {SEE_RIGHTS}"
