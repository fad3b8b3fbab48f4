"""A prediction and its score, as the pipeline would write them, by journal offset."""

from topics.predictions import ExpertAnswer, Identity, Prediction
from topics.scores import Score


def prediction(offset: int, partition: int = 0, stream: str = "s") -> Prediction:
    return Prediction(
        stream=stream,
        id=f"i{offset}",
        step=offset + 1,
        model="m",
        at=Identity("j", partition, offset),
        ts=1,
        p=0.7,
        label=1,
        naive=0.4,
        experts={"naive": ExpertAnswer(0.4, 0.25), "paper": ExpertAnswer(0.8, 0.75)},
        guard={"now": 0.75, "naive": 0.25},
        labels_learnt=offset // 2,
        unverified=3,
        observed_share=1.0,
        uncertainty=0.1,
    )


def score(offset: int, correct: bool, naive_correct: bool = True) -> Score:
    return Score(
        stream="s",
        id=f"i{offset}",
        step=offset + 1,
        model="m",
        at=Identity("j", 0, offset),
        p=0.7,
        naive=0.4,
        y=1,
        correct=correct,
        naive_correct=naive_correct,
        loss=0.3,
        naive_loss=0.9,
        delay_ms=5,
    )
