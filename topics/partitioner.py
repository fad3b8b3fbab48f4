"""The partition of a key: the partitioner of Kafka's Java clients, and of Faust.

librdkafka producers need ``partitioner=murmur2_random`` to agree. Used to check samples (the
doctor), not to send: producers have their own, which is faster.
"""

_MASK = 0xFFFFFFFF
_M = 0x5BD1E995
_SEED = 0x9747B28C


def murmur2(key: bytes) -> int:
    """MurmurHash2 of a key as Java's signed 32-bit number.

    >>> murmur2(b"foobar")
    -790332482
    """
    length = len(key)
    h = _SEED ^ length
    for start in range(0, length - 3, 4):
        k = int.from_bytes(key[start : start + 4], "little") * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        h = h * _M & _MASK ^ k
    tail = key[length & ~3 :]
    if tail:
        h = (h ^ int.from_bytes(tail, "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    h ^= h >> 15
    return h - 0x100000000 if h & 0x80000000 else h


def partition_for(key: bytes, partitions: int) -> int:
    """The partition of a key in a topic of so many partitions."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
