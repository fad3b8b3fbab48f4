"""The evaluation: scored once, scored again on a correction, the same whatever the order."""

from __future__ import annotations

import random
import tracemalloc
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtgol_core.ids import id_hash
from dtgol_core.state import SnapshotError, digest, encode
from pipeline.evaluation import pairing
from pipeline.evaluation.pairing import BLOB, Bounds, Evaluation
from pipeline.evaluation.pairs import CHUNK_OFFSETS, PAIR_BYTES, key_of
from pipeline.evaluation.view import PartitionView
from pipeline.snapshots.repository import SnapshotRepository
from tests.support.fake_kafka import MemoryStore
from topics.labels import Label
from topics.predictions import Identity, Prediction

SMALL = Bounds(pairs_max=1_000, labels_max=100, window_rows=10, windows_max=50)


def predicted(
    offset: int, id: str | None = None, repeat: bool = False, journal: str = "j"
) -> Prediction:
    p = (offset * 37 % 100) / 100
    return Prediction(
        stream="s",
        id=id or f"i{offset}",
        step=offset + 1,
        model="1-x",
        at=Identity(journal, 0, offset),
        ts=1_000 + offset,
        p=p,
        label=int(p > 0.5),
        naive=1 - p,
        experts={},
        labels_learnt=0,
        unverified=0,
        observed_share=1.0,
        uncertainty=0.1,
        repeat=repeat,
    )


def truth(id: str, y: int, ts: int = 5_000) -> Label:
    return Label("s", id, y, ts)


def evaluation(bounds: Bounds = SMALL) -> Evaluation:
    return Evaluation("j", 0, bounds)


def state(of: Evaluation) -> tuple[object, str]:
    taken = of.snapshot()
    return taken.state, digest(taken.changed[BLOB])


def test_a_prediction_is_scored_when_its_label_comes() -> None:
    pairs = evaluation()
    assert pairs.predict(predicted(3)) == []
    (score,) = pairs.label(truth("i3", 1), 0)
    assert (score.id, score.y, score.at.offset, score.rescored) == ("i3", 1, 3, False)
    assert score.delay_ms == 5_000 - 1_003
    assert score.correct == (score.p > 0.5)
    assert pairs.boards["s"].summary().total.count == 1


def test_a_label_before_its_prediction_waits_for_it() -> None:
    pairs = evaluation()
    assert pairs.label(truth("i3", 0), 0) == []
    (score,) = pairs.predict(predicted(3))
    assert score.y == 0


def test_a_prediction_sent_again_is_not_scored_again() -> None:
    pairs = evaluation()
    pairs.predict(predicted(3))
    pairs.label(truth("i3", 1), 0)
    assert pairs.predict(predicted(3)) == []
    assert pairs.label(truth("i3", 1), 1) == []
    assert pairs.boards["s"].summary().total.count == 1


def test_a_correction_takes_the_first_score_back() -> None:
    pairs = evaluation()
    pairs.predict(predicted(3))
    pairs.label(truth("i3", 1), 0)
    (score,) = pairs.label(truth("i3", 0, 9_000), 1)
    assert (score.y, score.rescored, score.delay_ms) == (0, True, 9_000 - 1_003)
    total = pairs.boards["s"].summary().total
    assert (total.count, total.positives) == (1, 0)


def test_a_repeated_answer_is_not_scored() -> None:
    pairs = evaluation()
    pairs.predict(predicted(3))
    pairs.predict(predicted(9, "i3", repeat=True))
    assert len(pairs.label(truth("i3", 1), 0)) == 1


def test_predictions_of_another_journal_are_counted_and_ignored() -> None:
    pairs = evaluation()
    assert pairs.predict(predicted(3, journal="other")) == []
    assert pairs.counts["predictions/foreign"] == 1


