"""The labels message: the truth about one instance, whenever it comes. Written by you.

It carries the key of its features; with another key it may land in another partition and can
never be joined. How it is treated (on time, early, late, repeated) is decided by the label policy.
"""

from dataclasses import dataclass, field

from topics.features import ID_WIRE, STREAM_WIRE, TS_WIRE
from topics.wire import wire

Y_WIRE = wire("The truth: 0 or false, 1 or true.", type=None, enum=[0, 1, False, True])


@dataclass(frozen=True, slots=True)
class Label:
    """The truth about one instance."""

    stream: str = field(metadata=STREAM_WIRE)
    id: str = field(metadata=ID_WIRE)
    y: int = field(metadata=Y_WIRE)
    ts: int = field(metadata=TS_WIRE)
    unknown: tuple[str, ...] = ()
    """Names of fields that the contract does not know: ignored, to be counted. Never written."""


@dataclass(frozen=True, slots=True)
class Erasure:
    """A request on the labels topic: forget what is kept of an instance. Written by `dtgol erase`.

    It has no id, so that it adds no record to those that hold one.
    """

    erase: str = field(metadata=wire("Hash of the id, 16 hex digits.", pattern="^[0-9a-f]{16}$"))
    stream: str = field(metadata=STREAM_WIRE)
