"""The table behind `dtgol watch`: copies count once, a re-score replaces, windows roll."""

from dataclasses import replace

from pipeline.operators.board import Board, as_plain
from topics.codec import write_prediction, write_score
from topics.predictions import Identity, Prediction
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
        latent_weight=0.25,
        latent_persistent=0.5,
        latent_transient=0.5,
        original_persistent=0.5,
        original_transient=0.5,
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


def test_a_stream_over_two_partitions_is_one_row() -> None:
    board = Board()
    for offset in range(4):
        board.predicted(write_prediction(prediction(offset)))
        board.predicted(write_prediction(prediction(offset, partition=1)))
    (row,) = board.view().streams
    assert (row.records, row.predictions, row.labels_learnt) == (8, 8, 2)
    assert (row.unverified, row.partitions, row.alpha) == (6, 2, 0.25)
    assert row.total == (0, None, None)


def test_copies_of_an_answer_and_repetitions() -> None:
    board = Board()
    for offset in (0, 1, 0, 1, 2):
        board.predicted(write_prediction(prediction(offset)))
    board.predicted(write_prediction(replace(prediction(3), step=1, repeat=True)))
    (row,) = board.view().streams
    assert (row.predictions, row.records) == (4, 3)


def test_error_rates_of_all_and_of_the_last_window() -> None:
    board = Board(window=2)
    for offset, correct in enumerate((False, False, True, True)):
        board.scored(write_score(score(offset, correct, naive_correct=not correct)))
    (row,) = board.view().streams
    assert row.total == (4, 0.5, 0.5)
    assert row.window == (2, 0.0, 1.0)


def test_a_corrected_label_replaces_the_score() -> None:
    board = Board()
    board.scored(write_score(score(0, correct=False)))
    board.scored(write_score(score(0, correct=False)))
    board.scored(write_score(replace(score(0, correct=True), rescored=True)))
    (row,) = board.view().streams
    assert row.total == row.window == (1, 0.0, 0.0)


def test_a_score_of_a_label_that_was_corrected_since_is_left_out() -> None:
    board = Board()
    board.scored(write_score(replace(score(0, correct=True), label_offset=9)))
    board.scored(write_score(replace(score(0, correct=False), label_offset=5)))  # a zombie's
    (row,) = board.view().streams
    assert row.total == row.window == (1, 0.0, 0.0)


def test_dead_letters_by_reason_and_what_cannot_be_read() -> None:
    board = Board()
    headers = [
        ("dtgol-topic", b"features"),
        ("dtgol-partition", b"0"),
        ("dtgol-offset", b"1"),
        ("dtgol-reason", b"not-json"),
        ("dtgol-detail", b"d"),
    ]
    board.refused(headers)  # type: ignore[arg-type]
    board.refused([])
    assert board.predicted(b"{}") is None
    assert board.scored(None) is None
    plain = as_plain(board.view())
    assert plain["dead_letters"] == {"not-json": 1, "unreadable": 1}
    assert plain["unreadable"] == 2
