"""What the live page shows: sums that add up, bounds that hold, and the same after a restore."""

from __future__ import annotations

import json

import numpy as np
import pytest

from dtgol_core.ids import id_hash
from pipeline.evaluation.pairing import Bounds, Evaluation
from pipeline.evaluation.view import (
    BLOCK_ROWS,
    BLOCK_ROWS_MAX,
    BLOCKS_MAX,
    PREDICTION_SUMS,
    RECENT_MAX,
    Blocks,
    Pair,
    PartitionView,
    StreamView,
    streams_page,
)
from tests.support.page_server import NOW_MS, evaluation, prediction
from topics.events import ProcessEvent
from topics.labels import Label
from topics.predictions import Contribution


def label(number: int, y: int, stream: str = "s", ts: int | None = None) -> Label:
    return Label(stream=stream, id=f"{stream}-{number}", y=y, ts=NOW_MS if ts is None else ts)


def column(stream: StreamView, name: str) -> float:
    return float(stream.predictions.kept()[:, PREDICTION_SUMS.index(name)].sum())


def fill(state: Evaluation, count: int, labelled: int, right: int) -> None:
    """Predictions of 0.9, the first ones labelled, the first of these rightly; naive is 0.4."""
    for number in range(count):
        state.predict(prediction("s", number, 0.9))
    for number in range(labelled):
        ts = NOW_MS + 60_000 * number + 1_000
        state.label(label(number, int(number < right), ts=ts), number)


def test_blocks_join_in_pairs_and_then_forget_the_oldest() -> None:
    blocks = Blocks(1)
    most = BLOCKS_MAX * BLOCK_ROWS_MAX
    for offset in range(most + 1):
        blocks.add(offset, offset)[0] += 1.0
    assert blocks.rows == BLOCK_ROWS_MAX
    assert (len(blocks), blocks.forgotten) == (BLOCKS_MAX, BLOCK_ROWS_MAX)
    sums = blocks.kept()[:, 0].tolist()
    assert sums == [BLOCK_ROWS_MAX] * (BLOCKS_MAX - 1) + [1]
    assert blocks.first_offsets[0] == BLOCK_ROWS_MAX
    assert blocks.find(BLOCK_ROWS_MAX - 1) is None


@pytest.mark.parametrize("count", [1, BLOCK_ROWS, BLOCK_ROWS * BLOCKS_MAX + 7, 20_000])
def test_a_record_is_found_in_the_block_that_took_it(count: int) -> None:
    blocks = Blocks(2)
    for offset in range(count):
        blocks.add(3 * offset, offset)[0] += offset
    for offset in range(count):
        found = blocks.find(3 * offset)
        assert found is not None
        found[1] += offset
    kept = blocks.kept()
    assert kept[:, 0].tolist() == kept[:, 1].tolist()
    assert kept[:, 0].sum() == count * (count - 1) / 2


def test_a_row_and_its_detail_add_up() -> None:
    state = evaluation()
    fill(state, 50, labelled=40, right=30)
    row = state.view.streams["s"].row()
    assert (row["records"], row["scored"], row["waiting"], row["window"]) == (50, 40, 10, 40)
    assert row["accuracy"] == 0.75
    assert row["naive"] == 0.25
    assert 1_000 <= row["median_delay_ms"] <= 1_000 * 9 / 8
    detail = state.view.streams["s"].detail()
    assert sum(detail["predictions"]["disagreed"]) == 40
    assert sum(detail["predictions"]["estimated"]) == pytest.approx(45)
    assert sum(detail["experts"]["linear"]) == pytest.approx(0.75 * 50)
    assert sum(detail["guard"]["naive"]) == pytest.approx(0.25 * 50)
    assert detail["calibration"][9] == [40, pytest.approx(36), 30]
    assert [sum(each) for each in detail["delays"]["counts"]] == [10, 30]


def test_without_labels_there_is_no_accuracy() -> None:
    state = evaluation()
    fill(state, 20, labelled=0, right=0)
    row = state.view.streams["s"].row()
    assert (row["accuracy"], row["naive"], row["median_delay_ms"]) == (None, None, None)
    assert row["spark"] == [None, None]


