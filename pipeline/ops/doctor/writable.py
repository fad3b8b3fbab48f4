"""Whether what is sent can be delivered: leaders, and enough replicas in sync.

A worker waits for as long as a delivery is not acknowledged, and its `/readyz` is red meanwhile;
this finds the cause from outside.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from pipeline.ops.doctor.findings import Finding, fine, problem

CHECK = "deliveries"
ADVICE = "bring the missing brokers back"


def check_writable(topics: Mapping[str, Any], in_sync_min: Mapping[str, int]) -> Iterator[Finding]:
    """Every partition that takes no record: `topics` is their metadata by name.

    `in_sync_min` is `min.insync.replicas` of those topics whose settings could be read.
    """
    found = 0
    for name, topic in sorted(topics.items()):
        without = [number for number, each in topic.partitions.items() if each.leader < 0]
        least = in_sync_min.get(name, 1)
        few = [
            number
            for number, each in topic.partitions.items()
            if each.leader >= 0 and len(each.isrs) < least
        ]
        if without:
            found += 1
            yield problem(CHECK, f"{name}: no leader of partitions {_list(without)}", ADVICE)
        if few:
            found += 1
            text = f"{name}: fewer than {least} replicas in sync of partitions {_list(few)}"
            yield problem(CHECK, f"{text}: nothing sent there is acknowledged", ADVICE)
    if topics and not found:
        yield fine(CHECK, "every partition has a leader and enough replicas in sync")


def _list(numbers: list[int]) -> str:
    return ", ".join(map(str, sorted(numbers)))
