"""murmur2 against the vectors of Kafka's own tests (clients: UtilsTest.testMurmur2)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.partitioner import murmur2, partition_for

VECTORS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("key", "expected"), VECTORS.items())
def test_hash_is_javas(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected


@given(st.binary(), st.integers(1, 1000))
def test_partition_exists(key: bytes, partitions: int) -> None:
    assert 0 <= partition_for(key, partitions) < partitions


def test_negative_hash_loses_its_sign_as_in_java() -> None:
    assert partition_for(b"foobar", 4) == (-790332482 & 0x7FFFFFFF) % 4
