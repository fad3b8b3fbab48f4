"""The stories of the demo, their timetable, and what is counted of the answers."""

from dataclasses import replace

import numpy as np
import pytest

from pipeline.demo.play import timetable
from pipeline.demo.stories import DAY_MS, Story, renamed
from pipeline.demo.tally import Tally
from pipeline.demo.tellers import tell
from tests.unit.pipeline.test_board import prediction, score

NOW_MS = 1_800_000_000_000
NAMES = ("patients", "sensors")


@pytest.fixture(params=NAMES)
def story(request: pytest.FixtureRequest) -> Story:
    return tell(request.param, 1_200, 0, NOW_MS)


def values(story: Story, name: str, numbers: range) -> list[float]:
    records = [story.cases[number].row.record for number in numbers]
    return [float(record[name] or 0) for record in records if name in record]


def test_a_story_depends_on_its_seed_alone() -> None:
    for name in NAMES:
        assert tell(name, 50, 3, NOW_MS) == tell(name, 50, 3, NOW_MS)
        assert tell(name, 50, 3, NOW_MS) != tell(name, 50, 4, NOW_MS)


def test_values_are_plain_and_of_mixed_kinds(story: Story) -> None:
    kinds = {type(value) for case in story.cases for value in case.row.record.values()}
    assert kinds == {int, float, bool, str}


def test_a_third_of_the_patients_values_is_missing() -> None:
    story = tell("patients", 1_200, 0, NOW_MS)
    seen = sum(len(case.row.record) for case in story.cases)
    assert seen / (13 * len(story.cases)) == pytest.approx(2 / 3, abs=0.02)


def test_labels_come_days_later_and_never_from_the_future(story: Story) -> None:
    for case in story.cases:
        assert case.at_ms + 3 * DAY_MS <= case.known_ms <= NOW_MS


def test_the_covariates_change_midway() -> None:
    for name, feature in (("patients", "pulse"), ("sensors", "temperature")):
        story = tell(name, 1_200, 0, NOW_MS)
        before = values(story, feature, range(story.change))
        after = values(story, feature, range(story.change, len(story.cases)))
        assert np.mean(after) - np.mean(before) > 5


def test_the_concept_changes_midway() -> None:
    for name, feature in (("patients", "pain"), ("sensors", "vibration")):
        story = tell(name, 2_400, 0, NOW_MS)
        for numbers, sign in ((range(story.change), 1), (range(story.change, 2_400), -1)):
            pairs = [
                (float(row.record[feature] or 0), row.label or 0)
                for row in (story.cases[number].row for number in numbers)
                if feature in row.record
            ]
            assert sign * np.corrcoef(np.array(pairs).T)[0, 1] > 0.2


def test_machines_have_a_stream_each_and_ids_are_unique(story: Story) -> None:
    assert len({case.row.id for case in story.cases}) == len(story.cases)
    assert len({case.stream for case in story.cases}) == {"patients": 1, "sensors": 6}[story.name]
    assert all(case.row.key == case.stream for case in story.cases)


def test_the_blind_zone_ends_with_the_first_label_of_the_new_world(story: Story) -> None:
    blind = story.blind
    first_label = min(case.known_ms for case in story.cases[story.change :])
    assert blind.start == story.change
    assert story.cases[blind.stop - 1].at_ms < first_label <= story.cases[blind.stop].at_ms
    assert 0 < story.first_answerable < story.change


def test_the_timetable_has_everything_once_in_order(story: Story) -> None:
    events = timetable(story, 60.0)
    assert len(events) == 2 * len(story.cases)
    assert [event.at_s for event in events] == sorted(event.at_s for event in events)
    records = [event.at_s for event in events if not event.is_label]
    assert records[0] == 0
    assert records[-1] == pytest.approx(60, abs=0.1)


def test_a_renamed_story_is_the_same_story() -> None:
    story = tell("sensors", 20, 0, NOW_MS)
    again = renamed(story, "x-")
    assert [case.row.id for case in again.cases] == [f"x-{case.row.id}" for case in story.cases]
    assert [case.row.record for case in again.cases] == [case.row.record for case in story.cases]


def test_answers_and_scores_are_counted_once_and_by_zone() -> None:
    story = tell("patients", 100, 0, NOW_MS)
    tally = Tally(story)
    for _ in range(2):
        for number in range(99):
            id = story.cases[number].row.id or ""
            tally.hear(replace(prediction(number), id=id))
            tally.judge(replace(score(number, number in story.blind), id=id))
    tally.hear(replace(prediction(500), id="somebody else"))
    assert (tally.answered, tally.unanswered, tally.scored) == (99, 1, 99)
    zones = tally.zones()
    assert sum(zone.records for zone in zones.values()) == 100
    assert zones["inside the blind zone"].forecast == 1.0
    assert zones["after the blind zone"].forecast == 0.0
    assert zones["after the blind zone"].naive == 1.0
    assert len(tally.newest) == 5


def test_nothing_scored_is_no_number() -> None:
    assert Tally(tell("patients", 100, 0, NOW_MS)).recently() == (0, 0, None, None)