def test_a_correction_takes_the_old_label_back() -> None:
    state, straight = evaluation(), evaluation()
    fill(state, 20, labelled=20, right=20)
    state.label(label(3, 0), 99)
    state.label(label(4, 0), 100)
    state.label(label(4, 1), 101)
    fill(straight, 20, labelled=20, right=20)
    straight.view.streams["s"].correct_label(Pair(3, 0.9, 0.4, 0, 0.5, (0, 1)))
    for name in ("scored", "errors", "naive_errors", "disagreed", "loss", "naive_loss"):
        was, wanted = (column(each.view.streams["s"], name) for each in (state, straight))
        assert was == pytest.approx(wanted)
    assert column(state.view.streams["s"], "errors") == 1


def test_a_restore_shows_what_was_shown_but_for_what_is_not_kept() -> None:
    state = evaluation()
    fill(state, 3_000, labelled=2_500, right=1_000)
    taken = state.snapshot()
    again = Evaluation.restore("journal-id", 0, Bounds(), taken.state, taken.changed)
    before, after = state.view.streams["s"], again.view.streams["s"]
    kept = [name for name in PREDICTION_SUMS if name not in ("detailed", "observed_share")]
    for name in kept:
        at = PREDICTION_SUMS.index(name)
        shown, again_shown = before.predictions.kept()[:, at], after.predictions.kept()[:, at]
        np.testing.assert_allclose(shown, again_shown)
    np.testing.assert_array_equal(before.arrivals.kept(), after.arrivals.kept())
    np.testing.assert_allclose(before.calibration, after.calibration)
    assert before.delays == after.delays
    assert before.row() | {"learnt": None} == after.row()
    assert after.weights == {}


def test_beyond_its_bound_the_stream_that_is_silent_for_longest_goes() -> None:
    view = PartitionView(streams_max=2)
    for number, stream in enumerate("abac"):
        view.predicted(prediction(stream, number, 0.5))
    assert sorted(view.streams) == ["a", "c"]
    assert streams_page({0: view}, None, None)["streams_dropped"] == 1


def test_the_page_shows_the_stream_asked_for_or_the_one_with_most_scores() -> None:
    many, few = evaluation(), evaluation(1)
    fill(many, 30, labelled=20, right=9)
    for number in range(40):
        few.predict(prediction("t", number, 0.2, partition=1))
    views = {0: many.view, 1: few.view}
    assert streams_page(views, None, None)["selected"]["stream"] == "s"
    assert streams_page(views, "t", 1)["selected"]["partition"] == 1
    assert streams_page(views, "t", 0)["selected"] is None
    assert streams_page({}, None, None) == {"streams": [], "streams_dropped": 0, "selected": None}


def test_a_correction_takes_nothing_from_a_stream_that_was_dropped_and_came_again() -> None:
    state = Evaluation("journal-id", 0, Bounds(page_streams_max=1))
    state.predict(prediction("s", 0, 0.9))
    state.label(label(0, 1), 0)
    state.predict(prediction("t", 1, 0.9))
    state.predict(prediction("s", 2, 0.9))
    state.label(label(0, 0), 1)
    again = state.view.streams["s"]
    assert (again.calibration >= 0).all()
    assert column(again, "scored") == 0


def event(kind: str, offset: int) -> ProcessEvent:
    return ProcessEvent(kind, NOW_MS, "worker", "host:1", 0, offset, "why")


def test_an_event_is_marked_behind_the_predictions_that_came_before_it() -> None:
    state = evaluation()
    for number in range(100):
        state.predict(prediction("s", 3 * number + 10, 0.9))
    shown = state.view.streams["s"]
    events = [event(f"at {offset}", offset) for offset in (5, 10, 11, 58, 61, 10_000)]
    marks = {each["kind"]: each["x"] for each in shown.marks(events)}
    assert "at 5" not in marks
    assert "at 10" not in marks
    assert marks == {
        "at 11": pytest.approx(1, abs=1),
        "at 58": 16,  # the end of a block
        "at 61": pytest.approx(17, abs=1),
        "at 10000": 100,
    }


