"""A batch learner under the learner's verbs: trained again and again on the newest labels.

What many a pipeline does today, by a job that runs at night. scikit-learn is a benchmark extra.
"""

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier

from dtgol_core.types import FloatArray
from pipeline.offline.compare.peers import Peer

MEMORY_ROWS = 2000
EVERY_ROWS = 100
FIRST_ROWS = 20
TREES = 50
"""Set by hand, not chosen: half of scikit-learn's 100 trees, for the time."""


class RetrainedBoosting(Peer):
    """scikit-learn's gradient boosting on the last 2,000 labels, trained anew every 100 labels.

    Until there are 1,000 labels it is trained whenever a tenth more have come, from the twentieth
    on. Texts are numbered in the order they appear; missing cells are left to the trees.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._seed = seed
        self._columns: dict[str, int] = {}
        self._codes: dict[str, int] = {}
        self._memory: deque[tuple[Mapping[str, float], int]] = deque(maxlen=MEMORY_ROWS)
        self._model: Any = None
        self._trained_at = 0
        self._width = 0

    def _prepare(self, features: Mapping[str, Any]) -> Mapping[str, float]:
        for name in features:
            self._columns.setdefault(name, len(self._columns))
        return {name: self._number(value) for name, value in features.items()}

    def _number(self, value: Any) -> float:
        if isinstance(value, str):
            return float(self._codes.setdefault(value, len(self._codes)))
        return float(value)

    def _predict(self, features: Mapping[str, float]) -> float:
        if self._model is None:
            return 0.5
        # Columns that came after the last training are unknown to the model.
        row = self._row(features)[: self._width]
        return float(self._model.predict_proba(row[None, :])[0, 1])

    def _learn(self, features: Mapping[str, float], y: int) -> None:
        self._memory.append((features, y))
        labels = self._learnt + 1
        if labels < FIRST_ROWS or labels - self._trained_at < min(EVERY_ROWS, labels // 10):
            return
        classes = np.array([label for _, label in self._memory])
        if classes.min() < classes.max():
            rows = np.stack([self._row(each) for each, _ in self._memory])
            model = HistGradientBoostingClassifier(
                max_iter=TREES, early_stopping=False, random_state=self._seed
            )
            self._model, self._width = model.fit(rows, classes), rows.shape[1]
            self._trained_at = labels

    def _row(self, features: Mapping[str, float]) -> FloatArray:
        row = np.full(len(self._columns), np.nan)
        for name, value in features.items():
            row[self._columns[name]] = value
        return row
