"""The stories of the demo, and their timetable."""

import numpy as np
import pytest

from pipeline.sandbox.demo import make_story
from pipeline.sandbox.demo.patients import direction
from pipeline.sandbox.demo.play import timetable
from pipeline.sandbox.demo.stories import DAY_MS, Story, with_id_prefix

NOW_MS = 1_800_000_000_000
NAMES = ("patients", "sensors")


@pytest.fixture(params=NAMES)
def story(request: pytest.FixtureRequest) -> Story:
    return make_story(request.param, 1_200, 0, NOW_MS)


def values(story: Story, name: str, numbers: range) -> list[float]:
    records = [story.cases[number].row.record for number in numbers]
    return [float(record[name] or 0) for record in records if name in record]


def test_a_story_depends_on_its_seed_alone() -> None:
    for name in NAMES:
        assert make_story(name, 50, 3, NOW_MS) == make_story(name, 50, 3, NOW_MS)
        assert make_story(name, 50, 3, NOW_MS) != make_story(name, 50, 4, NOW_MS)


def test_values_are_plain_and_of_mixed_kinds(story: Story) -> None:
    kinds = {type(value) for case in story.cases for value in case.row.record.values()}
    assert kinds == {int, float, bool, str}


def test_a_fifth_of_the_patients_values_is_missing() -> None:
    story = make_story("patients", 1_200, 0, NOW_MS)
    seen = sum(len(case.row.record) for case in story.cases)
    assert seen / (11 * len(story.cases)) == pytest.approx(0.8, abs=0.02)


def test_labels_come_days_later_and_never_from_the_future(story: Story) -> None:
    for case in story.cases:
        assert case.at_ms + 3 * DAY_MS <= case.known_ms <= NOW_MS


def correlation(story: Story, feature: str, numbers: range) -> float:
    """Of a measurement and the label."""
    rows = [story.cases[number].row for number in numbers]
    pairs = [(float(r.record[feature] or 0), r.label or 0) for r in rows if feature in r.record]
    return float(np.corrcoef(np.array(pairs).T)[0, 1])


def test_the_sensors_change_midway_rows_and_concept() -> None:
    story = make_story("sensors", 2_400, 0, NOW_MS)
    before, after = range(story.change), range(story.change, 2_400)
    shift = np.mean(values(story, "temperature", after)) - np.mean(
        values(story, "temperature", before)
    )
    assert shift > 5
    assert correlation(story, "vibration", before) > 0.2
    assert correlation(story, "vibration", after) < -0.2


def test_complicated_recoveries_turn_from_inflamed_to_immobile_to_less_inflamed() -> None:
    story = make_story("patients", 2_400, 0, NOW_MS)
    first, immobile, last = range(300), range(850, 950), range(1_250, 1_350)
    assert correlation(story, "temperature", first) > 0.7
    assert correlation(story, "pain", immobile) > 0.7
    assert correlation(story, "temperature", last) < -0.7


def test_the_patients_direction_moves_day_by_day_and_jumps_once_by_less_than_a_right_angle() -> (
    None
):
    angles = np.degrees([direction(number / 2_400) for number in range(2_400)])
    steps = np.diff(angles)
    assert np.delete(steps, 1_199) == pytest.approx(0.1)
    assert steps[1_199] == pytest.approx(45.1)


def test_the_patients_clouds_stay_apart_wherever_they_are() -> None:
    """A plane fitted to one week tells that week, and not the week after the jump."""
    story = make_story("patients", 2_400, 0, NOW_MS)
    names = ("pulse", "temperature", "crp_mg_l", "steps", "pain", "stairs")

    def table(numbers: range) -> tuple[np.ndarray, np.ndarray]:
        rows = [story.cases[number].row for number in numbers]
        whole = [row for row in rows if all(name in row.record for name in names)]
        cells = [[1.0, *(float(row.record[name] or 0) for name in names)] for row in whole]
        return np.array(cells), np.array([row.label or 0 for row in whole])

    weeks = [table(range(start, start + 280)) for start in (0, 600, 900, 1_200, 1_900)]
    planes = [np.linalg.lstsq(x, 2.0 * y - 1.0, rcond=None)[0] for x, y in weeks]
    for plane, (x, y) in zip(planes, weeks, strict=True):
        assert np.mean((x @ plane > 0) == y) > 0.94
    x, y = weeks[3]
    assert np.mean((x @ planes[2] > 0) == y) < 0.85


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


def test_a_story_with_other_ids_is_the_same_story() -> None:
    story = make_story("sensors", 20, 0, NOW_MS)
    again = with_id_prefix(story, "x-")
    assert [case.row.id for case in again.cases] == [f"x-{case.row.id}" for case in story.cases]
    assert [case.row.record for case in again.cases] == [case.row.record for case in story.cases]
