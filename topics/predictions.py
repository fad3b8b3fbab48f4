"""The predictions message: what the learner said about one record, at the time.

Written by the learner under the key of the features, with the producer's headers carried over.
Nothing in it comes from a clock, so a prediction sent again is the same to the last byte;
``at`` tells copies apart from answers. A reader that wants each answer once keeps the first of
each ``at``.
"""

from dataclasses import dataclass, field

from topics.wire import wire


@dataclass(frozen=True, slots=True)
class Identity:
    """Where in the journal the answered record stands: the identity of its prediction."""

    journal: str = field(metadata=wire("Id of the journal topic, as Kafka prints it."))
    partition: int = field(metadata=wire("Partition of the journal.", minimum=0))
    offset: int = field(metadata=wire("Offset in that partition.", minimum=0))


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
    label: int = field(metadata=wire("Hard label: 1 if p > 1/2.", minimum=0, maximum=1))
    naive: float = field(
        metadata=wire(
            "Persistent tracks only, no rehearsal and no soft labels: their p.",
            minimum=0,
            maximum=1,
        )
    )
    latent_weight: float = field(
        metadata=wire("Weight of the latent space against the original.", minimum=0, maximum=1)
    )
    latent_persistent: float = field(
        metadata=wire("Track: latent space, true labels only.", minimum=0, maximum=1)
    )
    latent_transient: float = field(
        metadata=wire("Track: latent space, with soft labels.", minimum=0, maximum=1)
    )
    original_persistent: float = field(
        metadata=wire("Track: original space, true labels only.", minimum=0, maximum=1)
    )
    original_transient: float = field(
        metadata=wire("Track: original space, with soft labels.", minimum=0, maximum=1)
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
    why: tuple[Contribution, ...] = field(
        default=(), metadata=wire("The largest contributions by feature name, where asked for.")
    )
