"""Whether labels can be joined, from samples: keys and partitions, labels and features.

A label in another partition than its features can never be joined. Two causes: a producer with
another partitioner, and a label sent under another key.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pipeline.kafka.record import Record
from pipeline.ops.doctor.findings import Finding, fine, note, problem
from topics.codec import parse
from topics.partitioner import partition_for
from topics.reasons import Rejection

CHECK = "keys"
SETTING = (
    "set partitioner=murmur2_random in librdkafka producers (Java's default is right), "
    "and send the records again"
)
RULE = "send each label under the key of its features"


class KeySample(NamedTuple):
    """One record as the checks need it; ``instance`` is stream and id, None if unreadable."""

    partition: int
    key: bytes | None
    instance: tuple[str, str] | None


def sample(record: Record) -> KeySample:
    """Stream and id of a record; nothing else of it is looked at."""
    raw = parse(record.value)
    if isinstance(raw, Rejection) or raw.get("id") is None:
        return KeySample(record.partition, record.key, None)
    instance = str(raw.get("stream") or "default"), str(raw["id"])
    return KeySample(record.partition, record.key, instance)


def check_partitioner(samples: Mapping[str, Iterable[KeySample]], partitions: int) -> list[Finding]:
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
            text = f"{wrong} of {len(keyed)} keys are not where murmur2 puts them"
            findings.append(problem(check, text, SETTING))
        else:
            findings.append(fine(check, f"{len(keyed)} keys are where murmur2 puts them"))
    return findings


def check_join(features: Iterable[KeySample], labels: Iterable[KeySample]) -> Finding:
    """Whether sampled labels sit in the partition of their features."""
    by_instance: dict[tuple[str, str], KeySample] = {
        each.instance: each for each in features if each.instance is not None
    }
    met = apart = other_key = 0
    for label in labels:
        found = by_instance.get(label.instance) if label.instance is not None else None
        if found is None:
            continue
        if found.partition == label.partition:
            met += 1
        else:
            apart += 1
            other_key += found.key != label.key
    check = "labels meet features"
    if apart:
        why = f", {other_key} of them under another key" if other_key else ""
        text = f"{apart} of {met + apart} sampled labels sit in another partition{why}"
        return problem(check, text, RULE if other_key else SETTING)
    if not met:
        return note(check, "no label in the sample has its features in it: nothing to compare")
    return fine(check, f"{met} sampled labels are in the partition of their features")