def test_the_newest_predictions_can_be_looked_at_with_ids_only_if_asked_for() -> None:
    state = evaluation()
    why = (Contribution("pulse", 0.25), Contribution("(rest)", -0.1))
    for number in range(RECENT_MAX + 5):
        state.predict(prediction("s", number, 0.9, why=why, missing=("age",), expire_ms=5_000))
    state.label(label(RECENT_MAX, 1), 0)
    page = streams_page({0: state.view}, "s", 0)["selected"]
    assert len(page["recent"]) == RECENT_MAX
    newest, labelled = page["recent"][0], page["recent"][4]
    assert (newest["step"], newest["y"]) == (RECENT_MAX + 5, None)
    assert (labelled["step"], labelled["y"]) == (RECENT_MAX + 1, 1)
    assert newest["why"] == [["pulse", 0.25], ["(rest)", -0.1]]
    assert newest["missing"] == ["age"]
    assert page["expire_ms"] == 5_000
    assert "s-24" not in str(page)
    asked = streams_page({0: state.view}, "s", 0, ids=True)["selected"]
    assert asked["recent"][0]["id"] == f"s-{RECENT_MAX + 4}"


def test_an_erased_instance_cannot_be_looked_at() -> None:
    state = evaluation()
    for number in range(3):
        state.predict(prediction("s", number, 0.9))
    state.erase("s", id_hash("s-1"))
    shown = state.view.streams["s"].recent_predictions(ids=True)
    assert [each["id"] for each in shown] == ["s-2", "s-0"]


def test_what_became_of_labels_is_counted_by_stream() -> None:
    state = evaluation()
    fill(state, 5, labelled=3, right=3)
    state.label(label(0, 1), 10)
    state.label(label(1, 0), 11)
    state.label(label(99, 0), 12)
    state.label(label(1, 0, stream="never"), 13)
    labels = streams_page({0: state.view}, "s", 0)["selected"]["labels"]
    assert labels == {"first": 3, "repeated": 1, "corrected": 1, "early": 1}


def test_the_page_has_estimates_window_and_decisions_of_the_stream() -> None:
    state = evaluation()
    for number in range(300):
        left_open = (1,) if number % 2 else (0, 1)
        state.predict(prediction("s", number, 0.3, threshold=0.2, set=left_open))
        state.label(label(number, int(number % 4 > 0)), number)
    page = streams_page({0: state.view}, None, None, lambda _: (3.0, 1.0))["selected"]
    assert page["decision"] == {
        "scored": 300,
        "false_positives": 75,
        "false_negatives": 0,
        "precision": 0.75,
        "recall": 1.0,
        "cost_fp": 3.0,
        "cost_fn": 1.0,
        "cost": 0.75,
        "naive_cost": 0.75,
        "coverage": 1.0,  # the labels 0 are those of even numbers, whose sets have both
        "coverage_0": 1.0,
        "coverage_1": 1.0,
        "undecided": 0.5,
    }
    window = page["window"]
    assert (window["labels"], window["accuracy"], window["recall"]) == (204, 0.75, 1.0)
    assert window["undecided"] == 0.5
    calibrated, last = page["estimates"]["calibrated"], page["estimates"]["last_window"]
    assert calibrated["now"] == pytest.approx(0.75, abs=0.08)  # p claims 0.3
    assert last["now"] == pytest.approx(0.75, abs=0.02)
    assert calibrated["error"] is not None
    assert json.dumps(page)


def test_a_restore_estimates_as_before_when_labels_came_in_the_order_of_the_journal() -> None:
    state = evaluation()
    for number in range(1_000):
        state.predict(prediction("s", number, 0.9, labels_offset=number - 101))
        if number >= 100:
            state.label(label(number - 100, int(number % 3 > 0)), number - 100)
    taken = state.snapshot()
    again = Evaluation.restore("journal-id", 0, Bounds(), taken.state, taken.changed)
    before, after = (each.view.streams["s"].estimates() for each in (state, again))
    assert before.calibrated.error is not None
    assert after.calibrated == pytest.approx(before.calibrated)
    assert after.last_window == pytest.approx(before.last_window)
