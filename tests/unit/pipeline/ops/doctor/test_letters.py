"""Dead letters against the records they are about."""

from pipeline.kafka.record import Record
from pipeline.ops.doctor.findings import Status
from pipeline.ops.doctor.letters import check_letters
from topics.dead_letters import DeadLetter
from topics.headers import write_headers


def features(offset: int) -> Record:
    return Record("features", 0, offset, 0, b"k", b"{}", ())


def letter(offset: int, reason: str = "kind-conflict") -> Record:
    headers = write_headers(DeadLetter("features", 0, offset, reason, "x"))
    return Record("dead-letters", 0, offset, 0, b"k", b'{"stream":"ward","id":"a"}', headers)


def test_a_share_of_the_sampled_records_is_a_problem_by_stream_and_reason() -> None:
    """Seen: 66 dead letters, and the doctor result healthy."""
    found = check_letters([letter(n) for n in range(66)], [features(n) for n in range(100)])
    assert found.status is Status.PROBLEM
    assert found.text == "66 of 100 sampled records (66.0%): ward kind-conflict 66"


def test_one_in_a_hundred_is_worth_knowing_and_old_ones_are_not_counted() -> None:
    sampled = [features(n) for n in range(100, 200)]
    assert check_letters([letter(n) for n in range(100)], sampled).status is Status.OK
    once = check_letters([letter(100), letter(100)], sampled)
    assert once.status is Status.NOTE
    assert once.text.startswith("1 of 100 sampled records")
