"""The predictions message: the learner's answer to one record, as given at the time.

Written by the learner under the key of the features, with the producer's headers carried over.
Nothing in it comes from a clock, so a prediction sent again is the same to the last byte; two
copies have the same ``at``. A reader that wants each answer once keeps the first of each ``at``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from topics.wire import wire


@dataclass(frozen=True, slots=True)
class Identity:
    """Where in the journal the answered record stands: the identity of its prediction."""

    journal: str = field(metadata=wire("Id of the journal topic, as Kafka prints it."))
    partition: int = field(metadata=wire("Partition of the journal.", minimum=0))
    offset: int = field(metadata=wire("Offset in that partition.", minimum=0))


@dataclass(frozen=True, slots=True)
class ExpertAnswer:
    """The answer of one expert, and how much it counted."""

    p: float = field(metadata=wire("Its probability of label 1.", minimum=0, maximum=1))
    weight: float = field(
        metadata=wire(
            "How much the log-odds of p move with the expert's, by all stacks together. It may be "
            "negative; weights need not sum to 1. Where one expert decides: 1 for that one."
        )
    )


@dataclass(frozen=True, slots=True)
class Contribution:
    """How much one feature moved the log-odds; never the feature's value."""

    feature: str = field(metadata=wire("Name of the feature."))
    log_odds: float = field(metadata=wire("What it added to the log-odds."))


@dataclass(frozen=True, slots=True)
class Prediction:
    """The answer to one features record."""

    stream: str = field(metadata=wire("The stream of the record."))
    id: str = field(metadata=wire("The instance."))
    step: int = field(metadata=wire("The learner's count of records, from 1.", minimum=1))
    model: str = field(metadata=wire("Fold version and configuration hash in force."))
    at: Identity = field(metadata=wire("Identity of this prediction."))
    ts: int = field(metadata=wire("Event time of the features, epoch milliseconds."))
    p: float = field(metadata=wire("Probability of label 1.", minimum=0, maximum=1))
    label: int = field(metadata=wire("Hard label: 1 if p > threshold.", minimum=0, maximum=1))
    naive: float = field(
        metadata=wire(
            "What online gradient descent on the labels so far gives: the expert `naive`.",
            minimum=0,
            maximum=1,
        )
    )
    experts: Mapping[str, ExpertAnswer] = field(
        metadata=wire("The answers behind p by name of the expert; names may be added.")
    )
    labels_learnt: int = field(metadata=wire("Labels learnt before this answer.", minimum=0))
    unverified: int = field(metadata=wire("Instances still without a label.", minimum=0))
    observed_share: float = field(
        metadata=wire("Share of the known features that were observed.", minimum=0, maximum=1)
    )
    uncertainty: float = field(metadata=wire("Entropy of p in nats.", minimum=0))
    repeat: bool = field(
        default=False, metadata=wire("The id was seen before; this is the answer to a repetition.")
    )
    labels_offset: int = field(
        default=-1,
        metadata=wire(
            "Labels up to this offset of their topic came before it; -1: none.", minimum=-1
        ),
    )
    defaulted: tuple[str, ...] = field(
        default=(),
        metadata=wire("Ids whose deadline had passed at this step: learnt with a default label."),
    )
    default: int | None = field(
        default=None,
        metadata=wire("The label they were learnt with: `delay.expired`.", minimum=0, maximum=1),
    )
    why: tuple[Contribution, ...] = field(
        default=(),
        metadata=wire(
            "The largest contributions by feature name, where asked for; last `(rest)`, "
            "which is no feature: with it they sum to the log-odds of p."
        ),
    )
    guard: Mapping[str, float] = field(
        default_factory=dict,
        metadata=wire(
            "Weights in p, which sum to 1: of each stack of experts and of `naive`, by name; empty "
            "where one expert decides. Names may be added."
        ),
    )
    threshold: float = field(
        default=0.5,
        metadata=wire(
            "The p above which the label is 1: `decision.threshold`, or what follows from the "
            "costs.",
            minimum=0,
            maximum=1,
        ),
    )
    set: tuple[int, ...] = field(
        default=(0, 1),
        metadata=wire(
            "The classes that are left open at `decision.coverage`: [0], [1] or [0, 1]. The last "
            "one is what to send to a human."
        ),
    )
    missing: tuple[str, ...] = field(
        default=(),
        metadata=wire("Known features that were not observed, by name, sorted: the first 50."),
    )
    expire_ms: int | None = field(
        default=None,
        metadata=wire(
            "How long after `ts` a label is still learnt: `delay.expire_ms`; null: no deadline by "
            "time.",
            minimum=1,
        ),
    )
