"""What came back: which records were answered, and how right the answers were, by zone."""

from collections import deque
from typing import NamedTuple

from pipeline.sandbox.demo.stories import Story
from topics.predictions import Prediction
from topics.scores import Score

RECENT = 200
SHOWN = 5


class Accuracy(NamedTuple):
    """Shares of right answers; None without any scored record."""

    records: int
    scored: int
    forecast: float | None
    naive: float | None


class PlayResults:
    """Predictions and scores against the story; copies count once, the newest score counts."""

    def __init__(self, story: Story) -> None:
        self._story = story
        self._numbers = {case.row.id: number for number, case in enumerate(story.cases)}
        self._answered: set[int] = set()
        self._scores: dict[int, tuple[bool, bool]] = {}
        self._recent: deque[int] = deque(maxlen=RECENT)
        self.newest: deque[Prediction] = deque(maxlen=SHOWN)

    @property
    def answered(self) -> int:
        """Records that have an answer."""
        return len(self._answered)

    @property
    def scored(self) -> int:
        """Labels that were joined with their prediction."""
        return len(self._scores)

    @property
    def unanswered(self) -> int:
        """Records of the story without an answer."""
        return len(self._story.cases) - self.answered

    def add_prediction(self, prediction: Prediction) -> None:
        """Take one prediction."""
        number = self._numbers.get(prediction.id)
        if number is None or number in self._answered:
            return
        self._answered.add(number)
        self.newest.append(prediction)

    def add_score(self, score: Score) -> None:
        """Take one score."""
        number = self._numbers.get(score.id)
        if number is None:
            return
        if number not in self._scores:
            self._recent.append(number)
        self._scores[number] = score.correct, score.naive_correct

    def recently(self) -> Accuracy:
        """The accuracy of the labels that came last."""
        return self._accuracy(list(self._recent))

    def zones(self) -> dict[str, Accuracy]:
        """The accuracy by zone, in the order of the story."""
        count, blind = len(self._story.cases), self._story.blind
        first = min(self._story.first_answerable, blind.start)
        zones = {
            "before any label": range(first),
            "before the blind zone": range(first, blind.start),
            "inside the blind zone": blind,
            "after the blind zone": range(blind.stop, count),
        }
        return {name: self._accuracy(list(numbers)) for name, numbers in zones.items()}

    def _accuracy(self, numbers: list[int]) -> Accuracy:
        scores = [self._scores[number] for number in numbers if number in self._scores]
        if not scores:
            return Accuracy(len(numbers), 0, None, None)
        right, naive = (sum(each) / len(scores) for each in zip(*scores, strict=True))
        return Accuracy(len(numbers), len(scores), right, naive)