def test_beyond_the_bound_the_oldest_is_forgotten_for_good() -> None:
    pairs = evaluation(Bounds(pairs_max=2, labels_max=2))
    for offset in range(4):
        pairs.predict(predicted(offset))
    assert pairs.pairs.offsets() == [2, 3]
    assert pairs.predict(predicted(1)) == []
    assert pairs.label(truth("i1", 1), 0) == []
    assert len(pairs.label(truth("i3", 1), 1)) == 1


def test_labels_without_predictions_are_bounded() -> None:
    pairs = evaluation(Bounds(pairs_max=2, labels_max=2))
    for offset in range(4):
        pairs.label(truth(f"i{offset}", 1), offset)
    assert sorted(pairs.pairs.instance_keys()) == sorted(key_of("s", id) for id in ("i2", "i3"))
    assert pairs.counts["labels/unmatched"] == 2


@given(st.integers(0, 2**32 - 1))
def test_the_state_does_not_depend_on_how_the_topics_interleave(seed: int) -> None:
    chance = random.Random(seed)
    predictions = [predicted(chance.randrange(30)) for _ in range(40)]
    labels = [(truth(f"i{chance.randrange(35)}", chance.randrange(2), n), n) for n in range(50)]

    def play(turns: list[bool]) -> Evaluation:
        pairs, left, right = evaluation(), iter(predictions), iter(labels)
        for turn in turns:
            if turn:
                pairs.predict(next(left))
            else:
                pairs.label(*next(right))
        return pairs

    turns = [True] * len(predictions) + [False] * len(labels)
    first = play(turns)
    chance.shuffle(turns)
    assert state(play(turns)) == state(first)


@given(st.integers(0, 2**32 - 1))
def test_no_topic_waits_for_one_that_waits_or_has_ended(seed: int) -> None:
    chance = random.Random(seed)
    pairs = evaluation(Bounds(pairs_max=chance.randrange(1, 9), labels_max=chance.randrange(9)))
    unread = {"predictions": chance.randrange(40), "labels": chance.randrange(40)}
    here = dict.fromkeys(unread, 0)
    while any(unread.values()) or any(here.values()):
        at_hand = {name: chance.randrange(9) for name, count in here.items() if count}
        name = pairs.next_topic(at_hand, lambda other: unread[other] > 0)
        if name is None:
            coming = [each for each, count in unread.items() if count and each not in at_hand]
            assert coming, "both wait, or one for nothing"
            name = chance.choice(coming)
            count = chance.randint(1, unread[name])
            unread[name], here[name] = unread[name] - count, count
            continue
        here[name] -= 1
        number = chance.randrange(40)
        if name == "predictions":
            pairs.predict(predicted(number))
        else:
            pairs.label(truth(f"i{number}", chance.randrange(2)), 40 - unread["labels"])


def test_the_earlier_record_goes_first_and_of_equals_the_prediction() -> None:
    def everything(_: str) -> bool:
        return True

    pairs = evaluation()
    assert pairs.next_topic({}, everything) is None
    assert pairs.next_topic({"labels": 5}, everything) == "labels"
    assert pairs.next_topic({"predictions": 6, "labels": 5}, everything) == "labels"
    assert pairs.next_topic({"predictions": 5, "labels": 5}, everything) == "predictions"


def test_what_is_far_ahead_lets_the_other_topic_go_first() -> None:
    pairs = evaluation(Bounds(pairs_max=4, labels_max=2))
    pairs.label(truth("i0", 1), 0)
    pairs.label(truth("i1", 1), 1)
    assert pairs.next_topic({"predictions": 9, "labels": 1}, bool) == "predictions"
    for offset in (5, 6, 7):
        pairs.predict(predicted(offset))
    assert (
        pairs.next_topic({"predictions": 9, "labels": 1}, bool) == "labels"
    )  # both are: as it happened
    pairs.predict(predicted(1))
    assert pairs.next_topic({"predictions": 1, "labels": 9}, bool) == "labels"


