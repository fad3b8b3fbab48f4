"""The scores messages: one prediction, as given at the time, against its label; and events.

Scores are written by the evaluator, events by the learner: an event has the header ``dtgol-event``.

A corrected label gives a second score of the same identity; of one identity the score with the
largest ``label_offset`` counts. Usually that is the newest, but an evaluator that was frozen may
send old scores after another has corrected them. Copies are equal but for ``rescored``, which is
about earlier scores of the same sender.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from topics.headers import Header, header_name
from topics.predictions import Identity
from topics.wire import wire

EVENT = header_name("event")


@dataclass(frozen=True, slots=True)
class Score:
    """One prediction and its label."""

    stream: str = field(metadata=wire("The stream of the record."))
    id: str = field(metadata=wire("The instance."))
    step: int = field(metadata=wire("Step of the prediction.", minimum=1))
    model: str = field(metadata=wire("The model that predicted."))
    at: Identity = field(metadata=wire("Identity of the prediction."))
    p: float = field(metadata=wire("The probability that was predicted.", minimum=0, maximum=1))
    naive: float = field(metadata=wire("The probability of naive.", minimum=0, maximum=1))
    y: int = field(metadata=wire("The label.", minimum=0, maximum=1))
    correct: bool = field(metadata=wire("Whether the hard label that was given was right."))
    naive_correct: bool = field(metadata=wire("The same for naive, by the same threshold."))
    loss: float = field(
        metadata=wire("Cross entropy in nats, p clipped to 1e-12 from either end.", minimum=0)
    )
    naive_loss: float = field(metadata=wire("The same for naive.", minimum=0))
    delay_ms: int = field(
        metadata=wire("Event time of the label minus that of the features; below 0 if early.")
    )
    rescored: bool = field(
        default=False, metadata=wire("Replaces an earlier score: the label was corrected.")
    )
    label_offset: int = field(
        default=-1,
        metadata=wire("Offset of the label on its topic; -1 if not known.", minimum=-1),
    )
    default: bool = field(
        default=False,
        metadata=wire("No label came in time: y is `delay.expired`. The true one scores again."),
    )
    threshold: float = field(
        default=0.5,
        metadata=wire(
            "The p above which the hard label was 1; naive is judged by the same.",
            minimum=0,
            maximum=1,
        ),
    )
    set: tuple[int, ...] = field(
        default=(0, 1), metadata=wire("The classes that the prediction left open.")
    )
    covered: bool = field(default=True, metadata=wire("Whether the label is one of them."))


@dataclass(frozen=True, slots=True)
class Event:
    """Something that a learner did by itself, for people to notice. No ids, no values."""

    event: str = field(metadata=wire("What happened: `stream-evicted`; names may be added."))
    stream: str = field(metadata=wire("The stream it happened to."))
    at: Identity = field(metadata=wire("The journal record at which it happened."))
    detail: str = field(metadata=wire("One sentence, with the setting that decided it."))


def is_event(headers: Iterable[Header]) -> bool:
    """Whether a record of scores is an event."""
    return any(name == EVENT for name, _ in headers)
