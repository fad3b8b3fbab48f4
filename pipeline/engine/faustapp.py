"""A Faust app with this project's manners, and every private door of Faust that is used.

Raw bytes, no acks, commits by hand, co-partitioning on, committed records only, an agent that
raises ends the process. `tests/unit/pipeline/test_engine.py` watches the private names used in this
room.
"""

from __future__ import annotations

import asyncio
import logging
import os
import tempfile
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from typing import Any, NoReturn

import faust
from aiokafka.structs import TopicPartition
from confluent_kafka import KafkaException
from faust.types import TP

from dtgol_core.config import ConfigError
from pipeline.access.credentials import faust_credentials
from pipeline.access.door import SEE_RIGHTS, said
from pipeline.access.security import Security
from pipeline.cluster import UnansweredError, gap_at
from pipeline.engine.consumer import NO_RIGHTS, steady
from pipeline.outbox import DeliveryError
from pipeline.reader import look_at
from pipeline.settings import Settings
from pipeline.snapshots import RefusalError

log = logging.getLogger(__name__)

POLL_RECORDS = 500
BUFFER_RECORDS = 4096


def make_app(settings: Settings, security: Security, role: str) -> Any:
    """The app of a role, without agents; its group is the role's."""
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
        broker_commit_livelock_soft_timeout=86_400.0,  # commits are ours; Faust must not worry
        stream_processing_timeout=86_400.0,
        stream_buffer_maxsize=BUFFER_RECORDS,
        stream_wait_empty=False,
        consumer_auto_offset_reset="earliest",
        consumer_group_instance_id=kafka.group_instance_id or None,
        agent_supervisor="mode.CrashingSupervisor",
        table_standby_replicas=1,  # 0 would switch co-partitioning off
        topic_allow_declare=False,
        topic_disable_leader=True,
        web_enabled=False,
        datadir=os.path.join(tempfile.gettempdir(), "dtgol-faust"),  # nothing is kept there
    )
    steady(app).on_refused = _end_without_rights
    app.on_fallen = _end_without_consumer
    return app


def _end_without_rights(error: Exception) -> None:
    end(FAILED, _without_rights(error))


def say_what_crashed(reason: BaseException | None) -> None:
    """The last word about a crash inside Faust, if there is something to do about it."""
    if isinstance(reason, NO_RIGHTS):
        log.critical("%s", _without_rights(reason))


def _without_rights(error: BaseException) -> str:
    return f"our user may not read any more ({error}): {SEE_RIGHTS}"


def raw_topic(app: Any, *names: str) -> Any:
    """A channel of bytes: Faust must not decode, its own failure acks first and raises after."""
    return app.topic(*names, key_serializer="raw", value_serializer="raw", internal=False)


async def bursts(app: Any, stream: Any) -> Any:
    """Lists of messages as they are at hand, without acks; those of an old generation are dropped.

    Taking from the channel's queue what is already there spares Faust's cost per event.
    """
    queue = stream.channel.queue
    async for event in stream.noack().events():
        messages = [event.message]
        while not queue.empty() and len(messages) < POLL_RECORDS:
            messages.append(queue.get_nowait().message)
        generation = app.consumer_generation_id
        yield [message for message in messages if message.generation_id == generation]


async def commit(app: Any, offsets: Mapping[tuple[str, int], int]) -> bool:
    """Commit exactly these offsets; False if the broker refused, which only costs a replay."""
    if not offsets:
        return True
    try:
        wanted = {TP(topic, partition): offset for (topic, partition), offset in offsets.items()}
        return bool(await app.consumer._commit_offsets(wanted))
    except Exception as error:
        log.warning("offsets were not committed, they will be with the next: %r", error)
        return False


def committed(app: Any, topic: str, partition: int) -> int:
    """The committed offset from which this generation reads; 0 if nothing was ever committed."""
    return int(app.consumer._committed_offset.get(TP(topic, partition)) or 0)


def fetched_before(app: Any, message: Any) -> int:
    """The offset that Faust fetched right before a message; -1 for the first after a seek.

    Ask once per message.
    """
    return int(app.consumer.before(TP(message.topic, message.partition), message.offset))


def lost_before(app: Any, message: Any, received: int) -> bool:
    """Whether Faust fetched a record between the last one received and this one, and lost it."""
    return received < fetched_before(app, message) < int(message.offset)


def progress(app: Any, topic: str, partition: int) -> tuple[int, int] | None:
    """How far the consumer has fetched, and the end of committed records as it last heard of it.

    None while it has heard nothing. What is fetched may still be on its way to the agent.
    """
    state = _state(app, topic, partition)
    if state is None or state.lso is None or state._position is None:
        return None
    return int(state._position), int(state.lso)


def fetched(app: Any, topic: str, partition: int) -> int | None:
    """How far the consumer has fetched; None if it has no position."""
    state = _state(app, topic, partition)
    return None if state is None else state._position


