"""How far consumer groups are behind: the end of each partition against what is committed.

Asked without joining the group. The learner commits the journal, and the evaluator everything, only
with a snapshot: their lag counts records since the last snapshot, not records unanswered.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from confluent_kafka import KafkaException, TopicPartition

from pipeline.access.door import ClusterError, said
from pipeline.client.sending import CONNECT_S, ClientSettings
from pipeline.client.tail import offset_range, open_consumer, partition_counts


@dataclass(frozen=True, slots=True)
class Lag:
    """One topic as one group sees it; ``behind`` is None if it has committed nothing there."""

    group: str
    topic: str
    records: int
    behind: int | None
    lost: int
    """Records past retention that were never read: committed below the first one kept."""


def group_lag(client: ClientSettings, group: str, topics: Sequence[str]) -> list[Lag]:
    """The group's lag on each of the topics that exist."""
    consumer = open_consumer(client, {"group.id": group})
    try:
        counts = partition_counts(consumer)
        found = []
        for topic in topics:
            places = [TopicPartition(topic, each) for each in range(counts.get(topic, 0))]
            if not places:
                continue
            committed = consumer.committed(places, timeout=CONNECT_S)
            ranges = [offset_range(consumer, topic, place.partition) for place in places]
            known = [place.offset for place in committed if place.offset >= 0]
            found.append(
                Lag(
                    group,
                    topic,
                    records=sum(end for _, end in ranges),
                    behind=sum(
                        end - (place.offset if place.offset >= 0 else first)
                        for place, (first, end) in zip(committed, ranges, strict=True)
                    )
                    if known
                    else None,
                    lost=sum(
                        max(0, first - place.offset)
                        for place, (first, _) in zip(committed, ranges, strict=True)
                        if place.offset >= 0
                    ),
                )
            )
        return found
    except KafkaException as error:
        raise ClusterError(f"group {group}: {said(error.args[0])}") from None
    finally:
        consumer.close()
