"""What is counted of the demo's answers, by zone."""

from dataclasses import replace

from pipeline.sandbox.demo import make_story
from pipeline.sandbox.demo.results import PlayResults
from tests.support.messages import prediction, score

NOW_MS = 1_800_000_000_000


def test_answers_and_scores_are_counted_once_and_by_zone() -> None:
    story = make_story("patients", 100, 0, NOW_MS)
    results = PlayResults(story)
    for _ in range(2):
        for number in range(99):
            id = story.cases[number].row.id or ""
            results.add_prediction(replace(prediction(number), id=id))
            results.add_score(replace(score(number, number in story.blind), id=id))
    results.add_prediction(replace(prediction(500), id="somebody else"))
    assert (results.answered, results.unanswered, results.scored) == (99, 1, 99)
    zones = results.zones()
    assert sum(zone.records for zone in zones.values()) == 100
    assert zones["inside the blind zone"].forecast == 1.0
    assert zones["after the blind zone"].forecast == 0.0
    assert zones["after the blind zone"].naive == 1.0
    assert len(results.newest) == 5


def test_nothing_scored_is_no_number() -> None:
    assert PlayResults(make_story("patients", 100, 0, NOW_MS)).recently() == (0, 0, None, None)
