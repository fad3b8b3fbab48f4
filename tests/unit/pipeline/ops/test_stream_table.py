"""The table behind `dtgol watch`: copies count once, a re-score replaces, windows roll."""

from collections.abc import Sequence
from dataclasses import replace

from pipeline.cli.watch import _weights
from pipeline.kafka.record import Record
from pipeline.ops.stream_table import StreamTable, as_plain
from tests.support.messages import prediction, score
from topics.codec import write_prediction, write_score
from topics.dead_letters import DeadLetter, Redriven
from topics.headers import Header, write_headers
from topics.predictions import ExpertAnswer, Prediction
from topics.scores import Score

LETTER = DeadLetter("features", 0, 1, "not-json", "d")


def add(table: StreamTable, message: Prediction | Score) -> None:
    """A message as it comes from its topic; it must be read as what it is."""
    if isinstance(message, Prediction):
        found = table.add("predictions", record(write_prediction(message)))
    else:
        found = table.add("scores", record(write_score(message)))
    assert found == message


def record(value: bytes | None, headers: Sequence[Header] = ()) -> Record:
    return Record("any", 0, 0, 0, b"k", value, headers)


def test_a_stream_over_two_partitions_is_one_row() -> None:
    table = StreamTable()
    for offset in range(4):
        add(table, prediction(offset))
        add(table, prediction(offset, partition=1))
    (row,) = table.view().streams
    assert (row.records, row.predictions, row.labels_learnt) == (8, 8, 2)
    assert (row.unverified, row.partitions) == (6, 2)
    assert row.expert_weights == {"naive": 0.25, "paper": 0.75}
    assert row.total == (0, None, None)


def test_weights_are_averaged_over_partitions_that_may_know_other_experts() -> None:
    table = StreamTable()
    newer = {"paper": ExpertAnswer(0.8, 0.5), "linear": ExpertAnswer(0.9, 0.5)}
    add(table, prediction(0))
    add(table, replace(prediction(0, partition=1), experts=newer))
    (row,) = table.view().streams
    assert row.expert_weights == {"naive": 0.125, "paper": 0.625, "linear": 0.25}
    assert _weights(row.expert_weights) == "paper 0.62, linear 0.25, naive 0.12"
    assert _weights({"naive": 0.0, "paper": 1.0}) == "paper 1.00"


def test_copies_of_an_answer_and_repetitions() -> None:
    table = StreamTable()
    for offset in (0, 1, 0, 1, 2):
        add(table, prediction(offset))
    add(table, replace(prediction(3), step=1, repeat=True))
    (row,) = table.view().streams
    assert (row.predictions, row.records) == (4, 3)


def test_error_rates_of_all_and_of_the_last_window() -> None:
    table = StreamTable(window=2)
    for offset, correct in enumerate((False, False, True, True)):
        add(table, score(offset, correct, naive_correct=not correct))
    (row,) = table.view().streams
    assert row.total == (4, 0.5, 0.5)
    assert row.window == (2, 0.0, 1.0)


def test_a_corrected_label_replaces_the_score() -> None:
    table = StreamTable()
    add(table, score(0, correct=False))
    add(table, score(0, correct=False))
    add(table, replace(score(0, correct=True), rescored=True))
    (row,) = table.view().streams
    assert row.total == row.window == (1, 0.0, 0.0)


def test_a_score_of_a_label_that_was_corrected_since_is_left_out() -> None:
    table = StreamTable()
    add(table, replace(score(0, correct=True), label_offset=9))
    add(table, replace(score(0, correct=False), label_offset=5))  # a zombie's
    (row,) = table.view().streams
    assert row.total == row.window == (1, 0.0, 0.0)


def test_dead_letters_by_reason_and_what_cannot_be_read() -> None:
    table = StreamTable()
    assert table.add("dead-letters", record(b"{", write_headers(LETTER))) is None
    assert table.add("dead-letters", record(b"{")) is None
    assert table.add("predictions", record(b"{}")) is None
    assert table.add("scores", record(None)) is None
    plain = as_plain(table.view())
    assert plain["dead_letters"] == {"not-json": 1, "unreadable": 1}
    assert plain["unreadable"] == 2


def test_the_marker_of_a_redriven_letter_is_no_letter() -> None:
    table = StreamTable()
    table.add("dead-letters", record(b"{", write_headers(LETTER)))
    table.add("dead-letters", record(None, write_headers(Redriven("features", 0, 1, "0/9"))))
    assert table.view().dead_letters == {"not-json": 1}
