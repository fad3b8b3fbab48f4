"""Whether keys and labels are where they belong, from samples."""

from pipeline.kafka.record import Record
from pipeline.ops.doctor.findings import Status
from pipeline.ops.doctor.keys import KeySample, check_join, check_partitioner, sample
from topics.partitioner import partition_for


def at(partition: int, key: bytes = b"k", id: str = "1") -> KeySample:
    return KeySample(partition, key, ("s", id))


def test_keys_in_their_places_are_fine_and_others_are_not() -> None:
    keys = [f"key-{n}".encode() for n in range(20)]
    right = [at(partition_for(key, 4), key) for key in keys]
    wrong = [each._replace(partition=(each.partition + 1) % 4) for each in right[:3]]
    good, bad, none = check_partitioner({"features": right, "labels": wrong, "x": []}, 4)
    assert good.status is Status.OK
    assert bad.status is Status.PROBLEM
    assert "3 of 3" in bad.text
    assert "murmur2_random" in bad.advice
    assert none.status is Status.NOTE


def test_labels_in_another_partition_than_their_features() -> None:
    features = [at(0, b"a", "1"), at(1, b"b", "2")]
    met = check_join(features, [at(0, b"a", "1"), at(3, b"z", "unknown")])
    assert (met.status, met.text[:1]) == (Status.OK, "1")
    other_key = check_join(features, [at(2, b"c", "1")])
    assert other_key.status is Status.PROBLEM
    assert "under the key of its features" in other_key.advice
    other_partitioner = check_join(features, [at(2, b"a", "1")])
    assert "partitioner" in other_partitioner.advice
    assert check_join([], []).status is Status.NOTE


def test_of_a_record_only_stream_and_id_are_taken() -> None:
    good = Record("features", 1, 0, 0, b"k", b'{"id": 7, "x": {"secret": 1}}')
    assert sample(good) == (1, b"k", ("default", "7"))
    assert sample(good._replace(key=None, value=b"not json")) == (1, None, None)
