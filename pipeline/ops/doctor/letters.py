"""How many of the newest records were refused, by stream and reason.

A dead letter names the record it is about, so letters are counted against the very records that
were sampled. A single one is no fault of the cluster; a share of them is a producer that is wrong.
"""

from collections import Counter
from collections.abc import Iterable

from pipeline.kafka.record import Record
from pipeline.ops.doctor.findings import Finding, fine, note, problem
from pipeline.ops.doctor.keys import sample
from topics.dead_letters import DeadLetter, is_marker
from topics.headers import read_headers
from topics.reasons import Rejection

SHARE_MAX = 0.01
"""One in a hundred may be chance, such as a sensor that restarts."""
SHOWN_MAX = 5


def check_letters(letters: Iterable[Record], sampled: Iterable[Record]) -> Finding:
    """The share of the sampled features and labels that are dead letters."""
    check = "dead letters"
    records = {(record.topic, record.partition, record.offset) for record in sampled}
    refused: dict[tuple[str, int, int], tuple[str, str]] = {}
    for record in letters:
        letter = read_headers(DeadLetter, record.headers)
        if is_marker(record.headers) or isinstance(letter, Rejection):
            continue
        source = letter.topic, letter.partition, letter.offset
        if source in records:
            instance = sample(record).instance
            refused[source] = instance[0] if instance else "(unreadable)", letter.reason
    if not refused:
        return fine(check, f"none among {len(records)} sampled records")
    share = len(refused) / len(records)
    counted = Counter(refused.values()).most_common(SHOWN_MAX)
    listed = ", ".join(f"{stream} {reason} {count}" for (stream, reason), count in counted)
    text = f"{len(refused)} of {len(records)} sampled records ({share:.1%}): {listed}"
    if share <= SHARE_MAX:
        return note(check, text)
    return problem(check, text, "run: dtgol dead-letters list, and mend the producer")
