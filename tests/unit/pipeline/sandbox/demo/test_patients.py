"""The story that `make demo` and the README tell: the forecast is ahead of naive in every zone."""

import pytest

from pipeline.sandbox.demo import make_story
from tests.support.page_server import NOW_MS, story_messages
from topics.predictions import Prediction

RECORDS = 2_400


@pytest.fixture(scope="module")
def right() -> list[tuple[bool, bool]]:
    """Of each patient of the demo's seed, whether forecast and naive were right."""
    story = make_story("patients", RECORDS, 0, NOW_MS)
    truth = {case.row.id: case.row.label for case in story.cases}
    answers = [
        each for each in story_messages("patients", RECORDS, 1.0) if isinstance(each, Prediction)
    ]
    assert [each.id for each in answers] == [case.row.id for case in story.cases]
    return [
        ((each.p > 0.5) == truth[each.id], (each.naive > 0.5) == truth[each.id]) for each in answers
    ]


@pytest.mark.parametrize(("zone", "ahead"), [("before", 0.02), ("inside", 0.1), ("after", 0.02)])
def test_the_forecast_beats_naive_before_in_and_after_the_blind_zone(
    right: list[tuple[bool, bool]], zone: str, ahead: float
) -> None:
    """Where the learner changes and this fails, the README's excerpt is to be made anew too."""
    story = make_story("patients", RECORDS, 0, NOW_MS)
    numbers = {
        "before": range(story.first_answerable, story.blind.start),
        "inside": story.blind,
        "after": range(story.blind.stop, RECORDS),
    }[zone]
    forecast, naive = (sum(right[n][i] for n in numbers) / len(numbers) for i in (0, 1))
    assert forecast > naive + ahead
