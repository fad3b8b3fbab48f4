"""Composition root of the evaluator: predictions against labels of every assigned partition.

It has its own group, so it can be stopped, moved and rebuilt without touching the learner.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from pipeline.agents import add_agent
from pipeline.evaluation.notices import Notices
from pipeline.evaluation.pairing import Bounds
from pipeline.evaluation.pairs import PAIR_BYTES
from pipeline.evaluation.partition import EvaluatorConfig, PartitionEvaluator
from pipeline.evaluation.poison import FailureFiles
from pipeline.evaluation.view import streams_page
from pipeline.kafka.auth import Security
from pipeline.kafka.cluster import find_gaps, inspect_cluster, refuse_gaps
from pipeline.learning.fold_config import FoldConfig
from pipeline.runtime.checkpoint import Checkpointer
from pipeline.runtime.fingerprint import fingerprint
from pipeline.runtime.partition import of_each
from pipeline.runtime.port import LiveKafka
from pipeline.runtime.positions import positions_folder
from pipeline.runtime.process import PartitionPart, Process, Role
from pipeline.settings import Settings
from pipeline.snapshots import make_store
from pipeline.snapshots.repository import SnapshotRepository

log = logging.getLogger(__name__)

TOPICS = ("predictions", "labels", "journal", "snapshots", "scores")
FOLLOWED = ("predictions", "labels")
NOTICED = ("events", "dead-letters")
"""Read for the live page alone, so an evaluator starts and goes on without them."""


def make_evaluator(
    settings: Settings, accept_gap: bool = False, warn: Callable[[str], None] = log.warning
) -> Process:
    """An evaluator that may start; raises the error with the reason if it may not."""
    security = Security.of(settings)
    client = security.librdkafka()
    topics = [name for name in TOPICS if name != "snapshots" or settings.snapshots.store == "topic"]
    cluster = inspect_cluster(client, settings, topics, "evaluator")
    gaps = find_gaps(client, settings, cluster, "evaluator", FOLLOWED)
    for gap in refuse_gaps(gaps, accept_gap):
        warn(f"accepted: {gap}")

    own, fold = settings.evaluator, FoldConfig.from_settings(settings)

    def costs(stream: str) -> tuple[float, float]:
        decision = fold.config_for(stream).decision
        return decision.cost_fp, decision.cost_fn

    config = EvaluatorConfig(
        journal_id=cluster.topic_ids["journal"],
        topics={name: settings.topic(name) for name in FOLLOWED},
        bounds=Bounds(
            own.pairs_bytes_max // PAIR_BYTES,
            own.labels_max,
            own.window_rows,
            own.windows_max,
            own.boards_max,
            own.page_streams_max,
        ),
        limits=fold.limits,
        accept_gap=accept_gap,
        metrics_streams_max=settings.web.metrics_streams_max,
        costs=costs,
    )
    name = f"evaluator.{settings.topic('predictions')}.{cluster.topic_ids['predictions']}"
    failures = FailureFiles(positions_folder(settings), name, FOLLOWED, cluster.partitions)
    store = make_store(settings, client | settings.kafka.timeouts, "evaluator")
    evaluators: dict[int, PartitionEvaluator] = {}

    def open_partition(process: Process, number: int) -> Sequence[PartitionPart]:
        # Scores may have any number of partitions; the predictions' own is taken modulo it.
        scores = process.outbox.partition(
            settings.topic("scores"), number % cluster.counts["scores"]
        )
        group = settings.group("evaluator")
        kafka = LiveKafka(process.app, process.client, group, number)
        identity = cluster.identity(*FOLLOWED, "journal")
        checkpoints = Checkpointer(
            number,
            SnapshotRepository(store, number, identity, fingerprint()),
            [scores],
            kafka.commit,
            settings.snapshots.every_records,
            settings.snapshots.every_ms / 1000,
        )
        evaluators[number] = PartitionEvaluator(
            number, config, kafka, process.outbox, scores, checkpoints, failures
        )
        evaluators[number].send_event = process.events.send
        return [evaluators[number]]

    notices = Notices(*map(settings.topic, NOTICED))

    async def page(stream: str | None, partition: int | None) -> dict[str, Any]:
        views = {number: view for number, each in evaluators.items() if (view := each.view)}
        for view in views.values():  # rows are kept: here in slices, below at once
            await of_each(view.streams, lambda _, each: each.row())
        ids = bool(settings.web.token_file)
        shown = streams_page(views, stream, partition, costs, notices.events, ids)
        return shown | notices.page(shown["selected"])

    topics_followed = list(config.topics.values())
    role = Role(
        name="evaluator",
        metrics="evaluator",
        topics=topics_followed,
        open=open_partition,
        close=evaluators.__delitem__,
        background=[lambda process: notices.follow(process.client)],
        page=page,
    )
    process = Process(settings, security, cluster, role, accept_gap)
    add_agent(process.app, "evaluator", topics_followed, evaluators)
    return process
