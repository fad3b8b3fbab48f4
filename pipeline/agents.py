"""The Faust agents: each receives what was fetched of its topics and hands it to its partition.

| agent | topics | partition object |
|---|---|---|
| `sequencer` | features, labels | `sequencing.sequencer.PartitionSequencer` |
| `learner` | journal | `learning.partition.PartitionLearner` |
| `evaluator` | predictions, labels | `evaluation.partition.PartitionEvaluator` |

The work is done by the partition objects, each in a task of its own. An agent hands over; only the
sequencer copies at once what comes while its task waits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from pipeline.errors import exit_on_error
from pipeline.faust_ext.app import FaustApp
from pipeline.faust_ext.consumer import FetchedBatch


class Receiver(Protocol):
    """A partition object that takes records from Faust."""

    def put(self, topic: str, batch: FetchedBatch) -> None: ...


def add_agent(
    app: FaustApp, name: str, topics: Sequence[str], partitions: Mapping[int, Receiver]
) -> None:
    """Declare an agent; messages of partitions that were revoked are dropped."""

    async def receive(stream: Any) -> None:
        async for batches in app.batches(stream):
            for (topic, number), batch in batches:
                partition = partitions.get(number)
                if partition is not None:
                    partition.put(topic, batch)

    async def agent(stream: Any) -> None:
        await exit_on_error(receive(stream))

    app.add_agent(name, topics, agent)
