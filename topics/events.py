"""The events message: what happened to a worker or evaluator and its partitions, for people.

Written on a best effort: a process never waits for an event or ends by one, so events may be lost,
and a process that is killed writes none about its end. They have clocks in them and are no output
of the fold. No ids, no values.
"""

from dataclasses import dataclass, field
from enum import StrEnum

from topics.wire import wire


class EventKind(StrEnum):
    """What happened; kinds may be added."""

    STARTED = "started"
    STOPPED = "stopped"
    SNAPSHOT = "snapshot"
    SNAPSHOT_FAILED = "snapshot-failed"
    CONFIG = "config"
    CRASHED = "crashed"
    PARKED = "parked"
    SKIPPED = "skipped"
    RETRIED = "retried"


@dataclass(frozen=True, slots=True)
class ProcessEvent:
    """Something that happened to one partition of a process."""

    kind: str = field(
        metadata=wire(
            "What happened: `started`, `stopped`, `snapshot`, `snapshot-failed`, `config` (another "
            "configuration is in force), `crashed`, `parked`, `skipped`, `retried`; kinds may be "
            "added."
        )
    )
    at_ms: int = field(metadata=wire("When, by the clock of the process, epoch milliseconds."))
    role: str = field(metadata=wire("`worker` or `evaluator`."))
    process: str = field(metadata=wire("Which one: `kafka.group_instance_id`, or host and pid."))
    partition: int = field(metadata=wire("The partition it happened to.", minimum=0))
    offset: int = field(
        metadata=wire(
            "The journal offset up to which the partition had come; an evaluator's is that of the "
            "newest prediction it has read; -1: none.",
            minimum=-1,
        )
    )
    detail: str = field(default="", metadata=wire("More, in words; names of settings, no values."))
