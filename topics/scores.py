"""The scores message: one prediction against its label, as it was said at the time.

Written by the evaluator. A corrected label gives a second score of the same identity; of one
identity the score with the largest ``label_offset`` counts. Usually it is the newest; not so when
an evaluator that was frozen wakes and sends what others have corrected since. Copies are equal but
for ``rescored``, which tells what its sender had said before.
"""

from dataclasses import dataclass, field

from topics.predictions import Identity
from topics.wire import wire


@dataclass(frozen=True, slots=True)
class Score:
    """One prediction and the truth about it."""

    stream: str = field(metadata=wire("The stream of the record."))
    id: str = field(metadata=wire("The instance."))
    step: int = field(metadata=wire("Step of the prediction.", minimum=1))
    model: str = field(metadata=wire("The model that predicted."))
    at: Identity = field(metadata=wire("Identity of the prediction."))
    p: float = field(metadata=wire("The probability that was said.", minimum=0, maximum=1))
    naive: float = field(metadata=wire("What naive said.", minimum=0, maximum=1))
    y: int = field(metadata=wire("The label.", minimum=0, maximum=1))
    correct: bool = field(metadata=wire("Whether the hard label was right."))
    naive_correct: bool = field(metadata=wire("Whether naive's hard label was right."))
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
