"""What a trial has taken away: records trimmed from topics, and gaps that were then accepted.

The checks fold the journal from its first record, so what a fault trims is remembered before.
Where an operator has accepted a gap, the state is that of a journal without it (`Fold.jump`); the
checks must know of it, as a replay must. Predictions from before the gap are compared with the
state of then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from pipeline.kafka.record import Record
from tests.support.stage import Stage

ANSWER_S = 30


@dataclass
class History:
    """Of one trial; empty unless a fault trims something."""

    earlier: dict[str, list[Record]] = field(default_factory=dict)
    jumps: dict[int, range] = field(default_factory=dict)
    """Journal offsets, per partition, that the learner went on without."""
    unread: dict[tuple[str, int], range] = field(default_factory=dict)
    """Offsets of other topics that nobody ever read."""

    def trim(self, stage: Stage, name: str, ends: Mapping[int, int]) -> None:
        """Remember a topic, then delete its records before the given offsets."""
        self.earlier[name] = self.with_earlier(name, stage.read(name))
        topic = stage.topic(name)
        wanted = [TopicPartition(topic, number, end) for number, end in ends.items()]
        admin = AdminClient(stage.broker.config)
        for done in admin.delete_records(wanted).values():
            done.result(ANSWER_S)

    def with_earlier(self, name: str, present: Iterable[Record]) -> list[Record]:
        """What was trimmed, then what is there, each record once."""
        known = {(each.partition, each.offset): each for each in self.earlier.get(name, ())}
        known |= {(each.partition, each.offset): each for each in present}
        return [known[at] for at in sorted(known)]

    def was_read(self, name: str, record: Record) -> bool:
        """Whether a record can have been read by anybody."""
        return record.offset not in self.unread.get((name, record.partition), range(0))
