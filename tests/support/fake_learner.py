"""A learner that predicts what its records tell it to, for the loop and the command around it."""

from dtgol_core.config import Config
from dtgol_core.types import FeatureValues, Forecast, LabelOutcome, LabelReceipt, Rejection


class FakeLearner:
    """Predicts the feature ``p`` of a record, refuses records with ``bad``, notes every call."""

    made: "list[FakeLearner]" = []  # noqa: RUF012 - emptied by a fixture

    def __init__(self, config: Config | None = None) -> None:
        self.config = config
        self.calls: list[tuple[str, str]] = []
        self.step = 0
        FakeLearner.made.append(self)

    def observe(
        self, id: str, x: FeatureValues, event_time_ms: int | None = None, why: int = 0
    ) -> Forecast | Rejection:
        self.calls.append(("observe", id))
        if x.get("bad"):
            return Rejection("out-of-range", "bad is out of range")
        self.step += 1
        p = float(x.get("p") or 0.5)
        return Forecast(
            step=self.step,
            p=p,
            label=int(p > 0.5),
            naive=0.5,
            labels_learnt=0,
            unverified=0,
            observed_share=1.0,
            uncertainty=0.0,
        )

    def learn(self, id: str, y: int, event_time_ms: int | None = None) -> LabelReceipt:
        self.calls.append((f"learn {y}", id))
        if id == "13":
            return LabelReceipt(LabelOutcome.LATE, setting="expire_steps")
        return LabelReceipt(LabelOutcome.QUEUED)