def unread(app: Any, topic: str, partition: int, received: int, end: int | None) -> bool:
    """Whether there are records beyond `received`: on their way to the agent, or at the broker.

    `end` is what the broker itself said, if it was asked: a consumer that has gone silent knows
    nothing new. A position at the end is no work even if fewer records were received: the rest are
    markers of transactions.
    """
    known = progress(app, topic, partition)
    position, heard = known if known is not None else (received + 1, received + 1)
    if app.consumer.last_fetched(TP(topic, partition)) > received:
        return True
    return max(heard, end or 0) > max(position, received + 1)


def heard_ms(app: Any, topic: str, partition: int) -> int:
    """When the broker last answered a fetch of this partition, wall clock; 0 for never."""
    state = _state(app, topic, partition)
    return 0 if state is None or state.timestamp is None else int(state.timestamp)


def _state(app: Any, topic: str, partition: int) -> Any:
    consumer = app.consumer._thread._consumer
    subscription = consumer._subscription.subscription if consumer is not None else None
    assignment = subscription.assignment if subscription is not None else None
    if assignment is None:
        return None
    key = TopicPartition(topic, partition)
    return assignment.state_value(key) if key in assignment.tps else None


class Valve:
    """The flow of one topic partition from Faust. A rebalance opens it without asking."""

    def __init__(self, app: Any, topic: str, partition: int) -> None:
        self._app = app
        self._tp = TP(topic, partition)
        self.closed = False

    def close(self) -> None:
        """Fetch no more for now."""
        if not self.closed:
            self.closed = True
            self._app.consumer.pause_partitions({self._tp})

    def open(self) -> None:
        """Fetch again."""
        if self.closed:
            self.closed = False
            if self._tp in self._app.consumer.assignment():
                self._app.consumer.resume_partitions({self._tp})

    @property
    def fetched(self) -> int | None:
        """How far the consumer has fetched."""
        return fetched(self._app, *self._tp)

    def unread(self, received: int, end: int | None) -> bool:
        """Whether there are records beyond `received`; see the function of this name."""
        return unread(self._app, *self._tp, received, end)


def partitions_of(assigned: set[Any], topics: Iterable[str]) -> set[int]:
    """The partitions in an assignment, which are the same of every topic.

    They are not while a topic cannot be seen: its metadata is late, or a right was taken from us.
    What lasts is told from each other at the next start.
    """
    ours = {name: {tp.partition for tp in assigned if tp.topic == name} for name in topics}
    if len({frozenset(each) for each in ours.values()}) != 1:
        told = ", ".join(f"{name} {sorted(each)}" for name, each in ours.items())
        why = f"a topic is out of sight for now, or is to stay so: {SEE_RIGHTS}"
        end(FAILED, f"partitions were assigned differently ({told}); {why}")
    return next(iter(ours.values()))


def milliseconds(message: Any) -> int:
    """The timestamp of a Faust message; -1 for none."""
    return -1 if message.timestamp is None else round(message.timestamp * 1000)


def headers_of(message: Any) -> list[tuple[str, bytes | None]]:
    """The headers of a Faust message, repeated names included."""
    given = message.headers
    if not given:
        return []
    pairs: Iterator[tuple[str, bytes | None]] = iter(
        given.items() if isinstance(given, Mapping) else given
    )
    return list(pairs)


FAILED, REFUSED = 1, 2
"""Exit codes: start it again; an operator must decide something first."""


def _end_without_consumer(error: Exception) -> None:
    """Faust's fetcher has ended: nothing would come any more, and Faust's way down may hang."""
    _end_if_known(error)
    end(FAILED, f"Faust's consumer fell over ({error!r}); nothing is lost, to be started again")


async def guarded(work: Coroutine[Any, Any, None]) -> None:
    """Run something without which the process must not go on."""
    try:
        await work
    except Exception as error:
        _end_if_known(error)
        log.exception("this is a bug")
        end(FAILED, "ended by a bug; nothing is lost, see the trace above")


def _end_if_known(error: Exception) -> None:
    """End with the sentence that an error of the world has; return if it has none."""
    if isinstance(error, RefusalError | ConfigError):
        end(REFUSED, str(error))
    if isinstance(error, DeliveryError | UnansweredError):
        end(FAILED, str(error))
    if isinstance(error, KafkaException):
        end(FAILED, f"the cluster did not do as it was asked: {said(error.args[0])}")


async def refuse_gap(client: Mapping[str, Any], place: TP, offset: int, accept: bool) -> None:
    """Records that were to be read next are gone: end, unless that was accepted beforehand."""
    there = await asyncio.to_thread(look_at, client, place.topic, place.partition)
    gap = gap_at(place.topic, place.partition, offset, there)
    if gap is None:
        return
    if not accept:
        end(REFUSED, f"{gap}; --accept-gap goes on without them")
    log.warning("accepted: %s", gap)


def end(code: int, why: str) -> NoReturn:
    """End this process now, as a power cut would: all that counts is durable already.

    Faust's own way down takes time, and commits on it; a worker that knows it must not go on has
    neither to give.
    """
    log.critical("%s", why)
    logging.shutdown()
    os._exit(code)
