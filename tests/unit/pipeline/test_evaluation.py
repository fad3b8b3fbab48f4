"""The evaluation: scored once, scored again on a correction, the same whatever the order."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtgol_core.state import SnapshotError, digest
from pipeline.evaluation import Bounds, Evaluation
from topics.labels import Label
from topics.predictions import Identity, Prediction

SMALL = Bounds(pairs_max=1_000, labels_max=100, window_rows=10, windows_max=50)


def said(
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
        latent_weight=0.5,
        latent_persistent=p,
        latent_transient=p,
        original_persistent=p,
        original_transient=p,
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
    plain, blobs = of.snapshot()
    return plain, digest(blobs["pairs"])


def test_a_prediction_is_scored_when_its_label_comes() -> None:
    board = evaluation()
    assert board.predict(said(3)) == []
    (score,) = board.label(truth("i3", 1), 0)
    assert (score.id, score.y, score.at.offset, score.rescored) == ("i3", 1, 3, False)
    assert score.delay_ms == 5_000 - 1_003
    assert score.correct == (score.p > 0.5)
    assert board.boards["s"].summary().total.count == 1


def test_a_label_before_its_prediction_waits_for_it() -> None:
    board = evaluation()
    assert board.label(truth("i3", 0), 0) == []
    (score,) = board.predict(said(3))
    assert score.y == 0


def test_a_prediction_sent_again_is_not_scored_again() -> None:
    board = evaluation()
    board.predict(said(3))
    board.label(truth("i3", 1), 0)
    assert board.predict(said(3)) == []
    assert board.label(truth("i3", 1), 1) == []
    assert board.boards["s"].summary().total.count == 1


def test_a_correction_takes_the_first_score_back() -> None:
    board = evaluation()
    board.predict(said(3))
    board.label(truth("i3", 1), 0)
    (score,) = board.label(truth("i3", 0, 9_000), 1)
    assert (score.y, score.rescored, score.delay_ms) == (0, True, 9_000 - 1_003)
    total = board.boards["s"].summary().total
    assert (total.count, total.positives) == (1, 0)


def test_a_repeated_answer_is_not_scored() -> None:
    board = evaluation()
    board.predict(said(3))
    board.predict(said(9, "i3", repeat=True))
    assert len(board.label(truth("i3", 1), 0)) == 1


def test_predictions_of_another_journal_are_counted_and_ignored() -> None:
    board = evaluation()
    assert board.predict(said(3, journal="other")) == []
    assert board.counts["predictions/foreign"] == 1


def test_beyond_the_bound_the_oldest_is_forgotten_for_good() -> None:
    board = evaluation(Bounds(pairs_max=2, labels_max=2))
    for offset in range(4):
        board.predict(said(offset))
    assert sorted(board.said) == [2, 3]
    assert board.predict(said(1)) == []
    assert board.label(truth("i1", 1), 0) == []
    assert len(board.label(truth("i3", 1), 1)) == 1


def test_labels_without_predictions_are_bounded() -> None:
    board = evaluation(Bounds(pairs_max=2, labels_max=2))
    for offset in range(4):
        board.label(truth(f"i{offset}", 1), offset)
    assert sorted(key[1] for key in board.instances) == ["i2", "i3"]
    assert board.counts["labels/unmatched"] == 2


@given(st.integers(0, 2**32 - 1))
def test_the_state_does_not_depend_on_how_the_topics_interleave(seed: int) -> None:
    chance = random.Random(seed)
    predictions = [said(chance.randrange(30)) for _ in range(40)]
    labels = [(truth(f"i{chance.randrange(35)}", chance.randrange(2), n), n) for n in range(50)]

    def play(turns: list[bool]) -> Evaluation:
        board, left, right = evaluation(), iter(predictions), iter(labels)
        for turn in turns:
            if turn:
                board.predict(next(left))
            else:
                board.label(*next(right))
        return board

    turns = [True] * len(predictions) + [False] * len(labels)
    first = play(turns)
    chance.shuffle(turns)
    assert state(play(turns)) == state(first)


@given(st.integers(0, 2**32 - 1))
def test_no_topic_waits_for_one_that_waits_or_has_ended(seed: int) -> None:
    chance = random.Random(seed)
    board = evaluation(Bounds(pairs_max=chance.randrange(1, 9), labels_max=chance.randrange(9)))
    unread = {"predictions": chance.randrange(40), "labels": chance.randrange(40)}
    here = dict.fromkeys(unread, 0)
    while any(unread.values()) or any(here.values()):
        at_hand = {name: chance.randrange(9) for name, count in here.items() if count}
        name = board.turn(at_hand, lambda other: unread[other] > 0)
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
            board.predict(said(number))
        else:
            board.label(truth(f"i{number}", chance.randrange(2)), 40 - unread["labels"])


def test_the_earlier_record_goes_first_and_of_equals_the_prediction() -> None:
    def everything(_: str) -> bool:
        return True

    board = evaluation()
    assert board.turn({}, everything) is None
    assert board.turn({"labels": 5}, everything) == "labels"
    assert board.turn({"predictions": 6, "labels": 5}, everything) == "labels"
    assert board.turn({"predictions": 5, "labels": 5}, everything) == "predictions"


def test_what_is_far_ahead_lets_the_other_topic_go_first() -> None:
    board = evaluation(Bounds(pairs_max=4, labels_max=2))
    board.label(truth("i0", 1), 0)
    board.label(truth("i1", 1), 1)
    assert board.turn({"predictions": 9, "labels": 1}, bool) == "predictions"
    for offset in (5, 6, 7):
        board.predict(said(offset))
    assert board.turn({"predictions": 9, "labels": 1}, bool) == "labels"  # both are: as it happened
    board.predict(said(1))
    assert board.turn({"predictions": 1, "labels": 9}, bool) == "labels"


@given(st.integers(0, 2**32 - 1))
def test_a_restore_goes_on_to_the_same_state(seed: int) -> None:
    chance = random.Random(seed)
    bounds = Bounds(pairs_max=12, labels_max=5, window_rows=5, windows_max=3)
    board, twin = evaluation(bounds), evaluation(bounds)
    for offset in range(60):
        if chance.random() < 0.5:
            outputs = [each.predict(said(offset)) for each in (board, twin)]
        else:
            label = truth(f"i{chance.randrange(60)}", chance.randrange(2), offset)
            outputs = [each.label(label, offset) for each in (board, twin)]
        assert outputs[0] == outputs[1]
        plain, blobs = twin.snapshot()
        twin = Evaluation.restore("j", 0, bounds, plain, blobs)
        assert state(twin) == state(board)
        at_hand = {"predictions": chance.randrange(2), "labels": chance.randrange(2)}
        assert twin.turn(at_hand, lambda _: True) == board.turn(at_hand, lambda _: True)


def test_a_damaged_state_is_refused() -> None:
    plain, blobs = evaluation().snapshot()
    with pytest.raises(SnapshotError):
        Evaluation.restore("j", 0, SMALL, plain | {"version": 99}, blobs)
    del blobs["pairs"].arrays["truth"]
    with pytest.raises(SnapshotError):
        Evaluation.restore("j", 0, SMALL, plain, blobs)
