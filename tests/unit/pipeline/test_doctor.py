"""What the doctor concludes from what it sees; the seeing is tested with a broker."""

import socket
import struct
import threading

import pytest

from pipeline.doctor import clocks
from pipeline.doctor.findings import Status, fine, problem, verdict
from pipeline.doctor.keys import Sampled, judge_meeting, judge_partitioner, sample
from pipeline.doctor.versions import NEEDED, Spoken, ask_versions, judge_versions
from topics.partitioner import partition_for

ENOUGH = {key: Spoken(0, high + 3) for key, (_, high) in NEEDED.items()}


def at(partition: int, key: bytes = b"k", id: str = "1") -> Sampled:
    return Sampled(partition, key, ("s", id))


def test_keys_in_their_places_are_fine_and_others_are_not() -> None:
    keys = [f"key-{n}".encode() for n in range(20)]
    right = [at(partition_for(key, 4), key) for key in keys]
    wrong = [each._replace(partition=(each.partition + 1) % 4) for each in right[:3]]
    good, bad, none = judge_partitioner({"features": right, "labels": wrong, "x": []}, 4)
    assert good.status is Status.OK
    assert bad.status is Status.PROBLEM
    assert "3 of 3" in bad.said
    assert "murmur2_random" in bad.advice
    assert none.status is Status.NOTE


def test_labels_in_another_partition_than_their_features() -> None:
    features = [at(0, b"a", "1"), at(1, b"b", "2")]
    met = judge_meeting(features, [at(0, b"a", "1"), at(3, b"z", "unknown")])
    assert (met.status, met.said[:1]) == (Status.OK, "1")
    other_key = judge_meeting(features, [at(2, b"c", "1")])
    assert other_key.status is Status.PROBLEM
    assert "under the key of its features" in other_key.advice
    other_partitioner = judge_meeting(features, [at(2, b"a", "1")])
    assert "partitioner" in other_partitioner.advice
    assert judge_meeting([], []).status is Status.NOTE


def test_of_a_record_only_stream_and_id_are_taken() -> None:
    assert sample(1, b"k", b'{"id": 7, "x": {"secret": 1}}') == (1, b"k", ("default", "7"))
    assert sample(1, None, b"not json") == (1, None, None)


def test_a_broker_with_all_requests_is_fine() -> None:
    finding = judge_versions(ENOUGH | {1: Spoken(4, 18)})
    assert finding.status is Status.OK
    assert "4.1 or newer" in finding.said


@pytest.mark.parametrize("change", [{1: Spoken(12, 20)}, {0: Spoken(0, 2)}])
def test_a_broker_too_new_or_too_old_is_a_problem(change: dict[int, Spoken]) -> None:
    assert judge_versions(ENOUGH | change).status is Status.PROBLEM


def test_a_broker_without_idempotence_is_a_problem() -> None:
    without = {key: spoken for key, spoken in ENOUGH.items() if key != 22}
    assert "InitProducerId not at all" in judge_versions(without).said


def test_an_old_broker_is_worth_a_note() -> None:
    assert judge_versions(ENOUGH | {1: Spoken(0, 11)}).status is Status.NOTE


def answering(answer: bytes) -> int:
    """A server for one connection that answers anything with these bytes; its port."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with server:
            connection, _ = server.accept()
            with connection:
                connection.recv(1024)
                connection.sendall(answer)

    threading.Thread(target=serve, daemon=True).start()
    port: int = server.getsockname()[1]
    return port


def test_the_answer_of_a_broker_is_understood() -> None:
    body = struct.pack(">ihi", 1, 0, 2) + struct.pack(">hhhhhh", 0, 3, 12, 1, 4, 18)
    port = answering(struct.pack(">i", len(body)) + body)
    assert ask_versions("127.0.0.1", port) == {0: (3, 12), 1: (4, 18)}


@pytest.mark.parametrize(
    "answer",
    [b"", b"HTTP/1.1 400 Bad Request\r\n", struct.pack(">iihi", 10, 1, 35, 0), b"\0\0\0\x0a123"],
)
def test_something_else_than_a_broker_is_said_so(answer: bytes) -> None:
    with pytest.raises(OSError, match=r"broker|refused"):
        ask_versions("127.0.0.1", answering(answer))


def test_a_record_from_the_future_means_a_clock_is_wrong() -> None:
    assert clocks.judge_broker([1_000, 5_000], 4_500).status is Status.OK
    assert clocks.judge_broker([9_000], 4_500).status is Status.PROBLEM
    assert clocks.judge_broker([], 0).status is Status.NOTE


def test_the_verdict_names_the_first_thing_to_do() -> None:
    assert verdict([fine("a", "b")]) == "healthy: nothing to do"
    said = verdict([fine("a", "b"), problem("c", "d", "do this"), problem("e", "f", "that")])
    assert said == "2 problems; begin with: do this"
