"""Do features and labels meet? From samples: keys against partitions, labels against features.

A label in another partition than its features can never be joined. Two ways lead there: a producer
with another partitioner, and a label sent under another key.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pipeline.doctor.findings import Finding, fine, note, problem
from topics.codec import parse
from topics.partitioner import partition_for
from topics.refusals import Rejection

CHECK = "keys"
SETTING = (
    "set partitioner=murmur2_random in librdkafka producers (Java's default is right), "
    "and send the records again"
)
RULE = "send each label under the key of its features"


class Sampled(NamedTuple):
    """One record as the samples need it; ``where`` is its instance, None if unreadable."""

    partition: int
    key: bytes | None
    where: tuple[str, str] | None


def sample(partition: int, key: bytes | None, value: bytes | None) -> Sampled:
    """Stream and id of a record; nothing else of it is looked at."""
    raw = parse(value)
    if isinstance(raw, Rejection) or raw.get("id") is None:
        return Sampled(partition, key, None)
    return Sampled(partition, key, (str(raw.get("stream") or "default"), str(raw["id"])))


def judge_partitioner(samples: Mapping[str, Iterable[Sampled]], partitions: int) -> list[Finding]:
    """Whether the keys of each topic sit where Java's partitioner puts them."""
    findings = []
    for topic, records in samples.items():
        keyed = [each for each in records if each.key is not None]
        check = f"partitioner of {topic}"
        if not keyed:
            findings.append(note(check, "no records to sample"))
            continue
        wrong = sum(partition_for(each.key or b"", partitions) != each.partition for each in keyed)
        if wrong:
            said = f"{wrong} of {len(keyed)} keys are not where murmur2 puts them"
            findings.append(problem(check, said, SETTING))
        else:
            findings.append(fine(check, f"{len(keyed)} keys are where murmur2 puts them"))
    return findings


def judge_meeting(features: Iterable[Sampled], labels: Iterable[Sampled]) -> Finding:
    """Whether sampled labels sit in the partition of their features."""
    homes: dict[tuple[str, str], Sampled] = {
        each.where: each for each in features if each.where is not None
    }
    met = apart = other_key = 0
    for label in labels:
        home = homes.get(label.where) if label.where is not None else None
        if home is None:
            continue
        if home.partition == label.partition:
            met += 1
        else:
            apart += 1
            other_key += home.key != label.key
    check = "labels meet features"
    if apart:
        why = f", {other_key} of them under another key" if other_key else ""
        said = f"{apart} of {met + apart} sampled labels sit in another partition{why}"
        return problem(check, said, RULE if other_key else SETTING)
    if not met:
        return note(check, "no label in the sample has its features in it: nothing to compare")
    return fine(check, f"{met} sampled labels are in the partition of their features")