@given(st.integers(0, 2**32 - 1))
def test_a_restore_goes_on_to_the_same_state(seed: int) -> None:
    chance = random.Random(seed)
    bounds = Bounds(pairs_max=12, labels_max=5, window_rows=5, windows_max=3)
    pairs, twin = evaluation(bounds), evaluation(bounds)
    for offset in range(60):
        if chance.random() < 0.5:
            outputs = [each.predict(predicted(offset)) for each in (pairs, twin)]
        else:
            label = truth(f"i{chance.randrange(60)}", chance.randrange(2), offset)
            outputs = [each.label(label, offset) for each in (pairs, twin)]
        assert outputs[0] == outputs[1]
        taken = twin.snapshot()
        twin = Evaluation.restore("j", 0, bounds, taken.state, taken.changed)
        assert state(twin) == state(pairs)
        at_hand = {"predictions": chance.randrange(2), "labels": chance.randrange(2)}
        assert twin.next_topic(at_hand, lambda _: True) == pairs.next_topic(at_hand, lambda _: True)


def test_a_damaged_state_is_refused() -> None:
    taken = evaluation().snapshot()
    with pytest.raises(SnapshotError):
        Evaluation.restore("j", 0, SMALL, taken.state | {"version": 99}, taken.changed)
    del taken.changed[BLOB].arrays["unmatched"]
    with pytest.raises(SnapshotError):
        Evaluation.restore("j", 0, SMALL, taken.state, taken.changed)


def test_boards_are_bounded_and_corrections_stay_exact() -> None:
    """Seen: 100,000 streams, 955 MB."""
    pairs = evaluation(Bounds(boards_max=2))
    for number, stream in enumerate(("a", "b", "c", "d")):
        pairs.predict(replace(predicted(number), stream=stream))
        for y in (1, 0):
            assert len(pairs.label(Label(stream, f"i{number}", y, 5_000), 2 * number + y)) == 1
    assert set(pairs.boards) == {"a", "b"}
    assert [board.summary().total.count for board in pairs.boards.values()] == [1, 1]
    assert pairs.counts["predictions/without-board"] == 2


def test_windows_go_on_where_a_stream_starts_anew() -> None:
    """Windows by step mixed the records before a reset with those after it."""
    pairs = evaluation(Bounds(window_rows=10, windows_max=50))
    for offset in range(30):
        pairs.predict(replace(predicted(offset), step=offset % 15 + 1))
        pairs.label(truth(f"i{offset}", 1), offset)
    assert [each.count for each in pairs.boards["s"].summary().windows] == [10, 10, 10]


# --- the memory of the past ---------------------------------------------------------


def test_an_id_that_comes_back_is_not_scored_with_the_label_of_its_first_life() -> None:
    pairs = evaluation()
    pairs.predict(predicted(3, "a"))
    assert len(pairs.label(truth("a", 1), 0)) == 1
    assert pairs.predict(replace(predicted(90, "a"), labels_offset=0)) == []
    (score,) = pairs.label(truth("a", 1), 7)
    assert score.at.offset == 90
    assert pairs.counts["predictions/scored"] == 2


def test_a_label_before_its_first_prediction_is_about_that_one_alone() -> None:
    pairs = evaluation()
    pairs.label(truth("a", 1), 0)
    assert len(pairs.predict(replace(predicted(3, "a"), labels_offset=0))) == 1
    assert pairs.predict(replace(predicted(9, "a"), labels_offset=0)) == []


@given(st.randoms(use_true_random=False))
def test_which_label_is_about_which_prediction_does_not_depend_on_the_order(
    chance: random.Random,
) -> None:
    made = [
        replace(predicted(3, "a"), labels_offset=-1),
        replace(predicted(5, "a"), labels_offset=4),
        replace(predicted(9, "b"), labels_offset=6, defaulted=("a",), default=0),
        replace(predicted(12, "a"), labels_offset=8),
    ]
    labels = [(truth("a", 1), 2), (truth("a", 1), 5), (truth("a", 0), 7), (truth("a", 0), 9)]
    states = set()
    for _ in range(4):
        pairs, left, right = evaluation(), list(made), list(labels)
        while left or right:
            if left and (not right or chance.random() < 0.5):
                pairs.predict(left.pop(0))
            else:
                pairs.label(*right.pop(0))
        taken = pairs.snapshot()
        states.add((str(taken.state["counts"]), digest(taken.changed[BLOB])))
        again = Evaluation.restore("j", 0, SMALL, taken.state, taken.changed)
        assert state(again) == state(pairs)
        assert again._unscored == pairs._unscored
    assert len(states) == 1


