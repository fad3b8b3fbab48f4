"""A backtest as one HTML file that needs nothing else: the curves of the live page, for a file.

The page's own scripts and styles are put into the file, so there is one copy of the code of charts.
`ReportedLearner` stands between the loop and the learner and collects what the page shows.
"""

from __future__ import annotations

import base64
import html
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from dtgol_core.types import FeatureValues, Forecast, LabelReceipt, Rejection
from pipeline.evaluation.view import BLOCK_ROWS_MAX, BLOCKS_MAX, Pair, StreamView
from pipeline.offline.backtest import Backtest
from pipeline.offline.files.records import Row
from pipeline.web.server import PAGE
from topics.predictions import ExpertAnswer, Identity, Prediction

SAMPLE = 500
"""Records whose reasons are asked for: enough for a mean, and every one costs about a record."""
FEATURES_MAX = 40
"""Features by importance that are listed."""
MODULES = ("format.js", "series.js", "charts.js", "recent.js")
HERE = Path(__file__).parent
ALL_FEATURES = 1_000_000


class ReportedLearner:
    """A learner for `run_backtest` that remembers what a report needs.

    Parameters
    ----------
    learner
        With the verbs of `dtgol_core.learner.Learner`.
    rows
        The records of the run: how many there are, and their event times if they have any.
    threshold
        The p above which the hard label is 1.
    """

    def __init__(self, learner: Any, rows: Sequence[Row], threshold: float = 0.5) -> None:
        self._threshold = threshold
        self._learner = learner
        self._times = {str(row.number): row.time_ms for row in rows}
        self._every = max(1, len(rows) // SAMPLE)
        self._count = 0
        self._waiting: dict[str, tuple[int, float, float, tuple[int, ...]]] = {}
        self._importance: defaultdict[str, float] = defaultdict(float)
        self._sampled = 0
        self.view = StreamView()

    def observe(self, id: str, x: FeatureValues) -> Forecast | Rejection:
        """Ask the learner; of some records also for its reasons."""
        why = ALL_FEATURES if self._count % self._every == 0 else 0
        forecast: Forecast | Rejection = self._learner.observe(id, x, why=why)
        if isinstance(forecast, Rejection):
            return forecast
        prediction = self._prediction(id, forecast)
        at = prediction.at.offset, prediction.step, prediction.ts
        sums = self.view.add_prediction(*at, prediction.p, self._threshold)
        self.view.add_details(sums, prediction)
        self._waiting[id] = at[0], prediction.p, prediction.naive, forecast.set
        self._count += 1
        if forecast.why:
            self._sampled += 1
            for each in forecast.why[:-1]:  # the last is the rest, which is no feature
                self._importance[each.feature] += abs(each.log_odds)
        return forecast

    def _prediction(self, id: str, forecast: Forecast) -> Prediction:
        return Prediction(
            stream="",
            id=id,
            step=forecast.step,
            model="",
            at=Identity("", 0, self._count),
            ts=self._times.get(id) or 0,
            p=float(forecast.p),
            label=forecast.label,
            naive=float(forecast.naive),
            experts={
                name: ExpertAnswer(float(each.p), float(each.weight))
                for name, each in forecast.experts.items()
            },
            labels_learnt=forecast.labels_learnt,
            unverified=forecast.unverified,
            observed_share=float(forecast.observed_share),
            uncertainty=float(forecast.uncertainty),
            guard=dict(forecast.guard),
        )

    def learn(self, id: str, y: int) -> LabelReceipt:
        """Give the learner a label, and score by it."""
        self._score(id, y)
        receipt: LabelReceipt = self._learner.learn(id, y)
        return receipt

    def _score(self, id: str, y: int) -> None:
        waited = self._waiting.pop(id, None)
        if waited is None:
            return
        offset, p, naive, left_open = waited
        pair = Pair(offset, p, naive, y, self._threshold, left_open)
        self.view.add_label(pair, self._times.get(id) or 0, 0)

    def report(self, result: Backtest, title: str, delay: int) -> str:
        """The HTML of the report; labels that were still to come at the end are scored too."""
        for each in result.predictions:
            if each.label is not None:
                self._score(str(each.row), each.label)
        return _page(title, self._data(result, delay))

    def _data(self, result: Backtest, delay: int) -> dict[str, Any]:
        detail = self.view.detail()
        if not any(self._times.values()):
            detail["predictions"]["last_ms"] = []
        # Labels come a fixed number of records late here: there is no delay in time to show.
        detail["delays"] = {"top_ms": [], "counts": [[], []]}
        importance = [
            [name, total / self._sampled]
            for name, total in sorted(self._importance.items(), key=lambda each: -each[1])
        ]
        return {
            "stream": detail | {"stream": "", "partition": 0},
            "records": len(result.predictions),
            "delay": delay,
            "refused": dict(result.rejected),
            "methods": _methods(result),
            "importance": importance[:FEATURES_MAX],
            "features": len(self._importance),
            "sampled": self._sampled,
            "labels": sum(each.label is not None for each in result.predictions),
            "sets": asdict(result.set_scores()),
            "curve_rows_max": BLOCKS_MAX * BLOCK_ROWS_MAX,
        }


def _methods(result: Backtest) -> list[dict[str, Any]]:
    """The forecast beside naive and the more frequent label, over all labelled records."""
    forecast, naive = result.scores()
    rows = [
        {"name": name, "cer": each.cer, "auc": each.auc, "log_loss": each.log_loss}
        for name, each in (("forecast", forecast), ("naive", naive))
    ]
    cer = result.majority_cer
    if cer is None:
        return rows
    shares = np.array([cer, 1.0 - cer])
    entropy = float(-(shares[shares > 0] * np.log(shares[shares > 0])).sum())
    return [*rows, {"name": "more frequent label", "cer": cer, "auc": 0.5, "log_loss": entropy}]


def _page(title: str, data: dict[str, Any]) -> str:
    """The template with everything put in; text from outside is escaped."""
    index = (PAGE / "index.html").read_text()
    charts = index.partition("<!-- charts")[2].partition("-->")[2].partition("<!-- /charts -->")[0]
    imports = {f"dtgol/{name}": _as_url(_bare((PAGE / name).read_text())) for name in MODULES}
    parts = {
        "title": html.escape(title),
        "styles": "".join((PAGE / name).read_text() for name in ("uPlot.min.css", "style.css")),
        "uplot": (PAGE / "uPlot.iife.min.js").read_text(),
        "imports": orjson.dumps({"imports": imports}).decode(),
        "script": (HERE / "report.js").read_text(),
        # A browser ends a script at the first "</script>", also within JSON.
        "data": orjson.dumps(data).decode().replace("<", "\\u003c"),
        "charts": charts,
    }
    template = (HERE / "report.html").read_text()
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], template)


def _bare(module: str) -> str:
    """A module whose neighbours are found by the import map: a file has no paths of its own."""
    return re.sub(r'from "\./([\w.]+)"', r'from "dtgol/\1"', module)


def _as_url(module: str) -> str:
    return f"data:text/javascript;base64,{base64.b64encode(module.encode()).decode()}"
