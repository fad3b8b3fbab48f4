"""The web server of an evaluator whose pairing the test feeds itself: no Kafka, no Faust."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import orjson
from prometheus_client import CollectorRegistry

from dtgol_core.config import Config
from dtgol_core.learner import Learner
from dtgol_core.types import Forecast
from pipeline.evaluation.notices import Notices
from pipeline.evaluation.pairing import Bounds, Evaluation
from pipeline.evaluation.view import streams_page
from pipeline.kafka.record import Record
from pipeline.runtime.verdict import verdict
from pipeline.sandbox.demo import make_story
from pipeline.sandbox.demo.play import StoryEvent, timetable
from pipeline.settings import WebSettings
from pipeline.web.server import Views, WebServer
from topics.codec import write_process_event
from topics.dead_letters import DeadLetter
from topics.events import ProcessEvent
from topics.headers import write_headers
from topics.labels import Label
from topics.predictions import Contribution, ExpertAnswer, Identity, Prediction

JOURNAL = "journal-id"
NOW_MS = 1_790_000_000_000


class PageServer:
    """A context manager; the web server runs in a thread with a loop of its own.

    With `worker` it is that of a worker, whose health the test sets: no streams.
    """

    def __init__(
        self,
        token_file: Path | None = None,
        port: int = 0,
        worker: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        self._worker = worker
        self.evaluations: dict[int, Evaluation] = {}
        self.reasons: list[str] = []
        self.costs = (1.0, 1.0)
        self.requests = 0
        self.notices = Notices("events", "dead-letters")
        self._ids = token_file is not None
        views = Views(list, self.status, self.page, CollectorRegistry())
        file = str(token_file) if token_file else ""
        self._server = WebServer(WebSettings(port=port, token_file=file), views)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)

    @property
    def url(self) -> str:
        return self._server.url

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    async def status(self) -> dict[str, Any]:
        return {}

    async def page(self, stream: str | None, partition: int | None) -> dict[str, Any]:
        self.requests += 1
        if self._worker is not None:
            return {
                "role": "worker",
                "group": "dtgol-worker",
                "verdict": verdict(True, self.reasons, self._worker),
                "partitions": self._worker,
                "counts": {"records/copy": 70, "refusals/not-json": 3},
            }
        health = {"ready": True, "lag": 0, "snapshot_age_s": 4.0, "snapshot_failure": None}
        partitions = [{"partition": number, **health} for number in self.evaluations]
        counts: Counter[str] = Counter()
        for each in self.evaluations.values():
            counts.update(each.counts)
        views = {number: each.view for number, each in self.evaluations.items()}
        shown = streams_page(
            views, stream, partition, lambda _: self.costs, self.notices.events, self._ids
        )
        return {
            "role": "evaluator",
            "group": "dtgol-evaluator",
            "verdict": verdict(True, self.reasons, partitions),
            "partitions": partitions,
            "counts": dict(counts),
            **shown,
            **self.notices.page(shown["selected"]),
        }

    def happen(self, kind: str, offset: int, detail: str = "", partition: int = 0) -> None:
        """An event on its topic."""
        at_ms = NOW_MS + 1_000 * offset
        event = ProcessEvent(kind, at_ms, "worker", "worker-0", partition, offset, detail)
        self.notices.add(Record("events", 0, 0, at_ms, b"0", write_process_event(event)))

    def refuse(self, reason: str, stream: str, partition: int = 0) -> None:
        """A dead letter on its topic."""
        headers = write_headers(DeadLetter("labels", partition, 7, reason, "detail"))
        value = orjson.dumps({"stream": stream})
        self.notices.add(Record("dead-letters", 0, 0, NOW_MS, b"k", value, headers))

    def feed(self, partition: int, *messages: Prediction | Label) -> None:
        """Take messages in on the server's own loop, as an evaluator does."""

        async def take() -> None:
            state = self.evaluations.setdefault(partition, evaluation(partition))
            for message in messages:
                if isinstance(message, Prediction):
                    at = replace(message.at, partition=partition)
                    state.predict(replace(message, at=at))
                else:
                    state.label(message, state.counts["labels/first"])

        self._run(take()).result(60)

    def _run(self, work: Any) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._server.start()).result(10)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._run(self._server.stop()).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


def evaluation(partition: int = 0) -> Evaluation:
    return Evaluation(JOURNAL, partition, Bounds())


def prediction(stream: str, number: int, p: float, partition: int = 0, **more: Any) -> Prediction:
    """A prediction that needs no learner; its journal offset is its number."""
    fields = {
        "stream": stream,
        "id": f"{stream}-{number}",
        "step": number + 1,
        "model": "m",
        "at": Identity(JOURNAL, partition, number),
        "ts": NOW_MS + 60_000 * number,
        "p": p,
        "label": int(p > 0.5),
        "naive": 0.4,
        "experts": {"linear": ExpertAnswer(p, 0.75), "naive": ExpertAnswer(0.4, 0.25)},
        "labels_learnt": 0,
        "unverified": 0,
        "observed_share": 0.8,
        "uncertainty": 0.5,
        "guard": {"stack_now": 0.75, "naive": 0.25},
    }
    return Prediction(**fields | more)  # type: ignore[arg-type]


def story_messages(story: str, records: int, share: float) -> list[Prediction | Label]:
    """A story of the demo, answered by real learners, up to a share of the whole play."""
    events = timetable(make_story(story, records, 0, NOW_MS), 1.0)
    learners: defaultdict[str, Learner] = defaultdict(lambda: Learner(Config()))
    return [
        _play(learners[event.case.stream], offset, event)
        for offset, event in enumerate(events[: int(share * len(events))])
    ]


def _play(learner: Learner, offset: int, event: StoryEvent) -> Prediction | Label:
    case = event.case
    id = str(case.row.id)
    if event.is_label:
        learner.learn(id, int(case.row.label or 0), case.known_ms)
        return Label(stream=case.stream, id=id, y=int(case.row.label or 0), ts=case.known_ms)
    forecast = learner.observe(id, case.row.record, case.at_ms, why=5)
    assert isinstance(forecast, Forecast)
    experts = {name: ExpertAnswer(e.p, e.weight) for name, e in forecast.experts.items()}
    return Prediction(
        stream=case.stream,
        id=id,
        step=forecast.step,
        model="m",
        at=Identity(JOURNAL, 0, offset),
        ts=case.at_ms,
        p=forecast.p,
        label=forecast.label,
        naive=forecast.naive,
        experts=experts,
        labels_learnt=forecast.labels_learnt,
        unverified=forecast.unverified,
        observed_share=forecast.observed_share,
        uncertainty=forecast.uncertainty,
        guard=forecast.guard,
        set=forecast.set,
        why=tuple(Contribution(each.feature, each.log_odds) for each in forecast.why),
        missing=forecast.missing,
    )