def test_a_deadline_is_scored_with_its_default_label_and_again_with_the_true_one() -> None:
    pairs = evaluation()
    pairs.predict(predicted(3, "a"))
    met = replace(predicted(9, "b"), defaulted=("a", "forgotten long ago"), default=0)
    (score,) = pairs.predict(met)
    assert (score.id, score.y, score.default, score.label_offset) == ("a", 0, True, -1)
    assert pairs.predict(met) == []
    (score,) = pairs.label(truth("a", 1), 0)
    assert (score.y, score.default, score.rescored) == (1, False, True)
    total = pairs.boards["s"].summary().total
    assert (total.count, total.positives) == (1, 1)


def test_a_true_label_that_was_read_before_the_deadline_stays() -> None:
    pairs = evaluation()
    pairs.predict(predicted(3, "a"))
    pairs.label(truth("a", 1), 0)
    assert pairs.predict(replace(predicted(9, "b"), defaulted=("a",), default=0)) == []


def test_an_id_can_be_erased() -> None:
    pairs = evaluation()
    pairs.predict(predicted(3, "secret-a"))
    pairs.predict(predicted(4, "secret-b"))
    pairs.label(truth("secret-b", 1), 0)
    pairs.label(truth("secret-c", 1), 1)
    pairs.predict(predicted(5, "kept"))
    for id in ("secret-a", "secret-b", "secret-c", "unknown"):
        pairs.erase("s", id_hash(id))
    assert b"secret" not in encode(pairs.snapshot().changed[BLOB])
    assert pairs.pairs.offsets() == [5]
    assert pairs._unscored == 1
    assert pairs.boards["s"].summary().total.count == 1
    assert len(pairs.label(truth("kept", 1), 2)) == 1


def test_what_was_erased_is_not_forgotten_again_where_memory_is_full() -> None:
    pairs = evaluation(replace(SMALL, pairs_max=3))
    for number in range(3):
        pairs.predict(predicted(number, f"i{number}"))
    pairs.erase("s", id_hash("i0"))
    for number in (3, 4, 5):
        pairs.predict(predicted(number, f"i{number}"))
    assert pairs.pairs.offsets() == [3, 4, 5]
    assert pairs.counts["predictions/unlabelled"] == 2
    assert pairs.floor == 2


def test_what_was_erased_takes_no_memory_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairing, "ERASED_MAX", 4)
    pairs = evaluation()
    pairs.predict(predicted(1000, "kept"))
    for number in range(50):
        pairs.predict(predicted(number, f"i{number}"))
        pairs.erase("s", id_hash(f"i{number}"))
        assert len(pairs._oldest) <= 2 * len(pairs.pairs) + 4
    assert pairs.pairs.offsets() == [1000]


# --- thresholds, sets, memory ---------------------------------------------------------------------


@pytest.mark.parametrize(("threshold", "given"), [(0.5, 0), (0.3, 1), (0.37, 0)])
def test_a_score_is_about_the_label_that_was_given(threshold: float, given: int) -> None:
    """`correct` went by one half, whatever the threshold of the stream was."""
    pairs = evaluation()
    pairs.predict(replace(predicted(1), threshold=threshold, label=given))  # p is 0.37
    (score,) = pairs.label(truth("i1", 1), 0)
    assert score.correct == (given == 1)
    assert score.naive_correct  # 0.63
    assert score.threshold == threshold
    total = pairs.boards["s"].total()
    assert total.forecast.false_negatives == 1 - given
    assert total.forecast.recall == given
    assert total.forecast.precision == (1.0 if given else None)


