"""Learners from elsewhere under the learner's verbs; here the simplest: the last label so far.

Told of the delay: a record is kept as it came and learnt when its label arrives.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from dtgol_core.types import FeatureValues, Forecast, LabelOutcome, LabelReceipt


class Peer(ABC):
    """Keeps records until their labels come."""

    def __init__(self) -> None:
        self._waiting: dict[str, Mapping[str, Any]] = {}
        self._step = 0
        self._learnt = 0

    def observe(self, id: str, x: FeatureValues) -> Forecast:
        """Predict a record and keep it."""
        self._step += 1
        features = self._prepare({name: value for name, value in x.items() if value is not None})
        p = self._predict(features)
        self._waiting[id] = features
        return Forecast(
            step=self._step,
            p=p,
            label=int(p > 0.5),
            naive=p,
            labels_learnt=self._learnt,
            unverified=len(self._waiting) - 1,
            observed_share=1.0,
            uncertainty=0.0,
        )

    def learn(self, id: str, y: int) -> LabelReceipt:
        """Learn a record that was kept."""
        self._learn(self._waiting.pop(id), y)
        self._learnt += 1
        return LabelReceipt(LabelOutcome.QUEUED)

    def _prepare(self, features: Mapping[str, Any]) -> Mapping[str, Any]:
        return features

    @abstractmethod
    def _predict(self, features: Mapping[str, Any]) -> float: ...

    @abstractmethod
    def _learn(self, features: Mapping[str, Any], y: int) -> None: ...


class LastLabel(Peer):
    """The last label that has arrived, whatever the record."""

    def __init__(self) -> None:
        super().__init__()
        self._last = 0.5

    def _predict(self, features: Mapping[str, Any]) -> float:
        return self._last

    def _learn(self, features: Mapping[str, Any], y: int) -> None:
        self._last = float(y)