def test_coverage_is_that_of_the_sets_given_on_arrival_by_class() -> None:
    pairs = evaluation()
    sets = [(0,), (1,), (0, 1), (1,), (0,), (0, 1)]
    labels = [0, 0, 0, 1, 1, 1]
    for number, (left_open, y) in enumerate(zip(sets, labels, strict=True)):
        pairs.predict(replace(predicted(number), set=left_open))
        (score,) = pairs.label(truth(f"i{number}", y), number)
        assert (score.set, score.covered) == (left_open, y in left_open)
    found = pairs.boards["s"].total().coverage
    assert (found.share, found.by_class, found.undecided) == (4 / 6, (2 / 3, 2 / 3), 2 / 6)
    taken = pairs.snapshot()
    again = Evaluation.restore("j", 0, SMALL, taken.state, taken.changed)
    pairs.label(truth("i1", 1), 9)
    again.label(truth("i1", 1), 9)
    assert pairs.boards["s"].total().coverage.by_class == (1.0, 3 / 4)
    assert state(again) == state(pairs)


def test_threshold_and_set_are_kept_with_a_prediction_over_a_restore() -> None:
    pairs = evaluation()
    pairs.predict(replace(predicted(1), threshold=0.2, set=(1,)))
    taken = pairs.snapshot()
    again = Evaluation.restore("j", 0, SMALL, taken.state, taken.changed)
    (score,) = again.label(truth("i1", 0), 0)
    assert (score.threshold, score.set, score.covered, score.correct) == (0.2, (1,), False, False)


def test_a_pair_takes_no_more_memory_than_the_bound_counts() -> None:
    count = 20_000
    pairs = evaluation(Bounds(pairs_max=count))
    pairs.view = PartitionView(1)  # bounded on its own
    made = [replace(predicted(n), at=Identity("j", 0, 10**9 + 2 * n)) for n in range(count)]
    tracemalloc.start()
    try:
        for each in made:
            pairs.predict(each)
            pairs.label(truth(each.id, 1), 10**6 + each.at.offset)
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(pairs.pairs) == count
    assert 0.5 * PAIR_BYTES < used / count < PAIR_BYTES


def test_a_snapshot_writes_again_only_the_parts_that_changed() -> None:
    pairs = evaluation(Bounds())
    for offset in range(0, 4 * CHUNK_OFFSETS, 1_000):
        pairs.predict(predicted(offset))
    repository = SnapshotRepository(MemoryStore(), 0, {})
    whole = repository.save(pairs.snapshot())
    pairs.next_offsets["labels"] = 1
    pairs.label(truth("i1000", 1), 0)
    later = repository.save(pairs.snapshot())
    assert whole.objects_written == 1 + 1 + 4  # manifest, boards, parts
    assert later.objects_written == 1 + 1 + 1


def test_what_is_given_up_without_a_label_is_counted() -> None:
    pairs = evaluation(Bounds(pairs_max=3))
    pairs.label(truth("i0", 1), 0)
    for offset in range(10):
        pairs.predict(predicted(offset))
    assert pairs.counts["predictions/unlabelled"] == 6


@pytest.mark.parametrize(
    ("array", "at", "value"),
    [
        ("instances", (0, 1), 300),
        ("instances", (0, 5), 2),
        ("numbers", (0, 0), -5),
        ("probabilities", (0, 0), 1.5),
        ("probabilities", (0, 2), float("nan")),
        ("name", 0, -1),
        ("set", 0, 9),
    ],
)
def test_values_that_cannot_be_are_refused_in_a_restore(
    array: str, at: tuple[int, int] | int, value: float
) -> None:
    pairs = evaluation()
    pairs.predict(predicted(1))
    pairs.label(truth("i1", 1), 0)
    taken = pairs.snapshot()
    taken.changed[BLOB].arrays[f"chunk/{0:015d}/{array}"][at] = value
    with pytest.raises(SnapshotError):
        Evaluation.restore("j", 0, SMALL, taken.state, taken.changed)
